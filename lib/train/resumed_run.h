#pragma once

// The checkpoint that a run goes on from, before anything is started or written.

#include <filesystem>

#include "checkpoint/store.h"

namespace sdp {

/// Whether the run goes on from a checkpoint of its folder, which need not exist. Throws UsageError where
/// `resume` asks for one and there is none, and DataError where there are some and none is complete.
bool finds_checkpoint(const std::filesystem::path& run_dir, Resume resume);

}  // namespace sdp
