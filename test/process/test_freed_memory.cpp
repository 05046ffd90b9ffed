#include <torch/torch.h>

#include <cstdlib>
#include <thread>

#include "catch.h"
#include "process/freed_memory.h"

namespace sdp {
namespace {

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
