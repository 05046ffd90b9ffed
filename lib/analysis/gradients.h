#pragma once

// How gradients compare: the subnetworks' with the full model's, layer by layer (SDP paper, Figure 2), and a
// unit's average over its owners with that over all workers.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <limits>
#include <map>
#include <vector>

#include "subnet/slot_map.h"

namespace sdp {

/// <a, b>, |a|, and <a, b> / (|a| |b|) of flat tensors of equal length, summed in fp64. The cosine is NaN if
/// one of them is zero.
double inner_product(const at::Tensor& a, const at::Tensor& b);
double norm_of(const at::Tensor& values);
double cosine_between(const at::Tensor& a, const at::Tensor& b);

/// Statistics of several values, such as those of batches. NaN values are ignored.
struct Spread {
  double mean = std::numeric_limits<double>::quiet_NaN();  ///< NaN if there are no values
  /// Sample standard deviation; NaN for a single value.
  double deviation = std::numeric_limits<double>::quiet_NaN();
};
Spread spread_of(const std::vector<double>& values);

/// One worker's gradient of a layer compared with the full model's, both on the slices that the worker owns.
struct LayerGradients {
  int depth = 0;  ///< index of the layer among the weights of the model, from 0
  int worker = 0;
  // Statistics over the batches.
  Spread cosine = {};  ///< undefined if a gradient was zero
  Spread norm = {};    ///< of the subnetwork's gradient
  Spread full_norm = {};
  int64_t elements = 0;  ///< number of elements that the worker owns
};

/// By depth: the mean of a quantity over the workers that own part of the layer; NaN if it is NaN of all.
std::map<int, double> means_over_workers(const std::vector<LayerGradients>& layers,
                                         Spread LayerGradients::*figure);

// Deviation of the averaged gradient of a unit from the one that data parallelism would use.
//
// A unit with p owners S out of n workers, whose gradients g_1..g_n have the mean gbar, is updated with ghat
// = (1/p) sum_{k in S} g_k. Then ghat - gbar = sum_k w_k g_k with w_k = 1/p - 1/n for owners and -1/n for
// others. The w_k sum to 0, so g_k may be replaced by g_k - gbar, and |w|^2 = 1/p - 1/n = (1 - C)/p.
// Cauchy-Schwarz gives
//     |ghat - gbar|^2 <= ((1 - C)/p) sum_k |g_k - gbar|^2
// for any gradients and any owner set. Equality holds if g_k - gbar is proportional to w_k: all owners have
// the same gradient, and so have all others. For independent normal gradients, the mean ratio of the two
// sides is 1/(n - 1), as w is one of n - 1 equivalent directions.

struct Deviation {
  double squared = 0;  ///< |ghat - gbar|^2
  double bound = 0;    ///< ((1 - C)/p) sum_k |g_k - gbar|^2

  /// squared / bound; NaN if the bound is 0, as at full coverage.
  double ratio() const;
};

/// The deviation of one unit, accumulated over one gradient after another; only two sums are stored.
class DeviationSum {
 public:
  DeviationSum(MemberSet owners, int workers);

  /// Adds the gradients of the next worker, beginning with worker 0; flat and of equal length. `gradient`
  /// counts toward gbar and the bound. `owned`, the worker's contribution to the average, counts toward ghat;
  /// it is ignored unless the worker is an owner. Under backward masking both are the same gradient. Under
  /// forward masking a worker without the unit has no gradient for it, so `gradient` is the full model's on
  /// the worker's batch; then the bound need not hold.
  void add(const at::Tensor& gradient, const at::Tensor& owned);
  /// The deviation over all n workers. Throws std::logic_error before all of them are added.
  Deviation result() const;

 private:
  MemberSet owners_;
  int workers_;
  int added_ = 0;
  at::Tensor mean_;        ///< of the gradients added so far
  at::Tensor owners_sum_;  ///< of the owners' gradients added so far
  double spread_ = 0;      ///< sum_k |g_k - mean_|^2 so far (Welford 1962)
};

}  // namespace sdp
