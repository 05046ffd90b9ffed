#pragma once

// Speed and use of the folders that a run reads from and writes to.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "doctor/finding.h"

namespace sdp {

/// Reads from the files below the folder, each from its beginning, for at most `limit_s` seconds and
/// `limit_bytes`. Fails where it is no folder, holds no file with anything in it, or one cannot be read.
Finding check_data_folder(const std::filesystem::path& folder, double limit_s = 2,
                          int64_t limit_bytes = int64_t{512} << 20);

/// Writes a file of `bytes` to disk (fsync), renames it, reads it back and removes it. `folder` is the run's
/// own. What comes back must be what was written.
Finding check_writing(const std::filesystem::path& folder, int64_t bytes = int64_t{64} << 20);

/// Collective over the ranks, of which `hosts` are the hosts: rank 0 makes a folder in `parent` and locks it
/// as a run does; a second lock must be refused, all ranks must see it, and one process per host writes into
/// it (check_writing). It is removed in the end, as is `parent` where it was not there, which a run would
/// make.
Finding check_run_folder(Communicator& comm, const std::filesystem::path& parent,
                         const std::vector<std::string>& hosts);

/// Whether the rank is the first of its host.
bool is_first_of_host(const std::vector<std::string>& hosts, int rank);

}  // namespace sdp
