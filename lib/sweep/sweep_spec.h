#pragma once

// The file of a sweep: one experiment under many settings.
//
//   name: coverage                  # runs go to OUTPUT.DIR/coverage/POINT; output.dir is the experiments'
//   configs: [../resnet18.yaml]     # as of --config: relative to this file, later ones win
//   set: {train.epochs: 2}          # as of --set, for every run; before what an axis sets
//   grid:                           # axes; the first varies slowest
//     regime:                       # named values: each any keys, and `configs` of its own
//       B: {subnetwork.construction: block}
//       N: {subnetwork.construction: neuron, configs: [neuron.yaml]}
//     subnetwork.coverage: [6/8, 4/8]   # values of the key that the axis is named after
//     seed: [0, 1]
//   also:                           # more points, beside the grid
//     - label: DDP
//       set: {subnetwork.coverage: 1}   # or `configs`, or both
//       across: [seed]                  # each once for every value of these axes
//   exclude:                        # points to leave out: all that have these values; several of an axis in
//   a list
//     - {regime: B, subnetwork.coverage: [4/8]}
//
// Keys are dotted, or mappings as in an experiment. Everything an experiment's file would be refused for is
// refused here, where it is written; what depends on several keys is checked when the points are loaded.

#include <filesystem>
#include <string>
#include <vector>

#include "spec/position.h"

namespace sdp {

/// One key and its value.
struct SweepSetting {
  std::string key;    ///< dotted, of an experiment
  std::string value;  ///< in YAML, on one line

  bool operator==(const SweepSetting&) const = default;
};

/// What a part of the sweep changes: all files come before all settings.
struct SweepChanges {
  std::vector<std::filesystem::path> configs = {};
  std::vector<SweepSetting> set = {};
};

struct SweepAxisValue {
  std::string name;
  SweepChanges changes = {};
};

struct SweepAxis {
  std::string name;
  bool is_key = false;  ///< the name is the key, whose values these are
  std::vector<SweepAxisValue> values = {};
};

/// A point beside the grid, or one for every combination of the values of some axes.
struct SweepAddition {
  std::string label;
  SweepChanges changes = {};
  std::vector<std::string> across = {};  ///< names of axes
};

/// Leaves out the points that have one of the values on each of the axes.
struct SweepExclusion {
  struct OfAxis {
    std::string axis;
    std::vector<std::string> values;
  };

  std::vector<OfAxis> axes = {};
  Position position = {};  ///< for messages
};

struct SweepSpec {
  std::string name;
  SweepChanges common = {};  ///< of every run
  std::vector<SweepAxis> axes = {};
  std::vector<SweepAddition> also = {};
  std::vector<SweepExclusion> exclude = {};
};

/// Throws UsageError with "file:line:column: ": an unknown key or name with the nearest one, a value that its
/// key cannot have, a key that two axes set, an axis without values or with one of them twice, `name` or
/// `output.dir` where the sweep sets them itself; and for the file of an experiment.
SweepSpec read_sweep(const std::filesystem::path& file);

/// The same of one text in memory; `source_name` stands for its file.
SweepSpec parse_sweep(const std::string& text, const std::string& source_name);

}  // namespace sdp
