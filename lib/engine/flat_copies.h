#pragma once

// Copies between flat ranges, with one multi-tensor launch for many copies. Internal to engine/.

#include <ATen/ATen.h>

#include <map>
#include <utility>
#include <vector>

namespace sdp {

/// Divides a flat buffer into consecutive ranges.
class Cursor {
 public:
  explicit Cursor(at::Tensor buffer) : buffer_(std::move(buffer)) {}
  at::Tensor next(int64_t elements) {
    at::Tensor range = buffer_.narrow(0, at_, elements);
    at_ += elements;
    return range;
  }

 private:
  at::Tensor buffer_;
  int64_t at_ = 0;
};

/// Collects copies and runs them with one launch per pair of types. If a launch mixed types, LibTorch would
/// copy tensor by tensor on CUDA, and before version 2.11 copy wrong values
/// (https://github.com/pytorch/pytorch/pull/173531).
class FlatCopies {
 public:
  /// The tensors have one shape; types are converted.
  void add(at::Tensor to, at::Tensor from) {
    Launch& launch = launches_[{to.scalar_type(), from.scalar_type()}];
    launch.to.push_back(std::move(to));
    launch.from.push_back(std::move(from));
  }
  void run() const {
    for (const auto& [types, launch] : launches_)
      at::_foreach_copy_(launch.to, launch.from);
  }
  size_t launches() const { return launches_.size(); }

 private:
  struct Launch {
    std::vector<at::Tensor> to;
    std::vector<at::Tensor> from;
  };
  std::map<std::pair<at::ScalarType, at::ScalarType>, Launch> launches_;
};

}  // namespace sdp
