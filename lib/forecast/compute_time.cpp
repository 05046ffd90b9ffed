#include "forecast/compute_time.h"

#include <algorithm>
#include <cmath>

namespace sdp {

double product_s(const DeviceProfile& device, double m, double k, double n, double count) {
  const auto side = static_cast<double>(device.tile_side);
  const double rows = std::ceil(m / side);
  const double columns = std::ceil(n / side);
  // Below about a thousand terms, dividing the sum does not pay off.
  constexpr double kFewestTerms = 1024;
  const double parts = rows * columns * count * std::max(1.0, std::floor(k / kFewestTerms));
  const double busy = std::min(1.0, parts / static_cast<double>(device.tiles_at_once));
  return 2 * rows * side * columns * side * k * count / (device.flops_per_s * busy);
}

CallTimes estimated_times(const DeviceProfile& device) {
  return [device](const CapturedCall& call, double samples) {
    double products_s = 0;
    for (const Product& p : call.products)
      products_s += p.computed *
                    product_s(device, p.m.of(samples), p.k.of(samples), p.n.of(samples), p.count.of(samples));
    return device.launch_s + std::max(products_s, call.bytes.of(samples) / device.memory_bytes_per_s);
  };
}

ComputeTime& ComputeTime::operator+=(const ComputeTime& other) {
  forward_s += other.forward_s;
  backward_s += other.backward_s;
  return *this;
}

double ComputeTimes::seconds_of(const PassCapture& pass, double samples) const {
  double seconds = 0;
  for (const CapturedCall& call : pass.calls)
    seconds += of_call_(call, samples);
  return seconds;
}

ComputeTime ComputeTimes::of(int worker, int64_t samples) {
  const StepCapture capture = captures_.of(worker);
  ComputeTime time;
  for (size_t s = 0; s < capture.segments.size(); ++s) {
    const PlacedSegment& segment = capture.segments[s];
    const auto [found, is_new] = of_segment_.try_emplace({segment.capture, samples});
    if (is_new) {
      const auto all = static_cast<double>(samples);
      // A language model's loss is computed for some rows after others.
      const bool is_loss = s + 1 == capture.segments.size();
      const double at_once = is_loss ? std::min(all, capture.samples_at_once) : all;
      found->second = {.forward_s = all / at_once * seconds_of(segment->forward, at_once),
                       .backward_s = seconds_of(segment->backward, all)};
    }
    time += found->second;
  }
  return time;
}

}  // namespace sdp
