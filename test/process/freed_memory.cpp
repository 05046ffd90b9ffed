#include "process/freed_memory.h"

#include <c10/core/Allocator.h>

#include <cstring>
#include <mutex>
#include <unordered_map>

namespace sdp {
namespace {

/// Sizes of allocated blocks: an allocator learns a block's size only when allocating it.
class BlockSizes {
 public:
  void add(const void* data, size_t bytes) {
    const std::lock_guard lock(mutex_);
    sizes_[data] = bytes;
  }
  /// 0 if the block is unknown.
  size_t take(const void* data) {
    const std::lock_guard lock(mutex_);
    const auto found = sizes_.find(data);
    if (found == sizes_.end()) return 0;
    const size_t bytes = found->second;
    sizes_.erase(found);
    return bytes;
  }

 private:
  std::mutex mutex_;
  std::unordered_map<const void*, size_t> sizes_;
};

/// One per process and never destroyed, because memory is freed even after main.
BlockSizes& block_sizes() {
  static auto* const instance = new BlockSizes;
  return *instance;
}

/// Wraps a CPU allocator and fills blocks before they are freed. A single instance, for the same reason as
/// CountingCpuAllocator (process/allocations.cpp).
class PoisoningCpuAllocator : public c10::Allocator {
 public:
  static void install() {
    static auto* const instance = new PoisoningCpuAllocator(*c10::GetAllocator(c10::kCPU));
    inner_deleter = instance->inner_.raw_deleter();
    c10::SetAllocator(c10::kCPU, instance);
  }

  c10::DataPtr allocate(size_t size) override {
    c10::DataPtr block = inner_.allocate(size);
    void* const data = block.release_context();
    if (data) block_sizes().add(data, size);
    return {data, data, &give_back, c10::kCPU};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &give_back; }
  void copy_data(void* to, const void* from, size_t size) const override {
    default_copy_data(to, from, size);
  }

 private:
  explicit PoisoningCpuAllocator(c10::Allocator& inner) : inner_(inner) {}
  static void give_back(void* data) {
    if (data) std::memset(data, 0xFF, block_sizes().take(data));
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
