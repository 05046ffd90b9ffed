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

char* KeptBlocks::take_kept(size_t bytes) {
  auto best = kept_.end();
  for (auto block = kept_.begin(); block != kept_.end(); ++block)
    if (block->second >= bytes && (best == kept_.end() || block->second < best->second)) best = block;
  if (best == kept_.end()) return nullptr;
  const auto [data, kept_bytes] = *best;
  kept_.erase(best);
  if (kept_bytes > bytes) kept_.emplace(data + bytes, kept_bytes - bytes);
  counts_.kept_bytes -= bytes;
  return data;
}

void KeptBlocks::add_kept(char* data, size_t bytes) {
  counts_.kept_bytes += bytes;
  auto block = kept_.emplace(data, bytes).first;
  const auto next = std::next(block);
  if (next != kept_.end() && data + bytes == next->first) {
    block->second += next->second;
    kept_.erase(next);
  }
  if (block == kept_.begin()) return;
  const auto before = std::prev(block);
  if (before->first + before->second != data) return;
  before->second += block->second;
  kept_.erase(block);
}

void KeptBlocks::give_back(size_t most_bytes) {
  while (counts_.kept_bytes > most_bytes) {
    size_t bytes = 0;
    for (const auto& [data, kept_bytes] : kept_)
      bytes = std::max(bytes, kept_bytes);
    bytes = std::min(bytes, counts_.kept_bytes - most_bytes);
    munmap(take_kept(bytes), bytes);
  }
}

void* KeptBlocks::allocate(size_t bytes) {
  bytes = whole_pages(bytes);
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
  counts_.in_use_bytes = in_use_bytes;
  counts_.most_in_use_bytes = most_bytes;
  return data;
}

void KeptBlocks::free(void* data, size_t bytes) {
  bytes = whole_pages(bytes);
  const std::lock_guard lock(mutex_);
  counts_.in_use_bytes -= bytes;
  add_kept(static_cast<char*>(data), bytes);
}

KeptBlocks::Counts KeptBlocks::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

}  // namespace sdp
