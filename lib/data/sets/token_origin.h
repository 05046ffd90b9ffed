#pragma once

// What tokens mean: the tokenizer that made them, as far as the shards' folder tells.

#include <cstdint>
#include <filesystem>
#include <optional>

#include "data/data_spec.h"

namespace sdp {

struct TokenOrigin {
  /// Begins every document, and so ends the one before it.
  std::optional<int64_t> end_of_text = {};
  /// A tokenizer.json of Hugging Face's library.
  std::optional<std::filesystem::path> tokenizer = {};
};

/// Of the first training shard NAME_train_*.bin: what scripts/prepare_tokens.py has written beside it
/// (NAME.state.json, NAME.tokenizer.json). Without these: GPT-2's end of text, 50256, where the shard begins
/// with it, as those of llm.c's scripts do. Nothing where the shards are not there.
TokenOrigin token_origin(const DataSpec& spec);

}  // namespace sdp
