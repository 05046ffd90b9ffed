#include "catch.h"
#include "data/image_array.h"
#include "fixtures.h"
#include "spec/error.h"

using namespace sdp;
using namespace sdp::testing;

// Files written by Python's safetensors are read by oracle.py.

namespace {

constexpr const char* kTrain = "train.safetensors";
constexpr const char* kVal = "val.safetensors";

template <class Set>
ImageArray read_split(const TempFolder& folder, Split split, const OnProblem& on_problem = throw_problem,
                      const Set& set = {}) {
  return read_set(set, DataSpec{.set = set, .path = folder.path().string()}, split, on_problem);
}

template <class Set>
std::string error_of(const TempFolder& folder, Split split = Split::kTrain, const Set& set = {}) {
  return message_of<DataError>([&] { read_split(folder, split, throw_problem, set); });
}

/// Pixel (c, y, x) of image `id`.
uint8_t pixel(int id, int c, int y, int x) {
  return static_cast<uint8_t>(id * 53 + c * 101 + y * 7 + x);
}

/// Images with these numbers, whose labels are (3 * number) % the number of classes.
ArrayContent images_of(const HeldImages& set, const std::vector<int>& ids) {
  ArrayContent content;
  for (const int id : ids) {
    content.labels += static_cast<char>(3 * id % static_cast<int>(set.class_names.size()));
    for (int y = 0; y < set.shape.height; ++y)
      for (int x = 0; x < set.shape.width; ++x)
        for (int c = 0; c < set.shape.channels; ++c)
          content.pixels += static_cast<char>(pixel(id, c, y, x));
  }
  return content;
}

template <class Set>
std::string file_of(const std::vector<int>& ids) {
  return array_file(Set::images(), images_of(Set::images(), ids));
}

/// The file with a part of its header replaced.
std::string with(const std::string& file, const std::string& part, const std::string& other) {
  const size_t length = static_cast<uint8_t>(file[0]) + 256U * static_cast<uint8_t>(file[1]);
  std::string header = file.substr(8, length);
  const size_t at = header.find(part);
  REQUIRE(at != std::string::npos);
  return safetensors_bytes(header.replace(at, part.size(), other), file.substr(8 + length));
}

const SvhnSpec kWithExtra{{}, true};

std::string shard_of(const std::vector<std::pair<std::string, int>>& samples) {
  TarWriter tar;
  for (const auto& [key, label] : samples)
    tar.add(key + ".jpg", flat_jpeg(32, 32, {static_cast<uint8_t>(label * 20), 0, 255}))
        .add(key + ".cls", std::to_string(label));
  return tar.finish();
}

}  // namespace

TEST_CASE("SVHN's extra images are asked for where they are missing", "[data]") {
  // Their place is that of oracle.py.
  const TempFolder folder;
  folder.write(kTrain, file_of<SvhnSpec>({1, 2}));
  CHECK_SAYS(error_of(folder, Split::kTrain, kWithExtra), "holds no extra.safetensors",
             "scripts/fetch_data svhn_extra " + folder.path().string());
}

TEST_CASE("arrays that do not fit the set are refused with all that is wrong", "[data]") {
  const TempFolder folder;
  const std::string good = file_of<MnistSpec>({1, 2});
  const auto error = [&](const std::string& file) {
    folder.write(kTrain, file);
    return error_of<MnistSpec>(folder);
  };
  REQUIRE(error(good).empty());
  CHECK_SAYS(error(with(good, "[2,28,28,1]", "[4,28,14,1]")), kTrain, "images is U8 [4, 28, 14, 1]",
             "U8 [N, 28, 28, 1]", "scripts/fetch_data mnist " + folder.path().string());
  CHECK_SAYS(error(with(good, "[2,28,28,1]", "[2,1,28,28]")), "images is U8 [2, 1, 28, 28]");
  CHECK_SAYS(error(with(good, R"("U8","shape":[2]})", R"("BOOL","shape":[2]})")),
             "labels is BOOL [2], expected U8 [N]");
  CHECK_SAYS(error(with(good, R"("shape":[2]})", R"("shape":[2,1]})")),
             "labels is U8 [2, 1], expected U8 [N]");
  CHECK_SAYS(error(with(good, "\"labels\"", "\"lapels\"")), "there is no tensor labels, expected U8 [N]");
  CHECK_SAYS(error(with(good, "class_names", "class_NAMES")), "no class_names");
  CHECK_SAYS(error(with(good, "\\\"7\\\"", "\\\"8\\\"")),
             "class_names has \"8\" for label 7, expected \"7\"");
  CHECK_SAYS(error(with(good, ",\\\"9\\\"", "")), "class_names has 9 names, expected 10");
  CHECK_SAYS(error(file_of<FashionMnistSpec>({1})), "\"T-shirt/top\" for label 0, expected \"0\"");
  CHECK_SAYS(error(file_of<SvhnSpec>({1})), "images is U8 [1, 32, 32, 3], expected U8 [N, 28, 28, 1]");
  CHECK_SAYS(error(file_of<MnistSpec>({})), "images is U8 [0, 28, 28, 1]", "N of at least 1");
  CHECK_SAYS(error(with(with(good, "\"images\"", "\"Images\""), "\"labels\"", "\"Labels\"")),
             "no tensor images", "no tensor labels");
  ArrayContent uneven = images_of(MnistSpec::images(), {1, 2});
  uneven.labels += '\0';
  std::string more = array_file(MnistSpec::images(), uneven);
  CHECK_SAYS(error(with(more, "[3,28,28,1]", "[2,28,28,1]")), "2 images have 3 labels");
}

TEST_CASE("a file that is cut off or something else is named", "[data]") {
  const std::string good = file_of<Cifar10Spec>({1, 2, 3});
  const TempFolder folder;
  for (size_t size = 0; size < good.size(); size += 71) {
    INFO(size);
    folder.write(kTrain, good.substr(0, size));
    CHECK_SAYS(error_of<Cifar10Spec>(folder), kTrain);
  }
  folder.write(kTrain, "\x1f\x8b\x08" + std::string(3070, 'z'));
  CHECK_SAYS(error_of<Cifar10Spec>(folder), std::string(kTrain) + ": is compressed by gzip");
}

TEST_CASE("without arrays, an error says what there is and which command writes them", "[data]") {
  const TempFolder folder;
  const std::string path = folder.path().string();
  CHECK_SAYS(error_of<Cifar100Spec>(folder), "holds no train.safetensors. Found nothing",
             "\n  scripts/fetch_data cifar100 " + path);
  folder.write(kTrain, file_of<Cifar100Spec>({1}));
  CHECK_SAYS(error_of<Cifar100Spec>(folder, Split::kTest),
             "holds no val.safetensors. Found \"train.safetensors\"");
  CHECK_SAYS(message_of<DataError>(
                 [&] { open_dataset({.path = path + "/absent"}, model_named("resnet18"), Split::kTrain); }),
             "absent is not a folder");
  CHECK_SAYS(message_of<UsageError>([] { open_dataset(DataSpec{}, model_named("resnet18"), Split::kTrain); }),
             "data.path");
}

TEST_CASE("official files are refused with the command that makes arrays of them", "[data]") {
  const auto check = [](const auto& set, const std::string& file, const std::string& name) {
    const TempFolder folder;
    folder.write(file, "x");
    const std::string path = folder.path().string();
    CHECK_SAYS(error_of(folder, Split::kTrain, set), "from the official files",
               "\n  scripts/fetch_data " + name + " --from " + path + " " + path);
  };
  check(Cifar10Spec(), "cifar-10-batches-bin/data_batch_1.bin", "cifar10");
  check(Cifar100Spec(), "cifar-100-binary.tar.gz", "cifar100");
  check(SvhnSpec(), "train_32x32.mat", "svhn");
  check(kWithExtra, "extra_32x32.mat", "svhn_extra");
  check(MnistSpec(), "train-images-idx3-ubyte", "mnist");
  check(FashionMnistSpec(), "t10k-labels-idx1-ubyte.gz", "fashion_mnist");
}

TEST_CASE("all problems are reported, and everything readable is read", "[data]") {
  const TempFolder folder;
  std::vector<std::string> problems;
  SECTION("labels") {
    ArrayContent content = images_of(SvhnSpec::images(), {0, 1, 2, 3});
    content.labels = {1, 10, 3, '\xff'};
    folder.write(kTrain, array_file(SvhnSpec::images(), content));
    const ImageArray images = read_split(folder, Split::kTrain, collect_into(problems), kWithExtra);
    REQUIRE(problems.size() == 3);
    CHECK_SAYS(problems[0], "train.safetensors: label 10 of image 1, expected 0..9");
    CHECK_SAYS(problems[1], "train.safetensors: label 255 of image 3, expected 0..9");
    CHECK_SAYS(problems[2], "extra.safetensors");
    CHECK(images.labels == std::vector<uint8_t>{1, 3});
    REQUIRE(images.pixels.size() == 2 * 3072);
    CHECK(images.pixels[3072] == pixel(2, 0, 0, 0));
    CHECK(images.pixels.back() == pixel(2, 2, 31, 31));
  }
  SECTION("shards") {
    const std::string jpeg = flat_jpeg(32, 32, {1, 2, 3});
    folder.write("train-000000.tar",
                 TarWriter().add("7/a.jpg", jpeg).add("3/b.jpg", "GIF").add("5/c.jpg", jpeg).finish());
    folder.write("train-000002.tar", TarWriter().add("4/a.jpg", jpeg).without_end());
    folder.write("train-000003.tar", TarWriter().add("9/a.jpg", jpeg).finish());
    folder.write("train-x.tar", "");
    const ImageArray images = read_split<Cifar10Spec>(folder, Split::kTrain, collect_into(problems));
    REQUIRE(problems.size() == 4);
    CHECK_SAYS(problems[0], "train-x.tar: shards are named");
    CHECK_SAYS(problems[1], "train-000002.tar: expected shard 1");
    CHECK_SAYS(problems[2], "train-000000.tar: member 3/b.jpg at offset ");
    CHECK_SAYS(problems[3], "train-000002.tar: broken tar file");
    CHECK(images.labels == std::vector<uint8_t>{7, 5, 9});
    CHECK(images.pixels.size() == 3 * 3072);
  }
  SECTION("nothing to read") {
    CHECK(read_set(Cifar10Spec(), {.path = (folder.path() / "absent").string()}, Split::kTrain,
                   collect_into(problems))
              .size() == 0);
    CHECK(read_split<Cifar10Spec>(folder, Split::kTrain, collect_into(problems)).size() == 0);
    CHECK(problems.size() == 2);
  }
}

TEST_CASE("arrays and shards in one folder are refused", "[data]") {
  const TempFolder folder;
  folder.write(kVal, file_of<Cifar10Spec>({1}));
  folder.write("train-000000.tar", shard_of({{"a", 1}}));
  CHECK_SAYS(error_of<Cifar10Spec>(folder), "both", "train-000000.tar");
}

TEST_CASE("shards that are missing, misnamed or hold a bad image are named", "[data]") {
  const std::string shard = shard_of({{"a", 1}}), color = flat_jpeg(32, 32, {1, 2, 3});
  const auto error_with = [&](const std::string& name, const std::string& other,
                              Split split = Split::kTrain) {
    const TempFolder folder;
    folder.write("train-000000.tar", shard);
    folder.write(name, other);
    return error_of<Cifar10Spec>(folder, split);
  };
  const auto of_images = [](const std::string& a, const std::string& b) {
    return TarWriter().add("a.jpg", a).add("a.cls", "1").add("b.jpg", b).add("b.cls", "1").finish();
  };
  CHECK_SAYS(error_with("train-000002.tar", shard), "train-000002.tar: expected shard 1");
  CHECK_SAYS(error_with("train-0.tar", shard), "train-000000.tar: expected shard 1");
  CHECK_SAYS(error_with("train-extra.tar", shard), "train-extra.tar: ");
  CHECK_SAYS(error_with("notes", "", Split::kTest), "no test-NNNNNN.tar", "train-000000.tar");
  CHECK_SAYS(error_with("train-000001.tar", of_images(color, flat_jpeg(33, 32, {1, 2, 3}))),
             "train-000001.tar: member b.jpg at offset ", "33 x 32 pixels");
  CHECK_SAYS(error_with("train-000001.tar", of_images("GIF89a", color)),
             "train-000001.tar: member a.jpg at offset 0: this is a GIF");
}

TEST_CASE("a set fits models with its number of classes and its channels", "[data]") {
  const TempFolder folder;
  folder.write(kTrain, file_of<Cifar100Spec>({1}));
  folder.write(kVal, file_of<FashionMnistSpec>({0, 1}));
  const auto open_for = [&](int64_t classes) {
    return open_dataset({.set = Cifar100Spec(), .path = folder.path().string()},
                        {.kind = ResNetSpec{.num_classes = classes, .image_size = 32}}, Split::kTrain);
  };
  CHECK(open_for(100)->size() == 1);
  CHECK_SAYS(message_of<UsageError>([&] { open_for(10); }), "model.num_classes: 10", "100 classes");

  const DataSpec spec{.set = FashionMnistSpec(),
                      .path = folder.path().string(),
                      .normalization = {.mean = std::vector{0.25}, .stddev = std::vector{0.5}}};
  const auto open_gray = [&](int64_t channels) {
    return open_dataset(spec, {.kind = MlpSpec{.image_size = 28, .image_channels = channels}}, Split::kTest);
  };
  CHECK_SAYS(message_of<UsageError>([&] { open_gray(3); }), "model.image_channels: 3", "have 1");
  const Batch batch = open_gray(1)->eval_batch(std::vector<int64_t>{1});
  REQUIRE(batch.images.size() == 784);
  CHECK(batch.images[0] == (static_cast<float>(pixel(1, 0, 0, 0)) / 255.0F - 0.25F) / 0.5F);
}

TEST_CASE("an array must have as many labels as images", "[data]") {
  ImageArray array{
      .shape = {1, 2, 2}, .num_classes = 3, .normalization = {}, .pixels = {1, 2, 3, 4}, .labels = {2}};
  CHECK(ArrayDataset(array).array().pixels == array.pixels);
  array.labels.push_back(0);
  CHECK_THROWS_AS(ArrayDataset(array), std::logic_error);
}
