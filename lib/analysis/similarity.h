#pragma once

// Direction and norm of the subnetworks' gradients compared with the full model's, layer by layer (SDP paper,
// Figure 2).

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <limits>
#include <map>
#include <vector>

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

}  // namespace sdp
