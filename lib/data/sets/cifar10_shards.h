#pragma once

// CIFAR-10 as tar shards of JPEG: train-000000.tar, train-000001.tar, ... and test-000000.tar, ..., each as
// tar_shard.h describes it. Numbers start at 0 and leave none out; samples are in order of shards, then of
// members.

#include <filesystem>
#include <string>
#include <vector>

#include "data/sets/image_array.h"

namespace sdp {

/// Whether there is a shard of any split among the names of a folder's files.
bool has_shards(const std::vector<std::string>& names);

/// Appends the images of a split. `names`: of the folder's files. Every problem goes to `on_problem`; where
/// that returns, shards and images that can't be read are left out.
void append_shards(const std::filesystem::path& folder, const std::vector<std::string>& names, Split split,
                   const OnProblem& on_problem, ImageArray& images);

}  // namespace sdp
