#include "subnet/exchange_order.h"

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

ExchangeOrder::ExchangeOrder(const BucketIndex& index) : index_(&index), next_reduced_(buckets() - 1) {}

void ExchangeOrder::begin_backward(const std::vector<int>& parameters, bool last) {
  is_last_ = last;
  has_come_.assign(index_->buckets_of.size(), 0);
  missing_.assign(index_->parameters_of.size(), 0);
  for (int parameter : parameters)
    for (int bucket : index_->buckets_of[parameter])
      ++missing_[bucket];
}

ExchangeEvents ExchangeOrder::gradient_came(int parameter) {
  for (int bucket : index_->buckets_of[parameter])
    if (is_last_ && bucket > next_reduced_)
      throw std::logic_error("a gradient became ready after its bucket was reduced");
  if (!std::exchange(has_come_[parameter], 1))
    for (int bucket : index_->buckets_of[parameter])
      --missing_[bucket];
  ExchangeEvents events;
  while (is_last_ && next_reduced_ >= 0 && missing_[next_reduced_] == 0)
    begin(events, reducing_, ExchangeKind::kReduceGradients, next_reduced_--);
  return events;
}

ExchangeEvents ExchangeOrder::finish_reducing() {
  if (has_come_.empty()) throw std::logic_error("finish_reducing without a backward pass");
  ExchangeEvents events;
  while (next_reduced_ >= 0)
    begin(events, reducing_, ExchangeKind::kReduceGradients, next_reduced_--);
  while (!reducing_.empty())
    end_oldest(events, reducing_, ExchangeKind::kReduceGradients);
  has_come_.clear();
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
