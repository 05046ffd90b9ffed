#include "catch.h"
#include "data/image_files.h"
#include "fixtures.h"
#include "fuzz/tar_repair.h"
#include "other_user.h"
#include "spec/error.h"

using namespace sdp;
using namespace sdp::testing;

namespace {

namespace fs = std::filesystem;

/// The result of a reader that continues after problems, without a saved index.
struct Opened {
  std::unique_ptr<ImageFiles> files;
  std::vector<std::string> problems;

  /// Without the folder.
  std::vector<std::string> places(const TempFolder& folder) const {
    std::vector<std::string> places;
    for (int64_t image = 0; image < files->index().size(); ++image)
      places.push_back(files->place(image).substr(folder.path().string().size() + 1));
    return places;
  }
};

Opened open_shards_in(const TempFolder& folder, const std::vector<std::string>& names) {
  std::vector<fs::path> shards;
  for (const std::string& name : names)
    shards.push_back(folder / name);
  std::string note;
  Opened opened;
  opened.files =
      open_shards(shards, 10, {.path = folder / "none/index", .note = note}, collect_into(opened.problems));
  return opened;
}

using Places = std::vector<std::string>;

}  // namespace

TEST_CASE("a member beyond 4 GiB and a missing shard are ordinary problems, and the rest is read", "[data]") {
  const TempFolder folder;
  const auto shard =
      folder.write("train-0.tar", TarWriter().add("1/a.jpg", "A").add("2/b.jpg", "B").without_end());
  // The last header states 2^32 bytes; these and the end mark are a hole in the file.
  std::string header = TarWriter().add("3/c.jpg", "").without_end();
  header = fuzz::repair_tar(header.replace(124, 11, "40000000000"));
  std::ofstream(shard, std::ios::binary | std::ios::app) << header;
  fs::resize_file(shard, fs::file_size(shard) + (uintmax_t{1} << 32) + 1024);
  fs::create_symlink("nowhere", folder / "train-1.tar");
  folder.write("train-2.tar", tar_of({{"4/d.jpg", "D"}}));

  const Opened opened = open_shards_in(folder, {"train-0.tar", "train-1.tar", "train-2.tar"});
  CHECK(lacks(opened.problems, {{"train-1.tar: No such file"},
                                {"train-0.tar: member 3/c.jpg at offset 2048: 4294967296 bytes"}}) == "");
  CHECK(opened.places(folder) == Places{"train-0.tar: member 1/a.jpg at offset 0",
                                        "train-0.tar: member 2/b.jpg at offset 1024",
                                        "train-2.tar: member 4/d.jpg at offset 0"});
  CHECK(opened.files->read(2) == std::vector<uint8_t>{'D'});
}

TEST_CASE("a class folder that cannot be listed is a problem, and the other classes are read", "[data]") {
  const TempFolder folder;
  folder.write("train/bat/a.jpg", "A");
  folder.write("train/cat/b.jpg", "B");
  folder.write("train/dog/c.jpg", "C");
  fs::permissions(folder / "train/cat", fs::perms::none);
  Opened opened;
  std::string note;
  {
    const OtherUser scope(folder.path());
    opened.files =
        open_class_folders(folder.path(), Split::kTrain, {.path = folder / "none/index", .note = note},
                           collect_into(opened.problems));
  }
  fs::permissions(folder / "train/cat", fs::perms::owner_all);
  CHECK(lacks(opened.problems, {{"cannot list", "train/cat: Permission denied"}}) == "");
  CHECK(opened.places(folder) == Places{"train/bat/a.jpg", "train/dog/c.jpg"});
  CHECK(opened.files->index().label(1) == 2);
}

TEST_CASE("an image that a shard no longer contains is named with its member", "[data]") {
  const TempFolder folder;
  for (const int shards : {1, 300}) {  // one is kept open; of many, each is opened for every image
    std::vector<std::string> names;
    for (int i = 0; i < shards; ++i) {
      names.push_back("train-" + std::to_string(i) + ".tar");
      folder.write(names.back(), tar_of({{"1/a.jpg", "A"}, {"2/b.jpg", "B"}}));
    }
    const Opened opened = open_shards_in(folder, names);
    REQUIRE(opened.problems.empty());
    fs::resize_file(folder / "train-0.tar", 1200);
    CHECK(opened.files->read(0) == std::vector<uint8_t>{'A'});
    CHECK_SAYS(message_of<DataError>([&] { opened.files->read(1); }),
               "train-0.tar: member 2/b.jpg at offset 1024: ", "the file ends at offset 1536");
  }
}
