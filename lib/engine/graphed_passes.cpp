#include "engine/graphed_passes.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#ifdef USE_C10D_NCCL
#include <ATen/cuda/CUDAGraph.h>
#include <c10/core/Event.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "engine/device.h"

namespace sdp {
namespace {

/// In the first passes, libraries choose their kernels and allocate their workspaces.
constexpr int64_t kRunsBefore = 3;

/// Work in `stream` that is begun from here on begins after the work in `other`.
void wait_for(const c10::Stream& stream, const c10::Stream& other) {
  c10::Event event(c10::DeviceType::CUDA, c10::EventFlag::PYTORCH_DEFAULT);
  event.record(other);
  event.block(stream);
}

bool have_same_shapes(const std::vector<TensorBatch>& a, const std::vector<TensorBatch>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const TensorBatch& x, const TensorBatch& y) {
    return x.input.sizes() == y.input.sizes() && x.labels.sizes() == y.labels.sizes();
  });
}

std::vector<TensorBatch> copies_of(const std::vector<TensorBatch>& batches) {
  std::vector<TensorBatch> copies;
  for (const TensorBatch& batch : batches)
    copies.push_back({.input = batch.input.clone(), .labels = batch.labels.clone()});
  return copies;
}

}  // namespace

struct GraphedPasses::Graph {
  explicit Graph(at::Device device)
      : stream(c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device.index())) {}

  c10::cuda::CUDAStream
      stream;  ///< of all passes, also before the capture: the default stream cannot be captured
  at::cuda::CUDAGraph graph;
  bool is_captured = false;
  // What the graph reads and writes, at the addresses of the capture.
  std::vector<TensorBatch> batches;
  PassResult result;
  Engine::Sums sums;
};

GraphedPasses::GraphedPasses(Engine& engine, Passes passes)
    : engine_(engine), passes_(std::move(passes)), graph_(std::make_unique<Graph>(engine.device())) {
  const c10::cuda::CUDAStreamGuard guard(graph_->stream);
  allocate_library_workspace(engine.device());  // of this stream
}

GraphedPasses::~GraphedPasses() = default;

void GraphedPasses::capture(const std::vector<TensorBatch>& batches) {
  graph_->batches = copies_of(batches);
  c10::cuda::device_synchronize();
  // Relaxed: other threads may allocate meanwhile.
  graph_->graph.capture_begin({0, 0}, cudaStreamCaptureModeRelaxed);
  graph_->result = passes_(graph_->batches);
  engine_.sum_gradients();
  graph_->graph.capture_end();
  graph_->sums = engine_.take_sums();
  graph_->is_captured = true;
}

PassResult GraphedPasses::run(const std::vector<TensorBatch>& batches) {
  const c10::cuda::CUDAStream outer = c10::cuda::getCurrentCUDAStream(engine_.device().index());
  const c10::cuda::CUDAStreamGuard guard(graph_->stream);
  wait_for(graph_->stream.unwrap(), outer.unwrap());
  PassResult result;
  const bool fits = !graph_->is_captured || have_same_shapes(batches, graph_->batches);
  if (++runs_ <= kRunsBefore || !fits) {
    result = passes_(batches);
    engine_.sum_gradients();
  } else {
    if (!graph_->is_captured) capture(batches);
    for (size_t i = 0; i < batches.size(); ++i) {
      graph_->batches[i].input.copy_(batches[i].input, /*non_blocking=*/true);
      graph_->batches[i].labels.copy_(batches[i].labels, /*non_blocking=*/true);
    }
    graph_->graph.replay();
    result = {.losses = graph_->result.losses.clone(),
              .correct = graph_->result.correct.clone(),
              .counted = graph_->result.counted};
    engine_.set_sums(graph_->sums);
  }
  wait_for(outer.unwrap(), graph_->stream.unwrap());
  return result;
}

}  // namespace sdp

#else

namespace sdp {

struct GraphedPasses::Graph {};

GraphedPasses::GraphedPasses(Engine& engine, Passes passes) : engine_(engine), passes_(std::move(passes)) {
  throw std::logic_error("a CUDA graph in a program without CUDA");
}

GraphedPasses::~GraphedPasses() = default;

PassResult GraphedPasses::run(const std::vector<TensorBatch>& batches) {
  return passes_(batches);
}

}  // namespace sdp

#endif
