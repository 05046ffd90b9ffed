#include "memory/allocations.h"

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>
#include <c10/util/Exception.h>
#ifdef USE_C10D_NCCL
#include <c10/cuda/CUDACachingAllocator.h>
#endif

#include <mutex>
#include <optional>
#include <unordered_map>

#include "memory/kept_blocks.h"

namespace sdp {
namespace {

thread_local MemoryKind current_kind = MemoryKind::kActivations;

/// Locked because all threads of the process allocate and free memory.
class Ledger {
 public:
  void add(const void* data, size_t bytes) {
    const std::lock_guard lock(mutex_);
    forget(data);  // freed behind the allocator's back
    blocks_[data] = {.bytes = bytes, .kind = current_kind};
    now_[current_kind] += static_cast<int64_t>(bytes);
    if (now_.total() > peak_.total()) peak_ = now_;
  }
  /// Returns the block's size, 0 if it is unknown.
  size_t remove(const void* data) {
    const std::lock_guard lock(mutex_);
    return forget(data);
  }
  /// None: the block is not counted any more.
  void move(const void* data, std::optional<MemoryKind> kind) {
    const std::lock_guard lock(mutex_);
    const auto found = blocks_.find(data);
    if (found == blocks_.end() || !found->second.kind) return;
    const auto bytes = static_cast<int64_t>(found->second.bytes);
    now_[*found->second.kind] -= bytes;
    if (kind) now_[*kind] += bytes;
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
    size_t bytes = 0;
    std::optional<MemoryKind> kind = {};
  };

  size_t forget(const void* data) {
    const auto found = blocks_.find(data);
    if (found == blocks_.end()) return 0;  // such as one from before counting began
    const auto [bytes, kind] = found->second;
    if (kind) now_[*kind] -= static_cast<int64_t>(bytes);
    blocks_.erase(found);
    return bytes;
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

/// One per process, like the ledger.
KeptBlocks& kept_blocks() {
  static auto* const instance = new KeptBlocks;
  return *instance;
}

/// Wraps LibTorch's CPU allocator, keeps large freed blocks and records allocations. Memory is freed through
/// a plain function, and c10 requires a DataPtr's context to be its data; hence the single instance.
class CountingCpuAllocator : public c10::Allocator {
 public:
  static void install() {
    static auto* const instance = new CountingCpuAllocator(*c10::GetAllocator(c10::kCPU));
    inner_deleter = instance->inner_.raw_deleter();
    c10::SetAllocator(c10::kCPU, instance);
  }

  c10::DataPtr allocate(size_t size) override {
    const bool is_kept = size >= KeptBlocks::kSmallestBytes;
    void* const data = is_kept ? kept_blocks().allocate(size) : inner_.allocate(size).release_context();
    TORCH_CHECK(data || !is_kept, "can't allocate memory: you tried to allocate ", size, " bytes");
    if (data) ledger().add(data, size);
    return {data, data, &give_back, c10::kCPU};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &give_back; }
  void copy_data(void* to, const void* from, size_t size) const override {
    default_copy_data(to, from, size);
  }

 private:
  explicit CountingCpuAllocator(c10::Allocator& inner) : inner_(inner) {}
  static void give_back(void* data) {
    const size_t bytes = ledger().remove(data);
    if (bytes >= KeptBlocks::kSmallestBytes)
      kept_blocks().free(data, bytes);
    else
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

void book(const at::Tensor& tensor, MemoryKind kind) {
  if (tensor.defined()) ledger().move(tensor.storage().data(), kind);
}

void leave_out(const void* data) {
  ledger().move(data, std::nullopt);
}

void leave_out(const at::Tensor& tensor) {
  if (tensor.defined()) leave_out(tensor.storage().data());
}

}  // namespace sdp
