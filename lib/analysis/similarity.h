#pragma once

// How well the gradients of subnetworks point where the full model's does, layer by layer (SDP paper,
// Figure 2).

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace sdp {

/// <a, b> / (|a| |b|) of two flat tensors of equal length, summed in fp64. NaN where one of them is zero.
double cosine_between(const at::Tensor& a, const at::Tensor& b);

/// One worker's gradient of a layer beside the full model's, both on the slices that the worker owns.
struct LayerCosine {
  int depth = 0;  ///< of the layer: its place among the weights of the model, from 0
  int worker = 0;
  double cosine = 0;     ///< NaN where a gradient was zero
  int64_t elements = 0;  ///< that the worker owns
};

/// Over the workers that own some of the layer. A cosine that is NaN does not count; all are NaN where none
/// counts.
struct LayerSimilarity {
  int depth = 0;
  double mean = 0;
  double min = 0;
  double max = 0;
  double deviation = 0;  ///< standard deviation, of the workers and not of a sample of them
};

/// One for each layer that occurs, in order of depth.
std::vector<LayerSimilarity> summarize(const std::vector<LayerCosine>& cosines);

}  // namespace sdp
