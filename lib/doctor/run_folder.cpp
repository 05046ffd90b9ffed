#include "doctor/checks.h"

#include <fmt/format.h>

#include <cerrno>
#include <optional>

#include "io/file.h"
#include "process/identity.h"
#include "run/shared_run_folder.h"
#include "spec/error.h"
#include "spec/units.h"

namespace sdp {
namespace {

namespace fs = std::filesystem;

/// Long enough for NFS to show a new name to a host that has not requested it before.
constexpr std::chrono::seconds kVisibleAfterLooking{15};

/// Rank 0's name for the folder.
fs::path trial_folder(Communicator& comm, const fs::path& parent) {
  std::string name;
  if (comm.rank() == 0) {
    fs::path existing = fs::absolute(parent).lexically_normal();
    std::error_code unknown;  // counts as missing
    while (existing.has_relative_path() && !fs::exists(existing, unknown))
      existing = existing.parent_path();
    name = (existing / (".sdp-train-doctor-" + random_id())).string();
  }
  return comm.all_gather_strings(name).front();
}

std::unique_ptr<RunLock> lock_alone(const fs::path& folder) {
  const auto silent = [](const std::string&) {};
  std::unique_ptr<RunLock> lock = RunLock::acquire(folder, silent);
  try {
    (void)RunLock::acquire(folder, silent);
  } catch (const UsageError&) {
    return lock;  // the expected result
  }
  throw DataError(fmt::format("{}: two runs could lock the same run folder", folder.string()));
}

}  // namespace

Finding check_run_folder(Communicator& comm, const fs::path& parent, const std::string& host) {
  constexpr const char* kCheck = "run folder";
  // Every rank takes part in all collectives, whatever has failed before.
  const fs::path folder = trial_folder(comm, parent);
  Finding finding = pass(kCheck, "");
  {
    std::optional<SharedRunFolder> shared;
    try {
      shared = share_run_folder(
          comm, RunFolder{folder}, {.host = host, .threads = 1},
          [&] {
            std::error_code error;
            if (!fs::create_directory(folder, error))
              throw_io_error("make a folder", folder, error ? error.value() : EEXIST);
            return lock_alone(folder);
          },
          kVisibleAfterLooking);
      write_file_atomically(folder / fmt::format("rank{}", comm.rank()), "written by doctor\n");
      if (comm.rank() == 0)
        finding.detail = fmt::format("{}: locked, seen and written to by all ranks, {} free",
                                     folder.parent_path().string(),
                                     format_bytes(static_cast<int64_t>(fs::space(folder).available)));
    } catch (const PeerLostError&) {
      throw;
    } catch (const std::exception& error) {
      finding =
          failed(kCheck, error.what(),
                 "Runs write checkpoints there: choose a folder (--output, and output.dir of the run) that "
                 "all hosts see and may write to.");
    }
    comm.barrier();  // all writing has finished
  }
  std::error_code ignored;
  if (comm.rank() == 0) fs::remove_all(folder, ignored);
  return finding;
}

}  // namespace sdp
