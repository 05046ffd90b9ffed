#pragma once

// What each process tells the others of the steps since the last line of the metrics.

#include <type_traits>
#include <vector>

#include "comm/communicator.h"
#include "telemetry/records.h"

namespace sdp {

/// Travels as its bytes, so that a new member needs no more than its value: members are numbers of 8 bytes.
struct ProcessReport {
  int64_t save_is_due = 0;  ///< 1: checkpoint.every_minutes have passed; rank 0's counts
  // Of exchanges, over the interval.
  double in_flight_ms = 0;
  double waited_ms = 0;
  // Over the interval, too: images in the class of their label, of those that were counted.
  int64_t correct = 0;
  int64_t counted = 0;
  // Of a step.
  ProcessRecord of_process = {};
  ExchangeRecord exchange = {};
  TimeRecord times = {};
  MemoryRecord memory = {};
};
static_assert(std::is_trivially_copyable_v<ProcessReport> && sizeof(ProcessReport) % sizeof(double) == 0);

/// Every process's report and its losses, [k] of fp64 on the communicator's device, in order of rank.
/// Collective.
struct GatheredReports {
  std::vector<ProcessReport> processes;
  std::vector<double> losses;
};
GatheredReports gather(Communicator& comm, const ProcessReport& mine, const at::Tensor& losses);

/// Fills what the record says of all processes.
void add_reports(TrainRecord& record, const std::vector<ProcessReport>& processes);

}  // namespace sdp
