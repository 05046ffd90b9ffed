#include "checkpoint/resharding.h"

#include <algorithm>

#include "subnet/exchange.h"

namespace sdp {

ReshardingTraffic resharding_traffic(const CheckpointReader& reader, const ExperimentSpec& saved,
                                     const Experiment& experiment) {
  const Schedule& schedule = experiment.schedule;
  const std::vector<std::string> names = experiment.spec.optimizer.state_names();
  ReshardingTraffic traffic;
  const auto add_share = [&](const std::string& kind, int unit, const PieceRange& piece, int process) {
    const StateRange range{.kind = kind,
                           .parameter = piece.parameter,
                           .unit = unit,
                           .begin = piece.begin,
                           .end = piece.end,
                           .values = {}};
    reader.for_each_source(experiment.plan, range, [&](int source, int64_t bytes) {
      traffic.state_bytes += bytes;
      if (source != process) traffic.moved_bytes += bytes;
    });
  };
  for (int process = 0; process < schedule.placement.processes; ++process) {
    int64_t read_elements = 0;
    for (int b = 0; b < static_cast<int>(schedule.buckets.size()); ++b) {
      const Bucket& bucket = schedule.buckets[static_cast<size_t>(b)];
      const BucketElements elements = elements_on(schedule, b, process);
      const bool has_master = has_master_values(bucket.type, schedule.options.precision);
      read_elements +=
          elements.read + elements.updated * (static_cast<int64_t>(names.size()) + (has_master ? 1 : 0));
      for (const Segment& segment : bucket.segments) {
        for (const PieceRange& piece :
             piece_ranges(segment, segment.share_begin(process), segment.share_elements(process))) {
          add_share(kValueKind, segment.unit, piece, process);
          for (const std::string& name : names)
            add_share(name, segment.unit, piece, process);
        }
      }
    }
    const int64_t read_bytes = read_elements * bytes_of(sum_type(saved.train.precision));
    traffic.read_bytes += read_bytes;
    traffic.most_read_bytes = std::max(traffic.most_read_bytes, read_bytes);
  }
  return traffic;
}

}  // namespace sdp
