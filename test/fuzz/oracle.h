#pragma once

// Requirements on all readers.

#include <cstddef>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "fixtures.h"
#include "spec/error.h"

namespace sdp::fuzz {

inline void require(bool holds, const char* what) {
  if (!holds) throw std::logic_error(what);
}

/// Keeps the compiler from removing the reads, which are the purpose of the test.
inline void use(std::span<const std::byte> bytes) {
  unsigned sum = 0;
  for (const std::byte byte : bytes)
    sum += std::to_integer<unsigned>(byte);
  [[maybe_unused]] static volatile unsigned sink;
  sink = sum;
}

/// Calls `read(on_problem)` twice: if the first problem ends the reading, it must be the first of all
/// problems. Throws that problem at the end, after `look` has inspected the parts that were read despite
/// problems.
template <class Read, class Look>
void read_with_and_without_problems(const Read& read, const Look& look) {
  std::vector<std::string> problems;
  const std::string last = message_of<Error>([&] { look(read(testing::collect_into(problems))); });
  if (!last.empty()) problems.push_back(last);
  const std::string first = message_of<Error>([&] { read(throw_problem); });
  require(first == (problems.empty() ? "" : problems.front()),
          "the first problem depends on what is done with it");
  if (!first.empty()) throw DataError(first);
}

/// Shards with labels in files, in folders, and under long names.
inline std::vector<std::string> tar_seeds(const std::string& color, const std::string& gray,
                                          const std::string& other) {
  using testing::TarWriter;
  return {TarWriter().add("a.jpg", color).add("a.cls", "7\n").add("b.cls", "0").add("b.jpg", gray).finish(),
          TarWriter().add("dir/", "", '5').add("3/a.jpg", other).add("9/b.JPEG", color).finish(),
          TarWriter()
              .add("PaxHeader", "19 path=5/long.jpg\n", 'x')
              .add("short", gray)
              .add("././@LongLink", std::string("4/") + std::string(120, 'n') + ".jpg", 'L')
              .add("cut", color)
              .finish()};
}

/// A smooth image, so that formats with compression can compress it.
inline std::string pixels_of(int image, size_t bytes = 3072) {
  std::string pixels;
  for (size_t at = 0; at < bytes; ++at)
    pixels += static_cast<char>(static_cast<size_t>(image) * 37 + at / 32 + at % 32);
  return pixels;
}

}  // namespace sdp::fuzz
