#include "device/product_rate.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <limits>

#include "device/device.h"

namespace sdp {

double fastest_s(at::Device device, const std::function<void()>& run) {
  constexpr int kTimes = 3;
  double fastest = std::numeric_limits<double>::infinity();
  for (int i = 0; i <= kTimes; ++i) {
    synchronize(device);
    const auto began = std::chrono::steady_clock::now();
    run();
    synchronize(device);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    if (i > 0) fastest = std::min(fastest, seconds);
  }
  return fastest;
}

double product_rate(const at::TensorOptions& options) {
  constexpr int64_t kLargestSide = 8192;
  for (int64_t side = 512;; side *= 2) {
    const at::Tensor a = at::randn({side, side}, options);
    at::Tensor product = at::empty({side, side}, options);
    const double seconds = fastest_s(options.device(), [&] { at::mm_out(product, a, a); });
    const auto length = static_cast<double>(side);
    if (seconds >= kEnoughSeconds || side == kLargestSide) return 2 * length * length * length / seconds;
  }
}

}  // namespace sdp
