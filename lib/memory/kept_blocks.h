#pragma once

// Freed blocks of CPU memory, kept for later allocations. malloc gives large blocks back to the kernel when
// they are freed, which then zeroes and maps their pages anew at the next step: a fifth of a small language
// model's training time on a CPU.

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

namespace sdp {

/// Allocates blocks of whole pages. The pages in use and kept never exceed the most pages that were in use at
/// once: to allocate beyond that, kept pages are given back to the kernel. A process with kept blocks
/// therefore needs no more memory at its peak than one without. Neighbouring kept blocks are one, and an
/// allocation takes the beginning of the smallest that suffices. Thread-safe.
class KeptBlocks {
 public:
  /// Smaller blocks are malloc's, which reuses parts of freed ones. From this size on, a block has huge
  /// pages.
  static constexpr size_t kSmallestBytes = size_t{1} << 21;

  KeptBlocks() = default;
  ~KeptBlocks();
  KeptBlocks(const KeptBlocks&) = delete;
  KeptBlocks& operator=(const KeptBlocks&) = delete;

  /// A block of at least `bytes`, aligned to a page; null if the kernel has none. The contents of a block
  /// that was kept are those that it was freed with.
  void* allocate(size_t bytes);
  /// Keeps a block that allocate(bytes) has returned.
  void free(void* data, size_t bytes);

  struct Counts {
    size_t in_use_bytes = 0;
    size_t kept_bytes = 0;
    size_t most_in_use_bytes = 0;
    int64_t mapped_bytes = 0;  ///< taken from the kernel so far
  };
  Counts counts() const;

 private:
  /// Null if none suffices.
  char* take_kept(size_t bytes);
  void add_kept(char* data, size_t bytes);
  /// Gives pages back until at most `most_bytes` are kept.
  void give_back(size_t most_bytes);

  mutable std::mutex mutex_;
  std::map<char*, size_t> kept_;  // sizes
  Counts counts_;
};

}  // namespace sdp
