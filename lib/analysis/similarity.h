#pragma once

// How well the gradients of subnetworks point where the full model's does, and how long they are, layer by
// layer (SDP paper, Figure 2).

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <limits>
#include <vector>

namespace sdp {

/// <a, b> / (|a| |b|) of two flat tensors of equal length, summed in fp64. NaN where one of them is zero.
double cosine_between(const at::Tensor& a, const at::Tensor& b);

/// Of several values, such as those of batches. NaN does not count.
struct Spread {
  double mean = std::numeric_limits<double>::quiet_NaN();       ///< NaN of none
  double deviation = std::numeric_limits<double>::quiet_NaN();  ///< sample standard deviation; NaN of one
};
Spread spread_of(const std::vector<double>& values);

/// One worker's gradient of a layer beside the full model's, both on the slices that the worker owns.
struct LayerGradients {
  int depth = 0;  ///< of the layer: its place among the weights of the model, from 0
  int worker = 0;
  // Over the batches.
  Spread cosine = {};  ///< where a gradient was zero there is none
  Spread norm = {};    ///< of the subnetwork's gradient
  Spread full_norm = {};
  int64_t elements = 0;  ///< that the worker owns
};

/// One figure of LayerGradients over the workers that own some of the layer. A mean that is NaN does not
/// count; all are NaN where none counts.
struct LayerSummary {
  int depth = 0;
  double mean = 0;
  double min = 0;
  double max = 0;
  double deviation = 0;  ///< standard deviation, of the workers and not of a sample of them
};

/// One for each layer that occurs, in order of depth.
std::vector<LayerSummary> summarize(const std::vector<LayerGradients>& layers,
                                    Spread LayerGradients::*figure);

}  // namespace sdp
