#pragma once

// CIFAR-10 as tar shards of JPEG: train-000000.tar, train-000001.tar, ... and test-000000.tar, ..., in the
// format of tar_shard.h. Numbers are consecutive from 0; samples are in the order of shards, then of members.

#include <filesystem>
#include <string>
#include <vector>

#include "data/sets/image_array.h"

namespace sdp {

/// Whether the names of a folder's files include a shard of any split.
bool has_shards(const std::vector<std::string>& names);

/// Appends the images of a split. `names`: the folder's files. Every problem is passed to `on_problem`; if
/// that returns, shards and images that cannot be read are left out.
void append_shards(const std::filesystem::path& folder, const std::vector<std::string>& names, Split split,
                   const OnProblem& on_problem, ImageArray& images);

}  // namespace sdp
