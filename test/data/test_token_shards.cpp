#include <fcntl.h>
#include <unistd.h>

#include "catch.h"
#include "data/tokens.h"
#include "fixtures.h"
#include "spec/error.h"

using namespace sdp;
using namespace sdp::testing;

namespace {

constexpr int64_t kAnyVocabulary = int64_t{1} << 32;

std::vector<int64_t> sample(const TokenDataset& dataset, int64_t index) {
  Buffer<int64_t> tokens;
  dataset.append_sample(index, tokens);
  return {tokens.begin(), tokens.end()};
}

struct Checked {
  std::vector<TokenScan> scans;
  std::vector<std::string> problems;
};

Checked check(const DataSpec& spec, int64_t vocab_size) {
  Checked checked;
  checked.scans = scan_tokens(spec, Split::kTrain, vocab_size,
                              [&](const std::string& message) { checked.problems.push_back(message); });
  return checked;
}

}  // namespace

TEST_CASE("all shards of a set have tokens of one size", "[data]") {
  const TempFolder folder;
  folder.write("x_train_0.bin", token_shard({1, 2, 3}));
  folder.write("x_train_1.bin", wide_token_shard({1, 2, 3}));
  const DataSpec spec = tokens_in(folder.path(), 2);
  CHECK_SAYS(message_of<DataError>([&] { TokenDataset(spec, Split::kTrain, kAnyVocabulary); }),
             "x_train_1.bin: tokens of 32 bits", "x_train_0.bin has tokens of 16 bits", "data.train_files");
  const Checked checked = check(spec, 10);
  REQUIRE(checked.problems.size() == 1);
  CHECK_SAYS(checked.problems[0], "x_train_1.bin: tokens of 32 bits");
}

TEST_CASE("a token beyond the vocabulary is an error when it is read, wherever in the sample it is",
          "[data]") {
  const TempFolder folder;
  const int64_t length = 40;  // more than a vector register, with a remainder
  for (const int64_t vocab_size : {1, 300, 32767, 50257, 65535}) {
    for (const int64_t place : {0, 1, 15, 31, 39, 40}) {
      std::vector<uint16_t> tokens(2 * length + 1);
      tokens[static_cast<size_t>(length + place)] = static_cast<uint16_t>(vocab_size);
      folder.write("x_train_0.bin", token_shard(tokens));
      const TokenDataset dataset(tokens_in(folder.path(), length), Split::kTrain, vocab_size);
      CAPTURE(vocab_size, place);
      CHECK_SAYS(message_of<DataError>([&] { sample(dataset, 1); }),
                 "x_train_0.bin: token " + std::to_string(vocab_size) + " at position " +
                     std::to_string(length + place) + " (offset " +
                     std::to_string(1024 + 2 * (length + place)),
                 "model.vocab_size: " + std::to_string(vocab_size), "data check");
      const std::vector<TrainingSample> order = {{.position = 0, .index = 1}};
      CHECK_THROWS_AS(dataset.training_batch(order, {}, 0), DataError);
      CHECK_THROWS_AS(dataset.eval_batch(std::vector<int64_t>{0, 1}), DataError);
      if (place > 0) CHECK_NOTHROW(sample(dataset, 0));
      const TokenDataset larger(tokens_in(folder.path(), length), Split::kTrain, vocab_size + 1);
      CHECK(sample(larger, 1)[static_cast<size_t>(place)] == vocab_size);
    }
  }
}

TEST_CASE("the same with tokens of 32 bits, up to the largest possible token", "[data]") {
  const TempFolder folder;
  for (const int64_t vocab_size :
       {int64_t{1}, int64_t{128256}, int64_t{1} << 31, (int64_t{1} << 31) + 1, (int64_t{1} << 32) - 1})
    for (const int64_t token : {vocab_size, (int64_t{1} << 31) - 1, int64_t{1} << 31,
                                (int64_t{1} << 31) + 128255, (int64_t{1} << 32) - 1}) {
      CAPTURE(vocab_size, token);
      std::vector<uint32_t> tokens(12, static_cast<uint32_t>(vocab_size - 1));
      tokens[9] = static_cast<uint32_t>(token);
      folder.write("x_train_0.bin", wide_token_shard(tokens));
      const TokenDataset dataset(tokens_in(folder.path(), 11), Split::kTrain, vocab_size);
      const std::string error = message_of<DataError>([&] { sample(dataset, 0); });
      if (token < vocab_size)
        CHECK(error.empty());
      else
        CHECK_SAYS(error, "token " + std::to_string(token) + " at position 9 (offset 1060)");
    }
}

TEST_CASE("shards with more than 2^32 tokens state their number modulo 2^32", "[data]") {
  const TempFolder folder;
  const std::filesystem::path path = folder.path() / "x_train_0.bin";
  const int64_t tokens = (int64_t{1} << 32) + 9;
  const auto write = [&](uint32_t stated, int64_t size) {
    folder.write("x_train_0.bin", token_header(stated, 20240520, 1));
    std::filesystem::resize_file(path, static_cast<uintmax_t>(1024 + 2 * size));  // takes no space
    const std::vector<uint16_t> last = {11, 12, 13, 14, 15};
    const int file = ::open(path.c_str(), O_WRONLY);
    REQUIRE(::pwrite(file, last.data(), 10, 1024 + 2 * (tokens - 5)) == 10);
    ::close(file);
  };
  write(9, tokens);
  const TokenDataset dataset(tokens_in(folder.path(), 4), Split::kTrain, 16);
  REQUIRE(dataset.size() == (tokens - 1) / 4);
  CHECK(sample(dataset, dataset.size() - 1) == std::vector<int64_t>{11, 12, 13, 14, 15});
  CHECK(sample(dataset, dataset.size() - 2) == std::vector<int64_t>{0, 0, 0, 0, 11});
  const TokenDataset small(tokens_in(folder.path(), 4), Split::kTrain, 14);
  CHECK_SAYS(message_of<DataError>([&] { sample(small, small.size() - 1); }),
             "token 14 at position 4294967303 (offset 8589935630)");

  write(8, tokens);
  CHECK_SAYS(message_of<DataError>([&] { TokenDataset(tokens_in(folder.path(), 4), Split::kTrain, 16); }),
             "8589935634 bytes, expected 8589935632 for the 4294967304 tokens", "(modulo 2^32)");
}

TEST_CASE("a scan reads what can be read of all shards and names every problem", "[data]") {
  // The numbers are compared with numpy's by oracle.py.
  const TempFolder folder;
  folder.write("x_train_0.bin", token_shard({7, 900, 2, 500}));
  folder.write("x_train_1.bin", token_shard({5, 6}));
  folder.write("x_train_2.bin", "short");
  folder.write("x_train_3.bin", token_shard({8, 9, 1000}).substr(0, 1024 + 5));
  folder.write("x_train_4.bin", token_shard({8, 9, 10}, 3, 1));
  std::filesystem::create_symlink("nowhere", folder.path() / "x_train_5.bin");
  const Checked checked = check(tokens_in(folder.path(), 2), 500);
  std::vector<int64_t> tokens;
  for (const TokenScan& scan : checked.scans)
    tokens.push_back(scan.tokens);
  CHECK(tokens == std::vector<int64_t>{4, 2, 0, 2, 0, 0});
  REQUIRE(checked.problems.size() == 5);
  CHECK_SAYS(checked.problems[0], "x_train_0.bin: 2 of 4 tokens", "position 1 (offset 1026)");
  for (size_t problem = 1; problem < 5; ++problem)
    CHECK_SAYS(checked.problems[problem], "x_train_" + std::to_string(problem + 1) + ".bin");
  CHECK_THROWS_AS(scan_tokens(tokens_in(folder.path(), 2), Split::kTrain, 500, throw_problem), DataError);
}
