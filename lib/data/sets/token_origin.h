#pragma once

// The tokenizer that made the tokens, as far as the shards' folder records it.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "data/data_spec.h"

namespace sdp {

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
