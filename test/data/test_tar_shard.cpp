#include <fmt/format.h>

#include <sstream>

#include "catch.h"
#include "fixtures.h"
#include "formats/image.h"
#include "formats/tar_shard.h"
#include "fuzz/tar_repair.h"

using namespace sdp;
using namespace sdp::testing;

namespace {

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

TEST_CASE("list_tar gives the files with their offsets", "[data]") {
  const TempFolder folder;
  const auto shard = folder.write(
      "a.tar",
      tar_of({{"dir/", "", '5'}, {"dir/a.txt", "hello"}, {"b.bin", std::string(513, 'x')}, {"empty", ""}}));
  std::string listed;
  for (const auto& [name, offset, data_offset, size] : list_tar(shard))
    listed += fmt::format("{} {} {} {}; ", name, offset, data_offset, size);
  CHECK(listed == "dir/a.txt 512 1024 5; b.bin 1536 2048 513; empty 3072 3584 0; ");
}

TEST_CASE("samples are in the order of their images, with labels from .cls files at any position or folders",
          "[data]") {
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

TEST_CASE("wrong, missing and doubled labels and images are refused with member and offset", "[data]") {
  const std::vector<std::pair<std::string, Parts>> refused = {
      {"3/a.jpg=A 3/a.cls=3 3/b.jpg=B", {"member 3/b.jpg at offset 2048", "3/b.cls"}},
      {"a.jpg=A", {"member a.jpg at offset 0: no label"}},
      {"12/a.jpg=A", {"member 12/a.jpg", "0..9"}},
      {"1/a.jpg=A 1/a.jpg=B", {"member 1/a.jpg at offset 1024", "unique"}},
      {"a.jpg=A a.cls=1 a.cls=2", {"member a.cls at offset 2048", "unique"}},
      {"a.png=A a.webp=B a.cls=1", {"member a.webp", "unique"}},
      {"a.v1.jpg=A a.v2.jpg=B a.cls=1", {"member a.v2.jpg", "unique"}},
      {"a.png=A", {"member a.png at offset 0"}},
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
  // Shown as a line of text.
  CHECK_SAYS(shard_error(tar_of({{"a.jpg", "A"}, {"a.cls", std::string("\0\n\x1b[1m\xff", 7)}})), "\\n",
             "[1m\\xff\"");
}

TEST_CASE("what may be a sample and is not read is a problem", "[data]") {
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

TEST_CASE("a broken tar is refused with the offset, wherever it breaks", "[data]") {
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

TEST_CASE("decode_image refuses unexpected images", "[data]") {
  const auto error = [](const std::string& jpeg) {
    return message_of<DataError>([&] { decode_image(bytes_of(jpeg), 32, 32); });
  };
  const std::string good = flat_jpeg(32, 32, {200, 100, 50});
  REQUIRE(error(good).empty());
  CHECK_SAYS(error(""), "empty");
  CHECK_SAYS(error("\x1f\x8b\x08\x00" + good), "gzip");
  CHECK_SAYS(error(flat_jpeg(48, 32, {1, 2, 3})), "48 x 32 pixels", "32 x 32");
  for (size_t size = 1; size < good.size() - 2; size += 20)
    CHECK_SAYS(error(good.substr(0, size)), "cannot be decoded as a JPEG");
}
