#include <algorithm>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "catch.h"
#include "memory/kept_blocks.h"

namespace sdp {
namespace {

constexpr size_t kPage = 4096;

size_t pages(size_t bytes) {
  return (bytes + kPage - 1) / kPage * kPage;
}

}  // namespace

TEST_CASE("a step that repeats maps nothing anew, and kept blocks fit below the peak") {
  KeptBlocks blocks;
  // Activations of a forward pass, freed in the backward pass beside gradients of the same sizes.
  const std::vector<size_t> sizes = {300'000, 1'000'000, 300'000, 5'000'000, 1'000'000, 300'000};
  size_t in_use_bytes = 0;
  size_t most_bytes = 0;
  const auto allocate = [&](size_t bytes) {
    most_bytes = std::max(most_bytes, in_use_bytes += pages(bytes));
    return blocks.allocate(bytes);
  };
  const auto free = [&](void* data, size_t bytes) {
    in_use_bytes -= pages(bytes);
    blocks.free(data, bytes);
  };
  int64_t mapped_at_first_bytes = 0;
  for (int step = 0; step < 10; ++step) {
    std::vector<void*> saved;
    for (const size_t bytes : sizes)
      saved.push_back(allocate(bytes));
    for (size_t i = sizes.size(); i-- > 0;) {
      void* const gradient = allocate(sizes[i]);
      free(saved[i], sizes[i]);
      free(gradient, sizes[i]);
    }
    const KeptBlocks::Counts counts = blocks.counts();
    CHECK(counts.in_use_bytes == 0);
    CHECK(counts.most_in_use_bytes == most_bytes);
    CHECK(counts.kept_bytes <= most_bytes);
    if (step == 1) mapped_at_first_bytes = counts.mapped_bytes;
    if (step > 1) CHECK(counts.mapped_bytes == mapped_at_first_bytes);
  }
}

TEST_CASE("blocks do not overlap, hold what was written, and are never more than were in use at once") {
  std::mt19937 random(3);
  KeptBlocks blocks;
  struct Held {
    unsigned char* data;
    size_t bytes;
    unsigned char mark;
  };
  std::vector<Held> held;
  size_t in_use_bytes = 0;
  size_t most_bytes = 0;
  for (int round = 0; round < 4000; ++round) {
    if (held.empty() || (held.size() < 30 && random() % 2 == 0)) {
      const size_t bytes = 1 + random() % (random() % 2 == 0 ? 50'000 : 2'000'000);
      auto* const data = static_cast<unsigned char*>(blocks.allocate(bytes));
      REQUIRE(data);
      REQUIRE(reinterpret_cast<uintptr_t>(data) % kPage == 0);
      const auto mark = static_cast<unsigned char>(random());
      std::memset(data, mark, bytes);
      held.push_back({data, bytes, mark});
      in_use_bytes += pages(bytes);
    } else {
      const size_t at = random() % held.size();
      const Held block = held[at];
      REQUIRE(std::all_of(block.data, block.data + block.bytes,
                          [&](unsigned char byte) { return byte == block.mark; }));
      blocks.free(block.data, block.bytes);
      in_use_bytes -= pages(block.bytes);
      held.erase(held.begin() + static_cast<std::ptrdiff_t>(at));
    }
    most_bytes = std::max(most_bytes, in_use_bytes);
    const KeptBlocks::Counts counts = blocks.counts();
    REQUIRE(counts.in_use_bytes == in_use_bytes);
    REQUIRE(counts.most_in_use_bytes == most_bytes);
    REQUIRE(counts.in_use_bytes + counts.kept_bytes <= most_bytes);
  }
}

TEST_CASE("memory that the kernel does not have is null, not the end") {
  KeptBlocks blocks;
  void* const small = blocks.allocate(1000);
  blocks.free(small, 1000);
  CHECK(blocks.allocate(size_t{1} << 60) == nullptr);
  CHECK(blocks.counts().in_use_bytes == 0);
  CHECK(blocks.allocate(1000) != nullptr);
}

TEST_CASE("threads share kept blocks") {
  KeptBlocks blocks;
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (size_t thread = 0; thread < wrong.size(); ++thread)
    threads.emplace_back([&, thread] {
      for (int round = 0; round < 500; ++round) {
        auto* const data = static_cast<unsigned char*>(blocks.allocate(200'000));
        std::memset(data, static_cast<int>(thread), 200'000);
        wrong[thread] +=
            std::count(data, data + 200'000, static_cast<unsigned char>(thread)) == 200'000 ? 0 : 1;
        blocks.free(data, 200'000);
      }
    });
  for (std::thread& thread : threads)
    thread.join();
  CHECK(wrong == std::vector<int>(4, 0));
  CHECK(blocks.counts().mapped_bytes <= 4 * static_cast<int64_t>(pages(200'000)));
}

}  // namespace sdp
