#include "catch.h"
#include "data/formats/mat5.h"
#include "data/sets/image_array.h"
#include "data/sets/svhn.h"
#include "fixtures.h"
#include "mat_file.h"
#include "spec/error.h"

using namespace sdp;
using namespace sdp::testing;

namespace {

/// Pixel (y, x, c) of image n.
uint8_t pixel(int y, int x, int c, int n) {
  return static_cast<uint8_t>(y * 3 + x * 5 + c * 71 + n * 19);
}

/// X of `images` images, with the first dimension (y) the fastest.
std::string pixels_of(int images) {
  std::string values;
  for (int n = 0; n < images; ++n)
    for (int c = 0; c < 3; ++c)
      for (int x = 0; x < 32; ++x)
        for (int y = 0; y < 32; ++y)
          values += static_cast<char>(pixel(y, x, c, n));
  return values;
}

std::string x_of(int images) {
  return mat_variable("X", {32, 32, 3, images}, pixels_of(images));
}

std::string y_of(const std::string& labels) {
  return mat_variable("y", {static_cast<int32_t>(labels.size()), 1}, labels);
}

std::string mat_file(const std::string& labels) {
  return mat_header() + mat_compressed(x_of(static_cast<int>(labels.size()))) + mat_compressed(y_of(labels));
}

std::string train_error(const std::string& bytes) {
  const TempFolder folder;
  folder.write("train_32x32.mat", bytes);
  return message_of<DataError>([&] { read_svhn(folder.path(), Split::kTrain, false, throw_problem); });
}

const std::string kLabels = {1, 10, 9, 5, 10};

}  // namespace

TEST_CASE("SVHN: planes are stored by rows, and 10 is the digit 0", "[data]") {
  for (const bool compressed : {true, false}) {
    const TempFolder folder;
    folder.write("train_32x32.mat", compressed ? mat_file(kLabels) : mat_header() + x_of(5) + y_of(kLabels));
    const ImageArray train = read_svhn(folder.path(), Split::kTrain, false, throw_problem);
    CHECK(train.num_classes == 10);
    CHECK(train.shape == ImageShape{3, 32, 32});
    CHECK(train.labels == std::vector<uint8_t>{1, 0, 9, 5, 0});
    REQUIRE(train.pixels.size() == 5 * 3072);
    for (int at = 0; at < 5 * 3072; ++at)
      REQUIRE(train.pixels[static_cast<size_t>(at)] ==
              pixel(at / 32 % 32, at % 32, at / 1024 % 3, at / 3072));
  }
}

TEST_CASE("SVHN: extra comes after train and never belongs to test", "[data]") {
  const TempFolder folder;
  folder.write("train_32x32.mat", mat_file({1, 2}));
  folder.write("extra_32x32.mat", mat_header() + mat_compressed(y_of({10})) +
                                      mat_compressed(mat_variable("X", {32, 32, 3}, pixels_of(1))));
  folder.write("test_32x32.mat", mat_file({7}));
  DataSpec spec;
  spec.set = SvhnSpec();
  spec.path = folder.path().string();
  const auto labels = [&](Split split) {
    const auto dataset = open_dataset(spec, model_named("resnet18"), split);
    return dynamic_cast<const ArrayDataset&>(*dataset).array().labels;
  };
  CHECK(labels(Split::kTrain) == std::vector<uint8_t>{1, 2});
  spec.set = SvhnSpec{.svhn_extra = true};
  CHECK(labels(Split::kTrain) == std::vector<uint8_t>{1, 2, 0});
  CHECK(labels(Split::kTest) == std::vector<uint8_t>{7});
}

TEST_CASE("SVHN: an error says what the folder contains instead", "[data]") {
  const TempFolder folder;
  const auto error = [&](bool with_extra = false) {
    return message_of<DataError>([&] { read_svhn(folder.path(), Split::kTrain, with_extra, throw_problem); });
  };
  CHECK_SAYS(error(), "missing train_32x32.mat. Found nothing. Expected");
  folder.write("train.tar.gz", "x");
  CHECK_SAYS(error(), "train.tar.gz is of the full numbers (format 1)", "train_32x32.mat");
  folder.write("digitStruct.mat", "x");
  CHECK_SAYS(error(), "digitStruct.mat is of the full numbers");
  folder.write("train_32x32.mat", mat_file({3}));
  CHECK(error().empty());
  CHECK_SAYS(error(true), "missing extra_32x32.mat");
  CHECK_SAYS(
      message_of<DataError>([&] { read_svhn(folder.path() / "absent", Split::kTest, false, throw_problem); }),
      "absent is not a folder");
}

TEST_CASE("SVHN: other kinds of files are refused", "[data]") {
  CHECK_SAYS(train_error(""), "train_32x32.mat: 0 bytes", "128");
  CHECK_SAYS(train_error(mat_header(0x0200)), "7.3 (HDF5)");
  CHECK_SAYS(train_error(mat_header(0x0100, "MI")), "at offset 124", "little-endian");
  CHECK_SAYS(train_error(std::string("\x1f\x8b") + std::string(500, 'z')), "no little-endian MAT-file");
  CHECK_SAYS(train_error(mat_header()), "no variable X");
  CHECK_SAYS(train_error(mat_header() + x_of(1)), "no variable y");
  CHECK_SAYS(train_error(mat_header() + x_of(1) + x_of(1) + y_of({1})),
             "variable X at offset 128 and once more at 3264");
}

TEST_CASE("SVHN: variables of the wrong type or shape are refused", "[data]") {
  const auto x_error = [](const std::vector<int32_t>& sizes, const std::string& values,
                          uint32_t array_class = 9, uint32_t value_type = 2) {
    return train_error(mat_header() + mat_variable("X", sizes, values, array_class, value_type) + y_of({1}));
  };
  const std::string pixels = pixels_of(1);
  CHECK_SAYS(x_error({3, 32, 32, 1}, pixels), "variable X at offset 128: 3 x 32 x 32 x 1", "32 x 32 x 3 x N");
  CHECK_SAYS(x_error({32, 96}, pixels), "32 x 96");
  CHECK_SAYS(x_error({32, 32, 3, 0}, ""), "variable y at offset", "1 x 1, expected 0 x 1");
  CHECK_SAYS(train_error(mat_header() + mat_variable("X", {32, 32, 3, 0}, "") + y_of("")),
             "at least one image");
  CHECK_SAYS(x_error({32, 32, 3, 2}, pixels), "3072 bytes of type 2, expected 6144 values");
  CHECK_SAYS(x_error({32, 32, 3, -1}, pixels), "a size of -1");
  CHECK_SAYS(x_error({1 << 30, 1 << 30, 1 << 30}, pixels), "too many values");
  CHECK_SAYS(x_error({32, 32, 3, 1}, pixels, 6, 2), "variable X", "class and flags 0x0006", "uint8 (9)");
  CHECK_SAYS(x_error({32, 32, 3, 1}, pixels, 0x0809), "0x0809");
  CHECK_SAYS(x_error({32, 32, 3, 1}, pixels, 9, 1), "3072 bytes of type 1");
  CHECK_SAYS(train_error(mat_header() + x_of(2) + mat_variable("y", {1, 2}, {1, 2})), "variable y",
             "1 x 2, expected 2 x 1");
}

TEST_CASE("SVHN: a damaged file is refused wherever the damage is", "[data]") {
  const std::string good = mat_file(kLabels);
  REQUIRE(train_error(good).empty());
  for (size_t size = 0; size < good.size(); size += 37) {
    INFO(size);
    CHECK_SAYS(train_error(good.substr(0, size)), "train_32x32.mat: ");
  }
  CHECK_SAYS(train_error(good + "rest"), "4 bytes are left at offset " + std::to_string(good.size()));
  // In compressed data, the checksum detects every flipped bit.
  for (size_t at = 128; at < good.size(); at += 11) {
    INFO(at);
    std::string damaged = good;
    damaged[at] = static_cast<char>(damaged[at] ^ 8);
    CHECK_SAYS(train_error(damaged), "train_32x32.mat: ");
  }
}

TEST_CASE("SVHN: sizes that compressed data cannot have allocate nothing", "[data]") {
  // 60 MiB of zeros compress to about 60 kB; cut to the first 200 bytes, the variable's header is still
  // complete.
  const int images = 20480;
  const std::string whole = mat_compressed(
      mat_variable("X", {32, 32, 3, images}, std::string(static_cast<size_t>(images) * 3072, '\0')));
  std::string cut = whole.substr(0, 208);
  cut.replace(4, 4, std::string("\xc8\0\0\0", 4));
  CHECK_SAYS(train_error(mat_header() + cut + mat_compressed(y_of({1}))),
             "variable (without a name) at offset 128", "than its 200 compressed bytes can hold");
}

TEST_CASE("SVHN: all problems are reported, and everything readable is read", "[data]") {
  const TempFolder folder;
  std::vector<std::string> problems;
  const auto read = [&] { return read_svhn(folder.path(), Split::kTrain, true, collect_into(problems)); };
  SECTION("labels") {
    folder.write("train_32x32.mat", mat_file({1, 0, 11, 10}));
    const ImageArray images = read();
    REQUIRE(problems.size() == 3);
    CHECK_SAYS(problems[0], "train_32x32.mat: variable y at offset ", "label 0 of image 1,");
    CHECK_SAYS(problems[1], "label 11 of image 2,");
    CHECK_SAYS(problems[2], "missing extra_32x32.mat");
    CHECK(images.labels == std::vector<uint8_t>{1, 0});
    REQUIRE(images.pixels.size() == 2 * 3072);
    CHECK(images.pixels[3072] == pixel(0, 0, 0, 3));
  }
  SECTION("pixels") {
    std::string x = mat_compressed(x_of(5));
    folder.write("extra_32x32.mat", mat_file({4}));
    SECTION("with a wrong checksum") {
      x.back() = static_cast<char>(x.back() ^ 1);
      folder.write("train_32x32.mat", mat_header() + x + mat_compressed(y_of(kLabels)));
      const ImageArray images = read();
      CHECK(images.labels == std::vector<uint8_t>{1, 0, 9, 5, 0, 4});
      CHECK(images.pixels.size() == 6 * 3072);
    }
    SECTION("with the end missing") {
      const size_t left = x.size() - 8 - 12;  // without the checksum and 8 more bytes
      x = x.substr(0, 4) + static_cast<char>(left & 0xff) + static_cast<char>(left >> 8) +
          std::string(2, '\0') + x.substr(8, left);
      folder.write("train_32x32.mat", mat_header() + x + mat_compressed(y_of(kLabels)));
      const ImageArray images = read();
      CHECK(images.labels.size() > 1);
      CHECK(images.labels.size() < 6);
      CHECK(images.labels.back() == 4);
      CHECK(images.pixels.size() == images.labels.size() * 3072);
    }
    REQUIRE(problems.size() == 1);
    CHECK_SAYS(problems[0], "train_32x32.mat: variable X at offset 128: its compressed data");
  }
}

TEST_CASE("a MAT-file's values are read once, in pieces", "[data]") {
  const TempFolder folder;
  const Mat5File file(
      folder.write("a.mat", mat_header() + mat_compressed(mat_variable("abc", {2, 3}, "uvwxyz"))));
  Mat5Array array = file.open("abc");
  CHECK(array.dimensions() == std::vector<int64_t>{2, 3});
  std::vector<uint8_t> values(4);
  array.read(values);
  CHECK(values == std::vector<uint8_t>{'u', 'v', 'w', 'x'});
  CHECK_THROWS_AS(array.finish(), std::logic_error);
  CHECK_THROWS_AS(array.read(values), std::logic_error);
  array.read(std::span(values).first(2));
  CHECK(values[1] == 'z');
  array.finish();
}
