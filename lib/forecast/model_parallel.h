#pragma once

// What tensor and pipeline parallelism would send: activations, which subnetworks never do. By the usual
// formulas; neither is a setting of the engine.

#include <cstdint>

#include "subnet/element_type.h"
#include "subnet/layout.h"

namespace sdp {

/// Of a step with the same global batch, all of whose samples pass through every process.
struct ModelParallelTraffic {
  struct Tensor {
    int processes = 1;       ///< t
    int64_t bytes_sent = 0;  ///< by each process

    template <class Visitor>
    static void fields(Visitor& field) {
      field("processes", &Tensor::processes);
      field("bytes_sent_per_step", &Tensor::bytes_sent);
    }
  };
  struct Pipeline {
    int stages = 1;          ///< a process each; no more than the model has blocks
    int64_t bytes_sent = 0;  ///< by the process that sends the most

    template <class Visitor>
    static void fields(Visitor& field) {
      field("stages", &Pipeline::stages);
      field("bytes_sent_per_step", &Pipeline::bytes_sent);
    }
  };
  int64_t global_batch_size = 0;  ///< samples
  Tensor tensor;
  Pipeline pipeline;

  template <class Visitor>
  static void fields(Visitor& field) {
    field("global_batch_size", &ModelParallelTraffic::global_batch_size);
    field("tensor", &ModelParallelTraffic::tensor);
    field("pipeline", &ModelParallelTraffic::pipeline);
  }
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
