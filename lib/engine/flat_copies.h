#pragma once

// Many copies in few launches. Internal to engine/.

#include <ATen/ATen.h>

#include <map>
#include <tuple>
#include <utility>
#include <vector>

namespace sdp {

/// Collects copies. Those between contiguous tensors run in one launch per pair of types; on CUDA each other
/// one is a launch of its own (a unit's columns of a matrix, in neuron construction). LibTorch's multi-tensor
/// kernel needs equal strides, and copies tensor by tensor if a single pair has others or another type.
/// Before version 2.11 it copied wrong values if types were mixed
/// (https://github.com/pytorch/pytorch/pull/173531).
class FlatCopies {
 public:
  /// The tensors have one shape; types are converted.
  void add(at::Tensor to, at::Tensor from) {
    const bool is_flat = to.is_contiguous() && from.is_contiguous();
    Launch& launch = launches_[{to.scalar_type(), from.scalar_type(), is_flat}];
    // Strides of dimensions of size 1 can differ even between contiguous tensors.
    launch.to.push_back(is_flat && to.dim() != 1 ? to.view({-1}) : std::move(to));
    launch.from.push_back(is_flat && from.dim() != 1 ? from.view({-1}) : std::move(from));
  }
  void run() const {
    for (const auto& [kind, launch] : launches_)
      at::_foreach_copy_(launch.to, launch.from);
  }
  /// On CUDA.
  size_t launches() const {
    size_t count = 0;
    for (const auto& [kind, launch] : launches_)
      count += std::get<2>(kind) ? 1 : launch.to.size();
    return count;
  }

 private:
  struct Launch {
    std::vector<at::Tensor> to;
    std::vector<at::Tensor> from;
  };
  std::map<std::tuple<at::ScalarType, at::ScalarType, bool>, Launch> launches_;  ///< by types and is_flat
};

}  // namespace sdp
