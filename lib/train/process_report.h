#pragma once

// What each process tells the others of the steps since the last line of the metrics.

#include <array>
#include <vector>

#include "comm/communicator.h"
#include "memory/allocations.h"
#include "telemetry/metrics.h"

namespace sdp {

/// Sums over the interval's steps, not averages.
struct ProcessReport {
  double save_due = 0;  ///< 1: checkpoint.every_minutes have passed; rank 0's counts
  double peak_process_memory_bytes = 0;
  double data_wait_ms = 0;
  double skipped_samples = 0;
  double busy_ms = 0;  ///< time without waiting for exchanges and data
  double reduce_bytes = 0, reduce_ms = 0, reduce_wait_ms = 0;
  double publish_bytes = 0, publish_ms = 0, publish_wait_ms = 0;
  std::array<double, kMemoryKinds.size()> peak_tensor_bytes = {};  ///< by MemoryKind, when most stood

  template <class Visitor>
  void visit(Visitor visitor) {
    for (double* value :
         {&save_due, &peak_process_memory_bytes, &data_wait_ms, &skipped_samples, &busy_ms, &reduce_bytes,
          &reduce_ms, &reduce_wait_ms, &publish_bytes, &publish_ms, &publish_wait_ms})
      visitor(*value);
    for (double& value : peak_tensor_bytes)
      visitor(value);
  }
};

/// Every process's report and its losses, [k] of fp64 on the communicator's device, in order of rank.
/// Collective.
struct GatheredReports {
  std::vector<ProcessReport> processes;
  std::vector<double> losses;
};
GatheredReports gather(Communicator& comm, ProcessReport mine, const at::Tensor& losses);

/// Fills what the record says of all processes, from reports over `steps` steps.
void add_reports(TrainRecord& record, const std::vector<ProcessReport>& processes, int64_t steps);

}  // namespace sdp
