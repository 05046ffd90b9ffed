#pragma once

// A file of tokens in the format of llm.c's scripts (https://github.com/karpathy/llm.c,
// dev/data/data_common.py): a header of 256 int32 (magic number, version, number of tokens, zeros), then the
// tokens, all little-endian.
//   magic 20240520, version 1: tokens as uint16 ("gpt-2")
//   magic 20240801, version 7: tokens as uint32 ("llama-3")
// llm.c's own files have fewer than 2^31 tokens. In longer ones the number in the header is modulo 2^32: the
// file size determines the number of tokens, and the header must agree in the lower 32 bits.

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "formats/buffer.h"
#include "formats/on_problem.h"
#include "io/file.h"

namespace sdp {

/// What to do about a token that is not below the vocabulary's size. Of `token_bytes`.
std::string advice_beyond_vocab(int64_t token, int64_t token_bytes);

/// A memory-mapped shard. Positions count its tokens from 0; invalid positions throw std::logic_error.
class TokenShard {
 public:
  /// Checks the header of `file`, opened from `path`, against its size. Problems are passed to `on_problem`;
  /// if that returns, the shard has all complete tokens, or none if the header does not give their size.
  TokenShard(std::filesystem::path path, MappedFile file, const OnProblem& on_problem = throw_problem);

  const std::filesystem::path& path() const { return path_; }
  int64_t size() const;
  /// 2 or 4; 0 if the header does not say.
  int64_t token_bytes() const { return token_bytes_; }
  /// Offset of a token in the file.
  int64_t offset_bytes(int64_t position) const;

  void advise(MappedFile::Access access) const { file_.advise(access); }

  /// Calls use(std::span<const uint16_t or uint32_t>) with the tokens begin..begin+count-1.
  template <class Use>
  auto visit(int64_t begin, int64_t count, Use use) const {
    check_positions(begin, count);
    return std::visit(
        [&](auto tokens) {
          return use(tokens.subspan(static_cast<size_t>(begin), static_cast<size_t>(count)));
        },
        tokens_);
  }

  /// Appends the tokens begin..begin+count-1 to `tokens`. Throws DataError with the position of the first
  /// token that is not below `vocab_size`.
  void append(int64_t begin, int64_t count, int64_t vocab_size, Buffer<int64_t>& tokens) const;

 private:
  void check_positions(int64_t begin, int64_t count) const;

  std::filesystem::path path_;
  MappedFile file_;
  int64_t token_bytes_ = 0;
  std::variant<std::span<const uint16_t>, std::span<const uint32_t>> tokens_;  // views into file_
};

/// The largest token; 0 if there is none. A plain loop, which unlike std::max_element compiles to vector
/// instructions.
template <class Token>
Token largest_of(std::span<const Token> tokens) {
  Token largest = 0;
  for (const Token token : tokens)
    largest = std::max(largest, token);
  return largest;
}

/// Statistics of a shard, for `data check`.
struct TokenScan {
  std::filesystem::path path;
  int64_t token_bytes = 0;  ///< 2 or 4; 0 if the header does not say
  int64_t tokens = 0;       ///< number of complete tokens
  std::optional<int64_t> smallest = {};
  std::optional<int64_t> largest = {};
  int64_t beyond_vocab = 0;  ///< number of tokens that are not below the vocabulary size
  std::optional<int64_t> first_beyond_vocab = {};  ///< position of the first such token
};

/// Reads all tokens of a shard. All problems are passed to `on_problem`: a file that cannot be opened, its
/// header, its size, and tokens that are not below `vocab_size`, with their number and the position of the
/// first.
TokenScan scan_shard(const std::filesystem::path& path, int64_t vocab_size, const OnProblem& on_problem);

}  // namespace sdp
