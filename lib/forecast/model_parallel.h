#pragma once

// The traffic of tensor and pipeline parallelism, by the usual formulas; the engine implements neither. They
// send activations, which subnetworks never do.

#include <cstdint>

#include "subnet/element_type.h"
#include "subnet/layout.h"

namespace sdp {

/// Traffic of a step with the same global batch, all of whose samples pass through every process.
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
    int stages = 1;          ///< one process each; at most the number of blocks
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

/// Tensor parallelism (Shoeybi et al. 2019, "Megatron-LM", section 3): each branch is divided among the t
/// processes like the slices of neuron construction. An all-reduce sums the branch's output in the forward
/// pass, and another one the gradient of its input in the backward pass. In a transformer this makes four
/// all-reduces per block, of b s h elements each. In a ring all-reduce each process sends 2 (t - 1) / t of
/// these elements (Narayanan et al. 2021, "Efficient Large-Scale Language Model Training on GPU Clusters
/// Using Megatron-LM", section 3.2). Layers outside the branches are not divided.
///
/// Pipeline parallelism (the same section): each process has consecutive blocks. It sends the residual stream
/// to the next process in the forward pass, and the gradient of its input to the previous one in the backward
/// pass. Blocks are divided as evenly as their number allows.
///
/// Without activation checkpointing, which would repeat tensor parallelism's all-reduces of the forward pass.
ModelParallelTraffic model_parallel_traffic(const ModelLayout& layout, Precision precision,
                                            int64_t global_batch_size, int processes);

}  // namespace sdp
