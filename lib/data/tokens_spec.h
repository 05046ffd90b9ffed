#pragma once

// Text as tokens: the section `data`. See tokens.h.

#include "data/set_row.h"

namespace sdp {

struct TokensSpec {
  static constexpr auto names = std::to_array<std::string_view>({"tokens"});
  static constexpr DataKind kind = DataKind::kTokens;

  std::optional<std::string> train_files = {};
  std::optional<std::string> test_files = {};
  int64_t sequence_length = 1024;

  bool operator==(const TokensSpec&) const = default;

  template <class Visitor>
  static void fields(Visitor& field) {
    field("train_files", &TokensSpec::train_files,
          "names of the training shards in `path`, with * and ?; unset: *train*.bin", OnResume::kFixed,
          InReport::kNotCompared);
    field("test_files", &TokensSpec::test_files,
          "names of the shards for evaluation; unset: *val*.bin or *test*.bin", OnResume::kRestOfRun,
          InReport::kCompared);
    field("sequence_length", &TokensSpec::sequence_length, "length of a training sample",
          OnResume::kRestOfRun, InReport::kCompared, in_range(1, 1 << 20), "tokens");
  }

  void resolve(const ModelSpec&) {}
  static std::vector<Augmentation> usual_augmentation() { return {}; }
  static std::optional<int64_t> official_samples() { return std::nullopt; }
  MissingData missing() const;
};

std::unique_ptr<Dataset> open_set(const TokensSpec& spec, const DataSpec& data, const ModelSpec& model,
                                  Split split, const OnProgress& on_progress);
void check_set(const TokensSpec& spec, const DataSpec& data, const ModelSpec& model, int64_t threads,
               SplitReport& report, const OnProgress& on_progress);

}  // namespace sdp
