#pragma once

// The runs of a sweep as plain values.

#include <filesystem>
#include <string>
#include <vector>

#include "sweep/sweep_spec.h"

namespace sdp {

/// One run of a sweep.
struct SweepPoint {
  /// Its folder's name: "regime=N,coverage=6-8,seed=0"; of an addition its label and the axes it goes across,
  /// "DDP,seed=0". Of an axis the last word of its name, unless two axes share it; what could trouble a shell
  /// or a file system is a '-'.
  std::string name;
  /// What it is in a table: runs that differ in nothing but the axis `seed` have the same. "N, coverage=6/8",
  /// or the addition's label.
  std::string label;
  std::vector<std::filesystem::path> configs = {};
  std::vector<std::string> overrides = {};  ///< "a.b=v"
  /// Its value on each axis it has one on, by the axis' full name: of an addition those it goes across, and
  /// axes of a key that it sets.
  std::vector<std::pair<std::string, std::string>> values = {};

  bool operator==(const SweepPoint&) const = default;
};

/// The grid, its first axis slowest, then the additions, without what is excluded. Throws UsageError when two
/// points have one name, an exclusion leaves nothing out, or nothing is left.
std::vector<SweepPoint> expand(const SweepSpec& sweep);

}  // namespace sdp
