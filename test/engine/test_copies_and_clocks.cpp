#include <ATen/ATen.h>
#include <sys/resource.h>

#include <chrono>
#include <thread>

#include "catch.h"
#include "engine/clocks.h"
#include "engine/device.h"
#include "engine/flat_copies.h"
#include "test_device.h"

namespace sdp {
namespace {

using namespace std::chrono_literals;

double ms_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

TEST_CASE("each part of a step gets its time, and time between parts counts for none") {
  StepClock clock(test_device());
  const auto total = [&](StepPart part) { return clock.total_ms(part); };
  const auto begin = std::chrono::steady_clock::now();
  for (int pass = 0; pass < 2; ++pass) {
    clock.enter(StepPart::kForward);
    std::this_thread::sleep_for(20ms);
    clock.enter(StepPart::kBackward);
    std::this_thread::sleep_for(40ms);
    clock.enter(std::nullopt);
    std::this_thread::sleep_for(80ms);
  }
  synchronize(test_device());
  constexpr double kSlack = 1;  // a GPU may pass the first event slightly late
  CHECK(total(StepPart::kForward) > 40 - kSlack);
  CHECK(total(StepPart::kBackward) > 80 - kSlack);
  CHECK(total(StepPart::kOptimizer) == 0);
  CHECK(total(StepPart::kForward) + total(StepPart::kBackward) < ms_since(begin) - 160 + kSlack);
}

TEST_CASE("the peak of a process's memory is the kernel's", "[memory]") {
  rusage usage = {};
  REQUIRE(getrusage(RUSAGE_SELF, &usage) == 0);
  CHECK(static_cast<double>(peak_process_memory_bytes(c10::kCPU)) ==
        Approx(1024.0 * static_cast<double>(usage.ru_maxrss)).epsilon(0.1));
}

TEST_CASE(
    "contiguous copies are one launch per pair of types, strided ones one each, with the values of plain "
    "copies") {
  const std::vector<at::ScalarType> types = {at::kFloat, at::kBFloat16, at::kDouble};
  const at::TensorOptions doubles = at::TensorOptions(at::kDouble).device(test_device());
  FlatCopies copies;
  CHECK(copies.launches() == 0);
  copies.run();
  std::vector<std::pair<at::Tensor, at::Tensor>> expected;
  size_t strided = 0;
  for (int64_t rows : {1, 5})
    for (int64_t size = 1; size <= 3; ++size)
      for (const at::ScalarType to : types)
        for (const at::ScalarType from : types) {
          const at::Tensor source = at::randn({rows, size}, doubles).to(from);
          // Strided, but for a single row, whose stride is that of the wider tensor.
          const at::Tensor target = at::zeros({rows, size + 1}, doubles.dtype(to)).narrow(1, 0, size);
          strided += rows > 1;
          copies.add(target, source);
          expected.emplace_back(target, source.to(to));
        }
  CHECK(copies.launches() == types.size() * types.size() + strided);
  copies.run();
  for (const auto& [copied, plain] : expected)
    CHECK(at::equal(copied, plain));
}

}  // namespace sdp
