#pragma once

// The runs of a sweep as plain values.

#include <filesystem>
#include <string>
#include <vector>

#include "sweep/sweep_spec.h"

namespace sdp {

/// One run of a sweep.
struct SweepPoint {
  /// Name of the run folder: "regime=N,coverage=6-8,seed=0"; for an addition, its label and the axes it goes
  /// across, "DDP,seed=0". An axis is named by the last word of its name, unless two axes share it.
  /// Characters that are special to shells or file systems become '-'.
  std::string name;
  /// Label in tables, the same for runs that differ only on the axis `seed`: "N, coverage=6/8", or the
  /// addition's label.
  std::string label;
  std::vector<std::filesystem::path> configs = {};
  std::vector<std::string> overrides = {};  ///< "a.b=v"
  /// Values by the full name of the axis. For an addition: the axes it goes across, and the axes of keys that
  /// it sets.
  std::vector<std::pair<std::string, std::string>> values = {};

  bool operator==(const SweepPoint&) const = default;
};

/// All points: the grid, its first axis slowest, then the additions, without the excluded points. Throws
/// UsageError if two points have the same name, an exclusion excludes nothing, or no point is left.
std::vector<SweepPoint> expand(const SweepSpec& sweep);

}  // namespace sdp
