#include <tuple>

#include "catch.h"
#include "data/imagenet.h"
#include "fixtures.h"
#include "spec/error.h"

using namespace sdp;
using namespace sdp::testing;

// Pixels, order, labels and training crops are compared with torchvision by oracle_images.py; the commands
// that messages print are run by cli/test_inputs.py.

namespace {

namespace fs = std::filesystem;

constexpr int64_t kSize = 8;
const std::vector<Augmentation> kResizedCrop = {Augmentation::kResizedCrop};

DataSpec spec_of(const fs::path& folder) {
  return {.set = ImageNetSpec{.eval_resize = kSize * 8 / 7}, .path = folder.string()};
}

ModelSpec model_of(int64_t num_classes) {
  return {.kind = ResNetSpec{.num_classes = num_classes, .image_size = kSize}};
}

std::unique_ptr<ImageNet> open(const fs::path& folder, Split split = Split::kTrain, int64_t num_classes = 2) {
  return open_imagenet(spec_of(folder), model_of(num_classes), split);
}

/// The message of any error.
std::string open_error(const DataSpec& spec, Split split = Split::kTrain, int64_t num_classes = 2) {
  return message_of<Error>([&] { open_dataset(spec, model_of(num_classes), split); });
}

std::vector<std::string> problems_of(const fs::path& folder, Split split = Split::kTrain) {
  std::vector<std::string> problems;
  open_imagenet(spec_of(folder), model_of(2), split, collect_into(problems));
  return problems;
}

/// One color, which identifies an image.
std::string jpeg_of(int level, int width = 12, int height = 10) {
  return flat_jpeg(width, height, {static_cast<uint8_t>(level)});
}

std::vector<uint8_t> pixels_of(const ImageNet& dataset, int64_t index) {
  std::vector<uint8_t> chw(static_cast<size_t>(dataset.shape().numel()));
  dataset.read(index, chw);
  return chw;
}

std::vector<int> levels_of(const ImageNet& dataset) {
  std::vector<int> levels;
  for (int64_t index = 0; index < dataset.size(); ++index)
    levels.push_back(pixels_of(dataset, index)[0]);
  return levels;
}

std::vector<int64_t> labels_of(const ImageNet& dataset) {
  std::vector<int64_t> labels;
  for (int64_t index = 0; index < dataset.size(); ++index)
    labels.push_back(dataset.label(index));
  return labels;
}

/// Pretends that it last changed an hour ago, because recent changes are listed again.
void age(const fs::path& path, int hours = 1) {
  fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(hours));
}

/// Writes a file without a trace of it in the time of its folder, or the file's own if it exists.
void write_unnoticed(const TempFolder& folder, const std::string& name, const std::string& bytes) {
  const fs::path path = folder.path() / name;
  const fs::path changes = fs::exists(path) ? path : path.parent_path();
  const auto time = fs::last_write_time(changes);
  folder.write(name, bytes);
  fs::last_write_time(changes, time);
}

/// Two classes with three images and one, and one image of each for evaluation.
void write_folders(const TempFolder& folder) {
  folder.write("train/cat/b.JPEG", jpeg_of(20));
  folder.write("train/cat/a.jpg", jpeg_of(10));
  folder.write("train/cat/c.jpeg", jpeg_of(30));
  folder.write("train/dog/a.JPEG", jpeg_of(40));
  for (const char* name : {"train/cat/.DS_Store", "train/cat/list.txt", "train/notes.txt"})
    folder.write(name, "x");
  folder.write("val/cat/a.JPEG", jpeg_of(50));
  folder.write("val/dog/a.JPEG", jpeg_of(60));
  for (const char* name : {"train/cat", "train/dog", "val/cat", "val/dog"})
    age(folder.path() / name);
}

/// Members of a shard: images of their label's color, and labels.
std::vector<TarMember> samples_of(const std::vector<std::pair<std::string, int>>& samples) {
  std::vector<TarMember> members;
  for (const auto& [key, label] : samples) {
    members.push_back({key + ".jpg", jpeg_of(label * 100 + 7)});
    members.push_back({key + ".cls", std::to_string(label)});
  }
  return members;
}

std::string shard_of(const std::vector<std::pair<std::string, int>>& samples) {
  return tar_of(samples_of(samples));
}

}  // namespace

// ---- class folders ----

TEST_CASE("val must have the classes of train", "[data]") {
  const TempFolder folder;
  write_folders(folder);
  fs::rename(folder.path() / "val/dog", folder.path() / "val/dgo");
  CHECK(lacks(problems_of(folder.path(), Split::kTest), {{"val: ", "\"dog\""}, {"val: ", "\"dgo\""}}) == "");
}

TEST_CASE("test/ is read in place of val/, and val/ if there are both, which is told", "[data]") {
  const TempFolder folder;
  write_folders(folder);
  CHECK(open(folder.path(), Split::kTest)->note().empty());
  CHECK(class_names_in(folder.path()) == std::vector<std::string>{"cat", "dog"});
  fs::rename(folder.path() / "val", folder.path() / "test");
  const auto test = open(folder.path(), Split::kTest);
  CHECK(levels_of(*test) == std::vector{50, 60});
  CHECK(test->note().empty());
  folder.write("val/cat/x.jpg", jpeg_of(70));
  folder.write("val/dog/x.jpg", jpeg_of(80));
  const auto val = open(folder.path(), Split::kTest);
  CHECK(levels_of(*val) == std::vector{70, 80});
  CHECK_SAYS(val->note(), "reads val/", "test/ is not read");
  CHECK(open(folder.path())->note().empty());
}

TEST_CASE("folders that are missing or mixed up, or as archives unpack, are explained", "[data]") {
  using Texts = std::vector<std::string>;
  const std::vector<std::tuple<Texts, Split, Texts>> refused = {
      {{}, Split::kTrain, {"holds no ImageNet", "train/CLASS/*.JPEG"}},
      {{"train/n1/a.JPEG", "val/ILSVRC2012_val_00000001.JPEG", "val/ILSVRC2012_val_00000002.JPEG"},
       Split::kTest,
       {"val: 2 images", "ILSVRC2012_validation_ground_truth.txt"}},
      {{"train/n01440764.tar"}, Split::kTrain, {"train: 1 tar files", "Unpack each"}},
      {{"ILSVRC/Data/CLS-LOC/train/n1/a.JPEG"}, Split::kTrain, {"Set data.path: ", "ILSVRC/Data/CLS-LOC"}},
      {{"train/n1/a.JPEG", "set-train.tar"}, Split::kTrain, {"both class folders and tar shards"}}};
  for (const auto& [files, split, parts] : refused) {
    const TempFolder folder;
    for (const std::string& file : files)
      folder.write(file, jpeg_of(1));
    CHECK(lacks(open_error(spec_of(folder.path()), split, 1), parts) == "");
  }
  CHECK_SAYS(open_error(spec_of("/nonexistent")), "/nonexistent is not a folder");
  DataSpec small = spec_of("/nonexistent");
  small.set.as<ImageNetSpec>().eval_resize = 7;
  CHECK_SAYS(open_error(small), "data.eval_resize: 7", "model.image_size: 8");
}

TEST_CASE("whatever ImageFolder or a person takes for an image is read or a problem", "[data]") {
  const TempFolder folder;
  write_folders(folder);
  for (const char* name : {"p.Jpg", "q.jpe", "r.JFIF", "s.jif", "t.v2.jPeG", "a.PNG", "c.Webp"})
    folder.write(std::string("train/dog/") + name, jpeg_of(1));
  fs::create_symlink("p.Jpg", folder.path() / "train/dog/u.jpg");
  for (const char* name : {"train/dog/Thumbs.db", "train/dog/._p.Jpg", "train/readme.txt"})
    folder.write(name, "x");
  CHECK(open(folder.path())->size() == 4 + 8);
  fs::remove(folder.path() / "train.sdp-index");

  for (const char* name : {"stray.jpg", "cat/x/y/deep.jpg", "dog/b.tiff", "dog/d.gif", "dog/no_ending",
                           "dog/wrong.txt", "dog/.hidden.png" /* not looked at */})
    folder.write(std::string("train/") + name, jpeg_of(1));
  folder.write("train/dog/z.bmp", "x");
  fs::create_directory_symlink(folder.path() / "val/dog", folder.path() / "train/cat/linked");
  CHECK(lacks(problems_of(folder.path()), {{"train/stray.jpg"},
                                           {"train/cat/linked: a folder", "train/cat/linked/a.JPEG"},
                                           {"train/cat/x: a folder", "train/cat/x/y/deep.jpg", "(1,"},
                                           {"train/dog/b.tiff", "not a JPEG"},
                                           {"train/dog/d.gif"},
                                           {"train/dog/no_ending"},
                                           {"train/dog/wrong.txt"},
                                           {"train/dog/z.bmp"}}) == "");
  CHECK(!fs::exists(folder.path() / "train.sdp-index"));
  CHECK_SAYS(open_error(spec_of(folder.path())), "train/stray.jpg");
}

TEST_CASE("images that do not decode are named", "[data]") {
  const TempFolder folder;
  write_folders(folder);
  const std::string good = jpeg_of(40, 64, 64);
  folder.write("train/dog/a.JPEG", good.substr(0, good.size() - 30));
  folder.write("train/cat/a.jpg", "GIF89a");
  const auto dataset = open(folder.path());
  std::vector<uint8_t> chw(static_cast<size_t>(dataset->shape().numel()));
  CHECK_SAYS(message_of<DataError>([&] { dataset->read(0, chw); }), "train/cat/a.jpg: ", "a GIF",
             "data.on_error: skip");
  CHECK_SAYS(message_of<DataError>([&] { dataset->read_for_training(0, kResizedCrop, 1, 0, chw); }),
             "train/cat/a.jpg");
  std::vector<std::string> problems;
  const auto check = [&](int64_t index) { return dataset->check_image(index, collect_into(problems)); };
  CHECK(check(1).value().shape == ImageShape{3, 10, 12});
  CHECK(problems.empty());
  CHECK_FALSE(check(3).has_value());
  CHECK_FALSE(check(0).has_value());
  CHECK(lacks(problems, {{"train/dog/a.JPEG: cannot be decoded"}, {"train/cat/a.jpg: "}}) == "");
  CHECK_THROWS_AS(dataset->read(4, chw), std::logic_error);
  CHECK_THROWS_AS(dataset->read(0, std::span(chw).first(5)), std::logic_error);
  fs::remove(folder.path() / "train/cat/b.JPEG");
  CHECK_SAYS(message_of<DataError>([&] { dataset->read(1, chw); }), "train/cat/b.JPEG");
}

TEST_CASE("training takes the evaluation area unless the augmentation says otherwise", "[data]") {
  const TempFolder folder;
  std::vector<uint8_t> ramp;
  for (int i = 0; i < 60 * 50; ++i)
    ramp.push_back(static_cast<uint8_t>(i % 60 * 2 + i / 60 * 2));
  folder.write("train/cat/a.JPEG", encode_jpeg(60, 50, ramp));
  const auto dataset = open(folder.path(), Split::kTrain, 1);
  std::vector<uint8_t> trained(static_cast<size_t>(dataset->shape().numel()));
  dataset->read_for_training(0, std::vector{Augmentation::kFlip}, 1, 5, trained);
  CHECK(trained == pixels_of(*dataset, 0));
}

// ---- tar shards ----

TEST_CASE("shards are found by name and read in order", "[data]") {
  const TempFolder folder;
  folder.write("in-train-000001.tar", shard_of({{"c", 1}}));
  folder.write("in-train-000000.tar", shard_of({{"b", 1}, {"a", 0}}));
  folder.write("in-val-000000.tar", shard_of({{"d", 0}}));
  folder.write("in-test-000000.tar", shard_of({{"e", 1}}));
  CHECK(levels_of(*open(folder.path())) == std::vector{107, 7, 107});
  CHECK(levels_of(*open(folder.path(), Split::kTest)) == std::vector{107, 7});
  DataSpec spec = spec_of(folder.path());
  spec.set.as<ImageNetSpec>().test_files = "*val*.tar";
  CHECK(open_imagenet(spec, model_of(2), Split::kTest)->size() == 1);
}

TEST_CASE("problems in shards name shard, member and offset, and a check reports all of them", "[data]") {
  const TempFolder folder;
  std::vector<TarMember> members = samples_of({{"a", 0}, {"b", 5}});
  members.push_back({"c.jpg", "x"});
  folder.write("train-0.tar", tar_of(members));
  folder.write("train-1.tar", "no tar");
  members = samples_of({{"a", 1}, {"b", 1}});
  members[2].data = "x";
  folder.write("train-2.tar", tar_of(members));
  CHECK(lacks(problems_of(folder.path()), {{"train-0.tar: member b.cls at offset ", "\"5\"", "0..1"},
                                           {"train-0.tar: member c.jpg at offset ", "no label"},
                                           {"train-1.tar: broken tar file"}}) == "");
  CHECK(!fs::exists(folder.path() / "train.sdp-index"));
  CHECK_SAYS(open_error(spec_of(folder.path())), "train-0.tar: member b.cls");

  fs::remove(folder.path() / "train-0.tar");
  fs::remove(folder.path() / "train-1.tar");
  const auto dataset = open(folder.path());
  CHECK_SAYS(message_of<DataError>([&] { pixels_of(*dataset, 1); }), "train-2.tar: member b.jpg at offset ",
             "as a JPEG");
}

// ---- the saved index ----

TEST_CASE("files and classes that come, go or are renamed are noticed, nothing else is listed again",
          "[data]") {
  const TempFolder folder;
  write_folders(folder);
  REQUIRE(open(folder.path())->size() == 4);
  CHECK(open(folder.path())->note().empty());
  write_unnoticed(folder, "train/cat/hidden.JPEG", jpeg_of(1));
  CHECK(open(folder.path())->size() == 4);
  fs::remove(folder.path() / "train/cat/hidden.JPEG");

  const auto check = [&](const std::vector<int>& levels) {
    CHECK(levels_of(*open(folder.path())) == levels);
  };
  folder.write("train/cat/d.JPEG", jpeg_of(35));
  check({10, 20, 30, 35, 40});
  write_unnoticed(folder, "train/cat/e.JPEG", jpeg_of(36));  // a second change in the same tick of the clock
  check({10, 20, 30, 35, 36, 40});
  fs::remove(folder.path() / "train/cat/a.jpg");
  check({20, 30, 35, 36, 40});
  fs::rename(folder.path() / "train/cat/e.JPEG", folder.path() / "train/cat/0.JPEG");
  check({36, 20, 30, 35, 40});
  fs::rename(folder.path() / "train/dog", folder.path() / "train/bat");
  check({40, 36, 20, 30, 35});
  CHECK(labels_of(*open(folder.path())) == std::vector<int64_t>{0, 1, 1, 1, 1});
}

TEST_CASE("shards that change are noticed, and unchanged ones are not listed again", "[data]") {
  const TempFolder folder;
  folder.write("train-0.tar", shard_of({{"a", 0}}));
  folder.write("train-1.tar", shard_of({{"b", 1}}));
  for (const char* name : {"train-0.tar", "train-1.tar"})
    age(folder.path() / name);
  REQUIRE(levels_of(*open(folder.path())) == std::vector{7, 107});
  folder.write("train-1.tar", shard_of({{"b", 1}, {"c", 0}}));
  // Another label in a shard with the same size and time: the stored list of this shard is kept.
  std::vector<TarMember> swapped = samples_of({{"a", 0}});
  swapped[1].data = "1";
  write_unnoticed(folder, "train-0.tar", tar_of(swapped));
  CHECK(labels_of(*open(folder.path())) == std::vector<int64_t>{0, 1, 0});
  age(folder.path() / "train-0.tar", 2);
  CHECK(labels_of(*open(folder.path())) == std::vector<int64_t>{1, 1, 0});
  // With other classes, labels are checked again.
  CHECK_SAYS(open_error(spec_of(folder.path()), Split::kTrain, 1), "train-0.tar: member a.cls", "0..0");
}

TEST_CASE("if an index cannot be saved, training continues without it, with a note", "[data]") {
  const TempFolder folder, other, indices;
  const auto open_with_index_in = [](const fs::path& data, const fs::path& index) {
    DataSpec spec = spec_of(data);
    spec.set.as<ImageNetSpec>().index_dir = index.string();
    return open_imagenet(spec, model_of(2), Split::kTrain);
  };
  write_folders(folder);
  write_folders(other);
  const auto dataset = open_with_index_in(folder.path(), folder.path() / "none");
  CHECK(dataset->size() == 4);
  CHECK_SAYS(dataset->note(), "none/train-", "No such file or directory");
  // Where indices can be saved, those of two data sets have different names.
  for (const fs::path& path : {folder.path(), other.path()})
    CHECK(open_with_index_in(path, indices.path())->note().empty());
  CHECK(std::distance(fs::directory_iterator(indices.path()), fs::directory_iterator()) == 2);
}
