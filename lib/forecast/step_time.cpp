#include "forecast/step_time.h"

#include <algorithm>

#include "subnet/exchange.h"
#include "subnet/storage.h"

namespace sdp {
namespace {

/// A bucket is packed, sent, summed, divided, updated, packed, sent and unpacked, with one launch each.
constexpr double kLaunchesPerBucket = 8;
/// Where pieces are copied separately, each is copied four times (into its gradient's place, packed,
/// published, unpacked), and each time one copy and three tensor views are dispatched.
constexpr double kLaunchesPerPiece = 16;

/// Where other pieces are copied together, a strided one is copied separately into its gradient's place and
/// when it is unpacked.
constexpr double kLaunchesPerStridedPiece = 2;

/// Whether the piece is strided on a process that holds several units of its parameter.
bool is_strided(const SubnetPlan& plan, const Piece& piece) {
  return !is_contiguous(plan.layout.parameters[piece.parameter], /*units=*/2);
}

/// Launches of the update and of the copies around it. Pieces are cut at the boundaries between the holders'
/// shares.
double update_launches(const SubnetPlan& plan, const Schedule& schedule, int process, bool is_gpu) {
  double launches = 0;
  for (const Bucket& bucket : schedule.buckets) {
    launches += kLaunchesPerBucket;
    for (const Segment& segment : bucket.segments) {
      if (!segment.is_held_by(process)) continue;
      if (!is_gpu)
        launches += kLaunchesPerPiece * static_cast<double>(segment.pieces.size() + segment.holders.size());
      else
        launches +=
            kLaunchesPerStridedPiece *
            static_cast<double>(std::count_if(segment.pieces.begin(), segment.pieces.end(),
                                              [&](const Piece& piece) { return is_strided(plan, piece); }));
    }
  }
  return launches;
}

int64_t micro_batches(const Schedule& schedule) {
  return schedule.options.accumulate_steps * schedule.placement.slots_per_process();
}

/// Bytes in the sum type of `elements(bucket)` of every bucket on the process.
template <class Elements>
double sum_type_bytes(const Schedule& schedule, int process, Elements elements) {
  int64_t sum = 0;
  for (int b = 0; b < static_cast<int>(schedule.buckets.size()); ++b)
    sum += elements(elements_on(schedule, b, process));
  return static_cast<double>(sum * bytes_of(sum_type(schedule.options.precision)));
}

/// Bytes of the accumulation buffers of gradients.
double buffer_bytes(const Schedule& schedule, int process) {
  return sum_type_bytes(schedule, process, [](const BucketElements& bucket) { return bucket.held; });
}

/// Bytes of the process's share of averaged gradients, times how often they are not read or written. A share
/// is packed, zeroed, added to and divided; one that begins the sum is not zeroed and added to; alone, it is
/// packed or divided.
double spared_bytes(const Schedule& schedule, int process) {
  return sum_type_bytes(schedule, process, [](const BucketElements& bucket) {
    return bucket.share * ((bucket.begins_sum ? 4 : 0) + (bucket.is_alone ? 2 : 0));
  });
}

}  // namespace

double StepSeconds::waiting_s() const {
  return std::max(0.0, exchange_forward_s - alongside.forward_s) +
         std::max(0.0, exchange_backward_s - alongside.backward_s) + exchange_after_s;
}

double updated_and_copied_bytes(const Schedule& schedule, const Cost& cost, int process) {
  const auto gradients_sent = static_cast<double>(cost.reduce_bytes_per_step);
  const auto values_sent = static_cast<double>(cost.gather_bytes_per_step);
  const auto share = static_cast<double>(cost.averaged_gradient_bytes);
  const double updated = 2 * static_cast<double>(cost.optimizer_bytes) + 2 * share;
  const double copied = 4 * gradients_sent + 5 * values_sent + 8 * share - spared_bytes(schedule, process);
  const double added = schedule.accumulates() ? 3 * buffer_bytes(schedule, process) *
                                                    static_cast<double>(micro_batches(schedule))
                                              : 0;
  return updated + copied + added;
}

StepSeconds step_seconds(const SubnetPlan& plan, const Schedule& schedule, const TrainSpec& train,
                         const Cost& cost, int process, ComputeTimes& times, const DeviceProfile& device) {
  StepSeconds step;
  const auto repeats = static_cast<double>(schedule.options.accumulate_steps);
  const std::vector<Slot> slots = schedule.placement.slots_of(process);
  for (size_t s = 0; s < slots.size(); ++s) {
    const ComputeTime once = times.of(slots[s].worker, train.batch_size_per_worker);
    step.compute += {.forward_s = repeats * once.forward_s, .backward_s = repeats * once.backward_s};
    if (s == 0) step.alongside.forward_s = once.forward_s;
    if (s + 1 == slots.size() && schedule.options.release_gradients)
      step.alongside.backward_s = static_cast<double>(schedule.reductions_per_step()) * once.backward_s;
  }
  step.update_s = updated_and_copied_bytes(schedule, cost, process) / device.memory_bytes_per_s +
                  update_launches(plan, schedule, process, device.is_gpu) * device.launch_s;
  return step;
}

}  // namespace sdp
