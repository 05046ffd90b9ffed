#pragma once

// Text as GPT-2 tokens, in the shards that llm.c and its FineWeb scripts write
// (https://github.com/karpathy/llm.c, dev/data/data_common.py): a header of 256 int32 (magic number 20240520,
// version 1, number of tokens, zeros), then the tokens as uint16; all little-endian.

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "data/dataset.h"
#include "io/file.h"

namespace sdp {

/// Sample i is T + 1 tokens, of which inputs are the first T and targets the last T; sample i + 1 begins with
/// the last token of sample i. Samples do not cross shards: what is left at a shard's end is not used.
class TokenDataset final : public Dataset {
 public:
  /// The shards of a split are the files *train*.bin or *val*.bin (test) in `folder`, in order of their
  /// names. Throws DataError when there is none, one is damaged, or none holds a sample.
  TokenDataset(const std::filesystem::path& folder, Split split, int64_t sequence_length);

  int64_t size() const override { return size_; }
  int64_t sequence_length() const { return sequence_length_; }

  /// Fills `tokens` with the T + 1 tokens of a sample. A span of another size throws std::logic_error.
  void read(int64_t index, std::span<int64_t> tokens) const;

  struct Place {
    std::filesystem::path shard;
    int64_t position;  ///< in the shard, from 0
    int64_t token;
  };
  /// The largest token of the first `most` tokens (of the shards in order), at its first place.
  Place largest_token(int64_t most) const;

  /// Whether model.vocab_size has all tokens. Reads the first 2^29 tokens (1 GiB, a second once the file is
  /// in memory); what comes after them is not looked at.
  void check_fits(const ModelSpec& model) const override;

  Batch training_batch(std::span<const TrainingSample> samples, const ImageAugmentation& augmentation,
                       uint64_t seed, const std::stop_token& stop = {}) const override;
  Batch eval_batch(int64_t begin, int64_t end) const override;

 private:
  struct Shard {
    std::filesystem::path path;
    MappedFile file;
    std::span<const uint16_t> tokens;  // in `file`
    int64_t first_sample;
  };

  static Shard open_shard(const std::filesystem::path& path, int64_t first_sample);
  int64_t samples_in(const Shard& shard) const;
  Batch empty_batch(size_t size) const;
  void read_into(Batch& batch, size_t place, int64_t index) const;

  int64_t sequence_length_;
  std::vector<Shard> shards_;
  int64_t size_ = 0;
};

}  // namespace sdp
