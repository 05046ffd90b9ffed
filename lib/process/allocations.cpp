#include "process/allocations.h"

#include <ATen/Context.h>
#include <c10/core/Allocator.h>
#ifdef USE_C10D_NCCL
#include <c10/cuda/CUDACachingAllocator.h>
#endif

#include <malloc.h>

#include <cstdlib>
#include <mutex>
#include <unordered_map>

namespace sdp {
namespace {

thread_local MemoryKind current_kind = MemoryKind::kActivations;

/// Locked because all threads of the process allocate and free memory.
class Ledger {
 public:
  void add(const void* data, size_t bytes) {
    const std::lock_guard lock(mutex_);
    forget(data);  // freed behind the allocator's back
    blocks_[data] = {.bytes = static_cast<int64_t>(bytes), .kind = current_kind};
    now_[current_kind] += static_cast<int64_t>(bytes);
    if (now_.total() > peak_.total()) peak_ = now_;
  }
  void remove(const void* data) {
    const std::lock_guard lock(mutex_);
    forget(data);
  }
  void move(const void* data, MemoryKind kind) {
    const std::lock_guard lock(mutex_);
    const auto found = blocks_.find(data);
    if (found == blocks_.end()) return;
    now_[found->second.kind] -= found->second.bytes;
    now_[kind] += found->second.bytes;
    found->second.kind = kind;
  }

  MemoryByKind now() const {
    const std::lock_guard lock(mutex_);
    return now_;
  }
  MemoryByKind peak() const {
    const std::lock_guard lock(mutex_);
    return peak_;
  }
  void reset_peak() {
    const std::lock_guard lock(mutex_);
    peak_ = now_;
  }

 private:
  struct Block {
    int64_t bytes = 0;
    MemoryKind kind = {};
  };

  /// Does nothing if the block is unknown, such as one from before counting began.
  void forget(const void* data) {
    const auto found = blocks_.find(data);
    if (found == blocks_.end()) return;
    now_[found->second.kind] -= found->second.bytes;
    blocks_.erase(found);
  }

  mutable std::mutex mutex_;
  std::unordered_map<const void*, Block> blocks_;
  MemoryByKind now_;
  MemoryByKind peak_;
};

/// One per process, like the allocators. Never destroyed, because memory is freed even after main.
Ledger& ledger() {
  static auto* const instance = new Ledger;
  return *instance;
}

/// Makes malloc keep freed memory for the next step. By default it gives large blocks back to the kernel,
/// which zeroes and maps their pages anew: a fifth of a small language model's training time on a CPU.
void keep_freed_memory() {
  mallopt(M_MMAP_MAX, 0);         // no block has a mapping of its own
  mallopt(M_TRIM_THRESHOLD, -1);  // the heap never shrinks
  mallopt(M_TOP_PAD, 64 << 20);   // and grows in steps that hold many huge pages
  // Huge pages for large blocks, by c10's allocator, which reads this at its first use.
  setenv("THP_MEM_ALLOC_ENABLE", "1", /*replace=*/0);
}

/// Wraps LibTorch's CPU allocator to record allocations. Memory is freed through a plain function, and c10
/// requires a DataPtr's context to be its data; hence the single instance.
class CountingCpuAllocator : public c10::Allocator {
 public:
  static void install() {
    keep_freed_memory();
    static auto* const instance = new CountingCpuAllocator(*c10::GetAllocator(c10::kCPU));
    inner_deleter = instance->inner_.raw_deleter();
    c10::SetAllocator(c10::kCPU, instance);
  }

  c10::DataPtr allocate(size_t size) override {
    void* const data = inner_.allocate(size).release_context();
    if (data) ledger().add(data, size);
    return {data, data, &remove_and_free, c10::kCPU};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &remove_and_free; }
  void copy_data(void* to, const void* from, size_t size) const override {
    default_copy_data(to, from, size);
  }

 private:
  explicit CountingCpuAllocator(c10::Allocator& inner) : inner_(inner) {}
  static void remove_and_free(void* data) {
    ledger().remove(data);
    inner_deleter(data);
  }

  static inline c10::DeleterFnPtr inner_deleter = nullptr;
  c10::Allocator& inner_;
};

#ifdef USE_C10D_NCCL
void count_cuda(c10::Device device) {
  at::globalContext().lazyInitDevice(c10::kCUDA);  // there is no allocator to attach to before this
  using c10::cuda::CUDACachingAllocator::TraceEntry;
  c10::cuda::CUDACachingAllocator::attachAllocatorTraceTracker([device](const TraceEntry& entry) {
    if (entry.device_ != device.index()) return;
    // NOLINTNEXTLINE(performance-no-int-to-ptr): the tracker tells addresses as numbers
    const auto* const data = reinterpret_cast<const void*>(entry.addr_);
    if (entry.action_ == TraceEntry::ALLOC) ledger().add(data, entry.size_);
    if (entry.action_ == TraceEntry::FREE_REQUESTED) ledger().remove(data);
  });
}
#endif

}  // namespace

void count_allocations(c10::Device device) {
  static std::once_flag once;
  std::call_once(once, [&] {
    if (device.is_cpu()) CountingCpuAllocator::install();
#ifdef USE_C10D_NCCL
    if (device.is_cuda()) count_cuda(device);
#endif
  });
}

MemoryByKind allocated_now() {
  return ledger().now();
}
MemoryByKind allocated_at_peak() {
  return ledger().peak();
}
void reset_peak() {
  ledger().reset_peak();
}

MemoryScope::MemoryScope(MemoryKind kind) : outer_(current_kind) {
  current_kind = kind;
}
MemoryScope::~MemoryScope() {
  current_kind = outer_;
}

void assign_kind(const at::Tensor& tensor, MemoryKind kind) {
  if (tensor.defined()) ledger().move(tensor.storage().data(), kind);
}

void leave_out(const void* data) {
  ledger().remove(data);
}

void leave_out(const at::Tensor& tensor) {
  if (tensor.defined()) leave_out(tensor.storage().data());
}

}  // namespace sdp
