#include <array>

#include "catch.h"
#include "data/split_files.h"
#include "fixtures.h"
#include "spec/error.h"

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

  Names names(Split split, bool val_and_test = false) const {
    Names result;
    for (const std::filesystem::path& file :
         files_of_split(patterns, split, {".bin", val_and_test, "Expected shards."})) {
      CHECK(file.parent_path() == folder.path());
      result.push_back(file.filename().string());
    }
    return result;
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

TEST_CASE("by default *train* is for training, and *val*, *test* or both for evaluation", "[data]") {
  const Fixture set(
      {"a_train_1.bin", "a_train_0.bin", "b_train_0.bin", "c_test_0.bin", "whole.bin", "train.tar"});
  CHECK(set.names(Split::kTrain) == Names{"a_train_0.bin", "a_train_1.bin", "b_train_0.bin"});
  CHECK(set.names(Split::kTest) == Names{"c_test_0.bin"});
  set.folder.write("c_val_0.bin", "");
  CHECK(set.names(Split::kTest) == Names{"c_val_0.bin"});
  set.folder.write("a_val_test.bin", "");
  CHECK(set.names(Split::kTest, true) == Names{"a_val_test.bin", "c_test_0.bin", "c_val_0.bin"});
}

TEST_CASE("data.train_files and data.test_files name other files", "[data]") {
  Fixture set({"a_train_1.bin", "a_train_0.bin", "b_train_0.bin", "c_val_0.bin", "whole.tar"});
  set.patterns.train = "a_*_?.bin";
  CHECK(set.names(Split::kTrain) == Names{"a_train_0.bin", "a_train_1.bin"});
  CHECK(set.names(Split::kTest) == Names{"c_val_0.bin"});
  set.patterns.test = "b*.bin";
  CHECK(set.names(Split::kTest) == Names{"b_train_0.bin"});
  // The same pattern for both is intentional; the default names do not matter then.
  set.patterns.train = set.patterns.test = "*_[01].bin";
  for (const Split split : kSplits)
    CHECK(set.names(split) == Names{"a_train_0.bin", "a_train_1.bin", "b_train_0.bin", "c_val_0.bin"});
  set.patterns.train = set.patterns.test = "whole*";
  CHECK(set.names(Split::kTrain) == Names{"whole.tar"});
}

TEST_CASE("files that are shards but for compression or case are not left out silently", "[data]") {
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

TEST_CASE("a pattern without matches is a wrong setting, no file by default is wrong data", "[data]") {
  Fixture set({"a.bin", "b.bin", "inner/c.bin"});
  CHECK_SAYS(set.error<DataError>(Split::kTrain),
             "data.path: " + set.folder.path().string() +
                 " holds no *train*.bin. Found 2 other *.bin (a.bin, ..). Expected");
  CHECK_SAYS(set.error<DataError>(Split::kTest), "holds no *val*.bin or *test*.bin. Found 2 other");
  set.patterns.train = "a.bin";
  set.patterns.test = "z*.bin";
  CHECK(set.names(Split::kTrain) == Names{"a.bin"});  // a fault in the other split is reported separately
  CHECK(set.error<UsageError>(Split::kTest) ==
        "data.test_files: no file in " + set.folder.path().string() + " matches z*.bin.");
  set.patterns.train = "inner/*.bin";
  CHECK_SAYS(set.error<UsageError>(Split::kTrain), "data.train_files: inner/*.bin has a folder in it");
  set.patterns.folder /= "absent";
  CHECK_SAYS(set.error<DataError>(Split::kTest), "cannot list", "absent");
}

TEST_CASE("a file of both splits is refused, whichever is opened", "[data]") {
  Fixture set({"a_train_0.bin", "a_train_1.bin", "c_test_0.bin"});
  const std::string problem = "a_train_1.bin: the name is one of a training shard and of a test shard";
  const auto check_refused = [&] {
    for (const Split split : kSplits)
      CHECK_SAYS(set.error<UsageError>(split), "data.train_files and data.test_files: ", problem,
                 "trained on");
  };
  set.patterns.test = "*_1.bin";
  check_refused();
  set.patterns.train = "a*.bin";
  check_refused();
  set.patterns.test.reset();
  set.patterns.train = "*_0.bin";
  for (const Split split : kSplits)
    CHECK_SAYS(set.error<UsageError>(split), "c_test_0.bin: the name is one of");

  set.patterns.train.reset();
  set.folder.write("latest_train_0.bin", "");
  for (const Split split : kSplits)
    CHECK_SAYS(set.error<DataError>(split),
               "latest_train_0.bin: the name is one of a training shard and of a test shard",
               "both 'train' and 'test'", "Rename it", "data.train_files");
  set.folder.write("c_val_0.bin", "");  // in this case *test* is not searched for
  for (const Split split : kSplits)
    CHECK_NOTHROW(set.names(split));
}
