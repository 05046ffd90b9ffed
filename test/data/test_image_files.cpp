#include <algorithm>

#include "catch.h"
#include "data/image_files.h"
#include "data/image_index.h"
#include "fixtures.h"
#include "fuzz/tar_repair.h"
#include "other_user.h"

using namespace sdp;
using namespace sdp::testing;

namespace {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;

/// A folder, and what a reader finds in it that continues after problems, without a saved index.
struct Images {
  void open(const std::function<std::unique_ptr<ImageFiles>(const IndexOptions&, const OnProblem&)>& open) {
    std::string note;
    files = open({.path = folder / "none/index", .note = note}, collect_into(problems));
  }
  void open_shards(const Names& names) {
    std::vector<fs::path> shards;
    for (const std::string& name : names)
      shards.push_back(folder / name);
    open([&](const auto& index, const OnProblem& on_problem) {
      return sdp::open_shards(shards, 10, index, on_problem);
    });
  }
  /// Without the folder.
  Names places() const {
    Names places;
    for (int64_t image = 0; image < files->index().size(); ++image)
      places.push_back(files->place(image).substr(folder.path().string().size() + 1));
    return places;
  }

  TempFolder folder;
  std::unique_ptr<ImageFiles> files;
  std::vector<std::string> problems;
};

ImageIndex index_of(const Names& names) {
  ImageIndex index;
  index.begin_group({.name = "group", .size_bytes = 0, .changed_ns = 1});
  for (const std::string& name : names)
    index.add_file(name, 3);
  return index;
}

IndexFile index_file(const TempFolder& folder, const std::string& contents = "contents") {
  return {folder / "train.sdp-index", contents, /*classes=*/4};
}

Names names_in(const TempFolder& folder) {
  Names names;
  for (const auto& entry : fs::directory_iterator(folder.path()))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

TEST_CASE("a member beyond 4 GiB and a missing shard are ordinary problems, and the rest is read", "[data]") {
  Images images;
  const std::string members =
      TarWriter().add("1/a.jpg", "A").add("2/b.jpg", "B").add("3/c.jpg", "").without_end();
  // The last header states 2^32 bytes; these and the end mark are a hole in the file.
  const fs::path shard = images.folder.write(
      "train-0.tar", fuzz::repair_tar(std::string(members).replace(2048 + 124, 11, "40000000000")));
  fs::resize_file(shard, fs::file_size(shard) + (uintmax_t{1} << 32) + 1024);
  fs::create_symlink("nowhere", images.folder / "train-1.tar");
  images.folder.write("train-2.tar", tar_of({{"4/d.jpg", "D"}}));
  images.open_shards({"train-0.tar", "train-1.tar", "train-2.tar"});
  CHECK(lacks(images.problems, {{"train-1.tar: No such file"},
                                {"train-0.tar: member 3/c.jpg at offset 2048: 4294967296 bytes"}}) == "");
  CHECK(images.places() == Names{"train-0.tar: member 1/a.jpg at offset 0",
                                 "train-0.tar: member 2/b.jpg at offset 1024",
                                 "train-2.tar: member 4/d.jpg at offset 0"});
  CHECK(images.files->read(2) == std::vector<uint8_t>{'D'});
}

TEST_CASE("a class folder that cannot be listed is a problem, and the other classes are read", "[data]") {
  Images images;
  for (const char* name : {"train/bat/a.jpg", "train/cat/b.jpg", "train/dog/c.jpg"})
    images.folder.write(name, "A");
  fs::permissions(images.folder / "train/cat", fs::perms::none);
  {
    const OtherUser scope(images.folder.path());
    images.open([&](const auto& index, const OnProblem& on_problem) {
      return open_class_folders(images.folder.path(), Split::kTrain, index, on_problem);
    });
  }
  fs::permissions(images.folder / "train/cat", fs::perms::owner_all);
  CHECK(lacks(images.problems, {{"cannot list", "train/cat: Permission denied"}}) == "");
  CHECK(images.places() == Names{"train/bat/a.jpg", "train/dog/c.jpg"});
  CHECK(images.files->index().label(1) == 2);
}

TEST_CASE("an image that a shard no longer contains is named with its member", "[data]") {
  for (const int shards : {1, 300}) {  // one is kept open; of many, each is opened for every image
    Images images;
    Names names;
    for (int i = 0; i < shards; ++i) {
      names.push_back("train-" + std::to_string(i) + ".tar");
      images.folder.write(names.back(), tar_of({{"1/a.jpg", "A"}, {"2/b.jpg", "B"}}));
    }
    images.open_shards(names);
    REQUIRE(images.problems.empty());
    fs::resize_file(images.folder / "train-0.tar", 1200);
    CHECK(images.files->read(0) == std::vector<uint8_t>{'A'});
    CHECK_SAYS(message_of<DataError>([&] { images.files->read(1); }),
               "train-0.tar: member 2/b.jpg at offset 1024: ", "the file ends at offset 1536");
  }
}

TEST_CASE("a saved index is loaded again, and no other file is left, even if it cannot be renamed",
          "[data]") {
  const TempFolder folder, taken;
  CHECK(index_file(folder).load() == std::nullopt);
  for (const ImageIndex& index : {index_of({"a", "bc"}), index_of({})}) {
    index_file(folder).save(index);
    CHECK(index_file(folder).load() == index);
    CHECK(names_in(folder) == Names{"train.sdp-index"});
  }
  CHECK(index_file(folder, "others").load() == std::nullopt);
  taken.write("train.sdp-index/file", "");  // a folder at the path of the index
  CHECK_SAYS(message_of<DataError>([&] { index_file(taken).save(index_of({"a"})); }),
             "train.sdp-index: Is a directory");
  CHECK(names_in(taken) == Names{"train.sdp-index"});
}

TEST_CASE("files left by a killed process are removed once they are old", "[data]") {
  const TempFolder folder;
  const auto left = [&](int minutes, const Names& names) {
    for (const std::string& name : names)
      fs::last_write_time(folder.write(name, "part"),
                          fs::file_time_type::clock::now() - std::chrono::minutes(minutes));
  };
  left(90, {"train.sdp-index.0123abcd", "train.sdp-index.89abcdef.tmp", "train.sdp-index.backup99",
            "train.sdp-index.0123abcd.old", "test.sdp-index.0123abcd"});
  left(30, {"train.sdp-index.fedcba98",
            "train.sdp-index.fedcba98.tmp"});  // may belong to another process that is still writing
  index_file(folder).save(index_of({"a"}));
  CHECK(names_in(folder) == Names{"test.sdp-index.0123abcd", "train.sdp-index",
                                  "train.sdp-index.0123abcd.old", "train.sdp-index.backup99",
                                  "train.sdp-index.fedcba98", "train.sdp-index.fedcba98.tmp"});
}
