#pragma once

// Whether runs of these ranks can share a folder.

#include <filesystem>
#include <string>

#include "comm/communicator.h"
#include "doctor/finding.h"

namespace sdp {

/// Collective; `host` is this rank's. Rank 0 creates a folder in `parent`, or in the nearest existing folder
/// above it, and locks it as a run does; a second lock must be refused. All ranks must see the folder, and
/// each writes a file into it as a run does. Finally it is removed.
Finding check_run_folder(Communicator& comm, const std::filesystem::path& parent, const std::string& host);

}  // namespace sdp
