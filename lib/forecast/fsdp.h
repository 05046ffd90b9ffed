#pragma once

// Fully sharded data parallelism: ZeRO's third stage (Rajbhandari et al. 2020, "ZeRO: Memory Optimizations
// Toward Training Trillion Parameter Models", section 5.3) as PyTorch's FSDP2 does it
// (torch.distributed.fsdp.fully_shard). The engine has no such setting, so this is a formula.
//
// Of Psi parameters each of N processes stores a share of values, gradients and optimizer state:
// (2 + 2 + K) Psi / N bytes in bf16, K = 12 with AdamW (fp32 master values, two moments); in fp32 values and
// gradients take 4 bytes and there are no master values. A parameter is divided by rows (dimension 0), in
// shares of the same size: the last process's may be empty, and every process stores and sends a whole one.
//
// Parameters are gathered and freed unit by unit. Units: the branches of a block with the shared layers that
// follow them (a ResNet block's projection, Swin's patch merging); what comes before the first block; what
// comes after the last. While one unit is computed the next one is gathered, so the values of two stand. A
// unit's gradients stand until they have been packed to be reduced. Embeddings that are the head as well are
// needed at both ends of the network: they stay whole throughout the pass.
//
// In each micro-batch all parameters are gathered in the forward pass and again in the backward pass, and
// gradients are reduced to their shares: 3 Psi (N - 1) / N elements sent, where data parallelism sends
// 2 Psi (N - 1) / N (section 7.2.2 there).

#include <cstdint>

#include "experiment/spec/experiment_spec.h"
#include "subnet/layout.h"

namespace sdp {

/// Of one process. All have the same.
struct FsdpBytes {
  // Shares.
  int64_t weights = 0;
  int64_t gradients = 0;
  int64_t optimizer = 0;
  // Whole, the most at a time.
  int64_t gathered_weights = 0;  ///< of two units that follow each other
  int64_t unit_gradients = 0;    ///< of one unit
  int64_t reduce_buffer = 0;     ///< the same, packed, in the type on the wire
  // Sent in a micro-batch.
  int64_t gather_sent = 0;  ///< to gather all parameters once
  int64_t reduce_sent = 0;  ///< to reduce all gradients
};

/// The full model of `layout` on `processes` processes, with the optimizer and the types of the spec.
FsdpBytes fsdp_bytes(const ModelLayout& layout, const ExperimentSpec& spec, int processes);

}  // namespace sdp
