#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <string_view>
#include <utility>

#include "data/dataset.h"
#include "data/image_files.h"
#include "data/split_files.h"
#include "formats/image.h"
#include "io/file.h"
#include "spec/error.h"
#include "spec/text.h"

namespace sdp {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kTrain = "train";
constexpr std::string_view kVal = "val";
constexpr std::string_view kTest = "test";

bool is_folder(const fs::path& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

/// The names in a folder, except those that begin with a dot, which macOS adds. Throws DataError for a link
/// that may stand for a class or an image and leads nowhere, or to a folder that it is in, which has no end.
struct ClassListing {
  explicit ClassListing(const fs::path& folder) {
    for (FolderEntry& entry : list_folder(folder)) {
      if (entry.name.starts_with(".")) continue;
      const fs::path path = folder / entry.name;
      std::error_code error;
      if (entry.leads_nowhere || (entry.is_folder && (fs::equivalent(path, folder, error) ||
                                                      fs::equivalent(path, folder / "..", error))))
        throw DataError(path.string() + ": a link that leads nowhere or to where it is. Remove it.");
      (entry.is_folder ? folders : files).push_back(std::move(entry.name));
    }
  }

  std::vector<std::string> folders;
  std::vector<std::string> files;
};

/// Whether a file that is not named as an image that is read may be an image nevertheless.
bool is_unread_image(const fs::path& file) {
  if (is_other_image_name(file.filename().string())) return true;
  std::error_code error;
  if (!fs::is_regular_file(file, error)) return false;  // opening a pipe would wait for a writer
  std::array<uint8_t, kImageMagicBytes> first_bytes{};
  std::ifstream(file, std::ios::binary).read(reinterpret_cast<char*>(first_bytes.data()), kImageMagicBytes);
  return starts_as_image(first_bytes);
}

/// The files of a listing that may be images.
std::vector<fs::path> images_in(const fs::path& folder, const ClassListing& listing) {
  std::vector<fs::path> images;
  for (const std::string& name : listing.files)
    if (is_image_name(name) || is_unread_image(folder / name)) images.push_back(folder / name);
  return images;
}

/// The images below a folder, at any depth.
std::vector<fs::path> images_below(const fs::path& folder) {
  const ClassListing listing(folder);
  std::vector<fs::path> images = images_in(folder, listing);
  for (const std::string& name : listing.folders)
    for (fs::path& image : images_below(folder / name))
      images.push_back(std::move(image));
  return images;
}

/// Explains why a folder has no class folders, and what to do.
[[noreturn]] void fail_without_classes(const fs::path& folder, const ClassListing& listing) {
  const auto count = [&](auto is) { return std::count_if(listing.files.begin(), listing.files.end(), is); };
  if (const auto images = count(is_image_name); images > 0)
    throw DataError(fmt::format(
        "{}: {} images without class folders, as the official archive of the validation set unpacks. "
        "Move each into a folder of its class, {}/n01440764/ and so on: ImageNet's development kit lists "
        "the classes in ILSVRC2012_validation_ground_truth.txt, and the script valprep.sh, which is often "
        "copied with it, moves the files.",
        folder.string(), images, folder.string()));
  if (const auto tars = count([](const std::string& name) { return name.ends_with(".tar"); }); tars > 0)
    throw DataError(fmt::format(
        "{}: {} tar files and no class folders, as the official archive of the training set unpacks. "
        "Unpack each into a folder of its name, {}/n01440764/ and so on.",
        folder.string(), tars, folder.string()));
  throw DataError(
      fmt::format("{}: no class folders. Expected one folder per class, with its images.", folder.string()));
}

/// Tiny ImageNet's validation set is one folder of images and a list of their classes.
void refuse_tiny_imagenet(const fs::path& folder, const ClassListing& listing) {
  constexpr std::string_view kList = "val_annotations.txt";
  if (!contains(listing.files, kList)) return;
  throw DataError(
      fmt::format("{2}: the classes of the images are in {1}, as Tiny ImageNet has it, expected one folder "
                  "per class. Move "
                  "the images: cd {0} && while read -r image class _; do mkdir -p $class && mv images/$image "
                  "$class/; done < "
                  "{1} && rmdir images && mv {1} ..",
                  shell_word(folder.string()), kList, folder.string()));
}

/// Lists a folder that has class folders.
ClassListing list_classes(const fs::path& folder) {
  ClassListing listing(folder);
  refuse_tiny_imagenet(folder, listing);
  if (listing.folders.empty()) fail_without_classes(folder, listing);
  return listing;
}

std::vector<std::string> missing_from(const std::vector<std::string>& names,
                                      const std::vector<std::string>& others) {
  std::vector<std::string> missing;
  std::set_difference(names.begin(), names.end(), others.begin(), others.end(), std::back_inserter(missing));
  return missing;
}

/// The names of `own` that are classes. Other names, and classes missing from `own`, are problems.
std::vector<std::string> checked_classes(const fs::path& folder, const std::vector<std::string>& own,
                                         const std::vector<std::string>& classes,
                                         const OnProblem& on_problem) {
  const std::vector<std::string> missing = missing_from(classes, own);
  const std::vector<std::string> unknown = missing_from(own, classes);
  if (!missing.empty())
    on_problem(fmt::format("{}: no folder for the class{} {}, which train has. Unpack the set again.",
                           folder.string(), missing.size() == 1 ? "" : "es", enumerate(missing)));
  if (!unknown.empty())
    on_problem(
        fmt::format("{}: the folder{} {} {} no class of train. Unpack the set again, or move what does not "
                    "belong to it elsewhere.",
                    folder.string(), unknown.size() == 1 ? "" : "s", enumerate(unknown),
                    unknown.size() == 1 ? "is" : "are"));
  return missing_from(own, unknown);
}

/// Adds the images of one class; returns false if there was a problem.
bool list_class(const fs::path& folder, int64_t label, ImageIndex& index, const OnProblem& on_problem) {
  const auto listing = attempt(on_problem, [&] { return ClassListing(folder); });
  if (!listing) return false;
  const int64_t before = index.size();
  bool whole = true;
  const auto report = [&](const std::string& problem) {
    on_problem(problem);
    whole = false;
  };
  for (const std::string& name : listing->files) {
    if (is_image_name(name))
      index.add_file(name, label);
    else if (is_unread_image(folder / name))
      report(
          fmt::format("{}: the image is not a JPEG, PNG or WebP by its name. Rename, convert or remove it.",
                      (folder / name).string()));
  }
  for (const std::string& name : listing->folders) {
    const auto images = attempt(report, [&] { return images_below(folder / name); });
    if (images && !images->empty())
      report(fmt::format(
          "{}: a folder below a class's, with images that are not read ({}, the first is {}). Move them "
          "up: find {} -type f -exec mv -n {{}} {} \\;",
          (folder / name).string(), images->size(), images->front().string(),
          shell_word((folder / name / "").string()), shell_word((folder / "").string())));
  }
  if (index.size() == before && whole)
    report(fmt::format(
        "{}: a class without images: no JPEG, PNG or WebP. Unpack the class again, or remove the folder.",
        folder.string()));
  return whole;
}

class ClassFolders final : public ImageFiles {
 public:
  ClassFolders(fs::path folder, int64_t num_classes, ImageIndex index)
      : ImageFiles(std::move(index), num_classes), folder_(std::move(folder)) {}

  std::string place(int64_t image) const override { return path(image).string(); }
  std::vector<uint8_t> read(int64_t image) const override { return read_bytes(path(image)); }

 private:
  fs::path path(int64_t image) const {
    return folder_ / index().groups()[index().group(image)].name / index().name(image);
  }

  fs::path folder_;
};

}  // namespace

fs::path folder_of_split(const fs::path& folder, Split split) {
  if (split == Split::kTrain) return folder / kTrain;
  return folder / (is_folder(folder / kTest) && !is_folder(folder / kVal) ? kTest : kVal);
}

std::vector<std::string> class_names_in(const fs::path& folder) {
  for (const Split split : {Split::kTrain, Split::kTest})
    if (const fs::path of_split = folder_of_split(folder, split); is_folder(of_split))
      return ClassListing(of_split).folders;
  return {};
}

std::unique_ptr<ImageFiles> open_class_folders(const fs::path& folder, Split split,
                                               const IndexOptions& options, const OnProblem& on_problem) {
  const fs::path own_folder = folder_of_split(folder, split);
  if (split == Split::kTest && !is_folder(own_folder))
    throw DataError(own_folder.string() +
                    ": no such folder. Without a test set, set data.validation_share: 0.1.");
  const ClassListing own = list_classes(own_folder);
  const std::vector<std::string> classes = split == Split::kTest && is_folder(folder / kTrain)
                                               ? list_classes(folder / kTrain).folders
                                               : own.folders;
  const std::vector<std::string> listed = checked_classes(own_folder, own.folders, classes, on_problem);
  for (const fs::path& image : images_in(own_folder, own))
    on_problem(
        fmt::format("{}: an image outside of the class folders. Move it into its class's, or elsewhere.",
                    image.string()));

  std::vector<ImageGroup> groups;
  groups.reserve(listed.size());
  for (const std::string& name : listed)
    if (auto group = attempt(on_problem, [&] { return group_of(own_folder, name); }))
      groups.push_back(std::move(*group));
  const auto list = [&](const ImageGroup& group, ImageIndex& index) {
    const auto at = std::lower_bound(classes.begin(), classes.end(), group.name);
    return list_class(own_folder / group.name, at - classes.begin(), index, on_problem);
  };
  // Labels depend on the list of all classes.
  const IndexFile file(
      options.path,
      fmt::format("class folders of {} {}", own_folder.filename().string(), fmt::join(classes, "/")),
      static_cast<int64_t>(classes.size()));
  ImageIndex index = update_index(file, groups, list, options.note, options.on_progress);
  if (split == Split::kTest && is_folder(folder / kVal) && is_folder(folder / kTest))
    options.note += fmt::format("{}{}: evaluation reads {}/, and {}/ is not read.",
                                options.note.empty() ? "" : " ", folder.string(), kVal, kTest);
  return std::make_unique<ClassFolders>(own_folder, static_cast<int64_t>(classes.size()), std::move(index));
}

}  // namespace sdp
