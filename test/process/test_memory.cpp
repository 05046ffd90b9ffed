#include <c10/core/Allocator.h>
#include <c10/core/impl/alloc_cpu.h>
#include <torch/torch.h>

#include <cstdlib>
#include <thread>
#include <vector>

#include "catch.h"
#include "process/allocations.h"
#include "process/freed_memory.h"
#include "test_device.h"

namespace sdp {
namespace {

constexpr int64_t kMega = 1 << 20;

at::Tensor megabytes(int64_t count) {
  return at::empty({count * kMega}, at::TensorOptions(at::kByte).device(test_device()));
}

TEST_CASE("allocations are counted by kind from the first to the last byte, by the scopes of their thread") {
  count_allocations(test_device());
  count_allocations(test_device());  // does nothing
  const MemoryByKind before = allocated_now();
  const auto megabytes_of = [&](std::initializer_list<MemoryKind> kinds) {
    std::vector<int64_t> found;
    for (const MemoryKind kind : kinds) {
      const int64_t bytes = allocated_now()[kind] - before[kind];
      CHECK(bytes % kMega == 0);
      found.push_back(bytes / kMega);
    }
    return found;
  };
  using enum MemoryKind;
  using Megabytes = std::vector<int64_t>;
  at::Tensor activations = megabytes(3);
  at::Tensor weights, buckets;
  {
    const MemoryScope outer(kWeights);
    weights = megabytes(2);
    {
      const MemoryScope inner(kBuckets);
      buckets = megabytes(5);
    }
    weights = at::cat({weights, weights});
    CHECK(megabytes_of({kActivations, kWeights, kBuckets}) == Megabytes{3, 4, 5});
    std::thread([&] {
      weights = at::Tensor();
      buckets = megabytes(1);
    }).join();
    CHECK(megabytes_of({kActivations, kWeights, kBuckets}) == Megabytes{4, 0, 0});
  }
  buckets = at::Tensor();
  assign_kind(activations, kGradients);
  CHECK(megabytes_of({kActivations, kGradients}) == Megabytes{0, 3});
  const at::Tensor view = activations.view({3, kMega})[1];
  activations = at::Tensor();
  CHECK(megabytes_of({kGradients}) == Megabytes{3});
  assign_kind(view, kOptimizer);  // through its storage
  CHECK(megabytes_of({kGradients, kOptimizer}) == Megabytes{0, 3});
  assign_kind(at::Tensor(), kOptimizer);
}

TEST_CASE("the peak is that of all kinds together") {
  count_allocations(test_device());
  const at::Tensor stays = megabytes(1);
  reset_peak();
  const int64_t before = allocated_now().total();
  CHECK(allocated_at_peak().total() == before);
  for (const auto& [kind, count] : {std::pair(MemoryKind::kBuckets, 6), {MemoryKind::kGradients, 4}}) {
    const MemoryScope scope(kind);
    const at::Tensor most_or_less = megabytes(count);
  }
  const MemoryByKind peak = allocated_at_peak();
  CHECK(peak.total() == before + 6 * kMega);
  CHECK(peak[MemoryKind::kBuckets] - allocated_now()[MemoryKind::kBuckets] == 6 * kMega);
  CHECK(peak[MemoryKind::kGradients] == allocated_now()[MemoryKind::kGradients]);
  CHECK(allocated_now().total() == before);
  reset_peak();
  CHECK(allocated_at_peak().total() == before);
}

TEST_CASE("a block freed behind the allocator's back is not counted beside the next one at its address") {
  if (!test_device().is_cpu()) return;
  count_allocations(at::kCPU);
  int found = 0;
  for (const int64_t bytes : {40'000, 72'000, 100'000}) {
    const int64_t before = allocated_now()[MemoryKind::kActivations];
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
    CHECK(allocated_now()[MemoryKind::kActivations] - before == bytes * static_cast<int64_t>(blocks.size()));
  }
  CHECK(found > 0);
}

/// The allocator below the tested one: never gives memory back, so that a test may look at it.
struct KeepingAllocator : c10::Allocator {
  c10::DataPtr allocate(size_t size) override {
    void* const data = std::malloc(size);
    return {data, data, raw_deleter(), c10::kCPU};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &c10::detail::deleteNothing; }
  void copy_data(void*, const void*, size_t) const override {}
};

TEST_CASE("a tensor's memory is NaN when its last view is freed, in any thread, and not before") {
  c10::Allocator* const before = c10::GetAllocator(c10::kCPU);
  static KeepingAllocator keeping;
  c10::SetAllocator(c10::kCPU, &keeping);
  poison_freed_memory();
  poison_freed_memory();  // does nothing
  for (const int64_t elements : {1, 1000, 1'000'000}) {
    at::Tensor tensor = at::full({elements}, 2.0);
    at::Tensor view = tensor.narrow(0, elements - 1, 1);
    const at::Tensor memory = at::from_blob(tensor.data_ptr(), {elements});
    tensor = at::Tensor();
    CHECK(memory.eq(2).all().item<bool>());
    std::thread([&] { view = at::Tensor(); }).join();
    CHECK(memory.isnan().all().item<bool>());
  }
  c10::SetAllocator(c10::kCPU, before);
}

}  // namespace
}  // namespace sdp
