#include <c10/core/Allocator.h>
#include <c10/core/impl/alloc_cpu.h>
#include <torch/torch.h>

#include <thread>
#include <vector>

#include "catch.h"
#include "process/allocations.h"
#include "test_device.h"

namespace sdp {
namespace {

constexpr int64_t kMega = 1 << 20;

at::Tensor megabytes(int64_t count) {
  return at::empty({count * kMega}, at::TensorOptions(at::kByte).device(test_device()));
}

/// The increase of a kind since construction.
class Difference {
 public:
  Difference() : before_(allocated_now()) {}
  int64_t now(MemoryKind kind) const { return allocated_now()[kind] - before_[kind]; }

 private:
  MemoryByKind before_;
};

TEST_CASE("allocations are counted by kind from the first to the last byte") {
  count_allocations(test_device());
  count_allocations(test_device());  // does nothing
  const Difference difference;
  at::Tensor activations = megabytes(3);
  CHECK(difference.now(MemoryKind::kActivations) == 3 * kMega);
  at::Tensor weights, buckets;
  {
    const MemoryScope outer(MemoryKind::kWeights);
    weights = megabytes(2);
    {
      const MemoryScope inner(MemoryKind::kBuckets);
      buckets = megabytes(5);
    }
    weights = at::cat({weights, weights});
  }
  CHECK(difference.now(MemoryKind::kWeights) == 4 * kMega);
  CHECK(difference.now(MemoryKind::kBuckets) == 5 * kMega);
  CHECK(difference.now(MemoryKind::kActivations) == 3 * kMega);

  assign_kind(activations, MemoryKind::kGradients);
  CHECK(difference.now(MemoryKind::kActivations) == 0);
  CHECK(difference.now(MemoryKind::kGradients) == 3 * kMega);
  const at::Tensor view = activations.view({3, kMega})[1];
  activations = at::Tensor();
  CHECK(difference.now(MemoryKind::kGradients) == 3 * kMega);
  assign_kind(view, MemoryKind::kOptimizer);  // through its storage
  CHECK(difference.now(MemoryKind::kOptimizer) == 3 * kMega);
  assign_kind(at::Tensor(), MemoryKind::kOptimizer);
}

TEST_CASE("the peak is that of all kinds together") {
  count_allocations(test_device());
  const at::Tensor stays = megabytes(1);
  reset_peak();
  const int64_t before = allocated_now().total();
  CHECK(allocated_at_peak().total() == before);
  {
    const MemoryScope scope(MemoryKind::kBuckets);
    const at::Tensor most = megabytes(6);
  }
  {
    const MemoryScope scope(MemoryKind::kGradients);
    const at::Tensor less = megabytes(4);
  }
  const MemoryByKind peak = allocated_at_peak();
  CHECK(peak.total() == before + 6 * kMega);
  CHECK(peak[MemoryKind::kBuckets] - allocated_now()[MemoryKind::kBuckets] == 6 * kMega);
  CHECK(peak[MemoryKind::kGradients] == allocated_now()[MemoryKind::kGradients]);
  CHECK(allocated_now().total() == before);
  reset_peak();
  CHECK(allocated_at_peak().total() == before);
}

TEST_CASE("memory may be freed in another thread, and each thread has its own scopes") {
  count_allocations(test_device());
  const Difference difference;
  const MemoryScope scope(MemoryKind::kWeights);
  at::Tensor tensor = megabytes(2);
  CHECK(difference.now(MemoryKind::kWeights) == 2 * kMega);
  std::thread([&] {
    tensor = at::Tensor();
    tensor = megabytes(1);
  }).join();
  CHECK(difference.now(MemoryKind::kWeights) == 0);
  CHECK(difference.now(MemoryKind::kActivations) == kMega);
}

TEST_CASE("a block freed behind the allocator's back is not counted beside the next one at its address") {
  if (!test_device().is_cpu()) return;
  count_allocations(at::kCPU);
  int found = 0;
  for (const int64_t bytes : {40'000, 72'000, 100'000}) {
    const Difference difference;
    void* const lost = c10::GetAllocator(c10::kCPU)->allocate(static_cast<size_t>(bytes)).release_context();
    c10::free_cpu(lost);
    std::vector<at::Tensor> blocks;
    while (blocks.empty() || (blocks.back().data_ptr() != lost && blocks.size() < 1000))
      blocks.push_back(at::empty({bytes}, at::TensorOptions(at::kByte)));
    if (blocks.back().data_ptr() != lost) {
      leave_out(lost);
      continue;
    }
    ++found;
    CHECK(difference.now(MemoryKind::kActivations) == bytes * static_cast<int64_t>(blocks.size()));
  }
  CHECK(found > 0);
}

}  // namespace
}  // namespace sdp
