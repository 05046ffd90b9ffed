#pragma once

// How far the averaged gradient of a unit is from the one that data parallelism would use.
//
// A unit with p owners S out of n workers, whose gradients g_1..g_n have the mean gbar, is updated with
// ghat = (1/p) sum_{k in S} g_k. Then ghat - gbar = sum_k w_k g_k with w_k = 1/p - 1/n for owners and -1/n
// for others. These sum to 0, so that g_k may be replaced by g_k - gbar, and |w|^2 = 1/p - 1/n = (1 - C)/p;
// Cauchy-Schwarz gives
//     |ghat - gbar|^2 <= ((1 - C)/p) sum_k |g_k - gbar|^2
// for any gradients and any owner set, with equality where g_k - gbar is proportional to w_k: all owners have
// one gradient and all others another. For gradients that are independent and normal the mean of the ratio of
// both sides is 1/(n - 1), as w is one direction of n - 1 that are alike.

#include <ATen/core/Tensor.h>

#include "subnet/owner_set.h"

namespace sdp {

struct Deviation {
  double squared = 0;  ///< |ghat - gbar|^2
  double bound = 0;    ///< ((1 - C)/p) sum_k |g_k - gbar|^2

  /// squared / bound; NaN where the bound is 0, as it is at full coverage.
  double ratio() const;
};

/// The deviation of one unit from gradients that come one after another, of which only two sums are kept.
class DeviationSum {
 public:
  DeviationSum(OwnerSet owners, int workers);

  /// Of the next worker, from 0 on, flat and of equal length: `gradient` counts for gbar and the bound, and
  /// `owned`, what the worker gives to the average, for ghat; the latter is not looked at unless the worker
  /// is an owner. Under backward masking both are the same gradient. Under forward masking a worker without
  /// the unit has no gradient of it, so `gradient` is the full model's on the worker's batch; then the bound
  /// need not hold.
  void add(const at::Tensor& gradient, const at::Tensor& owned);
  /// Of all n workers; std::logic_error before all of them were added.
  Deviation result() const;

 private:
  OwnerSet owners_;
  int workers_;
  int added_ = 0;
  at::Tensor mean_;        ///< of the gradients so far
  at::Tensor owners_sum_;  ///< of what owners gave so far
  double spread_ = 0;      ///< sum_k |g_k - mean_|^2 so far (Welford 1962)
};

}  // namespace sdp
