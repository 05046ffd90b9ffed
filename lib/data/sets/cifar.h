#pragma once

// CIFAR-10 and CIFAR-100 (Krizhevsky 2009, https://www.cs.toronto.edu/~kriz/cifar.html): 32 x 32 RGB, 10 and
// 100 classes.

#include <filesystem>

#include "data/sets/image_array.h"

namespace sdp {

/// Reads one split. What the folder holds decides on the format:
///
/// - the official binary version: data_batch_1.bin to data_batch_5.bin and test_batch.bin, in `folder` itself
///   or in its sub-folder cifar-10-batches-bin. Records of 1 label byte and 3072 pixel bytes, RRR GGG BBB.
/// - tar shards of JPEG, see cifar10_shards.h.
///
/// Every problem goes to `on_problem`. Where that returns, the images that could be read are the result: a
/// record that is cut off or has a wrong label is left out.
ImageArray read_cifar10(const std::filesystem::path& folder, Split split, const OnProblem& on_problem);

/// The same of the official binary version: train.bin and test.bin, in `folder` or in its sub-folder
/// cifar-100-binary. Records of a label of 20 superclasses, one of 100 classes, which is the image's, and
/// 3072 pixel bytes.
ImageArray read_cifar100(const std::filesystem::path& folder, Split split, const OnProblem& on_problem);

}  // namespace sdp
