#pragma once

#include <cstdint>

namespace sdp {

struct ImageShape {
  int64_t channels;
  int64_t height;
  int64_t width;

  int64_t numel() const { return channels * height * width; }
  bool operator==(const ImageShape&) const = default;
};

}  // namespace sdp
