#include "data/tokens.h"

#include <fmt/format.h>
#include <xxhash.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <limits>
#include <stdexcept>

#include "data/check.h"
#include "data/split_files.h"
#include "io/file.h"
#include "spec/error.h"

namespace sdp {
namespace fs = std::filesystem;

namespace {

constexpr ShardNames kTokenShardNames{
    .extension = ".bin",
    .val_and_test = false,
    .expected =
        "Expected token shards written by scripts/prepare_tokens.py or llm.c's scripts: "
        "*train*.bin and *val*.bin, or others that data.train_files and data.test_files name. Bare tokens "
        "(nanoGPT, Megatron-LM, numpy): python3 scripts/convert_tokens.py {0} --out {1}"};
constexpr int64_t kScannedTokens = int64_t{1} << 29;
constexpr int64_t kScannedAtOnce = int64_t{1} << 22;

/// The first training shard, which all others must match; none if it cannot be read.
std::optional<TokenShard> first_training_shard(const DataSpec& spec) {
  const auto open = [&] {
    const fs::path path = token_shards_of(spec, Split::kTrain).front();
    return TokenShard(path, MappedFile(path));
  };
  return attempt([](const std::string&) {}, open);
}

void check_same_size(const fs::path& shard, int64_t token_bytes, const std::optional<TokenShard>& first,
                     const OnProblem& on_problem) {
  if (token_bytes == 0 || !first || token_bytes == first->token_bytes()) return;
  on_problem(
      fmt::format("{}: tokens of {} bits, but {} has tokens of {} bits, so their vocabularies differ. "
                  "Write all shards with the same tokenizer, or name those that belong together with "
                  "data.train_files and data.test_files.",
                  shard.string(), 8 * token_bytes, first->path().string(), 8 * first->token_bytes()));
}

}  // namespace

std::vector<fs::path> token_shards_of(const DataSpec& spec, Split split) {
  const auto& set = spec.set.as<TokensSpec>();
  return files_of_split({spec.path, set.train_files, set.test_files}, split, kTokenShardNames);
}

TokenDataset::TokenDataset(const DataSpec& spec, Split split, int64_t vocab_size)
    : access_(split == Split::kTrain ? MappedFile::Access::kRandom : MappedFile::Access::kNormal),
      sequence_length_(spec.sequence_length()),
      vocab_size_(vocab_size) {
  if (sequence_length_ < 1) throw std::logic_error("TokenDataset: no tokens in a sample");
  const std::optional<TokenShard> first = first_training_shard(spec);
  for (const fs::path& path : token_shards_of(spec, split)) {
    shards_.push_back({.tokens = TokenShard(path, MappedFile(path)), .first_sample = size_});
    const TokenShard& shard = shards_.back().tokens;
    check_same_size(path, shard.token_bytes(), first, throw_problem);
    shard.advise(access_);
    size_ += samples_in(shard);
  }
  if (size_ == 0) refuse_short_shards();
  if (split != Split::kTrain) return;
  note_ = unused_vocabulary_note(vocab_size, token_origin(spec).vocab_size.value_or(vocab_size),
                                 shards_.front().tokens.token_bytes());
}

void TokenDataset::refuse_short_shards() const {
  int64_t longest = 0;
  for (const Shard& shard : shards_)
    longest = std::max(longest, shard.tokens.size());
  throw DataError(fmt::format(
      "{}: the longest of {} shard{} has {} tokens, expected at least {}: data.sequence_length and "
      "the target of the last token. Lower data.sequence_length or write longer shards.",
      shards_.front().tokens.path().string(), shards_.size(), shards_.size() == 1 ? "" : "s", longest,
      sequence_length_ + 1));
}

int64_t TokenDataset::samples_in(const TokenShard& shard) const {
  return std::max<int64_t>(shard.size() - 1, 0) / sequence_length_;
}

void TokenDataset::append_sample(int64_t index, Buffer<int64_t>& tokens) const {
  if (index < 0 || index >= size_) throw std::logic_error(fmt::format("TokenDataset: no sample {}", index));
  // The last shard that begins at or before the sample: one without samples begins where the next one does.
  const auto after = std::ranges::upper_bound(shards_, index, {}, &Shard::first_sample);
  const Shard& shard = *std::prev(after);
  shard.tokens.append((index - shard.first_sample) * sequence_length_, sequence_length_ + 1, vocab_size_,
                      tokens);
}

TokenDataset::Place TokenDataset::largest_token(int64_t most, const OnProgress& on_progress) const {
  int64_t all = 0;
  for (const Shard& shard : shards_)
    all += shard.tokens.size();
  const int64_t total = std::min(all, most);
  int64_t done = 0;
  Place place{.shard = {}, .position = 0, .token = -1};
  for (const Shard& each : shards_) {
    const TokenShard& shard = each.tokens;
    const int64_t in_shard = std::min(shard.size(), total - done);
    shard.advise(MappedFile::Access::kSequential);
    for (int64_t begin = 0; begin < in_shard; begin += kScannedAtOnce) {
      const int64_t count = std::min(kScannedAtOnce, in_shard - begin);
      shard.visit(begin, count, [&](auto tokens) {
        const auto largest = largest_of(tokens);
        if (largest <= place.token) return;
        const auto at = std::find(tokens.begin(), tokens.end(), largest);
        place = {.shard = shard.path(), .position = begin + (at - tokens.begin()), .token = largest};
      });
      done += count;
      on_progress(done, total);
    }
    shard.advise(access_);
  }
  return place;
}

void TokenDataset::check_fits(const ModelSpec& model, const OnProgress& on_progress) const {
  const int64_t vocab_size = model.vocab_size();
  if (shards_.front().tokens.token_bytes() == 2 && vocab_size > std::numeric_limits<uint16_t>::max()) return;
  const Place largest = largest_token(kScannedTokens, on_progress);
  if (largest.token >= vocab_size)
    throw UsageError(
        fmt::format("model.vocab_size: {} is smaller than a token: {} has token {} at position {}. {}",
                    vocab_size, largest.shard.string(), largest.token, largest.position,
                    advice_beyond_vocab(largest.token, shards_.front().tokens.token_bytes())));
}

DataIdentity TokenDataset::identity() const {
  std::string text;
  for (const Shard& shard : shards_)
    text += fmt::format("\n{} {}", shard.tokens.path().filename().string(), shard.tokens.size());
  return {.samples = size_, .hash = fmt::format("{:016x}", XXH3_64bits(text.data(), text.size()))};
}

Batch TokenDataset::training_batch(std::span<const TrainingSample> samples, const ImageAugmentation&,
                                   uint64_t, const std::stop_token& stop) const {
  std::vector<int64_t> indices;
  for (const TrainingSample& sample : samples)
    indices.push_back(sample.index);
  return batch_of(indices, stop);
}

Batch TokenDataset::eval_batch(std::span<const int64_t> samples) const {
  return batch_of(samples, {});
}

Batch TokenDataset::batch_of(std::span<const int64_t> samples, const std::stop_token& stop) const {
  Batch batch;
  batch.tokens.reserve(samples.size() * static_cast<size_t>(sequence_length_ + 1));
  for (size_t i = 0; i < samples.size() && !stop.stop_requested(); ++i) {
    batch.samples.push_back(samples[i]);
    append_sample(samples[i], batch.tokens);
  }
  return batch;
}

std::vector<TokenScan> scan_tokens(const DataSpec& spec, Split split, int64_t vocab_size,
                                   const OnProblem& on_problem, const OnProgress& on_progress) {
  const std::vector<fs::path> paths = token_shards_of(spec, split);
  std::vector<TokenScan> scans;
  for (const fs::path& path : paths) {
    scans.push_back(scan_shard(path, vocab_size, on_problem));
    on_progress(static_cast<int64_t>(scans.size()), static_cast<int64_t>(paths.size()));
  }
  const std::optional<TokenShard> first = first_training_shard(spec);
  for (const TokenScan& scan : scans)
    check_same_size(scan.path, scan.token_bytes, first, on_problem);
  return scans;
}

MissingData TokensSpec::missing() const {
  constexpr std::string_view kExampleTokens = "data/text";
  return {.files = "shards of tokens: *train*.bin and *val*.bin",
          .command =
              "scripts/prepare_tokens.py --dataset HuggingFaceFW/fineweb --subset sample-10BT --name fineweb "
              "--out",
          .other_data = "a tiny LLaMA on the bytes of the documentation",
          .other_commands = fmt::format(
              "  scripts/prepare_tokens.py README.md docs/design.md docs/data.md --tokenizer bytes "
              "--val-tokens 8192 --out {0}\n"
              "  build/sdp-train --config configs/llama_tiny_tokens.yaml --set data.path={0} "
              "--set model.vocab_size=257",
              kExampleTokens)};
}

std::unique_ptr<Dataset> open_set(const TokensSpec&, const DataSpec& data, const ModelSpec& model,
                                  Split split, const OnProgress&) {
  return std::make_unique<TokenDataset>(data, split, model.vocab_size());
}

void check_set(const TokensSpec& spec, const DataSpec& data, const ModelSpec& model, int64_t,
               SplitReport& report, const OnProgress& on_progress) {
  report.run_to_first_error([&] {
    report.shards = scan_tokens(data, report.split, model.vocab_size(), report.collect(), on_progress);
    for (const TokenScan& shard : report.shards)
      report.samples += std::max<int64_t>(shard.tokens - 1, 0) / spec.sequence_length;
    if (report.samples == 0 && report.problems.empty())
      report.problems.emplace_back("no shard is longer than data.sequence_length; lower it.");
    if (report.split != Split::kTrain) return;
    int64_t tokens = 0;
    for (const TokenScan& shard : report.shards)
      tokens = std::max(tokens, shard.largest.value_or(-1) + 1);
    report.note = unused_vocabulary_note(model.vocab_size(), token_origin(data).vocab_size.value_or(tokens),
                                         report.shards.front().token_bytes);
  });
}

namespace {

constexpr int64_t kEndOfTextOfGpt2 = 50256;

/// A file beside the shard whose name is the same up to "_train".
fs::path beside(const fs::path& shard, const std::string& extension) {
  const std::string name = shard.filename().string();
  return shard.parent_path() / (name.substr(0, name.find("_train")) + extension);
}

bool begins_with_gpt2s_end_of_text(const fs::path& path) {
  const TokenShard shard(path, MappedFile(path));
  if (shard.size() == 0 || shard.token_bytes() != 2) return false;
  return shard.visit(0, 1,
                     [](auto tokens) { return static_cast<int64_t>(tokens.front()) == kEndOfTextOfGpt2; });
}

}  // namespace

std::string unused_vocabulary_note(int64_t vocab_size, int64_t tokens, int64_t token_bytes) {
  if (token_bytes == 2 && vocab_size > 1 << 16)
    return fmt::format(
        "model.vocab_size is {}, but the shards' tokens of 16 bits end at 65535: larger ones would "
        "have been cut off when they were written",
        vocab_size);
  constexpr int64_t kMultiple = 128;
  const int64_t usual = std::max((tokens + kMultiple - 1) / kMultiple * kMultiple, tokens + tokens / 10);
  if (vocab_size <= usual) return "";
  return fmt::format(
      "model.vocab_size is {}, but the training data has a vocabulary of {} tokens: the other rows of "
      "embedding and head are never used. Set model.vocab_size: {}",
      vocab_size, tokens, tokens);
}

TokenOrigin token_origin(const DataSpec& spec) {
  TokenOrigin origin;
  fs::path shard;
  try {
    shard = token_shards_of(spec, Split::kTrain).front();
  } catch (const Error&) {
    return origin;
  }
  std::error_code ignored;
  if (const fs::path tokenizer = beside(shard, ".tokenizer.json"); fs::exists(tokenizer, ignored))
    origin.tokenizer = tokenizer;
  if (const fs::path path = beside(shard, ".state.json"); fs::exists(path, ignored)) {
    const auto state = nlohmann::json::parse(read_text(path), nullptr, /*allow_exceptions=*/false);
    const auto end = nlohmann::json::json_pointer("/settings/end_of_text");
    if (state.is_discarded() || !state.contains(end) || !state[end].is_number_integer())
      throw DataError(path.string() +
                      ": not written by scripts/prepare_tokens.py: settings.end_of_text is missing");
    origin.end_of_text = state[end].get<int64_t>();
    const auto vocab_size = nlohmann::json::json_pointer("/settings/vocab_size");
    if (state.contains(vocab_size) && state[vocab_size].is_number_integer())
      origin.vocab_size = state[vocab_size].get<int64_t>();
  } else if (begins_with_gpt2s_end_of_text(shard)) {
    origin.end_of_text = kEndOfTextOfGpt2;
  }
  return origin;
}

}  // namespace sdp
