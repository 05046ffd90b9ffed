#include "forecast/peak.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <utility>
#include <vector>

namespace sdp {
namespace {

class Walk {
 public:
  Walk(const StepSizes& sizes, const Cost& cost, int process);
  /// After a step with this batch size per worker. The walk itself stays at its start.
  Walk walked(int64_t batch_size) const {
    Walk step = *this;
    step.batch_size_ = static_cast<double>(batch_size);
    step.run();
    return step;
  }
  const PeakBytes& peak() const { return peak_; }
  int64_t most_activations() const { return most_activations_; }

 private:
  void run();
  int64_t reordered_bytes(int parameter) const;
  int64_t of_batch(double bytes_a_sample) const { return std::llround(bytes_a_sample * batch_size_); }

  void forward(const SlotSizes& slot, bool publishing);
  void loss();
  void backward(const SlotSizes& slot, bool last);
  void gradient_came(int parameter, bool last);
  void accumulate_in(size_t bucket);
  void begin_reduce();
  void finish_reduce();
  void spread_gradients();
  void update();
  void begin_publishing();
  void await_values(int branch);

  void record() {
    if (now_.total() > peak_.total()) peak_ = now_;
    most_activations_ = std::max(most_activations_, now_.activations);
  }

  const StepSizes& sizes_;
  const SubnetPlan& plan_;
  const Schedule& schedule_;
  double batch_size_ = 1;
  std::vector<SlotSizes> slots_;
  const std::vector<int>& depth_;  ///< by parameter
  std::vector<BucketSizes> buckets_;
  const int64_t head_gradient_;       ///< of a chunked loss, in the type of the sums
  std::vector<int64_t> standing_;     ///< by parameter: its gradient, now
  std::vector<int64_t> accumulated_;  ///< by bucket: buffers in which gradients are added up, now
  std::vector<int> missing_;          ///< by bucket: gradients that have not come in the last backward pass
  int next_reduce_ = 0;
  size_t next_publish_ = 0;
  std::deque<size_t> flights_;  ///< buckets
  PeakBytes now_;
  PeakBytes peak_;
  int64_t most_activations_ = 0;
};

Walk::Walk(const StepSizes& sizes, const Cost& cost, int process)
    : sizes_(sizes),
      plan_(sizes.plan()),
      schedule_(sizes.schedule()),
      depth_(sizes.depths()),
      buckets_(sizes.buckets_on(process)),
      head_gradient_(sizes.head_gradient_bytes()),
      standing_(plan_.layout.parameters.size(), 0) {
  now_.weights = cost.parameter_bytes;
  now_.optimizer = cost.optimizer_bytes;
  for (const Slot& slot : schedule_.placement.slots_of(process))
    slots_.push_back(sizes.slot_of(slot.worker));
}

void Walk::run() {
  for (size_t b = 0; b < buckets_.size(); ++b) {
    now_.buckets += buckets_[b].updated;  // of the step before, until it is published
    missing_.push_back(static_cast<int>(sizes_.parameters_of_buckets()[b].all.size()));
    accumulated_.push_back(0);
  }
  next_reduce_ = static_cast<int>(buckets_.size()) - 1;
  begin_publishing();
  // Micro-batches between the first and the last take no more than these.
  const int64_t micro_batches = std::min<int64_t>(schedule_.options.accumulate_steps, 2);
  for (int64_t micro_batch = 0; micro_batch < micro_batches; ++micro_batch) {
    for (size_t s = 0; s < slots_.size(); ++s) {
      forward(slots_[s], /*publishing=*/micro_batch == 0 && s == 0);
      loss();
      backward(slots_[s], /*last=*/micro_batch + 1 == micro_batches && s + 1 == slots_.size());
    }
  }
  while (next_reduce_ >= 0)
    begin_reduce();
  while (!flights_.empty())
    finish_reduce();
  if (!schedule_.options.shard) spread_gradients();
  update();
}

void Walk::begin_publishing() {
  for (; next_publish_ < buckets_.size() && flights_.size() < kMostInFlight; ++next_publish_) {
    flights_.push_back(next_publish_);
    const BucketSizes& bucket = buckets_[next_publish_];
    now_.buckets += bucket.publish_send + bucket.publish_receive;
  }
  record();
}

void Walk::await_values(int branch) {
  while (!flights_.empty() && sizes_.parameters_of_buckets()[flights_.front()].needed_before <= branch) {
    const BucketSizes& bucket = buckets_[flights_.front()];
    flights_.pop_front();
    now_.buckets += bucket.unpacked;
    record();
    now_.buckets -= bucket.unpacked + bucket.updated + bucket.publish_send + bucket.publish_receive;
    begin_publishing();
  }
}

void Walk::forward(const SlotSizes& slot, bool publishing) {
  now_.activations += of_batch(slot.stem_kept);
  if (publishing) await_values(-1);
  for (int b = 0; b < static_cast<int>(slot.kept.size()); ++b) {
    if (publishing) await_values(b);
    now_.activations += of_batch(slot.kept[b]) + of_batch(slot.recomputed[b]);
    record();
    now_.activations -= of_batch(slot.recomputed[b]);
  }
}

void Walk::loss() {
  const ChunkedLoss& loss = plan_.layout.loss;
  if (loss.head < 0) return;
  const double logits = std::min(loss.logits * batch_size_, loss.logits_at_once);
  const auto sum_bytes = static_cast<double>(bytes_of(sum_type(schedule_.options.precision)));
  int64_t moment = std::llround(2 * logits * sum_bytes);  // the logits and their exponentials
  // In a narrower type the head's gradient of a chunk stands by itself, and on a CPU again in the sums' type.
  const ParameterLayout& head = plan_.layout.parameters[static_cast<size_t>(loss.head)];
  const int64_t value_bytes = bytes_of(element_type(head, schedule_.options.precision));
  if (value_bytes < head_gradient_ / head.elements())
    moment += head.elements() * value_bytes + head_gradient_;
  now_.activations += moment + head_gradient_;
  record();
  now_.activations -= moment;
}

void Walk::backward(const SlotSizes& slot, bool last) {
  const auto parameters = static_cast<int>(plan_.layout.parameters.size());
  for (int p = parameters - 1; p >= 0; --p) {
    const int branch = depth_[p];
    const bool enters = p + 1 == parameters || depth_[p + 1] != branch;
    const bool leaves = p == 0 || depth_[p - 1] != branch;
    if (enters && branch >= 0) {
      const int64_t moment = of_batch(slot.moment[branch]);
      now_.activations += moment;
      record();
      now_.activations -= moment;
    }
    // The first layer's input, and what it kept of it, are gone when its gradient is complete.
    if (p == 0) now_.activations -= of_batch(slot.stem_kept);
    standing_[p] = slot.gradients[p];
    now_.gradients += standing_[p];
    const int64_t reordered = reordered_bytes(p);
    now_.activations += reordered;
    record();
    now_.activations -= reordered;
    if (p == plan_.layout.loss.head) now_.activations -= head_gradient_;
    gradient_came(p, last);
    if (leaves && branch >= 0) now_.activations -= of_batch(slot.kept[branch]);
  }
}

/// A convolution on a CPU (oneDNN) has its weight's gradient in another order, and in the sums' type, first.
int64_t Walk::reordered_bytes(int index) const {
  const ParameterLayout& parameter = plan_.layout.parameters[index];
  const Precision precision = schedule_.options.precision;
  if (parameter.shape.size() != 4) return 0;
  return standing_[index] / bytes_of(element_type(parameter, precision)) * bytes_of(sum_type(precision));
}

void Walk::gradient_came(int parameter, bool last) {
  if (!schedule_.options.release_gradients) return;
  for (int b : sizes_.buckets_of(parameter)) {
    accumulate_in(static_cast<size_t>(b));
    if (last) --missing_[b];
  }
  record();
  if (schedule_.accumulates()) now_.gradients -= std::exchange(standing_[parameter], 0);
  if (!last) return;
  while (next_reduce_ >= 0 && missing_[next_reduce_] == 0)
    begin_reduce();
}

/// The bucket's gradients begin to be added up, if they are.
void Walk::accumulate_in(size_t bucket) {
  now_.gradients += buckets_[bucket].accumulator - accumulated_[bucket];
  accumulated_[bucket] = buckets_[bucket].accumulator;
}

void Walk::begin_reduce() {
  if (flights_.size() == kMostInFlight) finish_reduce();
  accumulate_in(static_cast<size_t>(next_reduce_));
  const auto index = static_cast<size_t>(next_reduce_--);
  const BucketSizes& bucket = buckets_[index];
  now_.buckets += bucket.reduce_send + bucket.reduce_receive + bucket.own + bucket.strided;
  record();
  now_.buckets -= bucket.strided;
  now_.gradients -= bucket.accumulator;
  for (int parameter : sizes_.parameters_of_buckets()[index].first_of)
    now_.gradients -= std::exchange(standing_[parameter], 0);
  flights_.push_back(index);
}

void Walk::finish_reduce() {
  const BucketSizes& bucket = buckets_[flights_.front()];
  flights_.pop_front();
  now_.buckets -= bucket.reduce_send;
  now_.gradients += bucket.own;
  record();
  now_.buckets -= bucket.reduce_receive + bucket.own;
}

void Walk::spread_gradients() {
  const auto finish_one = [&] {
    const BucketSizes& bucket = buckets_[flights_.front()];
    flights_.pop_front();
    now_.gradients += bucket.full_gradient;
    record();
    now_.gradients -= bucket.own;
    now_.buckets -= bucket.spread_send + bucket.spread_receive;
  };
  for (size_t b = 0; b < buckets_.size(); ++b) {
    flights_.push_back(b);
    now_.buckets += buckets_[b].spread_send + buckets_[b].spread_receive;
    record();
    if (flights_.size() == kMostInFlight) finish_one();
  }
  while (!flights_.empty())
    finish_one();
}

void Walk::update() {
  for (const BucketSizes& bucket : buckets_) {
    now_.buckets += bucket.updated;
    record();
    now_.gradients -= schedule_.options.shard ? bucket.own : bucket.full_gradient;
  }
}

}  // namespace

StepMemory::StepMemory(const SubnetPlan& plan, const Schedule& schedule, const TrainSpec& train)
    : sizes_(plan, schedule, train.checkpoint_activations), batch_size_(train.batch_size_per_worker) {}

StepMaxima StepMemory::maxima(const Cost& cost, int process) const {
  const auto walked = Walk(sizes_, cost, process).walked(batch_size_);
  return {.peak = walked.peak(), .activations = walked.most_activations()};
}

int64_t StepMemory::largest_batch(const Cost& cost, int process, int64_t memory_bytes) const {
  const Walk walk(sizes_, cost, process);
  return sdp::largest_batch([&](int64_t batch) { return walk.walked(batch).peak().total() <= memory_bytes; });
}

int64_t StepMemory::most_activations(const Cost& cost, int process, int64_t batch_size) const {
  return Walk(sizes_, cost, process).walked(batch_size).most_activations();
}

int64_t largest_batch(const std::function<bool(int64_t batch_size)>& fits) {
  constexpr int64_t kMost = int64_t{1} << 20;
  int64_t good = 0;
  int64_t bad = 1;
  while (bad <= kMost && fits(bad)) {
    good = bad;
    bad *= 2;
  }
  while (bad - good > 1) {
    const int64_t middle = good + (bad - good) / 2;
    (fits(middle) ? good : bad) = middle;
  }
  return good;
}

}  // namespace sdp
