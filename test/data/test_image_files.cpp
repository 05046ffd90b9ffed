#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "catch.h"
#include "data/image_files.h"
#include "data/image_index.h"
#include "fixtures.h"
#include "formats/tar_shard.h"
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

using Members = std::vector<TarMember>;
using Parts = std::vector<std::string>;

constexpr const char* kShard = "train-000000.tar";

std::string shard_error(const std::string& tar) {
  const TempFolder folder;
  const auto shard = folder.write(kShard, tar);
  return message_of<DataError>([&] { read_image_shard(shard, 10); });
}

/// Members as a line of text: NAME=DATA, NAME->TARGET for a symbolic link, NAME=>TARGET for a hard one.
Members members_of(const std::string& line) {
  Members members;
  std::istringstream words(line);
  for (std::string word; words >> word;) {
    const size_t mark = word.find('='), link = word.find('>');
    if (link == std::string::npos)
      members.push_back({word.substr(0, mark), word.substr(mark + 1)});
    else
      members.push_back(
          {word.substr(0, link - 1), "", word[link - 1] == '=' ? '1' : '2', word.substr(link + 1)});
  }
  return members;
}

std::string error_of(const std::string& members) {
  return shard_error(tar_of(members_of(members)));
}

/// Data and label of every sample.
std::string samples_of(const std::string& members) {
  const TempFolder folder;
  std::string samples;
  for (const LabelledImage& sample : read_image_shard(folder.write(kShard, tar_of(members_of(members))), 10))
    samples += std::string(sample.data.begin(), sample.data.end()) + std::to_string(sample.label) + " ";
  return samples;
}

}  // namespace

TEST_CASE("a member beyond 4 GiB and a missing shard are ordinary problems, and the rest is read") {
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

TEST_CASE("a class folder that cannot be listed is a problem, and the other classes are read") {
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

TEST_CASE("an image that a shard no longer contains is named with its member") {
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

TEST_CASE("a saved index is loaded again, and no other file is left, even if it cannot be renamed") {
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

TEST_CASE("files left by a killed process are removed once they are old") {
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

// ---- tar shards ----

TEST_CASE("list_tar gives the files with their offsets") {
  const TempFolder folder;
  const auto shard = folder.write(
      "a.tar",
      tar_of({{"dir/", "", '5'}, {"dir/a.txt", "hello"}, {"b.bin", std::string(513, 'x')}, {"empty", ""}}));
  std::string listed;
  for (const auto& [name, offset, data_offset, size] : list_tar(shard))
    listed += fmt::format("{} {} {} {}; ", name, offset, data_offset, size);
  CHECK(listed == "dir/a.txt 512 1024 5; b.bin 1536 2048 513; empty 3072 3584 0; ");
}

TEST_CASE("samples are in the order of their images, with labels from .cls files anywhere or folders") {
  for (const auto& [members, samples] :
       {std::pair("b.cls=7 b.jpg=B x/a.jpeg=A x/a.json={} x/a.cls=0", "B7 A0 "),
        {"3/a.jpg=A ./set/9/a.jpg=B", "A3 B9 "},
        // Whatever the case of their names, with dots in them, and through links.
        {"a.Jpg=A a.CLS=1 b.v2.jpe=B b.cls=2 c.001.JFIF=C c.001.cls=3 c.002.jpg=D c.002.cls=4 "
         "x/d.jpg=E x/d.depth.jpg=depth x/d.cls=5 y/e.jpg->../a.Jpg y/e.cls=>x/d.cls "
         "f.jpg->g.jpg f.cls->y/e.cls ./g.jpg=>./x/d.jpg ./g.cls=6 "
         "._a.jpg=AppleDouble __MACOSX/.x/a.jpg=AppleDouble",
         "A1 B2 C3 D4 E5 A5 E5 E6 "},
        // PNG and WebP are images as JPEG is, and beside a JPEG of their name other fields.
        {"a.png=A a.cls=1 x/b.v2.WebP=B x/b.cls=2 c.PNG=C c.depth.png=depth c.cls=3 d.png=mask d.jpg=D "
         "d.cls=4",
         "A1 B2 C3 D4 "}})
    CHECK(samples_of(members) == samples);
}

TEST_CASE("wrong, missing and doubled labels and images are refused with member and offset") {
  const std::vector<std::pair<std::string, Parts>> refused = {
      {"3/a.jpg=A 3/a.cls=3 3/b.jpg=B", {"member 3/b.jpg at offset 2048", "3/b.cls"}},
      {"a.jpg=A", {"member a.jpg at offset 0: no label"}},
      {"1/a.jpg=A 1/a.jpg=B", {"member 1/a.jpg at offset 1024", "unique"}},
      {"a.jpg=A a.cls=1 a.cls=2", {"member a.cls at offset 2048", "unique"}},
      {"a.png=A a.webp=B a.cls=1", {"member a.webp", "unique"}},
      {"a.v1.jpg=A a.v2.jpg=B a.cls=1", {"member a.v2.jpg", "unique"}},
      {"a.txt=A", {"no member named"}},
      {"", {kShard}}};
  for (const auto& [members, parts] : refused) {
    CHECK_SAYS(error_of(members), kShard);
    CHECK(lacks(error_of(members), parts) == "");
  }
  CHECK(shard_error(tar_of({{"a.jpg", "A"}, {"a.cls", " 7\n"}})).empty());
  for (const std::string label : {"10", "-1", "cat", "", "3 4"})
    CHECK_SAYS(shard_error(tar_of({{"a.jpg", "A"}, {"a.cls", label}})), "member a.cls at offset 1024",
               "label \"" + label + "\"", "0..9");
}

TEST_CASE("what may be a sample and is not read is a problem") {
  const auto problem_of = [](const std::string& members) { return error_of(members + " z.jpg=Z z.cls=1"); };
  CHECK(problem_of("z.seg.png=\x89PNG z.json={} notes.txt=a").empty());
  for (const std::string name : {"a.bmp", "a.GIF", "a.tiff", "x/a.avif"})
    CHECK_SAYS(problem_of(name + "=A x/a.cls=1"), "member " + name);
  for (const std::string name : {"a", "a.jpg.bak", "a.img"})
    CHECK_SAYS(problem_of(name + "=\xff\xd8\xff\xe0"), "member " + name);
  for (const auto& [members, parts] :
       {std::pair("a.raw=? a.cls=1", Parts{"member a.cls", "without an image", "a.jpg"}),
        {"b.jpg->/data/b.jpg", {"member b.jpg", "/data/b.jpg", "--dereference"}},
        {"b.jpg=>none.jpg", {"member b.jpg", "none.jpg"}},
        {"b.jpg->c.jpg c.jpg->b.jpg", {"member b.jpg"}}})
    CHECK(lacks(problem_of(members), parts) == "");
}

TEST_CASE("a broken tar is refused with the offset, wherever it breaks") {
  const std::string data(700, 'x');
  const std::string good = tar_of({{"1/a.jpg", data}, {"1/b.jpg", data}, {"1/c.jpg", data}});
  REQUIRE(shard_error(good).empty());
  for (size_t size = 0; size < good.size(); size += 256) {
    INFO(size);
    CHECK_SAYS(shard_error(good.substr(0, size)), kShard, "broken tar file");
  }
  CHECK_SAYS(shard_error(TarWriter().add("1/a.jpg", data).without_end()), "ends at offset 1536");
  CHECK_SAYS(shard_error(std::string(good).replace(1536 + 3, 1, "!")), "broken tar file at offset 1536");
  // A zeroed header does not end the shard silently.
  CHECK_SAYS(shard_error(std::string(good).replace(1536, 1024, 1024, '\0')), "broken tar file at offset");
  CHECK_SAYS(shard_error("\x1f\x8b\x08" + std::string(5000, 'z')), "gzip");
  CHECK_SAYS(shard_error(fuzz::repair_tar(std::string(good).replace(124, 11, "77777777777"))),
             "member 1/a.jpg at offset 0", "8589934591 bytes");
  CHECK_SAYS(message_of<DataError>([] { list_tar("/nonexistent/a.tar"); }), "/nonexistent/a.tar");
}
