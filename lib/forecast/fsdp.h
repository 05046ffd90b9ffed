#pragma once

// Fully sharded data parallelism: ZeRO's third stage (Rajbhandari et al. 2020, "ZeRO: Memory Optimizations
// Toward Training Trillion Parameter Models", section 5.3) as implemented by PyTorch's FSDP2
// (torch.distributed.fsdp.fully_shard). The engine does not implement it, so it is not simulated: this is a
// formula.
//
// Each of N processes stores a share of the values, gradients and optimizer state of Psi parameters:
// (2 + 2 + K) Psi / N bytes in bf16, with K = 12 for AdamW (fp32 master values, two moments). In fp32, values
// and gradients take 4 bytes each and there are no master values. A parameter is divided by rows (dimension
// 0) into shares of the same size. Where the rows do not divide evenly, the last shares are partly or
// entirely padding, which is stored and sent like the rest.
//
// Parameters are gathered and freed unit by unit. A unit is one of: the branches of a block with the shared
// layers that follow them (a ResNet block's projection, Swin's patch merging); all layers before the first
// block; all layers after the last block. While one unit is computed the next one is gathered, so the values
// of two units are in memory. A unit's gradients stay in memory until they have been packed for the
// reduction. Embeddings that also serve as the head are needed at both ends of the network, so they stay
// gathered throughout the pass.
//
// In each micro-batch all parameters are gathered in the forward pass and again in the backward pass, and
// gradients are reduced to their shares. A process sends 3 Psi (N - 1) / N elements, where data parallelism
// sends 2 Psi (N - 1) / N (section 7.2.2 of the same paper).

#include <cstdint>

#include "experiment/spec/experiment_spec.h"
#include "subnet/layout.h"

namespace sdp {

/// Bytes of one process, the same on all of them.
struct FsdpBytes {
  // Shares.
  int64_t weights = 0;
  int64_t gradients = 0;
  int64_t optimizer = 0;
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
