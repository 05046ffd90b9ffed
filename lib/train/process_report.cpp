#include "train/process_report.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace sdp {
namespace {

template <class T>
std::vector<T> a_step(const std::vector<ProcessReport>& processes, double ProcessReport::*sum,
                      int64_t steps) {
  std::vector<T> result;
  for (const ProcessReport& process : processes)
    result.push_back(static_cast<T>(process.*sum / static_cast<double>(steps)));
  return result;
}

std::vector<int64_t> bytes_of(const std::vector<ProcessReport>& processes, MemoryKind kind) {
  std::vector<int64_t> bytes;
  for (const ProcessReport& process : processes)
    bytes.push_back(static_cast<int64_t>(process.peak_tensor_bytes[static_cast<size_t>(kind)]));
  return bytes;
}

}  // namespace

GatheredReports gather(Communicator& comm, ProcessReport mine, const at::Tensor& losses) {
  std::vector<double> values;
  mine.visit([&](double value) { values.push_back(value); });
  const at::Tensor own = at::cat({losses, at::tensor(values, losses.options())});
  const at::Tensor all = at::empty({comm.size() * own.numel()}, own.options());
  comm.all_gather(all, own);
  const at::Tensor host = comm.to_host(all).view({comm.size(), own.numel()});
  GatheredReports gathered;
  for (int rank = 0; rank < comm.size(); ++rank) {
    const double* next = host[rank].const_data_ptr<double>();
    gathered.losses.insert(gathered.losses.end(), next, next + losses.numel());
    next += losses.numel();
    gathered.processes.emplace_back().visit([&](double& value) { value = *next++; });
  }
  return gathered;
}

void add_reports(TrainRecord& record, const std::vector<ProcessReport>& processes, int64_t steps) {
  double in_flight_ms = 0;
  double waited_ms = 0;
  for (const ProcessReport& process : processes) {
    record.data_wait_ms = std::max(record.data_wait_ms, process.data_wait_ms / static_cast<double>(steps));
    record.skipped_samples += static_cast<int64_t>(process.skipped_samples);
    record.peak_process_memory_bytes =
        std::max(record.peak_process_memory_bytes, static_cast<int64_t>(process.peak_process_memory_bytes));
    record.peak_tensor_memory_bytes =
        std::max(record.peak_tensor_memory_bytes,
                 static_cast<int64_t>(std::accumulate(process.peak_tensor_bytes.begin(),
                                                      process.peak_tensor_bytes.end(), 0.0)));
    in_flight_ms += process.reduce_ms + process.publish_ms;
    waited_ms += process.reduce_wait_ms + process.publish_wait_ms;
  }
  record.overlap = in_flight_ms > 0 ? std::max(0.0, 1 - waited_ms / in_flight_ms)
                                    : std::numeric_limits<double>::quiet_NaN();
  const auto slowest =
      std::max_element(processes.begin(), processes.end(),
                       [](const ProcessReport& a, const ProcessReport& b) { return a.busy_ms < b.busy_ms; });
  record.slowest_rank = slowest - processes.begin();
  record.memory = {.activations_bytes = bytes_of(processes, MemoryKind::kActivations),
                   .weights_bytes = bytes_of(processes, MemoryKind::kWeights),
                   .gradients_bytes = bytes_of(processes, MemoryKind::kGradients),
                   .optimizer_bytes = bytes_of(processes, MemoryKind::kOptimizer),
                   .buckets_bytes = bytes_of(processes, MemoryKind::kBuckets)};
  record.exchange = {.reduce_bytes = a_step<int64_t>(processes, &ProcessReport::reduce_bytes, steps),
                     .publish_bytes = a_step<int64_t>(processes, &ProcessReport::publish_bytes, steps),
                     .reduce_ms = a_step<double>(processes, &ProcessReport::reduce_ms, steps),
                     .publish_ms = a_step<double>(processes, &ProcessReport::publish_ms, steps),
                     .reduce_wait_ms = a_step<double>(processes, &ProcessReport::reduce_wait_ms, steps),
                     .publish_wait_ms = a_step<double>(processes, &ProcessReport::publish_wait_ms, steps),
                     .busy_ms = a_step<double>(processes, &ProcessReport::busy_ms, steps)};
  record.bytes_sent = record.exchange.reduce_bytes.front() + record.exchange.publish_bytes.front();
}

}  // namespace sdp
