#include <numeric>

#include "catch.h"
#include "data/loader.h"
#include "data/tokens.h"
#include "fixtures.h"
#include "spec/error.h"

using namespace sdp;
using namespace sdp::testing;

namespace {

/// first, first + 1, ..
std::vector<uint16_t> counting(size_t size, uint16_t first) {
  std::vector<uint16_t> tokens(size);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

constexpr int64_t kAnyVocabulary = int64_t{1} << 32;

TokenDataset open(const TempFolder& folder, Split split, int64_t sequence_length,
                  int64_t vocab_size = kAnyVocabulary) {
  return {tokens_in(folder.path(), sequence_length), split, vocab_size};
}

std::string open_error(const std::filesystem::path& folder, Split split = Split::kTrain) {
  return message_of<DataError>([&] { TokenDataset(tokens_in(folder, 4), split, kAnyVocabulary); });
}

/// 30 samples of 8 tokens in three shards.
void write_shards(const TempFolder& folder) {
  for (uint16_t shard = 0; shard < 3; ++shard)
    folder.write("text_train_00000" + std::to_string(shard) + ".bin",
                 token_shard(counting(10 * 8 + 1, static_cast<uint16_t>(1000 * shard))));
}

}  // namespace

ModelSpec model_of(int64_t vocab_size) {
  return {.kind = LlamaSpec{.vocab_size = vocab_size}};
}

TEST_CASE("open_dataset opens tokens with the sequence length of the spec", "[data]") {
  const TempFolder folder;
  write_shards(folder);
  const DataSpec spec = tokens_in(folder.path(), 5);
  const ModelSpec model = model_named("llama_tiny");
  const auto dataset = open_dataset(spec, model, Split::kTrain);
  CHECK(dataset->size() == 3 * 16);
  const Batch batch = dataset->eval_batch(std::vector<int64_t>{15, 16});
  CHECK(batch.samples == std::vector<int64_t>{15, 16});
  CHECK(batch.tokens == Buffer<int64_t>{75, 76, 77, 78, 79, 80, 1000, 1001, 1002, 1003, 1004, 1005});
  CHECK(batch.images.empty());
  CHECK(batch.labels.empty());
  CHECK(message_of<DataError>([&] {
          open_dataset(spec, model, Split::kTest);
        }).find("no *val*.bin or *test*.bin") != std::string::npos);
}

TEST_CASE("damaged shards are named with the damage", "[data]") {
  const TempFolder folder;
  folder.write("x_train_0.bin", token_shard(counting(100, 0)));
  REQUIRE(open_error(folder.path()).empty());
  const std::vector<uint16_t> tokens = counting(100, 0);
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
    CHECK_SAYS(open_error(folder.path()), std::string("x_train_1.bin: ") + damage);
  }
  folder.write("x_train_1.bin", token_shard(tokens));
  folder.write("dir_train.bin/inside", "a folder is no shard");
  CHECK(open_error(folder.path()).empty());
  std::filesystem::create_symlink("nowhere", folder.path() / "x_train_2.bin");
  CHECK_SAYS(open_error(folder.path()), "cannot open", "x_train_2.bin", "No such file");
}

TEST_CASE("shards too short for one sample are refused only if all are", "[data]") {
  const TempFolder folder;
  folder.write("x_train_0.bin", token_shard(counting(3, 0)));
  folder.write("x_train_1.bin", token_shard(counting(4, 0)));
  CHECK_SAYS(open_error(folder.path()), "x_train_0.bin",
             "the longest of 2 shards has 4 tokens, expected at least 5", "Lower data.sequence_length");
  folder.write("x_train_2.bin", token_shard(counting(5, 0)));
  CHECK(open_error(folder.path()).empty());
}

TEST_CASE("a vocabulary too small for a token is refused with the token's place", "[data]") {
  const TempFolder folder;
  folder.write("x_train_0.bin", token_shard({5, 6, 90, 7, 8}));
  folder.write("x_train_1.bin", token_shard({5, 300, 8, 300, 299, 1}));
  folder.write("x_train_2.bin", token_shard({300, 1}));
  const TokenDataset dataset = open(folder, Split::kTrain, 2);
  const TokenDataset::Place largest = dataset.largest_token(1000);
  CHECK(largest.shard.filename() == "x_train_1.bin");
  CHECK(largest.position == 1);
  CHECK(largest.token == 300);
  CHECK(dataset.largest_token(6).token == 90);
  CHECK(dataset.largest_token(7).token == 300);

  for (const int64_t enough : {301, 50257, 65536, 128256})
    CHECK_NOTHROW(dataset.check_fits(model_of(enough)));
  CHECK_SAYS(message_of<UsageError>([&] { dataset.check_fits(model_of(300)); }),
             "model.vocab_size: 300 is smaller than a token", "x_train_1.bin has token 300 at position 1",
             "Set model.vocab_size: 301");
}
