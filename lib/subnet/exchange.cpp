#include "subnet/exchange.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace sdp {
namespace {

using What = ExchangeEvent::What;

void end_oldest(ExchangeEvents& events, std::deque<int>& in_flight, ExchangeKind kind) {
  events.push_back({What::kEnd, kind, in_flight.front()});
  in_flight.pop_front();
}

/// Begins a bucket's exchange. If kMostInFlight exchanges are in flight, ends the oldest one first.
void begin(ExchangeEvents& events, std::deque<int>& in_flight, ExchangeKind kind, int bucket) {
  if (in_flight.size() == kMostInFlight) end_oldest(events, in_flight, kind);
  events.push_back({What::kBegin, kind, bucket});
  in_flight.push_back(bucket);
}

}  // namespace

Exchange::Exchange(const ExchangePlan& exchanges, int bucket, ExchangeKind kind)
    : bucket_(exchanges.buckets[static_cast<size_t>(bucket)]),
      kind_(kind),
      shard_(exchanges.options.shard),
      times_per_step_(kind == ExchangeKind::kReduceGradients ? exchanges.reductions_per_step() : 1),
      type_(kind == ExchangeKind::kGatherValues ? bucket_.type : exchanges.wire_type(bucket_)) {}

Peers Exchange::peers(const Segment& segment) const {
  if (segment.holders.empty()) return {};  // frozen, in the plan of a single worker
  switch (kind_) {
    case ExchangeKind::kReduceGradients:
      return {.among = &segment.holders};
    case ExchangeKind::kGatherGradients:
      if (shard_) return {};
      return {.among = &segment.holders};
    case ExchangeKind::kGatherValues:
      // Without `shard`, every holder has computed the new values itself.
      if (shard_) return {.among = &segment.readers};
      return {.among = &segment.readers, .besides = &segment.holders};
  }
  return {};
}

bool Exchange::has_peers() const {
  return std::any_of(bucket_.segments.begin(), bucket_.segments.end(), [&](const Segment& segment) {
    const Peers all = peers(segment);
    // A single holder does not exchange its shard with itself.
    const bool is_own_peer = segment.holders.size() == 1 && all.contains(*segment.holders.begin());
    return all.size() > (is_own_peer ? 1 : 0);
  });
}

Volume Exchange::volume(const Segment& segment, int process, int64_t shard) const {
  const Peers all = peers(segment);
  const bool is_peer = all.contains(process);
  const int64_t of_own_shard = shard * (all.size() - (is_peer ? 1 : 0));
  const int64_t of_others = is_peer ? segment.elements - shard : 0;
  return is_reduction() ? Volume{.sent = of_others, .received = of_own_shard}
                        : Volume{.sent = of_own_shard, .received = of_others};
}

BucketElements elements_on(const ExchangePlan& exchanges, int bucket, int process) {
  BucketElements elements;
  std::array<Exchange, kExchangeKinds.size()> of_kind = {Exchange(exchanges, bucket, kExchangeKinds[0]),
                                                         Exchange(exchanges, bucket, kExchangeKinds[1]),
                                                         Exchange(exchanges, bucket, kExchangeKinds[2])};
  for (const Segment& segment : exchanges.buckets[static_cast<size_t>(bucket)].segments) {
    if (!segment.is_read_by(process)) continue;  // holders are readers
    const bool is_held = segment.is_held_by(process);
    const int64_t shard = is_held ? segment.shard_elements(process) : 0;
    elements.read += segment.elements;
    elements.held += is_held ? segment.elements : 0;
    elements.shard += shard;
    for (size_t kind = 0; kind < of_kind.size(); ++kind) {
      const Volume volume = of_kind[kind].volume(segment, process, shard);
      elements.exchanged[kind].sent += volume.sent;
      elements.exchanged[kind].received += volume.received;
    }
  }
  elements.is_alone = !of_kind[0].has_peers();
  elements.begins_sum = elements.is_alone || process < 2;
  elements.has_one_summand =
      elements.is_alone && exchanges.slot_map.slots_per_process() * exchanges.options.accumulate_steps == 1;
  elements.updated = exchanges.options.shard ? elements.shard : elements.held;
  return elements;
}

ExchangeOrder::ExchangeOrder(const BucketIndex& index) : index_(&index), next_reduced_(buckets() - 1) {}

void ExchangeOrder::begin_backward(const std::vector<int>& parameters, bool last) {
  is_last_ = last;
  is_ready_.assign(index_->buckets_of.size(), 0);
  missing_.assign(index_->parameters_of.size(), 0);
  for (int parameter : parameters)
    for (int bucket : index_->buckets_of[parameter])
      ++missing_[bucket];
}

ExchangeEvents ExchangeOrder::gradient_ready(int parameter) {
  for (int bucket : index_->buckets_of[parameter])
    if (is_last_ && bucket > next_reduced_)
      throw std::logic_error("a gradient became ready after its bucket was reduced");
  if (!std::exchange(is_ready_[parameter], 1))
    for (int bucket : index_->buckets_of[parameter])
      --missing_[bucket];
  ExchangeEvents events;
  while (is_last_ && next_reduced_ >= 0 && missing_[next_reduced_] == 0)
    begin(events, reducing_, ExchangeKind::kReduceGradients, next_reduced_--);
  return events;
}

ExchangeEvents ExchangeOrder::finish_reducing() {
  if (is_ready_.empty()) throw std::logic_error("finish_reducing without a backward pass");
  ExchangeEvents events;
  while (next_reduced_ >= 0)
    begin(events, reducing_, ExchangeKind::kReduceGradients, next_reduced_--);
  while (!reducing_.empty())
    end_oldest(events, reducing_, ExchangeKind::kReduceGradients);
  is_ready_.clear();
  next_reduced_ = buckets() - 1;
  return events;
}

ExchangeEvents ExchangeOrder::gather_gradients() const {
  ExchangeEvents events;
  std::deque<int> in_flight;
  for (int b = 0; b < buckets(); ++b)
    begin(events, in_flight, ExchangeKind::kGatherGradients, b);
  while (!in_flight.empty())
    end_oldest(events, in_flight, ExchangeKind::kGatherGradients);
  return events;
}

ExchangeEvents ExchangeOrder::begin_gathering() {
  next_gathered_ = 0;
  ExchangeEvents events;
  fill_gathering(events);
  return events;
}

ExchangeEvents ExchangeOrder::reach(int branch) {
  ExchangeEvents events;
  while (!gathering_.empty() && index_->parameters_of[gathering_.front()].needed_before <= branch) {
    end_oldest(events, gathering_, ExchangeKind::kGatherValues);
    fill_gathering(events);
  }
  return events;
}

void ExchangeOrder::fill_gathering(ExchangeEvents& events) {
  while (next_gathered_ < buckets() && gathering_.size() < kMostInFlight)
    begin(events, gathering_, ExchangeKind::kGatherValues, next_gathered_++);
}

}  // namespace sdp
