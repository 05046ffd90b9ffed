#pragma once

// Copies between flat ranges, one multi-tensor launch for many of them. Internal to engine/.

#include <ATen/ATen.h>

#include <vector>

namespace sdp {

/// Walks a flat buffer in consecutive ranges.
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

class FlatCopies {
 public:
  /// Of one shape; types are converted.
  void add(at::Tensor to, at::Tensor from) {
    to_.push_back(std::move(to));
    from_.push_back(std::move(from));
  }
  void run() const {
    if (!to_.empty()) at::_foreach_copy_(to_, from_);
  }

 private:
  std::vector<at::Tensor> to_;
  std::vector<at::Tensor> from_;
};

}  // namespace sdp
