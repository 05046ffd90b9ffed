#include <algorithm>

#include "catch.h"
#include "data/image_index.h"
#include "fixtures.h"
#include "spec/error.h"

using namespace sdp;
using namespace sdp::testing;

namespace {

namespace fs = std::filesystem;

constexpr int64_t kClasses = 4;

using Names = std::vector<std::string>;

ImageIndex index_of(const Names& names) {
  ImageIndex index;
  index.begin_group({.name = "group", .size_bytes = 0, .changed_ns = 1});
  for (const std::string& name : names)
    index.add_file(name, 3);
  return index;
}

Names names_in(const fs::path& folder) {
  Names names;
  for (const auto& entry : fs::directory_iterator(folder))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

TEST_CASE("a saved index is loaded again, and no other file is left", "[data]") {
  const TempFolder folder;
  const IndexFile file(folder / "train.sdp-index", "contents", kClasses);
  CHECK(file.load() == std::nullopt);
  for (const ImageIndex& index : {index_of({"a", "bc"}), index_of({})}) {
    file.save(index);
    CHECK(file.load() == index);
    CHECK(names_in(folder.path()) == Names{"train.sdp-index"});
  }
  CHECK(IndexFile(folder / "train.sdp-index", "others", kClasses).load() == std::nullopt);
}

TEST_CASE("an index that cannot be renamed leaves no file", "[data]") {
  const TempFolder folder;
  folder.write("train.sdp-index/file", "");  // a folder at the path of the index
  const IndexFile file(folder / "train.sdp-index", "contents", kClasses);
  CHECK_SAYS(message_of<DataError>([&] { file.save(index_of({"a"})); }), "train.sdp-index: Is a directory");
  CHECK(names_in(folder.path()) == Names{"train.sdp-index"});
}

TEST_CASE("files left by a killed process are removed once they are old", "[data]") {
  const TempFolder folder;
  const auto left = [&](const std::string& name, int minutes) {
    fs::last_write_time(folder.write(name, "part"),
                        fs::file_time_type::clock::now() - std::chrono::minutes(minutes));
  };
  left("train.sdp-index.0123abcd", 90);
  left("train.sdp-index.89abcdef.tmp", 90);
  left("train.sdp-index.fedcba98", 30);  // may belong to another process that is still writing
  left("train.sdp-index.fedcba98.tmp", 30);
  left("train.sdp-index.backup99", 90);
  left("train.sdp-index.0123abcd.old", 90);
  left("test.sdp-index.0123abcd", 90);
  IndexFile(folder / "train.sdp-index", "contents", kClasses).save(index_of({"a"}));
  CHECK(names_in(folder.path()) == Names{"test.sdp-index.0123abcd", "train.sdp-index",
                                         "train.sdp-index.0123abcd.old", "train.sdp-index.backup99",
                                         "train.sdp-index.fedcba98", "train.sdp-index.fedcba98.tmp"});
}
