#include <array>
#include <optional>
#include <tuple>

#include "catch.h"
#include "data/split_files.h"
#include "fixtures.h"
#include "io/file.h"

using namespace sdp;
using namespace sdp::testing;

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
      {"a_1.bin", {"a_1.bin"}},
      {"a_1", {}},
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
  CHECK_SAYS(set.error<DataError>(Split::kTrain), folder, "*train*.bin",
             "2 other *.bin (a.bin, ..). Expected");
  CHECK_SAYS(set.error<DataError>(Split::kTest), "*val*.bin", "*test*.bin", "2 other", "validation_share");
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
