#pragma once

// What it costs to resume from a checkpoint with another division of the network or other processes.

#include <cstdint>

#include "checkpoint/checkpoint_reader.h"
#include "experiment/experiment.h"

namespace sdp {

/// Bytes of values and optimizer state, without BatchNorm statistics.
struct ReshardingTraffic {
  int64_t state_bytes = 0;      ///< of the full model, each element once
  int64_t moved_bytes = 0;      ///< of these, updated by another process than the one that saved them
  int64_t read_bytes = 0;       ///< that all processes read: copies of values, and the state they update
  int64_t most_read_bytes = 0;  ///< by one process
};

/// `saved`: the checkpoint's spec. Throws DataError if the checkpoint lacks state of the experiment.
ReshardingTraffic resharding_traffic(const CheckpointReader& reader, const ExperimentSpec& saved,
                                     const Experiment& experiment);

}  // namespace sdp
