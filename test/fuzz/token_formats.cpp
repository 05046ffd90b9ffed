#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>

#include "data/tokens.h"
#include "fixtures.h"
#include "formats.h"
#include "io/file.h"
#include "oracle.h"

namespace sdp::fuzz {

namespace {

namespace fs = std::filesystem;
using namespace sdp::testing;

constexpr int64_t kSequenceLength = 8;
constexpr size_t kHeaderBytes = 1024;

std::vector<std::string> shard_seeds() {
  std::vector<uint16_t> tokens;
  for (int i = 0; i < 100; ++i)
    tokens.push_back(static_cast<uint16_t>(i * 502));
  return {token_shard(tokens), token_shard({1, 2, 3, 4, 5, 6, 7, 8, 9})};
}

std::vector<std::string> wide_shard_seeds() {
  std::vector<uint32_t> tokens;
  for (uint32_t i = 0; i < 100; ++i)
    tokens.push_back(i * 1282);
  return {wide_token_shard(tokens), wide_token_shard({1, 2, 3, 4, 5, 6, 7, 8, 128'255})};
}

/// The tokens after the header, read byte by byte.
std::vector<int64_t> tokens_of(std::span<const uint8_t> file, int64_t token_bytes) {
  std::vector<int64_t> tokens;
  if (token_bytes == 0) return tokens;
  const auto width = static_cast<size_t>(token_bytes);
  for (size_t at = kHeaderBytes; at + width <= file.size(); at += width) {
    int64_t token = 0;
    for (size_t byte = 0; byte < width; ++byte)
      token |= int64_t{file[at + byte]} << (8 * byte);
    tokens.push_back(token);
  }
  return tokens;
}

/// Every sample has its tokens, or is refused because of one that is not in the vocabulary.
void check_samples(const TokenDataset& dataset, int64_t vocab_size, std::span<const int64_t> tokens) {
  require(dataset.size() == (static_cast<int64_t>(tokens.size()) - 1) / kSequenceLength,
          "another number of samples than fit into the shard");
  for (int64_t index = 0; index < dataset.size(); ++index) {
    const auto window = tokens.subspan(static_cast<size_t>(index * kSequenceLength), kSequenceLength + 1);
    const bool known = std::all_of(window.begin(), window.end(), [&](int64_t t) { return t < vocab_size; });
    Buffer<int64_t> sample = {-1};
    const bool refused = !message_of<DataError>([&] { dataset.append_sample(index, sample); }).empty();
    require(refused != known, "a sample is refused though its tokens are in the vocabulary, or is not");
    require(refused || (sample.front() == -1 &&
                        std::equal(sample.begin() + 1, sample.end(), window.begin(), window.end())),
            "a sample has other tokens than the shard");
  }
}

void check_scan(const TokenScan& scan, int64_t vocab_size, std::span<const int64_t> tokens) {
  require(scan.tokens == static_cast<int64_t>(tokens.size()), "a scan counts other tokens");
  if (tokens.empty()) return;
  const auto is_beyond = [&](int64_t token) { return token >= vocab_size; };
  const auto first = std::find_if(tokens.begin(), tokens.end(), is_beyond);
  require(scan.largest == *std::max_element(tokens.begin(), tokens.end()) &&
              scan.smallest == *std::min_element(tokens.begin(), tokens.end()),
          "a scan finds another range of tokens");
  require(scan.beyond_vocab == std::count_if(tokens.begin(), tokens.end(), is_beyond) &&
              scan.first_beyond_vocab.value_or(scan.tokens) == first - tokens.begin(),
          "a scan finds other tokens beyond the vocabulary");
}

/// `data check` and training have the same findings, except that training needs a complete sample. The first
/// problem is thrown.
template <int64_t vocab_size>
void read_tokens(const fs::path& file) {
  const DataSpec spec = tokens_in(file.parent_path(), kSequenceLength);
  std::vector<std::string> problems;
  const TokenScan scan = scan_tokens(spec, Split::kTest, vocab_size, collect_into(problems)).at(0);
  const std::vector<int64_t> tokens = tokens_of(read_bytes(file), scan.token_bytes);
  check_scan(scan, vocab_size, tokens);

  const bool damaged = problems.size() > (scan.beyond_vocab > 0 ? 1 : 0);
  const bool is_short = scan.tokens <= kSequenceLength;
  std::optional<TokenDataset> dataset;
  const std::string refused = message_of<DataError>([&] { dataset.emplace(spec, Split::kTest, vocab_size); });
  require(refused.empty() == !(damaged || is_short), "opening and scanning find something else");
  require(!damaged || refused == problems.front(), "opening names another problem than scanning");
  if (!refused.empty()) throw DataError(refused);

  check_samples(*dataset, vocab_size, tokens);
  constexpr int64_t kBeyondInt32 = (int64_t{1} << 31) + 5;  // compared in another way
  check_samples(TokenDataset(spec, Split::kTest, kBeyondInt32), kBeyondInt32, tokens);
  const TokenDataset::Place largest = dataset->largest_token(scan.tokens);
  require(largest.token == scan.largest && tokens.at(static_cast<size_t>(largest.position)) == largest.token,
          "the largest token is not where it is said to be");
  const ModelSpec model{.kind = LlamaSpec{.vocab_size = vocab_size}};
  const std::string does_not_fit = message_of<UsageError>([&] { dataset->check_fits(model); });
  require(does_not_fit.empty() == (scan.beyond_vocab == 0),
          "a vocabulary that is too small fits, or one that is not does not");
  if (!does_not_fit.empty()) throw UsageError(does_not_fit);
}

constexpr std::array<size_t, 3> kFields = {0, 4, 8};  // magic number, version, number of tokens

}  // namespace

std::vector<Format> token_formats() {
  return {
      {"tokens", "val.bin", {16, kFields}, shard_seeds, read_tokens<50257>},
      {"tokens_32_bit", "val.bin", {16, kFields}, wide_shard_seeds, read_tokens<128256>},
  };
}

}  // namespace sdp::fuzz
