#pragma once

// One function per subcommand of bench_data.

#include <filesystem>

namespace sdp::bench {

/// Every *.jpg, *.jpeg and *.JPEG below `folder`.
void bench_jpeg(const std::filesystem::path& folder, double seconds);

/// Augmentation of images of CIFAR-10's size.
void bench_cifar(double seconds);

}  // namespace sdp::bench
