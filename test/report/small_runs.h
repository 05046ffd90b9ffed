#pragma once

// Runs that were never trained: the tests choose their values.

#include "report/run.h"

namespace sdp {

/// Four workers of 100, 200, 300 and 400 FLOPs per sample on two processes; 8 samples per step and worker.
inline Run small_run(int64_t seed = 0, int64_t owners = 2) {
  Run run;
  run.dir = "runs/small";
  run.spec.name = "small";
  run.spec.seed = seed;
  run.spec.subnetwork.workers = 4;
  run.spec.subnetwork.coverage.text = std::to_string(owners) + "/4";
  run.spec.train.batch_size_per_worker = 4;
  run.spec.train.accumulate_steps = 2;
  run.spec.train.reduce_every = ReduceEvery::kMicroBatch;
  run.spec.train.max_steps = 30;
  run.plan.workers = 4;
  run.plan.owners_per_unit = static_cast<int>(owners);
  run.plan.processes = 2;
  run.plan.flops_share = 0.5;
  for (const auto& [flops, parameters] : {std::pair{100, 10}, {200, 40}, {300, 20}, {400, 30}}) {
    ProcessFigures& worker = run.plan.per_worker.emplace_back();
    worker.flops_per_sample = flops;
    worker.parameters = parameters;
  }
  return run;
}

inline TrainRecord train_record(int64_t step, double loss, double step_ms) {
  TrainRecord record;
  record.step = step;
  record.epoch = 0.05 * static_cast<double>(step);
  record.loss = loss;
  record.samples_per_s = 32e3 / step_ms;
  record.flops_per_s = 8e6 / step_ms;
  record.step_ms = step_ms;
  record.processes.peak_process_memory_bytes = 1 << 20;
  record.exchange.ranks = {{.reduce_bytes = 100, .publish_bytes = 20, .reduce_wait_ms = step_ms / 10},
                           {.reduce_bytes = 300, .publish_bytes = 60, .publish_wait_ms = step_ms / 5}};
  record.times.ranks = {
      {.forward_ms = step_ms / 4, .backward_ms = step_ms / 2, .optimizer_ms = step_ms / 20},
      {.forward_ms = step_ms / 8, .backward_ms = step_ms / 4, .optimizer_ms = step_ms / 40}};
  record.processes.data_wait_ms = step_ms / 10;
  record.memory.ranks = {
      {{.weights = 100, .gradients = 10, .optimizer = 5, .activations = 1000, .buckets = 1}},
      {{.weights = 300, .gradients = 20, .optimizer = 5, .activations = 900, .buckets = 2}}};
  return record;
}

/// Completes the run at its current step.
inline void finish(Run& run) {
  run.end = RunSummary{.step = run.step(), .total_steps = run.step(), .device = "CPU", .version = "1"};
}

}  // namespace sdp
