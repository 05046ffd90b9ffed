#include "catch.h"
#include "fixtures.h"
#include "formats/image.h"
#include "formats/tar_shard.h"
#include "fuzz/tar_repair.h"
#include "spec/error.h"

using namespace sdp;
using namespace sdp::testing;

namespace {

std::string shard_error(const std::string& tar) {
  const TempFolder folder;
  const auto shard = folder.write("train-000000.tar", tar);
  return message_of<DataError>([&] { read_image_shard(shard, 10); });
}

/// Data and label of every sample.
std::string samples_of(const std::filesystem::path& shard) {
  std::string samples;
  for (const LabelledImage& sample : read_image_shard(shard, 10))
    samples += std::string(sample.data.begin(), sample.data.end()) + std::to_string(sample.label) + " ";
  return samples;
}

}  // namespace

TEST_CASE("list_tar gives the files with their offsets", "[data]") {
  const TempFolder folder;
  const auto shard = folder.write("a.tar", TarWriter()
                                               .add("dir/", "", '5')
                                               .add("dir/a.txt", "hello")
                                               .add("b.bin", std::string(513, 'x'))
                                               .add("empty", "")
                                               .finish());
  const std::vector<TarEntry> members = list_tar(shard);
  REQUIRE(members.size() == 3);
  CHECK(members[0].name == "dir/a.txt");
  CHECK(members[0].offset_bytes == 512);
  CHECK(members[0].data_offset_bytes == 1024);
  CHECK(members[0].size_bytes == 5);
  CHECK(members[1].offset_bytes == 1536);
  CHECK(members[1].size_bytes == 513);
  CHECK(members[2].offset_bytes == 3072);
  CHECK(members[2].size_bytes == 0);
}

TEST_CASE("a label that is not text is shown as a line of text", "[data]") {
  const std::string label("\0\n\x1b[1m\xff", 7);
  CHECK_SAYS(shard_error(TarWriter().add("a.jpg", "A").add("a.cls", label).finish()),
             "member a.cls at offset 1024: label \"", "\\n", "[1m\\xff\", expected a number in 0..9.");
}

TEST_CASE("samples are in the order of their images, with labels from .cls files at any position or folders",
          "[data]") {
  const TempFolder folder;
  CHECK(samples_of(folder.write("train-000000.tar", TarWriter()
                                                        .add("b.cls", " 7\n")
                                                        .add("b.jpg", "B")
                                                        .add("x/a.jpeg", "A")
                                                        .add("x/a.json", "{}")
                                                        .add("x/a.cls", "0")
                                                        .finish())) == "B7 A0 ");
  CHECK(samples_of(folder.write("test-000000.tar",
                                TarWriter().add("3/a.jpg", "A").add("./set/9/a.jpg", "B").finish())) ==
        "A3 B9 ");
}

TEST_CASE("missing and wrong labels are reported with shard, member and offset", "[data]") {
  const std::string missing =
      shard_error(TarWriter().add("3/a.jpg", "A").add("3/a.cls", "3").add("3/b.jpg", "B").finish());
  CHECK_SAYS(missing, "train-000000.tar: member 3/b.jpg at offset 2048", "3/b.cls");
  CHECK_SAYS(shard_error(TarWriter().add("a.jpg", "A").finish()), "member a.jpg at offset 0: no label");
  for (const std::string label : {"10", "-1", "cat", "", "3 4"})
    CHECK_SAYS(shard_error(TarWriter().add("a.jpg", "A").add("a.cls", label).finish()),
               "member a.cls at offset 1024", "label \"" + label + "\"", "0..9");
  CHECK_SAYS(shard_error(TarWriter().add("12/a.jpg", "A").finish()), "member 12/a.jpg", "0..9");
}

TEST_CASE("duplicate keys and shards without images are refused", "[data]") {
  CHECK_SAYS(shard_error(TarWriter().add("1/a.jpg", "A").add("1/a.jpg", "B").finish()),
             "member 1/a.jpg at offset 1024", "unique");
  CHECK_SAYS(shard_error(TarWriter().add("a.jpg", "A").add("a.cls", "1").add("a.cls", "2").finish()),
             "member a.cls at offset 2048", "unique");
  CHECK_SAYS(shard_error(TarWriter().add("a.png", "A").finish()), "member a.png at offset 0");
  CHECK_SAYS(shard_error(TarWriter().add("a.txt", "A").finish()), "no member named");
  CHECK_SAYS(shard_error(TarWriter().finish()), "train-000000.tar");
}

TEST_CASE("images are found whatever the case of their names, with dots in them, and through links",
          "[data]") {
  const TempFolder folder;
  const auto shard = folder.write("train-000000.tar", TarWriter()
                                                          .add("a.Jpg", "A")
                                                          .add("a.CLS", "1")
                                                          .add("b.v2.jpe", "B")
                                                          .add("b.cls", "2")
                                                          .add("c.001.JFIF", "C")
                                                          .add("c.001.cls", "3")
                                                          .add("c.002.jpg", "D")
                                                          .add("c.002.cls", "4")
                                                          .add("x/d.jpg", "E")
                                                          .add("x/d.depth.jpg", "depth")
                                                          .add("x/d.cls", "5")
                                                          .add_link("y/e.jpg", "../a.Jpg", '2')
                                                          .add_link("y/e.cls", "x/d.cls", '1')
                                                          .add_link("f.jpg", "g.jpg", '2')
                                                          .add_link("f.cls", "y/e.cls", '2')
                                                          .add_link("./g.jpg", "./x/d.jpg", '1')
                                                          .add("./g.cls", "6")
                                                          .add("._a.jpg", "AppleDouble")
                                                          .add("__MACOSX/.x/a.jpg", "AppleDouble")
                                                          .finish());
  CHECK(samples_of(shard) == "A1 B2 C3 D4 E5 A5 E5 E6 ");
}

TEST_CASE("PNG and WebP are images as JPEG is, and beside a JPEG of their name other fields", "[data]") {
  const TempFolder folder;
  const auto shard = folder.write("train-000000.tar", TarWriter()
                                                          .add("a.png", "A")
                                                          .add("a.cls", "1")
                                                          .add("x/b.v2.WebP", "B")
                                                          .add("x/b.cls", "2")
                                                          .add("c.PNG", "C")
                                                          .add("c.depth.png", "depth")
                                                          .add("c.cls", "3")
                                                          .add("d.png", "mask")
                                                          .add("d.jpg", "D")
                                                          .add("d.cls", "4")
                                                          .finish());
  CHECK(samples_of(shard) == "A1 B2 C3 D4 ");
  CHECK_SAYS(shard_error(TarWriter().add("a.png", "A").add("a.webp", "B").add("a.cls", "1").finish()),
             "member a.webp", "unique");
}

TEST_CASE("what may be a sample and is not read is a problem", "[data]") {
  const auto problem_of = [](const TarWriter& rest) {
    return shard_error(TarWriter(rest).add("z.jpg", "Z").add("z.cls", "1").finish());
  };
  const std::string jpeg = "\xff\xd8\xff\xe0";
  CHECK(
      problem_of(TarWriter().add("z.seg.png", "\x89PNG").add("z.json", "{}").add("notes.txt", "a")).empty());
  for (const char* name : {"a.bmp", "a.GIF", "a.tiff", "x/a.avif"})
    CHECK_SAYS(problem_of(TarWriter().add(name, "A").add("x/a.cls", "1")), std::string("member ") + name);
  for (const char* name : {"a", "a.jpg.bak", "a.img"})
    CHECK_SAYS(problem_of(TarWriter().add(name, jpeg)), std::string("member ") + name);
  CHECK_SAYS(problem_of(TarWriter().add("a.raw", "?").add("a.cls", "1")), "member a.cls", "without an image",
             "a.jpg");
  CHECK_SAYS(problem_of(TarWriter().add("a.v1.jpg", "A").add("a.v2.jpg", "B").add("a.cls", "1")),
             "member a.v2.jpg", "unique");
  CHECK_SAYS(problem_of(TarWriter().add_link("b.jpg", "/data/b.jpg", '2')), "member b.jpg", "/data/b.jpg",
             "--dereference");
  CHECK_SAYS(problem_of(TarWriter().add_link("b.jpg", "none.jpg", '1')), "member b.jpg", "none.jpg");
  CHECK_SAYS(problem_of(TarWriter().add_link("b.jpg", "c.jpg", '2').add_link("c.jpg", "b.jpg", '2')),
             "member b.jpg");
}

TEST_CASE("a broken tar is refused with the offset, wherever it breaks", "[data]") {
  const std::string data(700, 'x');
  const std::string good =
      TarWriter().add("1/a.jpg", data).add("1/b.jpg", data).add("1/c.jpg", data).finish();
  REQUIRE(shard_error(good).empty());
  for (size_t size = 0; size < good.size(); size += 256) {
    INFO(size);
    CHECK_SAYS(shard_error(good.substr(0, size)), "train-000000.tar", "broken tar file");
  }
  CHECK_SAYS(shard_error(TarWriter().add("1/a.jpg", data).without_end()), "ends at offset 1536");
  CHECK_SAYS(shard_error(std::string(good).replace(1536 + 3, 1, "!")), "broken tar file at offset 1536");
  // A zeroed header does not end the shard silently.
  CHECK_SAYS(shard_error(std::string(good).replace(1536, 1024, 1024, '\0')), "broken tar file at offset");
  CHECK_SAYS(shard_error("\x1f\x8b\x08" + std::string(5000, 'z')), "compressed by gzip");
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
  CHECK_SAYS(error("\x1f\x8b\x08\x00" + good), "compressed by gzip");
  CHECK_SAYS(error(flat_jpeg(48, 32, {1, 2, 3})), "48 x 32 pixels, expected 32 x 32");
  for (size_t size = 1; size < good.size() - 2; size += 20)
    CHECK_SAYS(error(good.substr(0, size)), "cannot be decoded as a JPEG");
}
