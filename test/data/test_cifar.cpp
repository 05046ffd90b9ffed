#include "catch.h"
#include "data/sets/cifar.h"
#include "data/sets/image_array.h"
#include "fixtures.h"
#include "spec/error.h"

using namespace sdp;
using namespace sdp::testing;

namespace {

DataSpec spec_of(const std::filesystem::path& folder) {
  DataSpec spec;
  spec.path = folder.string();
  return spec;
}

ArrayDataset open_cifar10(const std::filesystem::path& folder, Split split) {
  return ArrayDataset(read_cifar10(folder, split, throw_problem));
}

std::string open_error(const std::filesystem::path& folder, Split split = Split::kTrain) {
  return message_of<DataError>([&] { open_dataset(spec_of(folder), model_named("resnet18"), split); });
}

/// Pixel (c, y, x) of the record of `id`.
uint8_t pixel(int id, int c, int y, int x) {
  return static_cast<uint8_t>(id * 53 + c * 101 + y * 7 + x);
}

/// One label byte, then the red plane, the green and the blue, each by rows.
std::string record(int label, int id) {
  std::string bytes(1, static_cast<char>(label));
  for (int c = 0; c < 3; ++c)
    for (int y = 0; y < 32; ++y)
      for (int x = 0; x < 32; ++x)
        bytes += static_cast<char>(pixel(id, c, y, x));
  return bytes;
}

/// Five training batches of two records, ids 0..9 in the official order, and a test batch of one, id 10.
void write_binary(const TempFolder& folder, const std::string& below = "") {
  for (int batch = 0; batch < 5; ++batch)
    folder.write(below + "data_batch_" + std::to_string(batch + 1) + ".bin",
                 record((2 * batch * 3) % 10, 2 * batch) + record(((2 * batch + 1) * 3) % 10, 2 * batch + 1));
  folder.write(below + "test_batch.bin", record(4, 10));
}

/// Superclass, class, pixels.
std::string record100(int coarse, int fine, int id) {
  return std::string(1, static_cast<char>(coarse)) + record(fine, id);
}

const std::string kPointer = "version https://git-lfs.github.com/spec/v1\noid sha256:1a\nsize 30730000\n";

std::string shard_of(const std::vector<std::pair<std::string, int>>& samples) {
  TarWriter tar;
  for (const auto& [key, label] : samples)
    tar.add(key + ".jpg", flat_jpeg(32, 32, {static_cast<uint8_t>(label * 20), 0, 255}))
        .add(key + ".cls", std::to_string(label));
  return tar.finish();
}

}  // namespace

TEST_CASE("the binary version is read in the official order", "[data]") {
  for (const std::string below : {"", "cifar-10-batches-bin/"}) {
    const TempFolder folder;
    write_binary(folder, below);
    const ArrayDataset train = open_cifar10(folder.path(), Split::kTrain);
    REQUIRE(train.size() == 10);
    CHECK(train.shape() == ImageShape{3, 32, 32});
    CHECK(train.num_classes() == 10);
    std::vector<uint8_t> chw(3072);
    for (int index = 0; index < 10; ++index) {
      CHECK(train.label(index) == index * 3 % 10);
      train.read(index, chw);
      for (int at = 0; at < 3072; ++at)
        REQUIRE(chw[static_cast<size_t>(at)] == pixel(index, at / 1024, at / 32 % 32, at % 32));
    }
    const ArrayDataset test = open_cifar10(folder.path(), Split::kTest);
    REQUIRE(test.size() == 1);
    CHECK(test.label(0) == 4);
    test.read(0, chw);
    CHECK(chw[3071] == pixel(10, 2, 31, 31));
  }
}

TEST_CASE("indices and spans out of range are refused", "[data]") {
  const TempFolder folder;
  write_binary(folder);
  const ArrayDataset train = open_cifar10(folder.path(), Split::kTrain);
  std::vector<uint8_t> chw(3072);
  CHECK_THROWS_AS(train.label(10), std::logic_error);
  CHECK_THROWS_AS(train.read(-1, chw), std::logic_error);
  CHECK_THROWS_AS(train.read(0, std::span(chw).first(3071)), std::logic_error);
}

TEST_CASE("damaged batch files are named, with the offset", "[data]") {
  const TempFolder folder;
  write_binary(folder);
  SECTION("truncated") {
    folder.write("data_batch_3.bin", (record(1, 1) + record(2, 2)).substr(0, 6000));
    CHECK_SAYS(open_error(folder.path()), "data_batch_3.bin: 6000 bytes", "multiple of 3073",
               "offset 3073 ends after 2927 bytes");
  }
  SECTION("empty") {
    folder.write("data_batch_2.bin", "");
    CHECK_SAYS(open_error(folder.path()), "data_batch_2.bin: the file is empty");
  }
  SECTION("label beyond 9") {
    folder.write("test_batch.bin", record(9, 1) + record(10, 2));
    CHECK_SAYS(open_error(folder.path(), Split::kTest), "test_batch.bin: label 10 at offset 3073", "0..9");
  }
  SECTION("missing") {
    std::filesystem::remove(folder.path() / "data_batch_2.bin");
    std::filesystem::remove(folder.path() / "data_batch_5.bin");
    CHECK_SAYS(open_error(folder.path()), "missing \"data_batch_2.bin\", \"data_batch_5.bin\"",
               "Found \"data_batch_1.bin\"");
    CHECK(open_error(folder.path(), Split::kTest).empty());
  }
}

TEST_CASE("an error says what the folder contains instead", "[data]") {
  const TempFolder folder;
  SECTION("nothing") {
    CHECK_SAYS(open_error(folder.path()), "holds no CIFAR-10. Found nothing. Expected");
  }
  SECTION("something else") {
    folder.write("train.bin", "x");
    CHECK_SAYS(open_error(folder.path()), "holds no CIFAR-10. Found \"train.bin\". Expected");
  }
  SECTION("the archive as downloaded") {
    folder.write("cifar-10-binary.tar.gz", "x");
    CHECK_SAYS(open_error(folder.path()), "cifar-10-binary.tar.gz as it was downloaded", "tar -xzf");
  }
  SECTION("the archive for Python") {
    folder.write("cifar-10-python.tar.gz", "x");
    CHECK_SAYS(open_error(folder.path()), "pickles", "cifar-10-binary.tar.gz");
  }
  SECTION("the version for Python") {
    folder.write("data_batch_1", "x");
    CHECK_SAYS(open_error(folder.path()), "pickles", "data_batch_1.bin");
  }
  SECTION("the version for Python, one level below") {
    folder.write("cifar-10-batches-py/data_batch_1", "x");
    CHECK_SAYS(open_error(folder.path()), "pickles");
  }
  SECTION("both formats") {
    write_binary(folder, "cifar-10-batches-bin/");
    folder.write("train-000000.tar", shard_of({{"a", 1}}));
    CHECK_SAYS(open_error(folder.path()), "both", "train-000000.tar");
  }
  SECTION("not a folder") {
    CHECK_SAYS(open_error(folder.path() / "absent"), "absent is not a folder");
    CHECK_SAYS(open_error(folder.write("file.bin", "x")), "file.bin is not a folder");
  }
  SECTION("no path") {
    CHECK_SAYS(
        message_of<UsageError>([] { open_dataset(DataSpec{}, model_named("resnet18"), Split::kTrain); }),
        "data.path");
  }
}

TEST_CASE("shards are read in order of their numbers", "[data]") {
  const TempFolder folder;
  folder.write("train-000001.tar", shard_of({{"a", 5}}));
  folder.write("train-000000.tar", shard_of({{"z", 3}, {"b", 9}}));
  folder.write("test-000000.tar", shard_of({{"q", 2}}));
  const ArrayDataset train = open_cifar10(folder.path(), Split::kTrain);
  REQUIRE(train.size() == 3);
  const std::vector<int64_t> labels = {3, 9, 5};
  std::vector<uint8_t> chw(3072);
  for (int64_t index = 0; index < 3; ++index) {
    const int64_t label = labels[static_cast<size_t>(index)];
    CHECK(train.label(index) == label);
    train.read(index, chw);
    CHECK(std::abs(chw[500] - label * 20) <= 2);
    CHECK(chw[1500] <= 2);
    CHECK(chw[2500] >= 253);
  }
  CHECK(open_cifar10(folder.path(), Split::kTest).size() == 1);
}

TEST_CASE("shards that are missing, misnamed or hold a bad image are named", "[data]") {
  const TempFolder folder;
  folder.write("train-000000.tar", shard_of({{"a", 1}}));
  SECTION("a gap") {
    folder.write("train-000002.tar", shard_of({{"a", 1}}));
    CHECK_SAYS(open_error(folder.path()), "train-000002.tar: expected shard 1 in its place");
  }
  SECTION("a duplicate number") {
    folder.write("train-0.tar", shard_of({{"a", 1}}));
    CHECK_SAYS(open_error(folder.path()), "train-000000.tar: expected shard 1", "none twice");
  }
  SECTION("no number") {
    folder.write("train-extra.tar", shard_of({{"a", 1}}));
    CHECK_SAYS(open_error(folder.path()), "train-extra.tar: shards are named train-NNNNNN.tar");
  }
  SECTION("no shard of the split") {
    CHECK_SAYS(open_error(folder.path(), Split::kTest), "no test-NNNNNN.tar. Found \"train-000000.tar\"");
  }
  SECTION("not 32 x 32") {
    folder.write("train-000001.tar", TarWriter()
                                         .add("a.jpg", flat_jpeg(32, 32, {1, 2, 3}))
                                         .add("a.cls", "1")
                                         .add("b.jpg", flat_jpeg(33, 32, {1, 2, 3}))
                                         .add("b.cls", "1")
                                         .finish());
    const std::string error = open_error(folder.path());
    CHECK_SAYS(error, "train-000001.tar: member b.jpg at offset ", "33 x 32 pixels");
  }
  SECTION("not a JPEG") {
    folder.write("train-000001.tar", TarWriter().add("a.jpg", "GIF89a").add("a.cls", "1").finish());
    CHECK_SAYS(open_error(folder.path()),
               "train-000001.tar: member a.jpg at offset 0: this is a GIF, not a JPEG");
  }
}

TEST_CASE("all problems are reported, and everything readable is read", "[data]") {
  const TempFolder folder;
  SECTION("binary version") {
    write_binary(folder);
    folder.write("data_batch_1.bin", record(0, 0) + record(11, 1) + record(2, 2) + record(200, 3) + "cut");
    folder.write("data_batch_2.bin", "");
    std::filesystem::remove(folder.path() / "data_batch_3.bin");
    std::filesystem::remove(folder.path() / "data_batch_4.bin");
    std::filesystem::create_directory(folder.path() / "data_batch_4.bin");
    std::vector<std::string> problems;
    const ImageArray images = read_cifar10(folder.path(), Split::kTrain, collect_into(problems));
    REQUIRE(problems.size() == 6);
    CHECK_SAYS(problems[0], "missing \"data_batch_3.bin\".");
    CHECK_SAYS(problems[1], "data_batch_1.bin: 12295 bytes", "offset 12292 ends after 3 bytes");
    CHECK_SAYS(problems[2], "data_batch_1.bin: label 11 at offset 3073");
    CHECK_SAYS(problems[3], "data_batch_1.bin: label 200 at offset 9219");
    CHECK_SAYS(problems[4], "data_batch_2.bin: the file is empty");
    CHECK_SAYS(problems[5], "data_batch_4.bin", "Is a directory");
    CHECK(images.labels == std::vector<uint8_t>{0, 2, 24 % 10, 27 % 10});
    REQUIRE(images.pixels.size() == 4 * 3072);
    CHECK(images.pixels[3072] == pixel(2, 0, 0, 0));
    CHECK(images.pixels.back() == pixel(9, 2, 31, 31));
  }
  SECTION("shards") {
    const std::string jpeg = flat_jpeg(32, 32, {1, 2, 3});
    folder.write("train-000000.tar",
                 TarWriter().add("7/a.jpg", jpeg).add("3/b.jpg", "GIF").add("5/c.jpg", jpeg).finish());
    folder.write("train-000002.tar", TarWriter().add("4/a.jpg", jpeg).without_end());
    folder.write("train-000003.tar", TarWriter().add("9/a.jpg", jpeg).finish());
    folder.write("train-x.tar", "");
    std::vector<std::string> problems;
    const ImageArray images = read_cifar10(folder.path(), Split::kTrain, collect_into(problems));
    REQUIRE(problems.size() == 4);
    CHECK_SAYS(problems[0], "train-x.tar: shards are named");
    CHECK_SAYS(problems[1], "train-000002.tar: expected shard 1");
    CHECK_SAYS(problems[2], "train-000000.tar: member 3/b.jpg at offset ");
    CHECK_SAYS(problems[3], "train-000002.tar: broken tar file");
    CHECK(images.labels == std::vector<uint8_t>{7, 5, 9});
    CHECK(images.pixels.size() == 3 * 3072);
  }
  SECTION("nothing to read") {
    std::vector<std::string> problems;
    CHECK(read_cifar10(folder.path() / "absent", Split::kTrain, collect_into(problems)).size() == 0);
    CHECK(read_cifar10(folder.path(), Split::kTrain, collect_into(problems)).size() == 0);
    CHECK(problems.size() == 2);
  }
}

TEST_CASE("CIFAR-100 has the fine labels", "[data]") {
  for (const std::string below : {"", "cifar-100-binary/"}) {
    const TempFolder folder;
    folder.write(below + "train.bin", record100(19, 99, 0) + record100(0, 42, 1));
    folder.write(below + "test.bin", record100(7, 0, 2));
    const ImageArray train = read_cifar100(folder.path(), Split::kTrain, throw_problem);
    CHECK(train.num_classes == 100);
    CHECK(train.shape == ImageShape{3, 32, 32});
    CHECK(train.labels == std::vector<uint8_t>{99, 42});
    REQUIRE(train.pixels.size() == 2 * 3072);
    for (int at = 0; at < 2 * 3072; ++at)
      REQUIRE(train.pixels[static_cast<size_t>(at)] ==
              pixel(at / 3072, at / 1024 % 3, at / 32 % 32, at % 32));
    CHECK(read_cifar100(folder.path(), Split::kTest, throw_problem).labels == std::vector<uint8_t>{0});
  }
}

TEST_CASE("CIFAR-100: damage and other contents are named", "[data]") {
  const TempFolder folder;
  const auto error = [&](Split split = Split::kTrain) {
    return message_of<DataError>([&] { read_cifar100(folder.path(), split, throw_problem); });
  };
  SECTION("labels") {
    folder.write("train.bin", record100(0, 100, 0) + record100(20, 5, 1) + record100(19, 6, 2));
    CHECK_SAYS(error(), "train.bin: fine label 100 at offset 1,", "0..99");
    std::vector<std::string> problems;
    const ImageArray images = read_cifar100(folder.path(), Split::kTrain, collect_into(problems));
    REQUIRE(problems.size() == 2);
    CHECK_SAYS(problems[1], "train.bin: coarse label 20 at offset 3074,", "0..19");
    CHECK(images.labels == std::vector<uint8_t>{6});
    CHECK_SAYS(error(Split::kTest), "missing \"test.bin\". Found \"train.bin\"");
  }
  SECTION("CIFAR-10's records") {
    folder.write("train.bin", record(1, 0) + record(2, 1));
    CHECK_SAYS(error(), "train.bin: 6146 bytes", "multiple of 3074", "offset 3074 ends after 3072");
  }
  SECTION("other versions") {
    folder.write("cifar-100-binary.tar.gz", "x");
    CHECK_SAYS(error(), "cifar-100-binary.tar.gz as it was downloaded");
    folder.write("cifar-100-python/meta", "x");
    CHECK_SAYS(error(), "CIFAR-100's version for Python (pickles)");
  }
  SECTION("CIFAR-10") {
    write_binary(folder);
    CHECK_SAYS(error(), "holds no CIFAR-100. Found \"data_batch_1.bin\"");
  }
}

TEST_CASE("each data set opens by its name and fits models with its number of classes", "[data]") {
  const TempFolder folder;
  folder.write("train.bin", record100(1, 2, 3));
  DataSpec spec = spec_of(folder.path());
  spec.set = Cifar100Spec();
  const auto open = [&](int64_t classes) {
    return open_dataset(spec, {.kind = ResNetSpec{.num_classes = classes, .image_size = 32}}, Split::kTrain);
  };
  CHECK(open(100)->size() == 1);
  CHECK_SAYS(message_of<UsageError>([&] { open(10); }), "model.num_classes: 10", "100 classes");
}

TEST_CASE("an array must have as many labels as images", "[data]") {
  ImageArray array{
      .shape = {1, 2, 2}, .num_classes = 3, .normalization = {}, .pixels = {1, 2, 3, 4}, .labels = {2}};
  CHECK(ArrayDataset(array).array().pixels == array.pixels);
  array.labels.push_back(0);
  CHECK_THROWS_AS(ArrayDataset(array), std::logic_error);
}

TEST_CASE("what lies in place of CIFAR's files is named for what it is", "[data]") {
  for (const auto& [content, name] : {std::pair<std::string, const char*>{kPointer, "Git LFS pointer"},
                                      {"<!DOCTYPE html><title>404</title>", "HTML page"},
                                      {"\x1f\x8b\x08" + std::string(3070, 'z'), "compressed by gzip"}}) {
    const TempFolder folder;
    write_binary(folder);
    folder.write("data_batch_3.bin", content);
    CHECK_SAYS(open_error(folder.path()), "data_batch_3.bin: is ", name);
  }
}
