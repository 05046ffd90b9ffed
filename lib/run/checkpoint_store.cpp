#include "run/checkpoint_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <utility>

#include "io/file.h"
#include "spec/error.h"
#include "spec/text.h"

namespace sdp {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "step-";
constexpr std::string_view kPartialSuffix = ".partial";

std::string folder_name(int64_t step) {
  return fmt::format("{}{:08}", kPrefix, step);
}

/// Name of a folder that is not yet, or no longer, a checkpoint.
std::string partial_name(int64_t step, std::string_view why = "") {
  return fmt::format(".{}{}{}", folder_name(step), why, kPartialSuffix);
}

std::optional<int64_t> step_of(std::string_view name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  const auto step = number_in<int64_t>(name.substr(kPrefix.size()));
  return step && folder_name(*step) == name ? step : std::nullopt;
}

bool is_partial(std::string_view name) {
  return name.starts_with('.') && name.substr(1).starts_with(kPrefix) && name.ends_with(kPartialSuffix);
}

/// A path that cannot be accessed counts as missing; std::filesystem would throw an error of its own type.
bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

void remove_folder(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) throw_io_error("remove", path, error.value());
}

void rename_folder(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::rename(from, to, error);
  if (error) throw_io_error("rename to " + to.string() + " the folder", from, error.value());
}

/// The fault of a checkpoint's file, or std::nullopt.
std::optional<std::string> fault_of(const fs::path& folder, const ManifestFile& expected, bool verify_hash,
                                    const OnProgress& on_progress = ignore_progress) {
  const fs::path path = folder / expected.name;
  std::error_code error;
  const std::uintmax_t bytes = fs::file_size(path, error);
  if (error == std::errc::no_such_file_or_directory) return path.string() + " is missing";
  if (error) throw_io_error("read", path, error.value());
  if (bytes != static_cast<std::uintmax_t>(expected.bytes))
    return path.string() + " has " + std::to_string(bytes) + " bytes, the manifest says " +
           std::to_string(expected.bytes);
  if (!verify_hash) return std::nullopt;
  const FileDigest found = digest_file(path, on_progress);
  if (found.xxh3_128 != expected.xxh3_128)
    return path.string() + " has the XXH3-128 hash " + found.xxh3_128 + ", the manifest says " +
           expected.xxh3_128;
  return std::nullopt;
}

}  // namespace

CheckpointStore::CheckpointStore(const fs::path& run_dir)
    : checkpoints_(run_dir / "checkpoints"), latest_(run_dir / "latest") {}

fs::path CheckpointStore::folder(int64_t step) const {
  return checkpoints_ / folder_name(step);
}

fs::path CheckpointStore::partial_path(int64_t step) const {
  return checkpoints_ / partial_name(step);
}

fs::path CheckpointStore::begin(int64_t step) const {
  const fs::path partial = partial_path(step);
  if (is_there(partial)) {
    const fs::path gone = unused_name(step);
    rename_folder(partial, gone);
    std::error_code ignored;
    fs::remove_all(gone, ignored);  // commit() tries again
  }
  std::error_code error;
  fs::create_directories(partial, error);
  if (error) throw_io_error("create", partial, error.value());
  return partial;
}

std::vector<std::string> CheckpointStore::commit(int64_t step, const Manifest& manifest, int64_t keep_last,
                                                 const std::set<int64_t>& best) const {
  if (manifest.step != step) throw std::logic_error("checkpoint: the manifest is of another step");
  if (keep_last < 1) throw std::logic_error("checkpoint: keep_last is below 1");
  const fs::path partial = partial_path(step);
  for (const ManifestFile& file : manifest.files)
    if (const auto fault = fault_of(partial, file, /*verify_hash=*/false))
      throw DataError("checkpoint of step " + std::to_string(step) + " was not saved: " + *fault +
                      ". All processes have to write to the same file system.");

  // 1. Flush everything in the folder to disk, the manifest last.
  sync_folder(partial);
  write_file_atomically(partial / kManifestName, manifest_text(manifest));
  // 2. Give the folder its name.
  move_out_of_the_way(step);
  rename_folder(partial, folder(step));
  sync_folder(checkpoints_);
  // 3. Make it the one to resume from.
  write_file_atomically(latest_, folder_name(step) + "\n");
  // 4. Make room for the next one.
  return remove_older(step, keep_last, best);
}

/// Renames a checkpoint so that it no longer counts as one; remove_older() removes its files.
void CheckpointStore::move_out_of_the_way(int64_t step) const {
  if (!is_there(folder(step))) return;
  rename_folder(folder(step), unused_name(step));
}

/// A name for a folder that is to be removed. A folder with an earlier number may still exist.
fs::path CheckpointStore::unused_name(int64_t step) const {
  for (int number = 1;; ++number) {
    fs::path path = checkpoints_ / partial_name(step, ".removed-" + std::to_string(number));
    if (!is_there(path)) return path;
  }
}

std::vector<std::string> CheckpointStore::remove_older(int64_t step, int64_t keep_last,
                                                       const std::set<int64_t>& best) const {
  std::vector<int64_t> up_to_now = steps();
  std::erase_if(up_to_now, [&](int64_t other) { return other > step; });
  const int64_t surplus = static_cast<int64_t>(up_to_now.size()) - keep_last;
  std::vector<std::string> left;
  const auto attempt = [&](const auto& removal) {
    try {
      removal();
    } catch (const DataError& error) {
      left.emplace_back(error.what());
    }
  };
  for (int64_t i = 0; i < surplus; ++i) {
    const int64_t older = up_to_now[static_cast<size_t>(i)];
    if (!best.contains(older)) attempt([&] { move_out_of_the_way(older); });
  }
  for (const std::string& name : entry_names(checkpoints_))
    if (is_partial(name)) attempt([&] { remove_folder(checkpoints_ / name); });
  return left;
}

std::vector<int64_t> CheckpointStore::steps() const {
  std::vector<int64_t> steps;
  for (const std::string& name : entry_names(checkpoints_)) {
    const std::optional<int64_t> step = step_of(name);
    if (step && is_there(checkpoints_ / name / kManifestName)) steps.push_back(*step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

std::optional<int64_t> CheckpointStore::latest_step() const {
  const std::vector<int64_t> known = steps();
  if (is_there(latest_)) {
    std::string name = read_text(latest_);
    while (name.ends_with('\n'))
      name.pop_back();
    const std::optional<int64_t> step = step_of(name);
    if (step && std::binary_search(known.begin(), known.end(), *step)) return step;
  }
  for (auto step = known.rbegin(); step != known.rend(); ++step) {
    try {
      verified(*step, /*verify_hashes=*/false, ignore_progress);
      return *step;
    } catch (const DataError&) {
      // Not the newest complete one.
    }
  }
  return std::nullopt;
}

template <class Read>
auto CheckpointStore::with_advice(int64_t step, Read read) const {
  try {
    return read();
  } catch (const DataError& error) {
    throw DataError(error.what() + advice(step));
  }
}

Manifest CheckpointStore::read(int64_t step, bool verify_hashes, const OnProgress& on_progress) const {
  return with_advice(step, [&] { return verified(step, verify_hashes, on_progress); });
}

/// The same without the advice, which is for a single damaged checkpoint.
Manifest CheckpointStore::verified(int64_t step, bool verify_hashes, const OnProgress& on_progress) const {
  const Manifest manifest = read_manifest(step);
  int64_t total_bytes = 0;
  for (const ManifestFile& file : manifest.files)
    total_bytes += file.bytes;
  int64_t before_bytes = 0;
  for (size_t i = 0; i < manifest.files.size(); ++i) {
    const ManifestFile& file = manifest.files[i];
    const bool is_of_a_process = static_cast<int64_t>(i) < manifest.processes;
    const auto fault =
        fault_of(folder(step), file, verify_hashes || !is_of_a_process,
                 [&](int64_t done_bytes, int64_t) { on_progress(before_bytes + done_bytes, total_bytes); });
    if (fault) throw DataError(*fault);
    before_bytes += file.bytes;
  }
  return manifest;
}

fs::path CheckpointStore::verified_file(int64_t step, const std::string& name) const {
  return with_advice(step, [&] {
    const Manifest manifest = read_manifest(step);
    const auto file = std::find_if(manifest.files.begin(), manifest.files.end(),
                                   [&](const ManifestFile& entry) { return entry.name == name; });
    if (file == manifest.files.end())
      throw DataError((folder(step) / kManifestName).string() + " has no file " + name);
    if (const auto fault = fault_of(folder(step), *file, /*verify_hash=*/true)) throw DataError(*fault);
    return folder(step) / name;
  });
}

std::optional<int64_t> CheckpointStore::latest_good_step(
    bool verify_hashes, const std::function<void(const std::string&)>& on_passed_over,
    const OnProgress& on_progress) const {
  std::vector<int64_t> newest_first = steps();
  if (newest_first.empty()) return std::nullopt;
  const int64_t latest = latest_step().value_or(newest_first.back());
  std::sort(newest_first.begin(), newest_first.end(),
            [&](int64_t a, int64_t b) { return std::pair(a <= latest, a) > std::pair(b <= latest, b); });
  std::string faults;
  for (const int64_t step : newest_first) {
    try {
      verified(step, verify_hashes, on_progress);
      return step;
    } catch (const DataError& error) {
      on_passed_over(folder_name(step) + ": " + error.what());
      faults += "\n  " + std::string(error.what());
    }
  }
  throw DataError(checkpoints_.string() + ": no checkpoint of this run verifies:" + faults);
}

Manifest CheckpointStore::read_manifest(int64_t step) const {
  const fs::path path = folder(step) / kManifestName;
  if (!is_there(path)) throw DataError(path.string() + " is missing");
  const Manifest manifest = parse_manifest(read_text(path), path.string());
  if (manifest.step != step)
    throw DataError(path.string() + " is of step " + std::to_string(manifest.step) + ", not " +
                    std::to_string(step));
  return manifest;
}

std::string CheckpointStore::advice(int64_t damaged_step) const {
  std::string others;
  for (const int64_t step : steps())
    if (step != damaged_step) others += (others.empty() ? "" : ", ") + folder_name(step);
  const std::string damaged = folder(damaged_step).string();
  if (others.empty())
    return ". There is no other checkpoint in this run: restore the file, or delete " + damaged +
           " and start from the beginning with --resume=if-any.";
  return ". Restore the file, or train with --resume=latest-good, which skips checkpoints that do not "
         "verify; "
         "other checkpoints of this run: " +
         others + ". To use one of them elsewhere, move " + damaged + " away.";
}

}  // namespace sdp
