#include "forecast/model_parallel.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "subnet/element_type.h"

namespace sdp {
namespace {

/// By block: elements per sample of the residual stream at the block's input.
std::vector<int64_t> block_inputs(const ModelLayout& layout) {
  std::vector<int64_t> inputs;
  int latest = -1;
  for (const BranchLayout& branch : layout.branches) {
    if (branch.block != latest) inputs.push_back(branch.stream.input);
    latest = branch.block;
  }
  return inputs;
}

/// Elements per sample that a stage sends forward and backward, for the stage that sends the most.
int64_t most_at_a_stage(const std::vector<int64_t>& inputs, int stages) {
  // Elements that a stage receives; nothing is sent into the first stage or out of the last one.
  const auto received = [&](int stage) {
    const size_t first_block = static_cast<size_t>(stage) * inputs.size() / static_cast<size_t>(stages);
    return stage > 0 && stage < stages ? inputs[first_block] : 0;
  };
  int64_t most = 0;
  for (int stage = 0; stage < stages; ++stage)
    most = std::max(most, received(stage) + received(stage + 1));
  return most;
}

}  // namespace

ModelParallelTraffic model_parallel_traffic(const ModelLayout& layout, Precision precision,
                                            int64_t global_batch_size, int processes) {
  const int64_t bytes =
      global_batch_size * bytes_of(compute_type(precision));  // of one element in every sample
  int64_t reduced = 0;
  for (const BranchLayout& branch : layout.branches)
    reduced += branch.stream.output + branch.stream.input;
  const double t = processes;
  const std::vector<int64_t> inputs = block_inputs(layout);
  const int stages = std::max(1, std::min(processes, static_cast<int>(inputs.size())));
  return {.global_batch_size = global_batch_size,
          .tensor = {.processes = processes,
                     .bytes_sent = std::llround(2 * (t - 1) / t * static_cast<double>(reduced * bytes))},
          .pipeline = {.stages = stages, .bytes_sent = most_at_a_stage(inputs, stages) * bytes}};
}

}  // namespace sdp
