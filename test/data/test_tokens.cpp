#include <fmt/format.h>
#include <sys/resource.h>

#include <array>
#include <fstream>
#include <limits>
#include <optional>
#include <tuple>

#include "catch.h"
#include "data/split_files.h"
#include "data/tokens.h"
#include "fixtures.h"
#include "io/file.h"

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
        {token_shard(tokens, 100, 20240522), "magic number 20240522 at offset 0"},
        {token_shard(tokens, 100, 20240520, 7), "version 7 at offset 4"},
        {token_shard(tokens, 100, 20240801, 7), "1224 bytes, expected 1424"},
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

namespace {

using Names = std::vector<std::string>;

/// A folder of empty files, and the patterns that select from them.
struct Fixture {
  explicit Fixture(const Names& files) {
    for (const std::string& name : files)
      folder.write(name, "");
  }

  Names names(const std::vector<std::filesystem::path>& files) const {
    Names result;
    for (const std::filesystem::path& file : files) {
      CHECK(file.parent_path() == folder.path());
      result.push_back(file.filename().string());
    }
    return result;
  }
  Names names(Split split, bool val_and_test = false) const {
    return names(files_of_split(patterns, split, {".bin", val_and_test, "Expected shards."}));
  }
  template <class ErrorType>
  std::string error(Split split) const {
    return message_of<ErrorType>([&] { names(split); });
  }

  TempFolder folder;
  ShardPatterns patterns{.folder = folder.path()};
};

constexpr std::array<Split, 2> kSplits = {Split::kTrain, Split::kTest};

}  // namespace

TEST_CASE("files match a pattern of names and are sorted by name") {
  const Fixture set({"b_10.bin", "b_9.bin", "a_1.bin", "B_1.bin", "b_1.txt", ".b_1.bin", "b_1.bin.tmp",
                     "odd[1].bin", "inner/b_2.bin", "folder.bin/b_3.bin"});
  std::filesystem::create_symlink("nowhere", set.folder / "link.bin");
  const std::vector<std::pair<std::string, Names>> matches = {
      {"*.bin", {"B_1.bin", "a_1.bin", "b_10.bin", "b_9.bin", "link.bin", "odd[1].bin"}},
      {"b_?.bin", {"b_9.bin"}},
      {"?_1*", {"B_1.bin", "a_1.bin", "b_1.bin.tmp", "b_1.txt", "b_10.bin"}},
      {"[ab]_1.bin", {"a_1.bin"}},
      {"odd\\[1].bin", {"odd[1].bin"}},
      {".b*", {".b_1.bin"}},
      {"inner/b_2.bin", {}},
      {"", {}}};
  for (const auto& [pattern, names] : matches) {
    INFO(pattern);
    CHECK(set.names(files_matching(set.folder.path(), pattern)) == names);
  }
}

TEST_CASE("by default *train* is for training, *val* and *test* for evaluation; patterns name other files") {
  Fixture set({"a_train_1.bin", "a_train_0.bin", "b_train_0.bin", "c_test_0.bin", "whole.tar", "train.tar"});
  CHECK(set.names(Split::kTrain) == Names{"a_train_0.bin", "a_train_1.bin", "b_train_0.bin"});
  CHECK(set.names(Split::kTest) == Names{"c_test_0.bin"});
  set.folder.write("c_val_0.bin", "");
  CHECK(set.names(Split::kTest) == Names{"c_val_0.bin"});
  set.folder.write("a_val_test.bin", "");
  CHECK(set.names(Split::kTest, true) == Names{"a_val_test.bin", "c_test_0.bin", "c_val_0.bin"});
  set.patterns.train = "a_*_?.bin";
  CHECK(set.names(Split::kTrain) == Names{"a_train_0.bin", "a_train_1.bin"});
  set.patterns.test = "b*.bin";
  CHECK(set.names(Split::kTest) == Names{"b_train_0.bin"});
  // The same pattern for both is intentional; the default names do not matter then.
  set.patterns.train = set.patterns.test = "whole*";
  for (const Split split : kSplits)
    CHECK(set.names(split) == Names{"whole.tar"});
}

TEST_CASE("files that are shards but for compression or case are not left out silently") {
  for (const char* name : {"train_1.bin.gz", "Train_1.bin", "train_1.BIN", "b_train.bin.zst"}) {
    const Fixture set({"train_0.bin", "val_0.bin", name});
    CHECK_SAYS(set.error<DataError>(Split::kTrain), name, "data.train_files");
    CHECK(set.names(Split::kTest) == Names{"val_0.bin"});
  }
  const Fixture others({"train_0.bin", "val_0.bin", "test_0.bin.gz", "train_0.bin.part", "training.tar.gz"});
  CHECK(others.names(Split::kTrain) == Names{"train_0.bin"});
  CHECK(others.names(Split::kTest) == Names{"val_0.bin"});
  CHECK_SAYS(Fixture({"train_0.bin", "Val_0.bin"}).error<DataError>(Split::kTest), "Val_0.bin");
}

TEST_CASE("a pattern without matches is a wrong setting, no file by default is wrong data") {
  Fixture set({"a.bin", "b.bin", "inner/c.bin"});
  const std::string folder = set.folder.path().string();
  CHECK_SAYS(set.error<DataError>(Split::kTrain), folder, "*train*.bin", "a.bin");
  CHECK_SAYS(set.error<DataError>(Split::kTest), "*val*.bin", "*test*.bin", "validation_share");
  set.patterns.train = "a.bin";
  set.patterns.test = "z*.bin";
  CHECK(set.names(Split::kTrain) == Names{"a.bin"});  // a fault in the other split is reported separately
  CHECK_SAYS(set.error<UsageError>(Split::kTest), "data.test_files", folder, "z*.bin");
  set.patterns.train = "inner/*.bin";
  CHECK_SAYS(set.error<UsageError>(Split::kTrain), "data.train_files: inner/*.bin has a folder in it");
  set.patterns.folder /= "absent";
  CHECK_SAYS(set.error<DataError>(Split::kTest), "absent");
}

TEST_CASE("a file of both splits is refused, whichever is opened") {
  Fixture set({"a_train_0.bin", "a_train_1.bin", "c_test_0.bin"});
  Fixture named({"a_train_0.bin", "c_test_0.bin", "latest_train_0.bin"});
  using Pattern = std::optional<std::string>;
  using Shared = std::tuple<Pattern, Pattern, std::string>;
  for (const Split split : kSplits) {
    for (const auto& [train, test, file] :
         {Shared{{}, "*_1.bin", "a_train_1.bin: "}, Shared{"a*.bin", "*_1.bin", "a_train_1.bin: "},
          Shared{"*_0.bin", {}, "c_test_0.bin: "}}) {
      set.patterns.train = train;
      set.patterns.test = test;
      CHECK_SAYS(set.error<UsageError>(split), "data.train_files and data.test_files: ", file, "trained on");
    }
    CHECK_SAYS(named.error<DataError>(split), "latest_train_0.bin: ", "'train' and 'test'",
               "data.train_files");
  }
  named.folder.write("c_val_0.bin", "");  // in this case *test* is not searched for
  for (const Split split : kSplits)
    CHECK_NOTHROW(named.names(split));
}
