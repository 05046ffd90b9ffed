#include "report/run_metrics.h"

#include <numeric>

namespace sdp {

std::vector<Scalar> scalars_of(const TrainRecord& record) {
  return {{"train/loss", record.loss},
          {"train/lr", record.lr},
          {"train/epoch", record.epoch},
          {"train/samples_per_s", record.samples_per_s},
          {"train/step_ms", record.step_ms},
          {"train/data_wait_ms", record.data_wait_ms},
          {"train/peak_memory_bytes", static_cast<double>(record.peak_memory_bytes)},
          {"train/bytes_sent", static_cast<double>(record.bytes_sent)},
          {"train/overlap", record.overlap}};
}

std::vector<Scalar> scalars_of(const EvalRecord& record) {
  std::vector<Scalar> scalars = {{"eval/accuracy", record.accuracy}, {"eval/loss", record.loss}};
  if (record.accuracy_uncorrected)
    scalars.push_back({"eval/accuracy_uncorrected", *record.accuracy_uncorrected});
  if (record.loss_uncorrected) scalars.push_back({"eval/loss_uncorrected", *record.loss_uncorrected});
  const std::vector<double>& subnetworks = record.subnetwork_accuracy;
  if (!subnetworks.empty())
    scalars.push_back(
        {"eval/subnetwork_accuracy", std::accumulate(subnetworks.begin(), subnetworks.end(), 0.0) /
                                         static_cast<double>(subnetworks.size())});
  return scalars;
}

}  // namespace sdp
