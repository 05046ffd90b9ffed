#pragma once

// Text as tokens, in the shards of token_shard.h.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "data/data_spec.h"
#include "data/dataset.h"
#include "formats/token_shard.h"

namespace sdp {

/// Sample i is T + 1 tokens: inputs are the first T, targets the last T. Sample i + 1 begins with the last
/// token of sample i. Samples do not cross shards: the remaining tokens at a shard's end are not used.
///
/// Training reads windows in random order from files that can be larger than memory, so the system is advised
/// to read only the requested pages. Otherwise it reads ahead around each window: for windows of 2 KiB that
/// are not in memory, 1 MiB each instead of 6 KiB, at a fifteenth of the speed (measured on a local disk).
class TokenDataset final : public Dataset {
 public:
  /// The shards of a split (split_files.h), with data.sequence_length tokens per sample. Throws DataError if
  /// a shard is damaged, two have tokens of different sizes, or none contains a sample. Reading a sample
  /// throws DataError if a token is not below `vocab_size`.
  TokenDataset(const DataSpec& spec, Split split, int64_t vocab_size);

  int64_t size() const override { return size_; }
  /// Identity from the shards' names and sizes and the samples' length.
  DataIdentity identity() const override;

  /// Whether model.vocab_size is much larger than the tokenizer's vocabulary; for training data.
  std::string note() const override { return note_; }

  /// Appends the T + 1 tokens of a sample to `tokens`.
  void append_sample(int64_t index, Buffer<int64_t>& tokens) const;

  struct Place {
    std::filesystem::path shard;
    int64_t position;  ///< in the shard, from 0
    int64_t token;
  };
  /// The largest among the first `most` tokens (of the shards in order), at its first position. Progress is
  /// reported in tokens.
  Place largest_token(int64_t most, const OnProgress& on_progress = ignore_progress) const;

  /// Checks that all tokens are below model.vocab_size. Reads the first 2^29 tokens (1 or 2 GiB, a second
  /// once the file is in memory); later tokens are checked when they are read.
  void check_fits(const ModelSpec& model, const OnProgress& on_progress = ignore_progress) const override;

  Batch training_batch(std::span<const TrainingSample> samples, const ImageAugmentation& augmentation,
                       uint64_t seed, const std::stop_token& stop = {}) const override;
  Batch eval_batch(std::span<const int64_t> samples) const override;

 private:
  struct Shard {
    TokenShard tokens;
    int64_t first_sample;
  };

  int64_t samples_in(const TokenShard& shard) const;
  [[noreturn]] void refuse_short_shards() const;
  Batch batch_of(std::span<const int64_t> samples, const std::stop_token& stop) const;

  MappedFile::Access access_;
  int64_t sequence_length_;
  int64_t vocab_size_;
  std::string note_;
  std::vector<Shard> shards_;
  int64_t size_ = 0;
};

/// The shards of a split, as files_of_split() finds them.
std::vector<std::filesystem::path> token_shards_of(const DataSpec& spec, Split split);

/// Runs scan_shard on all shards of a split, for `data check`; different token sizes are a problem too.
/// Progress is reported in shards. Throws the errors of files_of_split().
std::vector<TokenScan> scan_tokens(const DataSpec& spec, Split split, int64_t vocab_size,
                                   const OnProblem& on_problem,
                                   const OnProgress& on_progress = ignore_progress);

// The tokenizer that made the tokens, as far as the shards' folder records it.

struct TokenOrigin {
  /// Begins every document, and so ends the previous one.
  std::optional<int64_t> end_of_text = {};
  /// Content of a tokenizer.json of Hugging Face's library.
  std::optional<std::filesystem::path> tokenizer = {};
  /// Number of tokens of that tokenizer, with the added ones.
  std::optional<int64_t> vocab_size = {};
};

/// For the first training shard NAME_train_*.bin: read from the files that scripts/prepare_tokens.py writes
/// beside it (NAME.state.json, NAME.tokenizer.json). Without them: GPT-2's end of text, 50256, if the shard
/// begins with it, as those of llm.c's scripts do. std::nullopt members if there are no shards.
TokenOrigin token_origin(const DataSpec& spec);

/// What to tell if a model's vocabulary is much larger than that of the tokens, so that most of embedding and
/// head are never used, or than the numbers that fit into a token of the shards; else empty. A multiple of
/// 128 or up to a tenth more is usual. `tokens`: their number.
std::string unused_vocabulary_note(int64_t vocab_size, int64_t tokens, int64_t token_bytes);

}  // namespace sdp
