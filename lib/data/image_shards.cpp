#include <fmt/format.h>

#include <utility>

#include "data/dataset.h"
#include "data/image_files.h"
#include "io/file.h"
#include "spec/error.h"

namespace sdp {

namespace fs = std::filesystem;

namespace {

/// Adds the images of one shard; returns false if there was a problem.
bool list_shard(const fs::path& shard, int64_t num_classes, ImageIndex& index, const OnProblem& on_problem) {
  bool whole = true;
  const auto note_problem = [&](const std::string& message) {
    whole = false;
    on_problem(message);
  };
  std::vector<ImageEntry> samples;
  try {
    samples = list_image_shard(shard, num_classes, note_problem);
  } catch (const DataError& error) {
    if (!whole) throw;  // thrown by on_problem
    note_problem(error.what());
  }
  for (const auto& [image, label] : samples) {
    if (image.size_bytes <= ImageIndex::kMostMemberBytes)
      index.add_member(image, label);
    else
      note_problem(fmt::format("{}: {} bytes, expected an image below 4 GiB. Remove it.",
                               place_of(shard, image), image.size_bytes));
  }
  return whole;
}

class Shards final : public ImageFiles {
 public:
  Shards(std::vector<fs::path> shards, int64_t num_classes, ImageIndex index)
      : ImageFiles(std::move(index), num_classes), shards_(std::move(shards)) {
    // Kept open if there are few. Most systems let a process open 1024 files, and there are two splits.
    constexpr size_t kMostOpen = 256;
    if (shards_.size() > kMostOpen) return;
    for (const fs::path& shard : shards_)
      files_.emplace_back(shard);
  }

  std::string place(int64_t image) const override {
    return place_of(shards_[index().group(image)], index().member(image));
  }
  std::vector<uint8_t> read(int64_t image) const override {
    const size_t shard = index().group(image);
    const TarEntry member = index().member(image);
    try {
      return files_.empty() ? read_member(InputFile(shards_[shard]), member)
                            : read_member(files_[shard], member);
    } catch (const DataError& error) {  // it names only the shard
      throw DataError(fmt::format("{}: {}", place(image), error.what()));
    }
  }

 private:
  std::vector<fs::path> shards_;
  std::vector<InputFile> files_;  // the shards, or empty
};

}  // namespace

std::unique_ptr<ImageFiles> open_shards(const std::vector<fs::path>& shards, int64_t num_classes,
                                        const IndexOptions& options, const OnProblem& on_problem) {
  std::vector<fs::path> listed;  // of `groups`
  std::vector<ImageGroup> groups;
  for (const fs::path& shard : shards)
    if (auto group =
            attempt(on_problem, [&] { return group_of(shard.parent_path(), shard.filename().string()); })) {
      listed.push_back(shard);
      groups.push_back(std::move(*group));
    }
  const auto list = [&](const ImageGroup& group, ImageIndex& index) {
    return list_shard(shards.front().parent_path() / group.name, num_classes, index, on_problem);
  };
  const IndexFile file(options.path, fmt::format("shards of {} classes", num_classes), num_classes);
  ImageIndex index = update_index(file, groups, list, options.note, options.on_progress);
  return std::make_unique<Shards>(std::move(listed), num_classes, std::move(index));
}

}  // namespace sdp
