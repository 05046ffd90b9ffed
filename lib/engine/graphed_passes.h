#pragma once

// The forward and backward passes of a step as a CUDA graph (train.cuda_graph): the host launches a step at
// once, instead of kernel by kernel, which takes longer than the kernels of small models.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "data/device_loader.h"
#include "engine/engine.h"

namespace sdp {

/// What the passes of a step compute besides gradients, on the device.
struct PassResult {
  at::Tensor losses;   ///< per slot, averaged over the micro-batches: [local slots], fp64
  at::Tensor correct;  ///< correctly classified images among those counted (layers/loss.h): one int64
  int64_t counted = 0;
};

class GraphedPasses {
 public:
  /// Runs the passes of all batches.
  using Passes = std::function<PassResult(const std::vector<TensorBatch>& batches)>;

  /// The passes must not use random numbers and not exchange anything with other processes. The engine must
  /// outlive it.
  GraphedPasses(Engine& engine, Passes passes);
  ~GraphedPasses();

  /// Runs the passes and sums their gradients (Engine::sum_gradients): as they are in the first steps, and
  /// for batches of other shapes than the graph's (damaged images were left out), otherwise as a graph. All
  /// values must have been awaited. The batches must be on the GPU, and none is mixed.
  PassResult run(const std::vector<TensorBatch>& batches);

 private:
  struct Graph;

  void capture(const std::vector<TensorBatch>& batches);

  Engine& engine_;
  const Passes passes_;
  int64_t runs_ = 0;
  std::unique_ptr<Graph> graph_;
};

}  // namespace sdp
