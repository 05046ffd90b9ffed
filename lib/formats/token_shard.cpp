#include "formats/token_shard.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

#include "spec/error.h"
#include "spec/text.h"

namespace sdp {

namespace fs = std::filesystem;

namespace {

static_assert(std::endian::native == std::endian::little, "shards are little-endian and read as they are");

constexpr int64_t kShardHeaderBytes = 256 * sizeof(int32_t);
constexpr int64_t kScannedAtOnce = int64_t{1}
                                   << 20;  // tokens; small enough that a second pass reads from the cache

struct Format {
  int32_t magic;
  int32_t version;
  int64_t token_bytes;
};
constexpr std::array kFormats = {Format{.magic = 20240520, .version = 1, .token_bytes = 2},
                                 Format{.magic = 20240801, .version = 7, .token_bytes = 4}};

/// Bytes per token in the file; 0 if the header does not say, which is a problem.
int64_t token_bytes_of(const fs::path& path, std::span<const std::byte> bytes, const OnProblem& on_problem) {
  if (static_cast<int64_t>(bytes.size()) < kShardHeaderBytes) {
    on_problem(
        fmt::format("{}: {} bytes, expected a header of {} bytes and tokens. Write or copy the shard again.",
                    path.string(), bytes.size(), kShardHeaderBytes));
    return 0;
  }
  std::array<int32_t, 2> header;  // magic number, version
  std::memcpy(header.data(), bytes.data(), sizeof header);
  const auto* const format =
      std::ranges::find_if(kFormats, [&](const Format& f) { return f.magic == header[0]; });
  if (format == kFormats.end()) {
    on_problem(fmt::format(
        "{0}: magic number {1} at offset 0, expected {2} (tokens of 16 bits) or {3} (of 32 bits). This "
        "is not a shard of tokens; write it with scripts/prepare_tokens.py or llm.c's scripts. If it has "
        "bare tokens (nanoGPT, Megatron-LM, numpy): python3 scripts/convert_tokens.py {4} --out {5}",
        path.string(), header[0], kFormats[0].magic, kFormats[1].magic,
        shell_word(path.parent_path().string()), shell_word((path.parent_path() / "shards").string())));
    return 0;
  }
  if (format->version != header[1]) {
    on_problem(
        fmt::format("{}: version {} at offset 4, expected {} with magic number {}. Write the shard with "
                    "scripts/prepare_tokens.py or llm.c's scripts.",
                    path.string(), header[1], format->version, format->magic));
    return 0;
  }
  return format->token_bytes;
}

/// Checks the number of tokens in the header against the size of the file.
void check_size(const fs::path& path, std::span<const std::byte> bytes, int64_t token_bytes,
                const OnProblem& on_problem) {
  const auto size_bytes = static_cast<int64_t>(bytes.size());
  const int64_t tokens = (size_bytes - kShardHeaderBytes) / token_bytes;
  uint32_t stated;
  std::memcpy(&stated, bytes.data() + 2 * sizeof(int32_t), sizeof stated);
  const int64_t expected_tokens = (tokens >> 32 << 32) + stated;
  const int64_t expected_bytes = kShardHeaderBytes + expected_tokens * token_bytes;
  if (size_bytes != expected_bytes)
    on_problem(
        fmt::format("{}: {} bytes, expected {} for the {} tokens that the header states at offset 8{}. The "
                    "shard is truncated or damaged; write or copy it again.",
                    path.string(), size_bytes, expected_bytes, expected_tokens,
                    expected_tokens == stated ? "" : " (modulo 2^32)"));
}

template <class Token>
std::variant<std::span<const uint16_t>, std::span<const uint32_t>> tokens_in(
    std::span<const std::byte> bytes) {
  // The mapping begins at a page boundary, so tokens are aligned.
  return std::span(reinterpret_cast<const Token*>(bytes.data() + kShardHeaderBytes),
                   (bytes.size() - kShardHeaderBytes) / sizeof(Token));
}

template <class Token>
void scan_tokens(std::span<const Token> tokens, int64_t begin, int64_t vocab_size, TokenScan& scan) {
  Token smallest = tokens.front(), largest = tokens.front();
  for (const Token token : tokens) {
    smallest = std::min(smallest, token);
    largest = std::max(largest, token);
  }
  scan.smallest = std::min<int64_t>(scan.smallest.value_or(smallest), smallest);
  scan.largest = std::max<int64_t>(scan.largest.value_or(largest), largest);
  if (largest < vocab_size) return;
  const auto is_beyond = [&](Token token) { return token >= vocab_size; };
  scan.beyond_vocab += std::ranges::count_if(tokens, is_beyond);
  if (!scan.first_beyond_vocab)
    scan.first_beyond_vocab = begin + (std::ranges::find_if(tokens, is_beyond) - tokens.begin());
}

/// Copies tokens and checks them in a single loop, which is limited by the stores. Returns false if a token
/// is not below vocab_size.
bool widen(std::span<const uint16_t> from, int64_t vocab_size, int64_t* to) {
  uint16_t largest = 0;
  for (size_t i = 0; i < from.size(); ++i) {
    largest = std::max(largest, from[i]);
    to[i] = from[i];
  }
  return largest < vocab_size;
}

/// The same. Returns false also if vocab_size exceeds 2^31 and a token may. The baseline of 64-bit x86 has no
/// vector instruction for the maximum of 32-bit unsigned numbers. With last < 2^31, the top bit of token |
/// (last - token) is set exactly if token > last.
bool widen(std::span<const uint32_t> from, int64_t vocab_size, int64_t* to) {
  const auto last = static_cast<uint32_t>(std::clamp<int64_t>(vocab_size - 1, 0, INT32_MAX));
  uint32_t beyond = 0;
  for (size_t i = 0; i < from.size(); ++i) {
    beyond |= from[i] | (last - from[i]);
    to[i] = from[i];
  }
  return beyond >> 31 == 0;
}

}  // namespace

std::string advice_beyond_vocab(int64_t token, int64_t token_bytes) {
  constexpr int64_t kIgnored = -100;
  const int64_t negative = token - (int64_t{1} << (8 * token_bytes));
  // With 16 bits, other large numbers may be tokens.
  if (token_bytes == 4 ? token <= INT32_MAX : negative != kIgnored)
    return fmt::format("Set model.vocab_size: {} or more (GPT-2 has 50257 tokens), or write the shard again.",
                       token + 1);
  return fmt::format("{} is the negative number {}{}, not a token. Write the shard again without it.", token,
                     negative, negative == kIgnored ? ", which marks labels that a loss ignores" : "");
}

TokenShard::TokenShard(fs::path path, MappedFile file, const OnProblem& on_problem)
    : path_(std::move(path)), file_(std::move(file)) {
  token_bytes_ = token_bytes_of(path_, file_.bytes(), on_problem);
  if (token_bytes_ == 0) return;
  check_size(path_, file_.bytes(), token_bytes_, on_problem);
  if (token_bytes_ == 2)
    tokens_ = tokens_in<uint16_t>(file_.bytes());
  else
    tokens_ = tokens_in<uint32_t>(file_.bytes());
}

int64_t TokenShard::size() const {
  return std::visit([](auto tokens) { return static_cast<int64_t>(tokens.size()); }, tokens_);
}

int64_t TokenShard::offset_bytes(int64_t position) const {
  return kShardHeaderBytes + position * token_bytes_;
}

void TokenShard::check_positions(int64_t begin, int64_t count) const {
  if (begin < 0 || count < 0 || begin > size() - count)
    throw std::logic_error(fmt::format("TokenShard: no {} tokens from {}", count, begin));
}

void TokenShard::append(int64_t begin, int64_t count, int64_t vocab_size, Buffer<int64_t>& tokens) const {
  visit(begin, count, [&](auto window) {
    const size_t first = tokens.size();
    tokens.resize(first + window.size());
    if (widen(window, vocab_size, tokens.data() + first)) return;
    const auto beyond = std::ranges::find_if(window, [&](auto token) { return token >= vocab_size; });
    if (beyond == window.end()) return;
    const int64_t position = begin + (beyond - window.begin());
    throw DataError(fmt::format(
        "{}: token {} at position {} (offset {}), expected one below model.vocab_size: {}. The shard is "
        "damaged or was written with another tokenizer; sdp-train data check reads all of it.",
        path_.string(), *beyond, position, offset_bytes(position), vocab_size));
  });
}

TokenScan scan_shard(const fs::path& path, int64_t vocab_size, const OnProblem& on_problem) {
  TokenScan scan{.path = path};
  auto file = attempt(on_problem, [&] { return MappedFile(path); });
  if (!file) return scan;
  const TokenShard shard(path, std::move(*file), on_problem);
  scan.token_bytes = shard.token_bytes();
  scan.tokens = shard.size();
  shard.advise(MappedFile::Access::kSequential);
  for (int64_t begin = 0; begin < scan.tokens; begin += kScannedAtOnce)
    shard.visit(begin, std::min(kScannedAtOnce, scan.tokens - begin),
                [&](auto tokens) { scan_tokens(tokens, begin, vocab_size, scan); });
  if (scan.beyond_vocab > 0)
    on_problem(
        fmt::format("{}: {} of {} tokens are not below the vocabulary size {}: the first is at position {} "
                    "(offset {}), the largest is {}. {}",
                    path.string(), scan.beyond_vocab, scan.tokens, vocab_size, *scan.first_beyond_vocab,
                    shard.offset_bytes(*scan.first_beyond_vocab), *scan.largest,
                    advice_beyond_vocab(*scan.largest, scan.token_bytes)));
  return scan;
}

}  // namespace sdp
