#include "data/tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>

#include "spec/error.h"

namespace sdp {

namespace fs = std::filesystem;

namespace {

static_assert(std::endian::native == std::endian::little, "shards are little-endian and read as they are");

constexpr int32_t kMagic = 20240520;
constexpr int32_t kVersion = 1;
constexpr int64_t kHeaderBytes = 256 * sizeof(int32_t);
constexpr int64_t kTokenBytes = sizeof(uint16_t);
constexpr int64_t kScannedTokens = int64_t{1} << 29;
constexpr std::string_view kExpected =
    "Expected shards of GPT-2 tokens as llm.c's scripts write them: *train*.bin and *val*.bin.";

// ---- what the folder holds ----

bool contains(const std::string& name, std::string_view part) {
  return name.find(part) != std::string::npos;
}

/// Names of the files *.bin, sorted.
std::vector<std::string> bin_names(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    if (it->path().extension() == ".bin") names.push_back(it->path().filename().string());
  if (error)
    throw DataError(
        fmt::format("data.path: {} can't be listed: {}. {}", folder.string(), error.message(), kExpected));
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<fs::path> shards_of(const fs::path& folder, Split split) {
  const std::vector<std::string> names = bin_names(folder);
  const std::string_view wanted = split == Split::kTrain ? "train" : "val";
  const std::string_view other = split == Split::kTrain ? "val" : "train";
  std::vector<fs::path> shards;
  for (const std::string& name : names) {
    if (!contains(name, wanted)) continue;
    if (contains(name, other))
      throw DataError(
          fmt::format("{}: the name holds both 'train' and 'val', so it is unclear to which split the shard "
                      "belongs. Rename it.",
                      (folder / name).string()));
    shards.push_back(folder / name);
  }
  if (shards.empty())
    throw DataError(fmt::format("data.path: {} holds no *{}*.bin. Found {} other *.bin{}. {}",
                                folder.string(), wanted, names.size(),
                                names.empty() ? "" : fmt::format(" ({}, ..)", names.front()), kExpected));
  return shards;
}

// ---- one shard ----

/// The tokens of a shard that is whole.
std::span<const uint16_t> checked_tokens(const fs::path& path, std::span<const std::byte> bytes) {
  const auto size_bytes = static_cast<int64_t>(bytes.size());
  if (size_bytes < kHeaderBytes)
    throw DataError(
        fmt::format("{}: {} bytes, expected a header of {} bytes and tokens. Write or copy the "
                    "shard again.",
                    path.string(), size_bytes, kHeaderBytes));
  std::array<int32_t, 3> header;  // magic number, version, number of tokens
  std::memcpy(header.data(), bytes.data(), sizeof header);
  if (header[0] != kMagic)
    throw DataError(
        fmt::format("{}: magic number {} at offset 0, expected {}. This is not a shard of GPT-2 "
                    "tokens; write it with llm.c's scripts, model 'gpt-2'.",
                    path.string(), header[0], kMagic));
  if (header[1] != kVersion)
    throw DataError(
        fmt::format("{}: version {} at offset 4, expected {} (tokens of 16 bits). Write the shard "
                    "with llm.c's scripts, model 'gpt-2'.",
                    path.string(), header[1], kVersion));
  const int64_t tokens = header[2];
  if (tokens < 0 || kHeaderBytes + tokens * kTokenBytes != size_bytes)
    throw DataError(
        fmt::format("{}: {} bytes, expected {} for the {} tokens that the header states at offset "
                    "8. The shard is truncated or damaged; write or copy it again.",
                    path.string(), size_bytes, kHeaderBytes + tokens * kTokenBytes, tokens));
  // A mapping begins at a page, so tokens are aligned.
  return {reinterpret_cast<const uint16_t*>(bytes.data() + kHeaderBytes), static_cast<size_t>(tokens)};
}

}  // namespace

TokenDataset::Shard TokenDataset::open_shard(const fs::path& path, int64_t first_sample) {
  MappedFile file(path);
  const std::span<const uint16_t> tokens = checked_tokens(path, file.bytes());
  return {.path = path, .file = std::move(file), .tokens = tokens, .first_sample = first_sample};
}

int64_t TokenDataset::samples_in(const Shard& shard) const {
  return std::max<int64_t>(static_cast<int64_t>(shard.tokens.size()) - 1, 0) / sequence_length_;
}

TokenDataset::TokenDataset(const fs::path& folder, Split split, int64_t sequence_length)
    : sequence_length_(sequence_length) {
  if (sequence_length < 1) throw std::logic_error("TokenDataset: no tokens in a sample");
  size_t longest = 0;
  for (const fs::path& path : shards_of(folder, split)) {
    shards_.push_back(open_shard(path, size_));
    size_ += samples_in(shards_.back());
    longest = std::max(longest, shards_.back().tokens.size());
  }
  if (size_ == 0)
    throw DataError(fmt::format(
        "{}: the longest of {} shard{} has {} tokens, expected at least {}: data.sequence_length and "
        "the target of the last token. Lower data.sequence_length or write longer shards.",
        shards_.front().path.string(), shards_.size(), shards_.size() == 1 ? "" : "s", longest,
        sequence_length + 1));
}

void TokenDataset::read(int64_t index, std::span<int64_t> tokens) const {
  if (index < 0 || index >= size_) throw std::logic_error(fmt::format("TokenDataset: no sample {}", index));
  if (static_cast<int64_t>(tokens.size()) != sequence_length_ + 1)
    throw std::logic_error("TokenDataset::read: the span does not fit a sample");
  // The last shard that begins at or before the sample: one without samples begins where the next does.
  const auto after = std::upper_bound(shards_.begin(), shards_.end(), index,
                                      [](int64_t i, const Shard& shard) { return i < shard.first_sample; });
  const Shard& shard = *std::prev(after);
  const int64_t begin = (index - shard.first_sample) * sequence_length_;
  std::copy_n(shard.tokens.begin() + begin, tokens.size(), tokens.begin());
}

TokenDataset::Place TokenDataset::largest_token(int64_t most) const {
  Place place{.shard = {}, .position = 0, .token = -1};
  for (const Shard& shard : shards_) {
    const auto scanned = shard.tokens.first(std::min(shard.tokens.size(), static_cast<size_t>(most)));
    most -= static_cast<int64_t>(scanned.size());
    uint16_t largest = 0;
    for (const uint16_t token : scanned)  // unlike max_element, with vector instructions
      largest = std::max(largest, token);
    if (scanned.empty() || largest <= place.token) continue;
    const auto at = std::find(scanned.begin(), scanned.end(), largest);
    place = {.shard = shard.path, .position = at - scanned.begin(), .token = largest};
  }
  return place;
}

void TokenDataset::check_fits(const ModelSpec& model) const {
  const int64_t vocab_size = *model.vocab_size;
  if (vocab_size > std::numeric_limits<uint16_t>::max()) return;
  const Place largest = largest_token(kScannedTokens);
  if (largest.token >= vocab_size)
    throw UsageError(
        fmt::format("model.vocab_size: {} is smaller than a token: {} has token {} at position {}. "
                    "Set model.vocab_size: {} or more (GPT-2 has 50257 tokens).",
                    vocab_size, largest.shard.string(), largest.token, largest.position, largest.token + 1));
}

Batch TokenDataset::empty_batch(size_t size) const {
  return {.samples = std::vector<int64_t>(size),
          .tokens = std::vector<int64_t>(size * static_cast<size_t>(sequence_length_ + 1))};
}

void TokenDataset::read_into(Batch& batch, size_t place, int64_t index) const {
  const auto row = static_cast<size_t>(sequence_length_ + 1);
  batch.samples[place] = index;
  read(index, std::span(batch.tokens).subspan(place * row, row));
}

Batch TokenDataset::training_batch(std::span<const TrainingSample> samples, const ImageAugmentation&,
                                   uint64_t, const std::stop_token& stop) const {
  Batch batch = empty_batch(samples.size());
  for (size_t i = 0; i < samples.size() && !stop.stop_requested(); ++i)
    read_into(batch, i, samples[i].index);
  return batch;
}

Batch TokenDataset::eval_batch(int64_t begin, int64_t end) const {
  if (begin < 0 || end < begin || end > size_)
    throw std::logic_error("eval_batch: samples outside the data set");
  Batch batch = empty_batch(static_cast<size_t>(end - begin));
  for (size_t i = 0; i < batch.samples.size(); ++i)
    read_into(batch, i, begin + static_cast<int64_t>(i));
  return batch;
}

}  // namespace sdp
