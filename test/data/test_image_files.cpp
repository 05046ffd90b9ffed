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

  std::vector<std::string> places() const {
    std::vector<std::string> places;
    for (int64_t image = 0; image < files->index().size(); ++image)
      places.push_back(files->place(image));
    return places;
  }
};

Opened open_shards_in(const fs::path& folder, const std::vector<std::string>& names) {
  std::vector<fs::path> shards;
  for (const std::string& name : names)
    shards.push_back(folder / name);
  std::string note;
  Opened opened;
  opened.files =
      open_shards(shards, 10, {.path = folder / "none/index", .note = note}, collect_into(opened.problems));
  return opened;
}

}  // namespace

TEST_CASE("a member beyond 4 GiB is an ordinary problem, and the rest is read", "[data]") {
  const TempFolder folder;
  const auto shard =
      folder.write("train-0.tar", TarWriter().add("1/a.jpg", "A").add("2/b.jpg", "B").without_end());
  // The last header states 2^32 bytes; these and the end mark are a hole in the file.
  std::string header = TarWriter().add("3/c.jpg", "").without_end();
  header = fuzz::repair_tar(header.replace(124, 11, "40000000000"));
  std::ofstream(shard, std::ios::binary | std::ios::app) << header;
  fs::resize_file(shard, fs::file_size(shard) + (uintmax_t{1} << 32) + 1024);
  folder.write("train-1.tar", TarWriter().add("4/d.jpg", "D").finish());

  const Opened opened = open_shards_in(folder.path(), {"train-0.tar", "train-1.tar"});
  REQUIRE(opened.problems.size() == 1);
  CHECK_SAYS(opened.problems[0],
             "train-0.tar: member 3/c.jpg at offset 2048: 4294967296 bytes, expected an image below");
  const std::string path = folder.path().string();
  CHECK(opened.places() == std::vector<std::string>{path + "/train-0.tar: member 1/a.jpg at offset 0",
                                                    path + "/train-0.tar: member 2/b.jpg at offset 1024",
                                                    path + "/train-1.tar: member 4/d.jpg at offset 0"});
}

TEST_CASE("a missing shard is a problem, and the other shards keep their images", "[data]") {
  const TempFolder folder;
  fs::create_symlink("nowhere", folder.path() / "train-0.tar");
  folder.write("train-1.tar", TarWriter().add("4/d.jpg", "D").finish());
  const Opened opened = open_shards_in(folder.path(), {"train-0.tar", "train-1.tar"});
  REQUIRE(opened.problems.size() == 1);
  CHECK_SAYS(opened.problems[0], "train-0.tar: No such file");
  CHECK(opened.places() ==
        std::vector<std::string>{(folder.path() / "train-1.tar").string() + ": member 4/d.jpg at offset 0"});
  CHECK(opened.files->read(0) == std::vector<uint8_t>{'D'});
}

TEST_CASE("a class folder that cannot be listed is a problem, and the other classes are read", "[data]") {
  const TempFolder folder;
  folder.write("train/bat/a.jpg", "A");
  folder.write("train/cat/b.jpg", "B");
  folder.write("train/dog/c.jpg", "C");
  fs::permissions(folder.path() / "train/cat", fs::perms::none);
  Opened opened;
  std::string note;
  {
    const OtherUser scope(folder.path());
    opened.files =
        open_class_folders(folder.path(), Split::kTrain, {.path = folder.path() / "none/index", .note = note},
                           collect_into(opened.problems));
  }
  fs::permissions(folder.path() / "train/cat", fs::perms::owner_all);
  REQUIRE(opened.problems.size() == 1);
  CHECK_SAYS(opened.problems[0], "cannot list", "train/cat: Permission denied");
  const std::string path = folder.path().string();
  CHECK(opened.places() == std::vector<std::string>{path + "/train/bat/a.jpg", path + "/train/dog/c.jpg"});
  CHECK(opened.files->index().label(1) == 2);
}

TEST_CASE("an image that a shard no longer contains is named with its member", "[data]") {
  const TempFolder folder;
  for (const int shards : {1, 300}) {  // one is kept open; of many, each is opened for every image
    std::vector<std::string> names;
    for (int i = 0; i < shards; ++i) {
      names.push_back("train-" + std::to_string(i) + ".tar");
      folder.write(names.back(), TarWriter().add("1/a.jpg", "A").add("2/b.jpg", "B").finish());
    }
    const Opened opened = open_shards_in(folder.path(), names);
    REQUIRE(opened.problems.empty());
    fs::resize_file(folder.path() / "train-0.tar", 1200);
    CHECK(opened.files->read(0) == std::vector<uint8_t>{'A'});
    CHECK_SAYS(message_of<DataError>([&] { opened.files->read(1); }),
               "train-0.tar: member 2/b.jpg at offset 1024: ", "the file ends at offset 1536");
  }
}
