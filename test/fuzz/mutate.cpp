#include "mutate.h"

#include <algorithm>
#include <array>
#include <random>
#include <string_view>

namespace sdp::fuzz {

namespace {

constexpr size_t kMostBlockBytes = 600;

/// The standard library's generator, but not its distributions, which differ between implementations.
class Random {
 public:
  explicit Random(uint64_t seed) : generator_(seed) {}
  /// A number in 0..n-1; n is at least 1.
  size_t below(size_t n) { return generator_() % n; }
  bool coin() { return below(2) == 0; }
  uint64_t bits() { return generator_(); }

 private:
  std::mt19937_64 generator_;
};

struct Mutation {
  std::span<const std::string> seeds;
  const Targets& targets;
  Random& random;
  std::string& bytes;  // not empty

  size_t position() const {
    if (!targets.fields.empty() && random.below(4) == 0)
      return std::min(bytes.size() - 1, targets.fields[random.below(targets.fields.size())]);
    return random.below(random.coin() ? std::min(bytes.size(), targets.header_bytes) : bytes.size());
  }
  size_t block_at(size_t at) const {
    const size_t most = random.coin() ? 8 : kMostBlockBytes;
    return 1 + random.below(std::min(most, bytes.size() - at));
  }
};

void flip_bits(const Mutation& m) {
  for (size_t flips = 1 + m.random.below(8); flips > 0; --flips) {
    const size_t at = m.position();
    m.bytes[at] = static_cast<char>(m.bytes[at] ^ (1 << m.random.below(8)));
  }
}

/// Writes a number of 1, 2, 4 or 8 bytes at a multiple of 4 or anywhere: limits of types, the file's size,
/// small numbers.
void set_number(const Mutation& m) {
  const uint64_t size = m.bytes.size();
  const std::array<uint64_t, 16> numbers = {0,    1,          2,          0x7f,           0x80,       0xff,
                                            4,    0x7fffffff, 0x80000000, 0xffffffff,     0x40000000, size,
                                            ~0UL, size - 1,   size + 1,   m.random.bits()};
  const uint64_t number = numbers[m.random.below(numbers.size())];
  const size_t width = size_t{1} << m.random.below(4);
  const bool little = m.random.below(4) != 0;
  size_t at = m.position();
  if (m.random.coin()) at = at / 4 * 4;
  for (size_t byte = 0; byte < width && at + byte < m.bytes.size(); ++byte)
    m.bytes[at + byte] = static_cast<char>(number >> (8 * (little ? byte : width - 1 - byte)));
}

/// Increases or decreases a byte a little.
void add_number(const Mutation& m) {
  const size_t at = m.position();
  const auto by = static_cast<int>(1 + m.random.below(m.random.coin() ? 1 : 32));
  m.bytes[at] = static_cast<char>(m.random.coin() ? m.bytes[at] + by : m.bytes[at] - by);
}

/// Replaces a number in digits with another one, either of the same length, so that everything else keeps its
/// position, or of any length.
void set_digits(const Mutation& m) {
  constexpr std::array<std::string_view, 11> kNumbers = {"0",
                                                         "9",
                                                         "-1",
                                                         "0.5",
                                                         "1e999",
                                                         "4294967296",
                                                         "17777777777",
                                                         "37777777777",
                                                         "77777777777",
                                                         "18446744073709551616",
                                                         ""};
  constexpr const char* kDigits = "0123456789";
  size_t begin = std::min(m.bytes.find_first_of(kDigits, m.position()), m.bytes.size());
  if (begin > 0) begin = m.bytes.find_last_not_of(kDigits, begin - 1) + 1;
  const size_t end = std::min(m.bytes.find_first_not_of(kDigits, begin), m.bytes.size());
  std::string number(kNumbers[m.random.below(kNumbers.size())]);
  if (m.random.coin()) {
    number.insert(0, std::max(number.size(), end - begin) - number.size(), '0');
    number.resize(end - begin);
  }
  m.bytes.replace(begin, end - begin, number);
}

void zero_block(const Mutation& m) {
  size_t at = m.position();
  if (m.random.coin()) at = at / 512 * 512;
  std::fill_n(m.bytes.begin() + static_cast<std::ptrdiff_t>(at), m.block_at(at), '\0');
}

void insert_block(const Mutation& m) {
  std::string block(1 + m.random.below(m.random.coin() ? 8 : kMostBlockBytes), '\0');
  const bool same = m.random.coin();
  const auto letter = static_cast<char>(m.random.bits());
  for (char& byte : block)
    byte = same ? letter : static_cast<char>(m.random.bits());
  m.bytes.insert(m.position(), block);
}

void remove_block(const Mutation& m) {
  const size_t at = m.position();
  m.bytes.erase(at, m.block_at(at));
}

void repeat_block(const Mutation& m) {
  const size_t at = m.position();
  const std::string block = m.bytes.substr(at, m.block_at(at));
  m.bytes.insert(m.position(), block);
}

void cut_end(const Mutation& m) {
  m.bytes.resize(m.position());
}

void splice(const Mutation& m) {
  const std::string& other = m.seeds[m.random.below(m.seeds.size())];
  m.bytes = m.bytes.substr(0, m.position()) + other.substr(m.random.below(other.size()));
}

}  // namespace

std::string mutate(std::span<const std::string> seeds, const Targets& targets, uint64_t number) {
  constexpr std::array kinds = {flip_bits,    set_number,   add_number,   set_digits, zero_block,
                                insert_block, remove_block, repeat_block, cut_end,    splice};
  Random random(number);
  std::string bytes = seeds[random.below(seeds.size())];
  for (size_t damages = 1 + random.below(3); damages > 0 && !bytes.empty(); --damages)
    kinds[random.below(kinds.size())]({seeds, targets, random, bytes});
  return bytes;
}

}  // namespace sdp::fuzz
