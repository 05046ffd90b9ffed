#pragma once

// What fully sharded data parallelism, which the engine does not implement, holds and sends. It is not
// simulated: these are the usual formulas, with their sources in docs/design.md, "What a plan predicts".

#include <cstdint>

#include "experiment/experiment_spec.h"
#include "subnet/layout.h"

namespace sdp {

/// Bytes of one process in fully sharded data parallelism (ZeRO-3 as in PyTorch's FSDP2), the same on all
/// processes. Parameters are divided by rows into shares of the same size: where the rows do not divide
/// evenly, the last shares are partly or entirely padding, which is stored and sent like the rest. A unit is
/// the branches of a block with the shared layers that follow them, all layers before the first block, or all
/// layers after the last one. While one is computed the next one is gathered. Embeddings that also serve as
/// the head are needed at both ends of the network, so they stay gathered throughout the pass.
struct FsdpBytes {
  int64_t weights = 0;    ///< share, and as many bytes of gradients
  int64_t optimizer = 0;  ///< share
  // Full tensors, the largest size at any moment.
  int64_t gathered_weights = 0;  ///< of two consecutive units
  int64_t unit_gradients = 0;    ///< of one unit
  int64_t reduce_buffer = 0;     ///< gradients of one unit, packed, in the type on the wire
  // Sent per micro-batch.
  int64_t gather_sent = 0;  ///< to gather all parameters once
  int64_t reduce_sent = 0;  ///< to reduce all gradients
  int64_t units = 0;        ///< each gathered and reduced by itself
};

/// Bytes for the full model of `layout` on `processes` processes, with the spec's optimizer and types.
FsdpBytes fsdp_bytes(const ModelLayout& layout, const ExperimentSpec& spec, int processes);

}  // namespace sdp
