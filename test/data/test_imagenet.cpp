#include <tuple>

#include "catch.h"
#include "data/imagenet.h"
#include "fixtures.h"

using namespace sdp;
using namespace sdp::testing;

// Pixels, order, labels and training crops, of folders and shards, are compared with torchvision by
// oracle_images.py; the commands that messages print are run by cli/test_inputs.py.

namespace {

namespace fs = std::filesystem;

constexpr int64_t kSize = 8;
constexpr int64_t kPixels = 3 * kSize * kSize;
const std::vector<Augmentation> kResizedCrop = {Augmentation::kResizedCrop};

DataSpec spec_of(const fs::path& folder) {
  return {.set = ImageNetSpec{.eval_resize = kSize * 8 / 7}, .path = folder.string()};
}

ModelSpec model_of(int64_t num_classes) {
  return {.kind = ResNetSpec{.num_classes = num_classes, .image_size = kSize}};
}

/// The message of any error.
std::string open_error(const DataSpec& spec, Split split = Split::kTrain, int64_t num_classes = 2) {
  return message_of<Error>([&] { open_dataset(spec, model_of(num_classes), split); });
}

/// One color, which identifies an image.
std::string jpeg_of(int level, int width = 12, int height = 10) {
  return flat_jpeg(width, height, {static_cast<uint8_t>(level)});
}

std::vector<uint8_t> pixels_of(const ImageNet& dataset, int64_t index) {
  std::vector<uint8_t> chw(kPixels);
  dataset.read(index, chw);
  return chw;
}

/// The colors of all images, or their labels.
std::vector<int> levels_of(const ImageNet& dataset, bool labels = false) {
  std::vector<int> levels;
  for (int64_t index = 0; index < dataset.size(); ++index)
    levels.push_back(labels ? static_cast<int>(dataset.label(index)) : pixels_of(dataset, index)[0]);
  return levels;
}

/// A shard of images of their label's color, and labels.
std::string shard_of(const std::vector<std::pair<std::string, int>>& samples) {
  std::vector<TarMember> members;
  for (const auto& [key, label] : samples) {
    members.push_back({key + ".jpg", jpeg_of(label * 100 + 7)});
    members.push_back({key + ".cls", std::to_string(label)});
  }
  return tar_of(members);
}

/// A data set in a folder.
struct Files : TempFolder {
  std::unique_ptr<ImageNet> open(Split split = Split::kTrain) const {
    return open_imagenet(spec_of(path()), model_of(2), split);
  }
  std::vector<std::string> problems(Split split = Split::kTrain) const {
    std::vector<std::string> problems;
    open_imagenet(spec_of(path()), model_of(2), split, collect_into(problems));
    return problems;
  }
  void write_all(const std::vector<std::string>& names, const std::string& bytes) const {
    for (const std::string& name : names)
      write(name, bytes);
  }
  /// Pretends that these last changed an hour ago, because recent changes are listed again.
  void age(const std::vector<std::string>& names, int hours = 1) const {
    for (const std::string& name : names)
      fs::last_write_time(path() / name, fs::file_time_type::clock::now() - std::chrono::hours(hours));
  }
  /// Writes a file without a trace of it in the time of its folder, or the file's own if it exists.
  void write_unnoticed(const std::string& name, const std::string& bytes) const {
    const fs::path changes = fs::exists(path() / name) ? path() / name : (path() / name).parent_path();
    const auto time = fs::last_write_time(changes);
    write(name, bytes);
    fs::last_write_time(changes, time);
  }
};

/// Two classes with three images and one, and one image of each for evaluation.
struct Folders : Files {
  Folders() {
    int level = 0;
    for (const char* name : {"train/cat/a.jpg", "train/cat/b.JPEG", "train/cat/c.jpeg", "train/dog/a.JPEG",
                             "val/cat/a.JPEG", "val/dog/a.JPEG"})
      write(name, jpeg_of(level += 10));
    write_all({"train/cat/.DS_Store", "train/cat/list.txt", "train/notes.txt"}, "x");
    age({"train/cat", "train/dog", "val/cat", "val/dog"});
  }
};

}  // namespace

// ---- class folders ----

TEST_CASE("test/ is read in place of val/, and val/ if there are both, with the classes of train") {
  const Folders folder;
  CHECK(folder.open(Split::kTest)->note().empty());
  CHECK(class_names_in(folder.path()) == std::vector<std::string>{"cat", "dog"});
  fs::rename(folder / "val", folder / "test");
  const auto test = folder.open(Split::kTest);
  CHECK(levels_of(*test) == std::vector{50, 60});
  CHECK(test->note().empty());
  folder.write("val/cat/x.jpg", jpeg_of(70));
  folder.write("val/dog/x.jpg", jpeg_of(80));
  const auto val = folder.open(Split::kTest);
  CHECK(levels_of(*val) == std::vector{70, 80});
  CHECK_SAYS(val->note(), "reads val/", "test/ is not read");
  CHECK(folder.open()->note().empty());
  fs::rename(folder / "val/dog", folder / "val/dgo");
  CHECK(lacks(folder.problems(Split::kTest), {{"val: ", "\"dog\""}, {"val: ", "\"dgo\""}}) == "");
}

TEST_CASE("folders that are missing or mixed up, or as archives unpack, are explained") {
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
    const Files folder;
    folder.write_all(files, jpeg_of(1));
    CHECK(lacks(open_error(spec_of(folder.path()), split, 1), parts) == "");
  }
  CHECK_SAYS(open_error(spec_of("/nonexistent")), "/nonexistent is not a folder");
  DataSpec small = spec_of("/nonexistent");
  small.set.as<ImageNetSpec>().eval_resize = 7;
  CHECK_SAYS(open_error(small), "data.eval_resize: 7", "model.image_size: 8");
}

TEST_CASE("whatever ImageFolder or a person takes for an image is read or a problem") {
  const Folders folder;
  folder.write_all({"train/dog/p.Jpg", "train/dog/q.jpe", "train/dog/r.JFIF", "train/dog/s.jif",
                    "train/dog/t.v2.jPeG", "train/dog/a.PNG", "train/dog/c.Webp"},
                   jpeg_of(1));
  fs::create_symlink("p.Jpg", folder / "train/dog/u.jpg");
  folder.write_all({"train/dog/Thumbs.db", "train/dog/._p.Jpg", "train/readme.txt"}, "x");
  CHECK(folder.open()->size() == 4 + 8);
  fs::remove(folder / "train.sdp-index");

  folder.write_all(
      {"train/stray.jpg", "train/cat/x/y/deep.jpg", "train/dog/b.tiff", "train/dog/d.gif",
       "train/dog/no_ending", "train/dog/wrong.txt", "train/dog/.hidden.png" /* not looked at */},
      jpeg_of(1));
  folder.write("train/dog/z.bmp", "x");
  fs::create_directory_symlink(folder / "val/dog", folder / "train/cat/linked");
  CHECK(lacks(folder.problems(), {{"train/stray.jpg"},
                                  {"train/cat/linked: a folder", "train/cat/linked/a.JPEG"},
                                  {"train/cat/x: a folder", "train/cat/x/y/deep.jpg", "(1,"},
                                  {"train/dog/b.tiff", "not a JPEG"},
                                  {"train/dog/d.gif"},
                                  {"train/dog/no_ending"},
                                  {"train/dog/wrong.txt"},
                                  {"train/dog/z.bmp"}}) == "");
  CHECK(!fs::exists(folder / "train.sdp-index"));
  CHECK_SAYS(open_error(spec_of(folder.path())), "train/stray.jpg");
}

TEST_CASE("images that do not decode are named") {
  const Folders folder;
  const std::string good = jpeg_of(40, 64, 64);
  folder.write("train/dog/a.JPEG", good.substr(0, good.size() - 30));
  folder.write("train/cat/a.jpg", "GIF89a");
  const auto dataset = folder.open();
  std::vector<uint8_t> chw(kPixels);
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
  fs::remove(folder / "train/cat/b.JPEG");
  CHECK_SAYS(message_of<DataError>([&] { dataset->read(1, chw); }), "train/cat/b.JPEG");
}

TEST_CASE("training takes the evaluation area unless the augmentation says otherwise") {
  const Files folder;
  std::vector<uint8_t> ramp;
  for (int i = 0; i < 60 * 50; ++i)
    ramp.push_back(static_cast<uint8_t>(i % 60 * 2 + i / 60 * 2));
  folder.write("train/cat/a.JPEG", encode_jpeg(60, 50, ramp));
  folder.write("train/dog/a.JPEG", jpeg_of(1));
  std::vector<uint8_t> trained(kPixels);
  folder.open()->read_for_training(0, std::vector{Augmentation::kFlip}, 1, 5, trained);
  CHECK(trained == pixels_of(*folder.open(), 0));
}

// ---- the saved index ----

TEST_CASE("files and classes that come, go or are renamed are noticed, nothing else is listed again") {
  const Folders folder;
  const auto check = [&](const std::vector<int>& levels) { CHECK(levels_of(*folder.open()) == levels); };
  check({10, 20, 30, 40});
  CHECK(folder.open()->note().empty());
  folder.write_unnoticed("train/cat/hidden.JPEG", jpeg_of(1));
  check({10, 20, 30, 40});
  fs::remove(folder / "train/cat/hidden.JPEG");
  folder.write("train/cat/d.JPEG", jpeg_of(35));
  check({10, 20, 30, 35, 40});
  folder.write_unnoticed("train/cat/e.JPEG", jpeg_of(36));  // a second change in the same tick of the clock
  check({10, 20, 30, 35, 36, 40});
  fs::remove(folder / "train/cat/a.jpg");
  check({20, 30, 35, 36, 40});
  fs::rename(folder / "train/cat/e.JPEG", folder / "train/cat/0.JPEG");
  check({36, 20, 30, 35, 40});
  fs::rename(folder / "train/dog", folder / "train/bat");
  check({40, 36, 20, 30, 35});
  CHECK(levels_of(*folder.open(), /*labels=*/true) == std::vector{0, 1, 1, 1, 1});
}

TEST_CASE("shards that change are noticed, and unchanged ones are not listed again") {
  const Files folder;
  folder.write("train-0.tar", shard_of({{"a", 0}}));
  folder.write("train-1.tar", shard_of({{"b", 1}}));
  folder.age({"train-0.tar", "train-1.tar"});
  REQUIRE(levels_of(*folder.open()) == std::vector{7, 107});
  folder.write("train-1.tar", shard_of({{"b", 1}, {"c", 0}}));
  // Another label in a shard with the same size and time: the stored list of this shard is kept.
  folder.write_unnoticed("train-0.tar", tar_of({{"a.jpg", jpeg_of(7)}, {"a.cls", "1"}}));
  CHECK(levels_of(*folder.open(), /*labels=*/true) == std::vector{0, 1, 0});
  folder.age({"train-0.tar"}, 2);
  CHECK(levels_of(*folder.open(), /*labels=*/true) == std::vector{1, 1, 0});
  // With other classes, labels are checked again.
  CHECK_SAYS(open_error(spec_of(folder.path()), Split::kTrain, 1), "train-0.tar: member a.cls", "0..0");
}

TEST_CASE("if an index cannot be saved, training continues without it, with a note") {
  const Folders folder, other;
  const TempFolder indices;
  const auto open = [](const Folders& data, const fs::path& index) {
    DataSpec spec = spec_of(data.path());
    spec.set.as<ImageNetSpec>().index_dir = index.string();
    return open_imagenet(spec, model_of(2), Split::kTrain);
  };
  CHECK(open(folder, folder / "none")->size() == 4);
  CHECK_SAYS(open(folder, folder / "none")->note(), "none/train-", "No such file or directory");
  // Where indices can be saved, those of two data sets have different names.
  CHECK(open(folder, indices.path())->note() + open(other, indices.path())->note() == "");
  CHECK(std::distance(fs::directory_iterator(indices.path()), fs::directory_iterator()) == 2);
}
