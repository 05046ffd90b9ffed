#include "run/run_folder.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>

#include "io/file.h"
#include "spec/error.h"

namespace sdp {

namespace fs = std::filesystem;

namespace {

constexpr const char* kCheckpoints = "checkpoints";

/// Whether the run reads or writes a file with this name.
bool is_run_file(std::string_view name) {
  constexpr auto kNames =
      std::to_array<std::string_view>({"spec.yaml", "plan.json", "run.json", "metrics.jsonl", "trace.jsonl",
                                       "log.txt", "latest", "output.txt", "summary.json"});
  constexpr auto kBeginnings =
      std::to_array<std::string_view>({"rank-", "profile-rank-", "events.out.tfevents.", "run.lock"});
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end() ||
         std::any_of(kBeginnings.begin(), kBeginnings.end(),
                     [&](std::string_view beginning) { return name.starts_with(beginning); });
}

std::string kind_of(const fs::path& path, fs::file_type type) {
  std::error_code ignored;
  switch (type) {
    case fs::file_type::symlink:
      return "a symbolic link to " + fs::read_symlink(path, ignored).string();
    case fs::file_type::directory:
      return "a folder";
    case fs::file_type::regular:
      return "a file";
    case fs::file_type::fifo:
      return "a pipe";
    default:
      return "neither a file nor a folder";
  }
}

void check_run_file(const fs::path& path, bool to_write) {
  const bool is_folder = path.filename() == kCheckpoints;
  if (!is_folder && !is_run_file(path.filename().string())) return;
  std::error_code ignored;
  const fs::file_type type =
      (to_write ? fs::symlink_status(path, ignored) : fs::status(path, ignored)).type();
  const fs::file_type expected = is_folder ? fs::file_type::directory : fs::file_type::regular;
  if (type == expected || type == fs::file_type::not_found) return;
  throw UsageError(path.string() + " is " + kind_of(path, type) + ", expected " +
                   (is_folder ? "a folder" : "a file") +
                   " that belongs to this run. Remove it, or set another name.");
}

/// Its name; empty if there is none. Names of partial checkpoints begin with a dot.
std::string last_checkpoint(const RunFolder& run) {
  const std::vector<std::string> names = entry_names(run.dir / kCheckpoints);
  return names.empty() || names.back().starts_with('.') ? "" : names.back();
}

/// Whether the metrics say more than that the run was started.
bool has_results(const fs::path& metrics) {
  std::ifstream file(metrics);
  for (std::string line; std::getline(file, line);) {
    const auto record = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!record.is_object() || record.value("kind", "") != "start") return true;
  }
  return false;
}

/// A run that ended before its first results has nothing to lose.
void refuse_results(const RunFolder& run, bool resume) {
  if (resume) return;
  std::string exists = "the run folder " + run.dir.string() + " exists";
  const LockChain lock = read_lock(run.dir);
  if (lock.state() == LockState::kSilent && lock.owner)
    exists += ", and is locked by " + describe(*lock.owner) + ", which may still be running";
  if (const std::string last = last_checkpoint(run); !last.empty())
    throw UsageError(exists + ", with the checkpoint " + last +
                     ". Continue that run with --resume, or set another name.");
  if (has_results(run.metrics()))
    throw UsageError(
        exists +
        ", with the metrics of a run that ended before its first checkpoint. Start it again with "
        "--resume=if-any, which drops them, or set another name.");
}

}  // namespace

void check_run_files(const RunFolder& folder, bool to_write) {
  std::error_code error;
  if (to_write && fs::is_symlink(folder.dir, error)) {
    const fs::path target = fs::canonical(folder.dir, error);
    if (target.parent_path() == fs::canonical(folder.dir.parent_path(), error))
      throw UsageError("the run folder " + folder.dir.string() + " is a symbolic link to the run folder " +
                       target.filename().string() + ". Use that name, or remove the link.");
  }
  for (fs::directory_iterator entry(folder.dir, error); !error && entry != fs::directory_iterator();
       entry.increment(error))
    check_run_file(entry->path(), to_write);
}

NewFolders::NewFolders(const RunFolder& folder) {
  std::error_code ignored;
  for (fs::path path = fs::absolute(folder.dir).lexically_normal();
       path.has_relative_path() && !fs::exists(path, ignored); path = path.parent_path())
    missing_.push_back(path);
}

NewFolders::~NewFolders() {
  std::error_code ignored;
  for (const fs::path& folder : missing_)
    fs::remove(folder, ignored);  // fails if the folder is not empty
}

NewFiles::NewFiles(const RunFolder& folder) : dir_(folder.dir), names_before_(entry_names(dir_)) {}

NewFiles::~NewFiles() {
  if (keeps_) return;
  std::error_code ignored;
  try {
    for (const std::string& name : entry_names(dir_))
      if (!std::binary_search(names_before_.begin(), names_before_.end(), name))
        fs::remove_all(dir_ / name, ignored);
  } catch (const DataError&) {
    // A folder that cannot be listed stays as it is.
  }
}

LockedRunFolder create_run_folder(const fs::path& output_dir, const std::string& name, bool resume,
                                  const LockRunFolder& lock) {
  if (name.empty() || name == "." || name == ".." || name.find('/') != std::string::npos)
    throw UsageError("name: \"" + name + "\" cannot be the name of a folder. Give a name without '/'.");
  const RunFolder run = {output_dir / name};

  std::error_code error;
  fs::create_directories(output_dir, error);
  if (!error) fs::create_directory(run.dir, error);
  std::error_code ignored;
  if (error || !fs::is_directory(run.dir, ignored))
    throw UsageError("cannot make the run folder " + run.dir.string() + ": " +
                     (error ? error.message() : "a file of that name exists") +
                     ". Set another output.dir or name.");
  check_run_files(run, /*to_write=*/true);
  // Where the owner is visibly running, locking names it. Others are not waited for if the folder is refused.
  if (read_lock(run.dir).state() != LockState::kHeld) refuse_results(run, resume);
  LockedRunFolder locked{.folder = run, .lock = lock(run.dir)};
  refuse_results(run, resume);  // by a run that has just ended
  return locked;
}

}  // namespace sdp
