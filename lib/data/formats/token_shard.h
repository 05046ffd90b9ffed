#pragma once

// A file of tokens as llm.c's scripts write it (https://github.com/karpathy/llm.c, dev/data/data_common.py):
// a header of 256 int32 (magic number, version, number of tokens, zeros), then the tokens; all little-endian.
//   magic 20240520, version 1: tokens as uint16 ("gpt-2")
//   magic 20240801, version 7: tokens as uint32 ("llama-3")
// llm.c's own files have fewer than 2^31 tokens. In longer ones the number in the header is meant modulo
// 2^32: the file's size says how many there are, and the header has to agree in the lower 32 bits.

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "data/dataset.h"
#include "io/file.h"

namespace sdp {

/// A shard, mapped. Positions count its tokens from 0; those outside throw std::logic_error.
class TokenShard {
 public:
  /// Checks the header of `file`, which is the one at `path`, against its size. What is wrong goes to
  /// `on_problem`: where that returns, the shard has the tokens that are whole, or none if the header does
  /// not say what they are.
  TokenShard(std::filesystem::path path, MappedFile file, const OnProblem& on_problem = throw_problem);

  const std::filesystem::path& path() const { return path_; }
  int64_t size() const;
  /// 2 or 4; 0 where the header does not say.
  int64_t token_bytes() const { return token_bytes_; }
  /// Of a token, in the file.
  int64_t offset_bytes(int64_t position) const;

  void advise(MappedFile::Access access) const { file_.advise(access); }

  /// use(std::span<const uint16_t or uint32_t>) with the tokens begin..begin+count-1.
  template <class Use>
  auto visit(int64_t begin, int64_t count, Use use) const {
    check_positions(begin, count);
    return std::visit(
        [&](auto tokens) {
          return use(tokens.subspan(static_cast<size_t>(begin), static_cast<size_t>(count)));
        },
        tokens_);
  }

  /// Appends the tokens begin..begin+count-1 to `tokens`. Throws DataError that names the position of the
  /// first one that is not below `vocab_size`.
  void append(int64_t begin, int64_t count, int64_t vocab_size, Buffer<int64_t>& tokens) const;

 private:
  void check_positions(int64_t begin, int64_t count) const;

  std::filesystem::path path_;
  MappedFile file_;
  int64_t token_bytes_ = 0;
  std::variant<std::span<const uint16_t>, std::span<const uint32_t>> tokens_;  // in file_
};

/// A loop over all, which unlike std::max_element has vector instructions. 0 where there is none.
template <class Token>
Token largest_of(std::span<const Token> tokens) {
  Token largest = 0;
  for (const Token token : tokens)
    largest = std::max(largest, token);
  return largest;
}

/// What is in a shard, for `data check`.
struct TokenScan {
  std::filesystem::path path;
  int64_t token_bytes = 0;  ///< 2 or 4; 0 where the header does not say
  int64_t tokens = 0;       ///< that are whole
  std::optional<int64_t> smallest = {};
  std::optional<int64_t> largest = {};
  int64_t beyond_vocab = 0;                        ///< tokens that are not below the vocabulary size
  std::optional<int64_t> first_beyond_vocab = {};  ///< position of the first of them
};

/// Reads all tokens of a shard. Everything that is wrong goes to `on_problem`: a file that cannot be opened,
/// its header, its size, and tokens that are not below `vocab_size`, with the position of the first and how
/// many there are.
TokenScan scan_shard(const std::filesystem::path& path, int64_t vocab_size, const OnProblem& on_problem);

}  // namespace sdp
