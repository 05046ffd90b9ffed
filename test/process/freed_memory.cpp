#include "process/freed_memory.h"

#include <c10/core/Allocator.h>
#include <malloc.h>

#include <cstring>
#include <mutex>

namespace sdp {
namespace {

/// Wraps a CPU allocator, whose blocks are malloc's, and fills them before they are freed. A single instance,
/// never destroyed, because memory is freed even after main.
class PoisoningCpuAllocator : public c10::Allocator {
 public:
  static void install() {
    static auto* const instance = new PoisoningCpuAllocator(*c10::GetAllocator(c10::kCPU));
    inner_deleter = instance->inner_.raw_deleter();
    c10::SetAllocator(c10::kCPU, instance);
  }

  c10::DataPtr allocate(size_t size) override {
    void* const data = inner_.allocate(size).release_context();
    return {data, data, &give_back, c10::kCPU};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &give_back; }
  void copy_data(void* to, const void* from, size_t size) const override {
    default_copy_data(to, from, size);
  }

 private:
  explicit PoisoningCpuAllocator(c10::Allocator& inner) : inner_(inner) {}
  static void give_back(void* data) {
    if (data) std::memset(data, 0xFF, malloc_usable_size(data));
    inner_deleter(data);
  }

  static inline c10::DeleterFnPtr inner_deleter = nullptr;
  c10::Allocator& inner_;
};

}  // namespace

void poison_freed_memory() {
  static std::once_flag once;
  std::call_once(once, [] { PoisoningCpuAllocator::install(); });
}

}  // namespace sdp
