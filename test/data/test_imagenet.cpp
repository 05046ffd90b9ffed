#include "catch.h"
#include "data/imagenet.h"
#include "fixtures.h"
#include "spec/error.h"

using namespace sdp;
using namespace sdp::testing;

// Pixels, order and labels are compared with torchvision by oracle_images.py.

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

std::vector<std::string> problems_of(const DataSpec& spec, Split split, int64_t num_classes = 2) {
  std::vector<std::string> problems;
  open_imagenet(spec, model_of(num_classes), split,
                [&](const std::string& message) { problems.push_back(message); });
  return problems;
}

/// One color, which identifies an image.
std::string jpeg_of(int level, int width = 12, int height = 10) {
  return flat_jpeg(width, height, {static_cast<uint8_t>(level)});
}

int level_of(const ImageNet& dataset, int64_t index) {
  std::vector<uint8_t> chw(static_cast<size_t>(dataset.shape().numel()));
  dataset.read(index, chw);
  return chw[0];
}

std::vector<int> levels_of(const ImageNet& dataset) {
  std::vector<int> levels;
  for (int64_t index = 0; index < dataset.size(); ++index)
    levels.push_back(level_of(dataset, index));
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

/// Two classes with three images and one, and one image of each for evaluation.
void write_folders(const TempFolder& folder) {
  folder.write("train/cat/b.JPEG", jpeg_of(20));
  folder.write("train/cat/a.jpg", jpeg_of(10));
  folder.write("train/cat/c.jpeg", jpeg_of(30));
  folder.write("train/dog/a.JPEG", jpeg_of(40));
  folder.write("train/cat/.DS_Store", "x");
  folder.write("train/cat/list.txt", "x");
  folder.write("train/notes.txt", "x");
  folder.write("val/cat/a.JPEG", jpeg_of(50));
  folder.write("val/dog/a.JPEG", jpeg_of(60));
  for (const std::string name : {"train/cat", "train/dog", "val/cat", "val/dog"})
    age(folder.path() / name);
}

TarWriter tar_of(const std::vector<std::pair<std::string, int>>& samples) {
  TarWriter tar;
  for (const auto& [key, label] : samples)
    tar.add(key + ".jpg", jpeg_of(label * 100 + 7)).add(key + ".cls", std::to_string(label));
  return tar;
}

}  // namespace

// ---- class folders ----

TEST_CASE("val must have the classes of train", "[data]") {
  const TempFolder folder;
  write_folders(folder);
  fs::rename(folder.path() / "val/dog", folder.path() / "val/dgo");
  CHECK_SAYS(open_error(spec_of(folder.path()), Split::kTest),
             "val: no folder for the class \"dog\", which train has");
  const std::vector<std::string> problems = problems_of(spec_of(folder.path()), Split::kTest);
  REQUIRE(problems.size() == 2);
  CHECK_SAYS(problems[1], "val: the folder \"dgo\" is no class of train");
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

TEST_CASE("data sets as their archives unpack are explained", "[data]") {
  const TempFolder folder;
  folder.write("train/n1/a.JPEG", jpeg_of(1));
  folder.write("val/ILSVRC2012_val_00000001.JPEG", jpeg_of(1));
  folder.write("val/ILSVRC2012_val_00000002.JPEG", jpeg_of(1));
  CHECK_SAYS(open_error(spec_of(folder.path()), Split::kTest, 1), "val: 2 images without class folders",
             "ILSVRC2012_validation_ground_truth.txt");

  const TempFolder tars;
  tars.write("train/n01440764.tar", "x");
  CHECK_SAYS(open_error(spec_of(tars.path())), "train: 1 tar files and no class folders", "Unpack each");

  const TempFolder kaggle;
  kaggle.write("ILSVRC/Data/CLS-LOC/train/n1/a.JPEG", jpeg_of(1));
  CHECK_SAYS(open_error(spec_of(kaggle.path())), "Set data.path: ", "ILSVRC/Data/CLS-LOC");
}

TEST_CASE("folders that are missing, empty or mixed up are named", "[data]") {
  const TempFolder folder;
  CHECK_SAYS(open_error(spec_of(folder.path())), "holds no ImageNet", "Expected class folders");
  CHECK_SAYS(open_error(spec_of(folder.path() / "none")), "none is not a folder");
  write_folders(folder);
  DataSpec small = spec_of(folder.path());
  small.set.as<ImageNetSpec>().eval_resize = 7;
  CHECK_SAYS(open_error(small), "data.eval_resize: 7 is smaller than model.image_size: 8");
  folder.write("train/cow/images/a.JPEG", jpeg_of(1));
  folder.write("train/dog/b.bmp", "x");
  const std::vector<std::string> problems = problems_of(spec_of(folder.path()), Split::kTrain);
  REQUIRE(problems.size() == 2);
  CHECK_SAYS(problems[0], "train/cow/images: a folder", "train/cow/images/a.JPEG", "not read (1,");
  CHECK_SAYS(problems[1], "train/dog/b.bmp", "is not a JPEG");
  CHECK(!fs::exists(folder.path() / "train.sdp-index"));
  CHECK_SAYS(open_error(spec_of(folder.path())), "train/cow");

  folder.write("set-train.tar", tar_of({{"a", 0}}).finish());
  CHECK_SAYS(open_error(spec_of(folder.path())), "both class folders and tar shards");
}

TEST_CASE("whatever ImageFolder or a person takes for an image is read or a problem", "[data]") {
  const TempFolder folder;
  write_folders(folder);
  for (const char* name : {"p.Jpg", "q.jpe", "r.JFIF", "s.jif", "t.v2.jPeG", "a.PNG", "c.Webp"})
    folder.write(std::string("train/dog/") + name, jpeg_of(1));
  fs::create_symlink("p.Jpg", folder.path() / "train/dog/u.jpg");
  folder.write("train/dog/Thumbs.db", "x");
  folder.write("train/dog/._p.Jpg", "x");
  folder.write("train/readme.txt", "x");
  CHECK(problems_of(spec_of(folder.path()), Split::kTrain).empty());
  CHECK(open(folder.path())->size() == 4 + 8);

  const std::vector<std::string> unread = {"dog/b.tiff",
                                           "dog/d.gif",
                                           "dog/no_ending",
                                           "dog/wrong.txt",
                                           "dog/.hidden.png" /* not looked at */,
                                           "stray.jpg",
                                           "cat/x/y/deep.jpg"};
  for (const std::string& name : unread)
    folder.write("train/" + name, jpeg_of(1));
  fs::create_directory_symlink(folder.path() / "val/dog", folder.path() / "train/cat/linked");
  const std::vector<std::string> problems = problems_of(spec_of(folder.path()), Split::kTrain);
  CHECK(problems.size() == unread.size() - 1 + 1);
  for (const char* name : {"dog/b.tiff", "dog/d.gif", "dog/no_ending", "dog/wrong.txt", "stray.jpg",
                           "cat/x: a folder", "cat/linked: a folder"})
    CHECK(std::any_of(problems.begin(), problems.end(), [&](const std::string& problem) {
      return problem.find(std::string("train/") + name) != std::string::npos;
    }));
}

TEST_CASE("Tiny ImageNet's validation set is explained", "[data]") {
  const TempFolder folder;
  write_folders(folder);
  fs::remove_all(folder.path() / "val");
  folder.write("val/images/a.JPEG", jpeg_of(50));
  folder.write("val/images/b.JPEG", jpeg_of(60));
  folder.write("val/val_annotations.txt", "a.JPEG\tcat\t0\t0\t62\t62\nb.JPEG\tdog\t0\t0\t62\t62\n");
  const std::string error = open_error(spec_of(folder.path()), Split::kTest);
  const size_t command = error.find("cd ");
  REQUIRE(command != std::string::npos);
  REQUIRE(std::system(error.substr(command).c_str()) == 0);
  CHECK(labels_of(*open(folder.path(), Split::kTest)) == std::vector<int64_t>{0, 1});
}

TEST_CASE("images that do not decode are named", "[data]") {
  const TempFolder folder;
  write_folders(folder);
  const std::string good = jpeg_of(40, 64, 64);
  folder.write("train/dog/a.JPEG", good.substr(0, good.size() - 30));
  folder.write("train/cat/a.jpg", "GIF89a");
  const auto dataset = open(folder.path());
  std::vector<uint8_t> chw(static_cast<size_t>(dataset->shape().numel()));
  CHECK_SAYS(message_of<DataError>([&] { dataset->read(0, chw); }), "train/cat/a.jpg: this is a GIF",
             "data.on_error: skip");
  CHECK_SAYS(message_of<DataError>([&] { dataset->read_for_training(0, kResizedCrop, 1, 0, chw); }),
             "train/cat/a.jpg");
  std::vector<std::string> problems;
  const auto check = [&](int64_t index) {
    return dataset->check_image(index, [&](const std::string& message) { problems.push_back(message); });
  };
  CHECK(check(1).value().shape == ImageShape{3, 10, 12});
  CHECK(problems.empty());
  CHECK_FALSE(check(3).has_value());
  CHECK_FALSE(check(0).has_value());
  REQUIRE(problems.size() == 2);
  CHECK_SAYS(problems[0], "train/dog/a.JPEG: cannot be decoded as a JPEG");
  CHECK_THROWS_AS(dataset->read(4, chw), std::logic_error);
  CHECK_THROWS_AS(dataset->read(0, std::span(chw).first(5)), std::logic_error);
  fs::remove(folder.path() / "train/cat/b.JPEG");
  CHECK_SAYS(message_of<DataError>([&] { dataset->read(1, chw); }), "train/cat/b.JPEG: No such file");
}

// ---- training crops ----

TEST_CASE("training takes a random area if the augmentation says so, otherwise the evaluation area",
          "[data]") {
  const TempFolder folder;
  std::vector<uint8_t> ramp;
  for (int i = 0; i < 60 * 50; ++i)
    ramp.push_back(static_cast<uint8_t>(i % 60 * 2 + i / 60 * 2));
  folder.write("train/cat/a.JPEG", encode_jpeg(60, 50, ramp));
  const auto dataset = open(folder.path(), Split::kTrain, 1);
  const auto numel = static_cast<size_t>(dataset->shape().numel());
  std::vector<uint8_t> evaluated(numel);
  dataset->read(0, evaluated);
  const auto trained = [&](const std::vector<Augmentation>& steps, uint64_t seed, int64_t position) {
    std::vector<uint8_t> chw(numel);
    dataset->read_for_training(0, steps, seed, position, chw);
    return chw;
  };
  CHECK(trained({Augmentation::kFlip}, 1, 5) == evaluated);
  CHECK(trained(kResizedCrop, 1, 5) == trained(kResizedCrop, 1, 5));
  CHECK(trained(kResizedCrop, 1, 5) != trained(kResizedCrop, 1, 6));
  CHECK(trained(kResizedCrop, 1, 5) != trained(kResizedCrop, 2, 5));
}

// ---- tar shards ----

TEST_CASE("shards are found by name and read in order", "[data]") {
  const TempFolder folder;
  folder.write("in-train-000001.tar", tar_of({{"c", 1}}).finish());
  folder.write("in-train-000000.tar", tar_of({{"b", 1}, {"a", 0}}).finish());
  folder.write("in-val-000000.tar", tar_of({{"d", 0}}).finish());
  folder.write("in-test-000000.tar", tar_of({{"e", 1}}).finish());
  CHECK(labels_of(*open(folder.path())) == std::vector<int64_t>{1, 0, 1});
  CHECK(levels_of(*open(folder.path())) == std::vector{107, 7, 107});
  CHECK(levels_of(*open(folder.path(), Split::kTest)) == std::vector{107, 7});
  DataSpec spec = spec_of(folder.path());
  spec.set.as<ImageNetSpec>().test_files = "*val*.tar";
  CHECK(open_imagenet(spec, model_of(2), Split::kTest)->size() == 1);
  spec.set.as<ImageNetSpec>().test_files = "in*.tar";
  CHECK_SAYS(open_error(spec, Split::kTest),
             "in-train-000000.tar: the name is one of a training shard and of a test");
}

TEST_CASE("problems in shards name shard, member and offset, and a check reports all of them", "[data]") {
  const TempFolder folder;
  folder.write("train-0.tar", tar_of({{"a", 0}, {"b", 5}}).add("c.jpg", "x").finish());
  folder.write("train-1.tar", "no tar");
  folder.write("train-2.tar", tar_of({{"a", 1}}).add("b.jpg", "x").add("b.cls", "1").finish());
  const std::vector<std::string> problems = problems_of(spec_of(folder.path()), Split::kTrain);
  REQUIRE(problems.size() == 3);
  CHECK_SAYS(problems[0], "train-0.tar: member b.cls at offset ", "label \"5\", expected a number in 0..1");
  CHECK_SAYS(problems[1], "train-0.tar: member c.jpg at offset ", "no label");
  CHECK_SAYS(problems[2], "train-1.tar: broken tar file");
  CHECK(!fs::exists(folder.path() / "train.sdp-index"));
  CHECK_SAYS(open_error(spec_of(folder.path())), "train-0.tar: member b.cls");

  fs::remove(folder.path() / "train-0.tar");
  fs::remove(folder.path() / "train-1.tar");
  const auto dataset = open(folder.path());
  std::vector<uint8_t> chw(static_cast<size_t>(dataset->shape().numel()));
  CHECK_SAYS(message_of<DataError>([&] { dataset->read(1, chw); }), "train-2.tar: member b.jpg at offset ",
             "as a JPEG");
}

// ---- the saved index ----

TEST_CASE("an unchanged folder is not listed again", "[data]") {
  const TempFolder folder;
  write_folders(folder);
  REQUIRE(open(folder.path())->size() == 4);
  CHECK(open(folder.path())->note().empty());
  // A change with the old modification time shows that only the time was compared.
  const auto time = fs::last_write_time(folder.path() / "train/cat");
  folder.write("train/cat/hidden.JPEG", jpeg_of(1));
  fs::last_write_time(folder.path() / "train/cat", time);
  CHECK(open(folder.path())->size() == 4);
}

TEST_CASE("files and classes that come, go or are renamed are noticed", "[data]") {
  const TempFolder folder;
  write_folders(folder);
  REQUIRE(open(folder.path())->size() == 4);
  folder.write("train/cat/d.JPEG", jpeg_of(35));
  CHECK(levels_of(*open(folder.path())) == std::vector{10, 20, 30, 35, 40});
  // A second change in the same tick of the clock.
  const auto time = fs::last_write_time(folder.path() / "train/cat");
  folder.write("train/cat/e.JPEG", jpeg_of(36));
  fs::last_write_time(folder.path() / "train/cat", time);
  CHECK(levels_of(*open(folder.path())) == std::vector{10, 20, 30, 35, 36, 40});
  fs::remove(folder.path() / "train/cat/a.jpg");
  CHECK(levels_of(*open(folder.path())) == std::vector{20, 30, 35, 36, 40});
  fs::rename(folder.path() / "train/cat/e.JPEG", folder.path() / "train/cat/0.JPEG");
  CHECK(levels_of(*open(folder.path())) == std::vector{36, 20, 30, 35, 40});
  fs::rename(folder.path() / "train/dog", folder.path() / "train/bat");
  CHECK(levels_of(*open(folder.path())) == std::vector{40, 36, 20, 30, 35});
  CHECK(labels_of(*open(folder.path())) == std::vector<int64_t>{0, 1, 1, 1, 1});
}

TEST_CASE("shards that change are noticed, and unchanged ones are not listed again", "[data]") {
  const TempFolder folder;
  folder.write("train-0.tar", tar_of({{"a", 0}}).finish());
  folder.write("train-1.tar", tar_of({{"b", 1}}).finish());
  for (const std::string name : {"train-0.tar", "train-1.tar"})
    age(folder.path() / name);
  REQUIRE(levels_of(*open(folder.path())) == std::vector{7, 107});
  folder.write("train-1.tar", tar_of({{"b", 1}, {"c", 0}}).finish());
  const auto time = fs::last_write_time(folder.path() / "train-0.tar");
  // Another label in a shard with the same size and time: the stored list of this shard is kept.
  std::string swapped = tar_of({{"a", 0}}).finish();
  swapped.replace(swapped.find("0", swapped.find("a.cls") + 512), 1, "1");
  folder.write("train-0.tar", swapped);
  fs::last_write_time(folder.path() / "train-0.tar", time);
  CHECK(labels_of(*open(folder.path())) == std::vector<int64_t>{0, 1, 0});
  age(folder.path() / "train-0.tar", 2);
  CHECK(labels_of(*open(folder.path())) == std::vector<int64_t>{1, 1, 0});
  // With other classes, labels are checked again.
  CHECK_SAYS(open_error(spec_of(folder.path()), Split::kTrain, 1), "train-0.tar: member a.cls",
             "expected a number in 0..0");
}

TEST_CASE("if an index cannot be saved, training continues without it, with a note", "[data]") {
  const TempFolder folder;
  write_folders(folder);
  DataSpec spec = spec_of(folder.path());
  spec.set.as<ImageNetSpec>().index_dir = (folder.path() / "none").string();
  const auto dataset = open_imagenet(spec, model_of(2), Split::kTrain);
  CHECK(dataset->size() == 4);
  CHECK_SAYS(dataset->note(), "none/train-", "No such file or directory");
  // Where indices can be saved, those of two data sets have different names.
  const TempFolder indices;
  const TempFolder other;
  write_folders(other);
  for (const fs::path& path : {folder.path(), other.path()}) {
    spec = spec_of(path);
    spec.set.as<ImageNetSpec>().index_dir = indices.path().string();
    CHECK(open_imagenet(spec, model_of(2), Split::kTrain)->note().empty());
  }
  CHECK(std::distance(fs::directory_iterator(indices.path()), fs::directory_iterator()) == 2);
}
