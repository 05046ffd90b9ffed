#include "memory/kept_blocks.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>

namespace sdp {
namespace {

size_t whole_pages(size_t bytes) {
  static const auto page_bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return (bytes + page_bytes - 1) / page_bytes * page_bytes;
}

/// Null if there is no memory.
char* map_pages(size_t bytes) {
  void* const data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return nullptr;
  madvise(data, bytes, MADV_HUGEPAGE);  // a hint; only pages that lie within the block become huge ones
  return static_cast<char*>(data);
}

}  // namespace

KeptBlocks::~KeptBlocks() {
  give_back(0);
}

void KeptBlocks::add_kept(char* data, size_t bytes) {
  counts_.kept_bytes += bytes;
  const auto next = kept_.lower_bound(data);
  if (next != kept_.begin())
    if (const auto [before, before_bytes] = *std::prev(next); before + before_bytes == data) {
      by_size_.erase({before_bytes, before});
      kept_.erase(std::prev(next));
      data = before;
      bytes += before_bytes;
    }
  if (next != kept_.end() && data + bytes == next->first) {
    by_size_.erase({next->second, next->first});
    bytes += next->second;
    kept_.erase(next);
  }
  kept_.emplace(data, bytes);
  by_size_.emplace(bytes, data);
}

char* KeptBlocks::take_kept(size_t bytes) {
  const auto found = by_size_.lower_bound({bytes, nullptr});
  if (found == by_size_.end()) return nullptr;
  const auto [kept_bytes, data] = *found;
  by_size_.erase(found);
  kept_.erase(data);
  counts_.kept_bytes -= kept_bytes;
  if (kept_bytes > bytes) add_kept(data + bytes, kept_bytes - bytes);
  return data;
}

void KeptBlocks::give_back(size_t most_bytes) {
  while (counts_.kept_bytes > most_bytes) {
    const size_t excess_bytes = counts_.kept_bytes - most_bytes;
    const size_t largest_bytes = by_size_.rbegin()->first;
    const size_t bytes = std::min(excess_bytes, largest_bytes);
    munmap(take_kept(bytes), bytes);
  }
}

void* KeptBlocks::allocate(size_t bytes) {
  bytes = whole_pages(std::max<size_t>(bytes, 1));
  const std::lock_guard lock(mutex_);
  const size_t in_use_bytes = counts_.in_use_bytes + bytes;
  const size_t most_bytes = std::max(counts_.most_in_use_bytes, in_use_bytes);
  char* data = take_kept(bytes);
  if (!data) {
    give_back(most_bytes - in_use_bytes);
    data = map_pages(bytes);
    if (!data) {
      give_back(0);
      data = map_pages(bytes);
    }
    if (!data) return nullptr;
    counts_.mapped_bytes += static_cast<int64_t>(bytes);
  }
  in_use_.emplace(data, bytes);
  counts_.in_use_bytes = in_use_bytes;
  counts_.most_in_use_bytes = most_bytes;
  return data;
}

bool KeptBlocks::free(void* data) {
  const std::lock_guard lock(mutex_);
  const auto found = in_use_.find(data);
  if (found == in_use_.end()) return false;
  const size_t bytes = found->second;
  counts_.in_use_bytes -= bytes;
  add_kept(static_cast<char*>(data), bytes);
  in_use_.erase(found);
  return true;
}

KeptBlocks::Counts KeptBlocks::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

}  // namespace sdp
