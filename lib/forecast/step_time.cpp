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

}  // namespace

double StepSeconds::waiting_s() const {
  return std::max(0.0, exchange_forward_s - alongside.forward_s) +
         std::max(0.0, exchange_backward_s - alongside.backward_s) + exchange_after_s;
}

double updated_and_copied_bytes(const Schedule& schedule, const Cost& cost) {
  const auto gradients_sent = static_cast<double>(cost.reduce_bytes_per_step);
  const auto values_sent = static_cast<double>(cost.gather_bytes_per_step);
  const auto share = static_cast<double>(cost.averaged_gradient_bytes);
  const double updated = 2 * static_cast<double>(cost.optimizer_bytes) + 2 * share;
  const double copied =
      4 * gradients_sent + 5 * values_sent + 8 * share - static_cast<double>(cost.spared_bytes);
  const double added =
      3 * static_cast<double>(cost.accumulation_bytes) * static_cast<double>(micro_batches(schedule));
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
  step.update_s = updated_and_copied_bytes(schedule, cost) / device.memory_bytes_per_s +
                  update_launches(plan, schedule, process, device.is_gpu) * device.launch_s;
  return step;
}

}  // namespace sdp
