#pragma once

// Checks and times the folders that a run reads from and writes to.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "doctor/finding.h"

namespace sdp {

/// Reads the files below the folder, each from its beginning, for at most `limit_s` seconds and
/// `limit_bytes`. Fails if it is not a folder, contains only empty files, or a file cannot be read.
Finding check_data_folder(const std::filesystem::path& folder, double limit_s = 2,
                          int64_t limit_bytes = int64_t{512} << 20);

/// Writes a file of `bytes` to disk (fsync), renames it, reads it back, compares it and removes it. `folder`
/// belongs to the run.
Finding check_writing(const std::filesystem::path& folder, int64_t bytes = int64_t{64} << 20);

/// Collective over the ranks, whose hosts are `hosts`. Rank 0 creates a folder in `parent` and locks it as a
/// run does; a second lock must be refused. All ranks must see the folder, and one process per host writes
/// into it (check_writing). Finally it is removed; so is `parent` if it did not exist, as a run would create
/// it.
Finding check_run_folder(Communicator& comm, const std::filesystem::path& parent,
                         const std::vector<std::string>& hosts);

/// Whether the rank is the first of its host.
bool is_first_of_host(const std::vector<std::string>& hosts, int rank);

}  // namespace sdp
