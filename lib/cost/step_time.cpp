#include "cost/step_time.h"

#include <cmath>
#include <vector>

#include "subnet/exchange.h"
#include "subnet/storage.h"

namespace sdp {
namespace {

/// Launches of the update and of the copies around it. Slices are cut at the boundaries between the holders'
/// shares.
double update_launches(const SubnetPlan& plan, const ExchangePlan& exchanges, int process, bool is_gpu) {
  // A bucket is packed, sent, summed, divided, updated, packed, sent and unpacked, with one launch each.
  constexpr int64_t kPerBucket = 8;
  // Where slices are copied separately, each is copied four times (into its gradient's place, packed,
  // gathered, unpacked), and each time one copy and three tensor views are dispatched.
  constexpr int64_t kPerSlice = 16;
  // Where other slices are copied together, a strided one is copied separately into its gradient's place and
  // when it is unpacked.
  constexpr int64_t kPerStridedSlice = 2;
  const auto is_strided = [&](const Slice& slice) {  // where a process holds several units of its parameter
    return !is_contiguous(plan.layout.parameters[slice.parameter], /*units=*/2);
  };
  int64_t launches = 0;
  for (const Bucket& bucket : exchanges.buckets) {
    launches += kPerBucket;
    for (const Segment& segment : bucket.segments) {
      if (!segment.is_held_by(process)) continue;
      const std::vector<Slice>& slices = segment.slices;
      launches += is_gpu ? kPerStridedSlice * std::count_if(slices.begin(), slices.end(), is_strided)
                         : kPerSlice * static_cast<int64_t>(slices.size() + segment.holders.size());
    }
  }
  return static_cast<double>(launches);
}

}  // namespace

double product_s(const DeviceProfile& device, double m, double k, double n, double count) {
  const auto side = static_cast<double>(device.tile_side);
  const double rows = std::ceil(m / side);
  const double columns = std::ceil(n / side);
  // Below about a thousand terms, dividing the sum does not pay off.
  constexpr double kFewestTerms = 1024;
  const double parts = rows * columns * count * std::max(1.0, std::floor(k / kFewestTerms));
  const double busy = std::min(1.0, parts / static_cast<double>(device.tiles_at_once));
  return 2 * rows * side * columns * side * k * count / (device.flops_per_s * busy);
}

double call_s(const DeviceProfile& device, const CapturedCall& call, double samples) {
  double products_s = 0;
  for (const Product& p : call.products)
    products_s += p.computed *
                  product_s(device, p.m.of(samples), p.k.of(samples), p.n.of(samples), p.count.of(samples));
  return device.launch_s + std::max(products_s, call.bytes.of(samples) / device.memory_bytes_per_s);
}

ComputeTime ComputeTimes::of(int worker, int64_t samples) {
  const auto all = static_cast<double>(samples);
  const auto seconds_of = [&](const PassCapture& pass, double at_once) {
    double seconds = 0;
    for (const CapturedCall& call : pass.calls)
      seconds += call_s(device_, call, at_once);
    return seconds;
  };
  const StepCapture capture = captures_.of(worker);
  ComputeTime time;
  for (const PlacedLayerGroup& layer_group : capture.layer_groups) {
    const auto [found, is_new] = of_layer_group_.try_emplace({layer_group.capture, samples});
    if (is_new) {
      // A language model's loss is computed for some rows after others.
      const bool is_loss = &layer_group == &capture.layer_groups.back();
      const double at_once = is_loss ? std::min(all, capture.samples_at_once) : all;
      found->second = {.forward_s = all / at_once * seconds_of(layer_group->forward, at_once),
                       .backward_s = seconds_of(layer_group->backward, all)};
    }
    time += found->second;
  }
  return time;
}

StepSeconds ComputeTimes::step(const ExchangePlan& exchanges, const Cost& cost, int process,
                               int64_t batch_size) {
  StepSeconds step;
  const auto repeats = static_cast<double>(exchanges.options.accumulate_steps);
  const std::vector<Slot> slots = exchanges.slot_map.slots_of(process);
  for (size_t s = 0; s < slots.size(); ++s) {
    const ComputeTime once = of(slots[s].worker, batch_size);
    step.compute += {.forward_s = repeats * once.forward_s, .backward_s = repeats * once.backward_s};
    if (s == 0) step.alongside.forward_s = once.forward_s;
    if (s + 1 == slots.size() && exchanges.options.release_gradients)
      step.alongside.backward_s = static_cast<double>(exchanges.reductions_per_step()) * once.backward_s;
  }
  step.update_s =
      static_cast<double>(updated_and_copied_bytes(exchanges, cost)) / device_.memory_bytes_per_s +
      update_launches(captures_.plan(), exchanges, process, device_.is_gpu) * device_.launch_s;
  return step;
}

int64_t updated_and_copied_bytes(const ExchangePlan& exchanges, const Cost& cost) {
  const int64_t micro_batches = exchanges.options.accumulate_steps * exchanges.slot_map.slots_per_process();
  const int64_t updated = 2 * cost.optimizer_bytes + 2 * cost.averaged_gradient_bytes;
  const int64_t copied = 4 * cost.reduce_bytes_per_step + 5 * cost.gather_bytes_per_step +
                         8 * cost.averaged_gradient_bytes - cost.spared_bytes;
  return updated + copied + 3 * cost.accumulation_bytes * micro_batches;
}

double ring_s(int64_t bytes_sent_by_each, int64_t passes, const NodeMap& nodes, const DeviceProfile& device) {
  const auto bytes = static_cast<double>(bytes_sent_by_each);
  // The last node has the fewest adapters and limits the ring.
  const auto adapters = static_cast<double>(nodes.processes_in(nodes.nodes() - 1).size());
  const double between_s = nodes.nodes() > 1 ? bytes / (adapters * device.between_bytes_per_s) : 0;
  // With one process per node, nothing is sent within a node.
  const double inside_s = nodes.processes_per_node > 1 ? bytes / device.inside_bytes_per_s : 0;
  const auto steps = static_cast<double>(passes) * static_cast<double>(nodes.node_of.size() - 1);
  return std::max(inside_s, between_s) + steps * device.latency_s.value_or(0);
}

}  // namespace sdp
