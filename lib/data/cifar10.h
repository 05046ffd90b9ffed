#pragma once

// CIFAR-10 (Krizhevsky 2009): 10 classes, 32 x 32 RGB.

#include <filesystem>
#include <memory>

#include "data/dataset.h"

namespace sdp {

/// Reads one split into memory (3 KiB an image). What the folder holds decides on the format:
///
/// - the official binary version: data_batch_1.bin to data_batch_5.bin and test_batch.bin, in `folder` itself
///   or in its sub-folder cifar-10-batches-bin. Records of 1 label byte and 3072 pixel bytes, RRR GGG BBB.
/// - tar shards of JPEG: train-000000.tar, train-000001.tar, ... and test-000000.tar, ..., see tar_shard.h.
///   Numbers start at 0 and leave none out; samples are in order of shards, then of members.
///
/// Throws DataError, see open_dataset().
std::unique_ptr<ImageDataset> open_cifar10(const std::filesystem::path& folder, Split split);

}  // namespace sdp
