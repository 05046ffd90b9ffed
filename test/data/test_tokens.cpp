#include <numeric>

#include "catch.h"
#include "data/pipeline/loader.h"
#include "data/sets/tokens.h"
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

std::vector<int64_t> read(const TokenDataset& dataset, int64_t index) {
  Buffer<int64_t> tokens;
  dataset.append_sample(index, tokens);
  return {tokens.begin(), tokens.end()};
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

TEST_CASE("samples are the windows of each shard, in the order of the shards' names", "[data]") {
  const TempFolder folder;
  folder.write("b_train_000002.bin", token_shard(counting(6, 300)));   // one sample, one token left
  folder.write("b_train_000000.bin", token_shard(counting(12, 100)));  // two samples, three tokens left
  folder.write("b_train_000001.bin", token_shard(counting(4, 200)));   // none
  folder.write("a_train_000009.bin", token_shard({}));                 // none
  folder.write("b_train_000003.bin", token_shard({65535, 0, 50256, 7, 8}));
  folder.write("b_val_000000.bin", token_shard(counting(5, 900)));
  folder.write("train.txt", "not a shard");
  folder.write("other.bin", "neither split");

  const TokenDataset train = open(folder, Split::kTrain, 4);
  REQUIRE(train.size() == 4);
  CHECK(read(train, 0) == std::vector<int64_t>{100, 101, 102, 103, 104});
  CHECK(read(train, 1) == std::vector<int64_t>{104, 105, 106, 107, 108});
  CHECK(read(train, 2) == std::vector<int64_t>{300, 301, 302, 303, 304});
  CHECK(read(train, 3) == std::vector<int64_t>{65535, 0, 50256, 7, 8});
  const TokenDataset test = open(folder, Split::kTest, 4);
  REQUIRE(test.size() == 1);
  CHECK(read(test, 0) == std::vector<int64_t>{900, 901, 902, 903, 904});
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

TEST_CASE("indices, spans and lengths out of range are refused", "[data]") {
  const TempFolder folder;
  write_shards(folder);
  const TokenDataset dataset = open(folder, Split::kTrain, 8);
  CHECK_THROWS_AS(read(dataset, 30), std::logic_error);
  CHECK_THROWS_AS(read(dataset, -1), std::logic_error);
  CHECK_THROWS_AS(dataset.eval_batch(std::vector<int64_t>{29, 30}), std::logic_error);
  CHECK_THROWS_AS(open(folder, Split::kTrain, 0), std::logic_error);
}

TEST_CASE("damaged shards are named with the damage", "[data]") {
  const TempFolder folder;
  folder.write("x_train_0.bin", token_shard(counting(100, 0)));
  REQUIRE(open_error(folder.path()).empty());
  const auto error = [&](const std::string& bytes) {
    folder.write("x_train_1.bin", bytes);
    return open_error(folder.path());
  };
  const std::vector<uint16_t> tokens = counting(100, 0);
  CHECK_SAYS(error(""), "x_train_1.bin: 0 bytes", "header of 1024 bytes");
  CHECK_SAYS(error(token_shard(tokens).substr(0, 1000)), "x_train_1.bin: 1000 bytes");
  CHECK_SAYS(error(token_shard(tokens, 100, 20240522)), "x_train_1.bin: magic number 20240522 at offset 0",
             "20240520 (tokens of 16 bits)", "20240801 (of 32 bits)", "write it");
  CHECK_SAYS(error(token_shard(tokens, 100, 20240520, 7)), "x_train_1.bin: version 7 at offset 4",
             "expected 1", "Write the shard");
  CHECK_SAYS(error(token_shard(tokens, 100, 20240801, 1)), "x_train_1.bin: version 1",
             "expected 7 with magic number 20240801");
  CHECK_SAYS(error(token_shard(tokens, 100, 20240801, 7)),
             "x_train_1.bin: 1224 bytes, expected 1424 for the 100 tokens");
  CHECK_SAYS(error(token_shard(tokens).substr(0, 1223)),
             "x_train_1.bin: 1223 bytes, expected 1224 for the 100 tokens", "copy it again");
  CHECK_SAYS(error(token_shard(tokens) + "x"), "x_train_1.bin: 1225 bytes, expected 1224");
  CHECK_SAYS(error(token_shard(tokens, 99)), "x_train_1.bin: 1224 bytes, expected 1222");
  CHECK_SAYS(error(token_shard({}, -1)), "x_train_1.bin: 1024 bytes", "4294967295 tokens");
  CHECK_SAYS(error("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 200001024\n"),
             "x_train_1.bin: is a Git LFS pointer");
  CHECK_SAYS(error("<!doctype html>\n<title>Not found</title>" + std::string(2000, ' ')),
             "x_train_1.bin: is an HTML page");
  CHECK_SAYS(error("\n<html>"), "x_train_1.bin: is an HTML page");
  CHECK_SAYS(error("\x1f\x8b\x08" + std::string(2000, 'z')), "x_train_1.bin: is compressed by gzip");
  CHECK_SAYS(error("\x28\xb5\x2f\xfd" + std::string(2000, 'z')), "x_train_1.bin: is compressed by zstd");
  CHECK(error(token_shard(tokens)).empty());
  folder.write("dir_train.bin/inside", "a folder is no shard");
  CHECK(open_error(folder.path()).empty());
  std::filesystem::create_symlink("nowhere", folder.path() / "x_train_2.bin");
  CHECK_SAYS(open_error(folder.path()), "cannot open", "x_train_2.bin", "No such file");
}

TEST_CASE("folders without shards of the split, and ambiguous names", "[data]") {
  const TempFolder folder;
  CHECK_SAYS(open_error(folder.path()), folder.path().string() + " holds no *train*.bin. Found 0 other");
  CHECK_SAYS(open_error(folder.path() / "absent"), "cannot list", "absent");
  folder.write("x_val_0.bin", token_shard(counting(9, 0)));
  CHECK_SAYS(open_error(folder.path()), "no *train*.bin. Found 1 other *.bin (x_val_0.bin, ..)");
  folder.write("retrieval_train_0.bin", token_shard(counting(9, 0)));
  for (const Split split : {Split::kTrain, Split::kTest})
    CHECK_SAYS(open_error(folder.path(), split), "retrieval_train_0.bin", "both 'train' and 'val'");
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

TEST_CASE("the largest token of 16 bits is beyond a vocabulary of 65535", "[data]") {
  const TempFolder folder;
  folder.write("x_train_0.bin", token_shard({0, 65535}));
  const TokenDataset dataset = open(folder, Split::kTrain, 1);
  CHECK_THROWS_AS(dataset.check_fits(model_of(65535)), UsageError);
  CHECK_NOTHROW(dataset.check_fits(model_of(65536)));
}

TEST_CASE("a loader of tokens gives the samples of its positions with any number of threads", "[data]") {
  const TempFolder folder;
  write_shards(folder);
  const TokenDataset dataset = open(folder, Split::kTrain, 8);
  const TrainingBatches batches{
      .geometry = {.workers = 2, .replicas = 1, .accumulate_steps = 2, .batch_size = 3},
      .slots = {{.worker = 1, .replica = 0}, {.worker = 0, .replica = 0}},
      .first_step = 1,
      .last_step = 9,  // into the fourth epoch
      .seed = 5,
  };
  const Sampler sampler(30, batches.seed);
  for (const int64_t threads : {1, 2, 4}) {
    BatchLoader loader(dataset, batches, {.threads = threads, .prefetch_batches = 3});
    for (int64_t step = 1; step < 9; ++step)
      for (int64_t micro_batch = 0; micro_batch < 2; ++micro_batch)
        for (const SlotId& slot : batches.slots) {
          Batch expected;
          for (int64_t i = 0; i < 3; ++i) {
            const int64_t index =
                sampler.index(batches.geometry.position(step, slot.worker, slot.replica, micro_batch, i));
            expected.samples.push_back(index);
            // The token at `index` of shard s is 1000 * s + index.
            for (int64_t token = 0; token < 9; ++token)
              expected.tokens.push_back(index / 10 * 1000 + index % 10 * 8 + token);
          }
          CHECK(loader.next() == expected);
        }
    CHECK(loader.done());
  }
}
