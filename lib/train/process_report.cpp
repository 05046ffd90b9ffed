#include "train/process_report.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <limits>

namespace sdp {
namespace {

using Words = std::array<int64_t, sizeof(ProcessReport) / sizeof(int64_t)>;

}  // namespace

GatheredReports gather(Communicator& comm, const ProcessReport& mine, const at::Tensor& losses) {
  const auto words = std::bit_cast<Words>(mine);
  // As integers, whose bits no copy changes.
  const at::Tensor own =
      at::cat({losses.view(at::kLong), at::tensor(words, losses.options().dtype(at::kLong))});
  const at::Tensor all = at::empty({comm.size() * own.numel()}, own.options());
  comm.all_gather(all, own);
  const at::Tensor host = comm.to_host(all).view({comm.size(), own.numel()});
  GatheredReports gathered;
  for (int rank = 0; rank < comm.size(); ++rank) {
    const double* const first = host[rank].view(at::kDouble).const_data_ptr<double>();
    gathered.losses.insert(gathered.losses.end(), first, first + losses.numel());
    Words of_rank;
    std::copy_n(host[rank].const_data_ptr<int64_t>() + losses.numel(), of_rank.size(), of_rank.begin());
    gathered.processes.push_back(std::bit_cast<ProcessReport>(of_rank));
  }
  return gathered;
}

void add_reports(TrainRecord& record, const std::vector<ProcessReport>& processes) {
  double in_flight_ms = 0;
  double waited_ms = 0;
  int64_t correct = 0;
  int64_t counted = 0;
  for (const ProcessReport& process : processes) {
    record.processes.add(process.of_process);
    in_flight_ms += process.in_flight_ms;
    waited_ms += process.waited_ms;
    record.exchange.ranks.push_back(process.exchange);
    record.times.ranks.push_back(process.times);
    record.memory.ranks.push_back(process.memory);
    correct += process.correct;
    counted += process.counted;
  }
  if (counted > 0) record.accuracy = static_cast<double>(correct) / static_cast<double>(counted);
  record.overlap = in_flight_ms > 0 ? std::max(0.0, 1 - waited_ms / in_flight_ms)
                                    : std::numeric_limits<double>::quiet_NaN();
  const auto slowest = std::max_element(
      processes.begin(), processes.end(),
      [](const ProcessReport& a, const ProcessReport& b) { return a.exchange.busy_ms < b.exchange.busy_ms; });
  record.slowest_rank = slowest - processes.begin();
  const ExchangeRecord& of_rank_0 = processes.front().exchange;
  record.bytes_sent = of_rank_0.reduce_bytes + of_rank_0.publish_bytes;
}

}  // namespace sdp
