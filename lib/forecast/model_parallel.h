#pragma once

// What tensor and pipeline parallelism would send: activations, which subnetworks never do. By the usual
// formulas; neither is a setting of the engine.

#include <cstdint>

#include "experiment/spec/experiment_spec.h"
#include "subnet/layout.h"

namespace sdp {

/// Of a step with the same global batch, all of whose samples pass through every process.
struct ModelParallelTraffic {
  int64_t global_batch_size = 0;    ///< samples
  int tensor_processes = 1;         ///< t
  int64_t tensor_bytes_sent = 0;    ///< by each process
  int pipeline_stages = 1;          ///< a process each; no more than the model has blocks
  int64_t pipeline_bytes_sent = 0;  ///< by the process that sends the most
};

/// Tensor parallelism (Shoeybi et al. 2019, "Megatron-LM", section 3): each branch is divided over the t
/// processes like the slices of neuron construction. Its output is summed by an all-reduce in the forward
/// pass, the gradient of its input by one in the backward pass; in a transformer four a block, of b s h
/// elements. A ring all-reduce sends 2 (t - 1) / t of them from each process (Narayanan et al. 2021,
/// "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM", section 3.2). Layers
/// outside of the branches are not divided.
///
/// Pipeline parallelism (the same section): a process has consecutive blocks. It sends the residual stream to
/// the next one in the forward pass, and its gradient to the one before in the backward pass. Blocks are
/// divided as evenly as their number allows.
///
/// Nothing is computed again: checkpointing would repeat tensor parallelism's all-reduces of the forward
/// pass.
ModelParallelTraffic model_parallel_traffic(const ModelLayout& layout, Precision precision,
                                            int64_t global_batch_size, int processes);

}  // namespace sdp
