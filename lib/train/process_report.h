#pragma once

// What each process reports to the others about the steps since the last line of the metrics.

#include <type_traits>
#include <vector>

#include "comm/communicator.h"
#include "telemetry/records.h"

namespace sdp {

/// Sent as raw bytes, so that a new member needs no serialization code: every member is 8 bytes wide.
struct ProcessReport {
  int64_t save_is_due = 0;  ///< 1: checkpoint.every_minutes have passed; only rank 0's value is used
  // Exchange times, summed over the interval.
  double in_flight_ms = 0;
  double waited_ms = 0;
  // Also summed over the interval: correctly classified images, and images counted.
  int64_t correct = 0;
  int64_t counted = 0;
  // Averages per step.
  ProcessRecord of_process = {};
  ExchangeRecord exchange = {};
  TimeRecord times = {};
  MemoryRecord memory = {};
};
static_assert(std::is_trivially_copyable_v<ProcessReport> && sizeof(ProcessReport) % sizeof(double) == 0);

/// Reports and losses of all processes in rank order. `losses`: [k] fp64 on the communicator's device.
/// Collective.
struct GatheredReports {
  std::vector<ProcessReport> processes;
  std::vector<double> losses;
};
GatheredReports gather(Communicator& comm, const ProcessReport& mine, const at::Tensor& losses);

/// Sets the fields of the record that combine all processes.
void add_reports(TrainRecord& record, const std::vector<ProcessReport>& processes);

}  // namespace sdp
