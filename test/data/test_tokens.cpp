#include <fmt/format.h>
#include <sys/resource.h>

#include <fstream>
#include <limits>

#include "catch.h"
#include "data/tokens.h"
#include "fixtures.h"

using namespace sdp;
using namespace sdp::testing;

// Samples and scans: oracle.py and test/fuzz. A vocabulary that is too small: test/cli/test_inputs.py.

namespace {

constexpr int64_t kBeyondInt32 = int64_t{1} << 31;

TokenDataset open(const TempFolder& folder, int64_t sequence_length, int64_t vocab_size = int64_t{1} << 32) {
  return {tokens_in(folder.path(), sequence_length), Split::kTrain, vocab_size};
}

std::string open_error(const TempFolder& folder) {
  return message_of<DataError>([&] { open(folder, 4); });
}

std::vector<int64_t> sample(const TokenDataset& dataset, int64_t index) {
  Buffer<int64_t> tokens;
  dataset.append_sample(index, tokens);
  return {tokens.begin(), tokens.end()};
}

/// Each vocabulary with tokens within it and beyond it, at every kind of place in a sample.
template <class Token>
void check_vocabularies(const std::vector<int64_t>& vocabularies, const std::vector<int64_t>& more_tokens) {
  constexpr int64_t kLength = 40;  // more than a vector register, with a remainder
  const TempFolder folder;
  for (const int64_t vocab_size : vocabularies)
    for (const int64_t place : {0, 15, 31, 40}) {
      std::vector<int64_t> tokens = {vocab_size - 1, vocab_size};
      tokens.insert(tokens.end(), more_tokens.begin(), more_tokens.end());
      for (const int64_t token : tokens) {
        CAPTURE(vocab_size, place, token);
        const int64_t position = kLength + place;
        std::vector<Token> shard(2 * kLength + 1);
        shard[static_cast<size_t>(position)] = static_cast<Token>(token);
        if constexpr (sizeof(Token) == 2)
          folder.write("x_train_0.bin", token_shard(shard));
        else
          folder.write("x_train_0.bin", wide_token_shard(shard));
        const TokenDataset dataset = open(folder, kLength, vocab_size);
        if (token < vocab_size) {
          CHECK(sample(dataset, 1)[static_cast<size_t>(place)] == token);
          continue;
        }
        CHECK_SAYS(message_of<DataError>([&] { sample(dataset, 1); }),
                   fmt::format("x_train_0.bin: token {} at position {} (offset {})", token, position,
                               1024 + static_cast<int64_t>(sizeof(Token)) * position),
                   fmt::format("model.vocab_size: {}", vocab_size));
        CHECK_THROWS_AS(dataset.training_batch(std::vector{TrainingSample{0, 1}}, {}, 0), DataError);
        CHECK_THROWS_AS(dataset.eval_batch(std::vector<int64_t>{0, 1}), DataError);
        if (place > 0) CHECK_NOTHROW(sample(dataset, 0));
      }
    }
}

}  // namespace

TEST_CASE("a token beyond the vocabulary is an error when it is read, wherever in the sample it is") {
  check_vocabularies<uint16_t>({1, 300, 32767, 65535}, {65535});
  constexpr int64_t kLargest = std::numeric_limits<uint32_t>::max();
  check_vocabularies<uint32_t>({1, 128256, kBeyondInt32, kBeyondInt32 + 1, kLargest},
                               {kBeyondInt32 - 1, kBeyondInt32, kBeyondInt32 + 128255, kLargest});
}

TEST_CASE("damaged shards are named with the damage") {
  const TempFolder folder;
  const std::vector<uint16_t> tokens(100);
  folder.write("x_train_0.bin", token_shard(tokens));
  for (const auto& [bytes, damage] :
       {std::pair{std::string(), "0 bytes"},
        {token_shard(tokens).substr(0, 1000), "1000 bytes"},
        {token_shard(tokens, 100, 20240522), "magic number 20240522 at offset 0"},
        {token_shard(tokens, 100, 20240520, 7), "version 7 at offset 4"},
        {token_shard(tokens, 100, 20240801, 1), "version 1"},
        {token_shard(tokens, 100, 20240801, 7), "1224 bytes, expected 1424"},
        {token_shard(tokens).substr(0, 1223), "1223 bytes, expected 1224"},
        {token_shard(tokens) + "x", "1225 bytes, expected 1224"},
        {token_shard(tokens, 99), "1224 bytes, expected 1222"},
        {token_shard({}, -1), "1024 bytes"},
        {"\x1f\x8b\x08" + std::string(2000, 'z'), "is compressed by gzip"}}) {
    folder.write("x_train_1.bin", bytes);
    CHECK_SAYS(open_error(folder), std::string("x_train_1.bin: ") + damage);
  }
  folder.write("x_train_1.bin", token_shard(tokens));
  folder.write("dir_train.bin/inside", "a folder is no shard");
  CHECK(open_error(folder).empty());
  std::filesystem::create_symlink("nowhere", folder / "x_train_2.bin");
  CHECK_SAYS(open_error(folder), "x_train_2.bin", "No such file");
}

TEST_CASE("shards with more than 2^32 tokens, which a process does not hold, state them modulo 2^32") {
  const TempFolder folder;
  const int64_t tokens = (int64_t{1} << 32) + 9;
  const auto write = [&](uint32_t stated) {
    const auto path = folder.write("x_train_0.bin", token_header(stated, 20240520, 1));
    std::filesystem::resize_file(path, static_cast<uintmax_t>(1024 + 2 * (tokens - 5)));  // takes no space
    std::ofstream(path, std::ios::binary | std::ios::app) << token_shard({11, 12, 13, 14, 15}).substr(1024);
  };
  write(9);
  rlimit unlimited{};
  getrlimit(RLIMIT_DATA, &unlimited);
  const rlimit little{.rlim_cur = rlim_t{1} << 32, .rlim_max = unlimited.rlim_max};
  REQUIRE(setrlimit(RLIMIT_DATA, &little) == 0);
  const TokenDataset dataset = open(folder, 4, 16), small = open(folder, 4, 14);
  REQUIRE(dataset.size() == (tokens - 1) / 4);
  CHECK(sample(dataset, dataset.size() - 1) == std::vector<int64_t>{11, 12, 13, 14, 15});
  CHECK(sample(dataset, dataset.size() - 2) == std::vector<int64_t>{0, 0, 0, 0, 11});
  CHECK_SAYS(message_of<DataError>([&] { sample(small, small.size() - 1); }),
             "token 14 at position 4294967303 (offset 8589935630)");
  setrlimit(RLIMIT_DATA, &unlimited);
  write(8);
  CHECK_SAYS(open_error(folder), "8589935634 bytes, expected 8589935632", "4294967304 tokens", "modulo 2^32");
}

TEST_CASE("a scan reads what can be read of all shards and names every problem") {
  const TempFolder folder;
  const std::vector<std::string> shards = {token_shard({7, 900, 2, 500}),
                                           token_shard({5, 6}),
                                           "short",
                                           token_shard({8, 9, 1000}).substr(0, 1024 + 5),
                                           token_shard({8, 9, 10}, 3, 1),
                                           "",
                                           wide_token_shard({1, 2, 3})};
  const auto name = [](size_t shard) { return fmt::format("x_train_{}.bin", shard); };
  for (size_t i = 0; i < shards.size(); ++i)
    if (i == 5)
      std::filesystem::create_symlink("nowhere", folder / name(5));
    else
      folder.write(name(i), shards[i]);
  std::vector<std::string> problems;
  std::vector<int64_t> tokens;
  const DataSpec spec = tokens_in(folder.path(), 2);
  for (const TokenScan& scan : scan_tokens(spec, Split::kTrain, 500, collect_into(problems)))
    tokens.push_back(scan.tokens);
  CHECK(tokens == std::vector<int64_t>{4, 2, 0, 2, 0, 0, 3});
  const std::vector<std::string> sizes = {"x_train_6.bin: tokens of 32 bits",
                                          "x_train_0.bin has tokens of 16 bits"};
  CHECK(lacks(problems, {{"x_train_0.bin: 2 of 4 tokens", "position 1 (offset 1026)"},
                         {name(2)},
                         {name(3)},
                         {name(4)},
                         {name(5)},
                         sizes}) == "");
  CHECK_THROWS_AS(scan_tokens(spec, Split::kTrain, 500, throw_problem), DataError);
  for (const size_t damaged : {2, 3, 4, 5})
    std::filesystem::remove(folder / name(damaged));
  CHECK(lacks(open_error(folder), sizes) == "");
}
