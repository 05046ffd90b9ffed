#include "data/sets/token_origin.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "data/sets/tokens.h"
#include "io/file.h"
#include "spec/error.h"

namespace sdp {

namespace fs = std::filesystem;

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
