#include "memory/kept_blocks.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

namespace sdp {
namespace {

size_t whole_pages(size_t bytes) {
  static const auto page_bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return (bytes + page_bytes - 1) / page_bytes * page_bytes;
}

/// Null if there is no memory.
void* map_pages(size_t bytes) {
  void* const data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return nullptr;
  madvise(data, bytes, MADV_HUGEPAGE);  // a hint; only pages that lie within the block become huge ones
  return data;
}

}  // namespace

KeptBlocks::~KeptBlocks() {
  give_back(0);
}

void* KeptBlocks::take_kept(size_t bytes) {
  const auto found = kept_.lower_bound(bytes);
  if (found == kept_.end() || found->first > bytes + bytes / 16) return nullptr;
  const auto [size_bytes, data] = *found;
  kept_.erase(found);
  counts_.kept_bytes -= size_bytes;
  counts_.in_use_bytes += size_bytes;
  in_use_.emplace(data, size_bytes);
  return data;
}

void KeptBlocks::give_back(size_t most_bytes) {
  while (counts_.kept_bytes > most_bytes) {
    auto block = kept_.lower_bound(counts_.kept_bytes - most_bytes);
    if (block == kept_.end()) --block;
    counts_.kept_bytes -= block->first;
    munmap(block->second, block->first);
    kept_.erase(block);
  }
}

void* KeptBlocks::allocate(size_t bytes) {
  bytes = whole_pages(std::max<size_t>(bytes, 1));
  const std::lock_guard lock(mutex_);
  void* data = take_kept(bytes);
  if (!data) {
    const size_t in_use_bytes = counts_.in_use_bytes + bytes;
    const size_t most = std::max(counts_.most_in_use_bytes, in_use_bytes);
    give_back(most - in_use_bytes);
    data = map_pages(bytes);
    if (!data) {
      give_back(0);
      data = map_pages(bytes);
    }
    if (!data) return nullptr;
    ++counts_.mapped_blocks;
    in_use_.emplace(data, bytes);
    counts_.in_use_bytes = in_use_bytes;
  }
  counts_.most_in_use_bytes = std::max(counts_.most_in_use_bytes, counts_.in_use_bytes);
  return data;
}

bool KeptBlocks::free(void* data) {
  const std::lock_guard lock(mutex_);
  const auto found = in_use_.find(data);
  if (found == in_use_.end()) return false;
  kept_.emplace(found->second, data);
  counts_.in_use_bytes -= found->second;
  counts_.kept_bytes += found->second;
  in_use_.erase(found);
  return true;
}

KeptBlocks::Counts KeptBlocks::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

}  // namespace sdp
