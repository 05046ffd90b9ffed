#include <torch/torch.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <vector>

#include "catch.h"
#include "process/freed_memory.h"

namespace sdp {
namespace {

/// The allocator below the tested one: records the contents of a block when it is freed, which is the last
/// time that anybody may read it.
class NotingAllocator : public c10::Allocator {
 public:
  static NotingAllocator& install() {
    static auto* const instance = new NotingAllocator(*c10::GetAllocator(c10::kCPU));
    inner_deleter = instance->inner_.raw_deleter();
    c10::SetAllocator(c10::kCPU, instance);
    return *instance;
  }
  c10::DataPtr allocate(size_t size) override {
    void* const data = inner_.allocate(size).release_context();
    return {data, data, &give_back, c10::kCPU};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &give_back; }
  void copy_data(void* to, const void* from, size_t size) const override {
    default_copy_data(to, from, size);
  }

  static void watch(const at::Tensor& tensor) {
    watched = tensor.storage().data();
    last_bytes.assign(tensor.storage().nbytes(), 0);
    is_back = false;
  }
  static inline bool is_back = false;
  static inline std::vector<uint8_t> last_bytes;

 private:
  explicit NotingAllocator(c10::Allocator& inner) : inner_(inner) {}
  static void give_back(void* data) {
    if (data && data == watched) {
      std::memcpy(last_bytes.data(), data, last_bytes.size());
      watched = nullptr;
      is_back = true;
    }
    inner_deleter(data);
  }

  static inline const void* watched = nullptr;
  static inline c10::DeleterFnPtr inner_deleter = nullptr;
  c10::Allocator& inner_;
};

bool came_back_as_nan() {
  return NotingAllocator::is_back && !NotingAllocator::last_bytes.empty() &&
         std::all_of(NotingAllocator::last_bytes.begin(), NotingAllocator::last_bytes.end(),
                     [](uint8_t byte) { return byte == 0xFF; });
}

TEST_CASE("a tensor's memory is NaN when its last view is freed, and not before") {
  NotingAllocator::install();
  poison_freed_memory();
  poison_freed_memory();  // does nothing
  for (const int64_t elements : {1, 1000, 1'000'000})
    for (const bool in_other_thread : {false, true}) {
      at::Tensor tensor = at::full({elements}, 2.0);
      at::Tensor view = tensor.narrow(0, elements - 1, 1);
      NotingAllocator::watch(tensor);
      tensor = at::Tensor();
      CHECK_FALSE(NotingAllocator::is_back);
      CHECK(view.item<double>() == 2);
      if (in_other_thread)
        std::thread([&] { view = at::Tensor(); }).join();
      else
        view = at::Tensor();
      CHECK(came_back_as_nan());
    }
}

}  // namespace
}  // namespace sdp
