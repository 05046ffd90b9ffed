#include "catch.h"
#include "data/image_array.h"
#include "fixtures.h"

using namespace sdp;
using namespace sdp::testing;

// Files written by Python's safetensors: test/scripts/test_fetch_data.py.

namespace {

constexpr const char* kTrain = "train.safetensors";

template <class Set>
ImageArray read_split(const TempFolder& folder, Split split, const OnProblem& on_problem = throw_problem,
                      const Set& set = {}) {
  return read_set(set, DataSpec{.set = set, .path = folder.path().string()}, split, on_problem);
}

template <class Set>
std::string error_of(const TempFolder& folder, Split split = Split::kTrain, const Set& set = {}) {
  return message_of<DataError>([&] { read_split(folder, split, throw_problem, set); });
}

/// Images in one color, their number, whose labels are (3 * number) % the number of classes.
ArrayContent images_of(const HeldImages& set, const std::vector<uint8_t>& ids) {
  ArrayContent content;
  for (const uint8_t id : ids) {
    content.labels += static_cast<char>(3U * id % set.class_names.size());
    content.pixels.append(static_cast<size_t>(set.shape.numel()), static_cast<char>(id));
  }
  return content;
}

template <class Set>
std::string file_of(const std::vector<uint8_t>& ids) {
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

}  // namespace

TEST_CASE("arrays that do not fit the set are refused with all that is wrong") {
  const TempFolder folder;
  const std::string good = file_of<MnistSpec>({1, 2});
  const auto error = [&](const std::string& file) {
    folder.write(kTrain, file);
    return error_of<MnistSpec>(folder);
  };
  REQUIRE(error(good).empty());
  ArrayContent uneven = images_of(MnistSpec::images(), {1, 2});
  uneven.labels += '\0';
  const std::vector<std::pair<std::string, std::vector<std::string>>> refused = {
      {with(good, "[2,28,28,1]", "[4,28,14,1]"), {"images", "[4, 28, 14, 1]", "[N, 28, 28, 1]"}},
      {with(good, R"("U8","shape":[2]})", R"("BOOL","shape":[2]})"), {"labels", "BOOL [2]", "U8 [N]"}},
      {with(good, "class_names", "class_NAMES"), {"no class_names"}},
      {with(good, "\\\"7\\\"", "\\\"8\\\""), {"class_names has \"8\" for label 7, expected \"7\""}},
      {file_of<FashionMnistSpec>({1}), {"\"T-shirt/top\" for label 0, expected \"0\""}},
      {file_of<MnistSpec>({}), {"images", "[0, 28, 28, 1]", "at least 1"}},
      {with(with(good, "\"images\"", "\"Images\""), "\"labels\"", "\"Labels\""),
       {"no tensor images", "no tensor labels"}},
      {with(array_file(MnistSpec::images(), uneven), "[3,28,28,1]", "[2,28,28,1]"),
       {"2 images have 3 labels"}},
      {"\x1f\x8b\x08" + std::string(3070, 'z'), {"gzip"}},
      {"", {}},
      {good.substr(0, 100), {}},
      {good.substr(0, good.size() - 1), {}}};
  for (const auto& [file, parts] : refused) {
    INFO(file.substr(0, 500));
    CHECK_SAYS(error(file), kTrain);
    CHECK(lacks(error(file), parts) == "");
  }
  CHECK_SAYS(error(refused[0].first), "scripts/fetch_data mnist " + folder.path().string());
}

TEST_CASE("without arrays, an error says what there is and which command writes them") {
  const auto check = [](const auto& set, const std::string& file, const std::string& name,
                        const std::vector<std::string>& parts, Split split = Split::kTrain) {
    const TempFolder folder;
    if (!file.empty()) folder.write(file, file_of<SvhnSpec>({1, 2}));
    const std::string path = folder.path().string();
    const bool is_official = !file.empty() && file != kTrain;
    const std::string error = error_of(folder, split, set);
    CHECK(lacks(error, parts) == "");
    CHECK_SAYS(error, "\n  scripts/fetch_data " + name + (is_official ? " --from " + path : "") + " " + path);
  };
  check(Cifar100Spec(), "", "cifar100", {"no train.safetensors", "nothing"});
  check(Cifar100Spec(), kTrain, "cifar100", {"no val.safetensors", "\"train.safetensors\""}, Split::kTest);
  check(kWithExtra, kTrain, "svhn_extra", {"no extra.safetensors"});
  check(Cifar10Spec(), "cifar-10-batches-bin/data_batch_1.bin", "cifar10", {"official files"});
  check(Cifar100Spec(), "cifar-100-binary.tar.gz", "cifar100", {});
  check(kWithExtra, "extra_32x32.mat", "svhn_extra", {});
  check(FashionMnistSpec(), "t10k-labels-idx1-ubyte.gz", "fashion_mnist", {});
  for (const auto& [path, part] :
       {std::pair("/nonexistent", "/nonexistent is not a folder"), {"", "data.path"}})
    CHECK_SAYS(message_of<Error>([&, path = path] {
                 open_dataset({.path = path}, model_named("resnet18"), Split::kTrain);
               }),
               part);
}

TEST_CASE("all problems of arrays are reported, and everything readable is read") {
  const TempFolder folder;
  std::vector<std::string> problems;
  ArrayContent content = images_of(SvhnSpec::images(), {0, 1, 2, 3});
  content.labels = {1, 10, 3, '\xff'};
  folder.write(kTrain, array_file(SvhnSpec::images(), content));
  const ImageArray images = read_split(folder, Split::kTrain, collect_into(problems), kWithExtra);
  CHECK(lacks(problems, {{"train.safetensors: label 10 of image 1", "0..9"},
                         {"train.safetensors: label 255 of image 3", "0..9"},
                         {"extra.safetensors"}}) == "");
  CHECK(images.labels == std::vector<uint8_t>{1, 3});
  REQUIRE(images.pixels.size() == 2 * 3072);
  CHECK((images.pixels[3071] == 0 && images.pixels[3072] == 2 && images.pixels.back() == 2));
}

TEST_CASE("all problems of shards are reported, and everything readable is read") {
  const TempFolder folder;
  std::vector<std::string> problems;
  CHECK(read_split<Cifar10Spec>(folder, Split::kTrain, collect_into(problems)).size() == 0);
  CHECK(read_set(Cifar10Spec(), {.path = "/none"}, Split::kTrain, collect_into(problems)).size() == 0);
  CHECK(problems.size() == 2);
  problems.clear();
  const std::string jpeg = flat_jpeg(32, 32, {1, 2, 3}), wide = flat_jpeg(33, 32, {1, 2, 3});
  folder.write("train-0.tar", tar_of({{"8/a.jpg", jpeg}}));
  folder.write("train-000000.tar",
               tar_of({{"7/a.jpg", jpeg}, {"3/b.jpg", "GIF89a"}, {"5/c.jpg", jpeg}, {"2/d.jpg", wide}}));
  folder.write("train-000002.tar", TarWriter().add("4/a.jpg", jpeg).without_end());
  folder.write("train-000003.tar", tar_of({{"9/a.jpg", jpeg}}));
  folder.write("train-x.tar", "");
  const ImageArray images = read_split<Cifar10Spec>(folder, Split::kTrain, collect_into(problems));
  CHECK(lacks(problems, {{"train-x.tar: "},
                         {"train-000000.tar: expected shard 1"},
                         {"train-000002.tar: expected shard 1"},
                         {"train-000000.tar: member 3/b.jpg at offset ", "a GIF"},
                         {"train-000000.tar: member 2/d.jpg at offset ", "33 x 32 pixels"},
                         {"train-000002.tar: broken tar file"}}) == "");
  CHECK(images.labels == std::vector<uint8_t>{8, 7, 5, 9});
  CHECK(images.pixels.size() == 4 * 3072);
  CHECK_SAYS(error_of<Cifar10Spec>(folder, Split::kTest), "no test-NNNNNN.tar", "train-000000.tar");
  folder.write("val.safetensors", file_of<Cifar10Spec>({1}));
  CHECK_SAYS(error_of<Cifar10Spec>(folder), "both", "train-000000.tar");
}

TEST_CASE("a set fits models with its number of classes, its size and its channels") {
  const TempFolder folder;
  folder.write(kTrain, file_of<FashionMnistSpec>({0, 1}));
  const DataSpec spec{.set = FashionMnistSpec(),
                      .path = folder.path().string(),
                      .normalization = {.mean = std::vector{0.25}, .stddev = std::vector{0.5}}};
  const auto open_for = [&](const MlpSpec& model) {
    return open_dataset(spec, {.kind = model}, Split::kTrain);
  };
  const auto error = [&](const MlpSpec& model) { return message_of<UsageError>([&] { open_for(model); }); };
  CHECK_SAYS(error({.num_classes = 100, .image_size = 28, .image_channels = 1}), "model.num_classes: 100",
             "model.num_classes: 10.");
  CHECK_SAYS(error({.image_size = 28, .image_channels = 3}), "model.image_channels: 3", "have 1");
  const auto dataset = open_for({.image_size = 28, .image_channels = 1});
  const Batch batch = dataset->eval_batch(std::vector<int64_t>{1});
  CHECK(batch.images == Buffer<float>(784, (1 / 255.0F - 0.25F) / 0.5F));

  const PatternDataset not_square(1);
  CHECK_SAYS(message_of<UsageError>([&] { not_square.check_fits({.kind = MlpSpec{.image_size = 6}}); }),
             "model.image_size: 6", "6 x 5");
}
