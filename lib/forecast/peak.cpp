#include "forecast/peak.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <utility>
#include <vector>

#include "subnet/accounting.h"

namespace sdp {
namespace {

/// What a bucket takes on the process, in bytes.
struct BucketSizes {
  int64_t reduce_send = 0, reduce_receive = 0;
  int64_t own = 0;                              ///< own part of the averaged gradients, and as much for these
  int64_t accumulator = 0;                      ///< where gradients are added up, if they are
  int64_t strided = 0;                          ///< gradients that are copied once more to be packed
  int64_t spread_send = 0, spread_receive = 0;  ///< averaged gradients, without shard
  int64_t full_gradient = 0;                    ///< averaged, without shard
  int64_t updated = 0;                          ///< new values that are not the master values themselves
  int64_t publish_send = 0, publish_receive = 0;
  int64_t unpacked = 0;  ///< new values of segments that are not stored in one stretch, put together first
  BucketParameters parameters;
};

/// What a slot takes, in bytes; what grows with the batch, a sample.
struct SlotSizes {
  std::vector<int64_t> gradients;  ///< by parameter: of what the worker owns
  double stem_kept = 0;            ///< before the branches
  std::vector<double> kept;        ///< by branch: for the backward pass, with shared layers that follow
  std::vector<double> recomputed;  ///< by branch: with checkpointing, computed twice and first forgotten
  std::vector<double> moment;      ///< by branch: for a moment beside it, in the backward pass
};

class Walk {
 public:
  Walk(const SubnetPlan& plan, const Schedule& schedule, const Cost& cost, int process,
       const TrainSpec& train);
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
  BucketSizes sizes_of(const Bucket& bucket) const;
  void add_exchange_sizes(BucketSizes& sizes, const Segment& segment, int64_t value_bytes,
                          int64_t wire_bytes) const;
  bool is_strided(const Piece& piece, int unit) const;
  SlotSizes sizes_of(int worker) const;
  double bytes_a_sample(const Kept& kept) const;
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

  const SubnetPlan& plan_;
  const Schedule& schedule_;
  const int process_;
  const bool checkpoints_;
  double batch_size_ = 1;
  std::vector<SlotSizes> slots_;
  const std::vector<int> depth_;  ///< by parameter
  std::vector<BucketSizes> buckets_;
  int64_t head_gradient_ = 0;         ///< of a chunked loss, in the type of the sums
  std::vector<int64_t> standing_;     ///< by parameter: its gradient, now
  std::vector<int64_t> accumulated_;  ///< by bucket: buffers in which gradients are added up, now
  std::vector<int> missing_;          ///< by bucket: gradients that have not come in the last backward pass
  int next_reduce_ = 0;
  size_t next_publish_ = 0;
  std::deque<const BucketSizes*> flights_;
  PeakBytes now_;
  PeakBytes peak_;
  int64_t most_activations_ = 0;
};

Walk::Walk(const SubnetPlan& plan, const Schedule& schedule, const Cost& cost, int process,
           const TrainSpec& train)
    : plan_(plan),
      schedule_(schedule),
      process_(process),
      checkpoints_(train.checkpoint_activations),
      depth_(depths_of(plan.layout)),
      standing_(plan.layout.parameters.size(), 0) {
  now_.weights = cost.parameter_bytes;
  now_.optimizer = cost.optimizer_bytes;
  if (const int head = plan.layout.loss.head; head >= 0)
    head_gradient_ = plan.layout.parameters[head].elements() * bytes_of(sum_type(schedule.options.precision));
  for (const Slot& slot : schedule.placement.slots_of(process))
    slots_.push_back(sizes_of(slot.worker));
  const std::vector<BucketParameters> parameters = parameters_of_buckets(plan.layout, schedule);
  for (size_t b = 0; b < parameters.size(); ++b) {
    buckets_.push_back(sizes_of(schedule.buckets[b]));
    buckets_.back().parameters = parameters[b];
  }
}

/// Whether the unit's piece is a strided view of the tensor it is stored in.
bool Walk::is_strided(const Piece& piece, int unit) const {
  const ParameterLayout& parameter = plan_.layout.parameters[piece.parameter];
  if (unit == kSharedUnit || plan_.construction == Construction::kBlock || !parameter.slice) return false;
  const bool rows = parameter.slice->dim == 0 && parameter.slice->blocks == 1;
  return !rows && plan_.units_of(parameter).size() > 1;
}

/// What a segment adds to the exchanges' buffers, which have no room for what a process keeps to itself.
void Walk::add_exchange_sizes(BucketSizes& sizes, const Segment& segment, int64_t value_bytes,
                              int64_t wire_bytes) const {
  const bool shard = schedule_.options.shard;
  const bool held = segment.is_held_by(process_);
  const int64_t mine = segment.share_elements(process_);
  const auto holders = static_cast<int64_t>(segment.holders.size());
  const auto readers = static_cast<int64_t>(segment.readers.size());
  if (held) {
    sizes.reduce_send += (segment.elements - mine) * wire_bytes;
    sizes.reduce_receive += mine * (holders - 1) * wire_bytes;
    sizes.publish_send += mine * (shard ? readers - 1 : readers - holders) * value_bytes;
  }
  if (held && !shard) {
    sizes.spread_send += mine * (holders - 1) * wire_bytes;
    sizes.spread_receive += (segment.elements - mine) * wire_bytes;
  }
  if (segment.is_read_by(process_) && (shard || !held))
    sizes.publish_receive += (segment.elements - mine) * value_bytes;
}

BucketSizes Walk::sizes_of(const Bucket& bucket) const {
  const ElementType sums = sum_type(schedule_.options.precision);
  const int64_t held = bucket.held_elements(process_);
  const int64_t share = bucket.share_elements(process_);
  const bool has_master = bytes_of(bucket.type) < bytes_of(sums);
  BucketSizes sizes;
  sizes.own = share * bytes_of(sums);
  if (schedule_.accumulates()) sizes.accumulator = held * bytes_of(sums);
  if (!schedule_.options.shard) sizes.full_gradient = held * bytes_of(bucket.type);
  if (!has_master) sizes.updated = (schedule_.options.shard ? share : held) * bytes_of(sums);
  for (const Segment& segment : bucket.segments) {
    add_exchange_sizes(sizes, segment, bytes_of(bucket.type), bytes_of(schedule_.wire_type(bucket)));
    bool is_flat = true;
    for (const Piece& piece : segment.pieces) {
      if (!is_strided(piece, segment.unit)) continue;
      is_flat = false;
      if (segment.is_held_by(process_) && !schedule_.accumulates())
        sizes.strided += piece.elements * bytes_of(bucket.type);
    }
    if (!is_flat && segment.is_read_by(process_)) sizes.unpacked += segment.elements * bytes_of(bucket.type);
  }
  return sizes;
}

double Walk::bytes_a_sample(const Kept& kept) const {
  return kept.elements * static_cast<double>(bytes_of(compute_type(schedule_.options.precision))) +
         kept.bytes;
}

SlotSizes Walk::sizes_of(int worker) const {
  SlotSizes sizes;
  for (int p = 0; p < static_cast<int>(depth_.size()); ++p)
    sizes.gradients.push_back(gradient_bytes(plan_, schedule_.options.precision, worker, p));
  sizes.stem_kept = bytes_a_sample(plan_.layout.stem_kept);
  for (int b = 0; b < static_cast<int>(plan_.layout.branches.size()); ++b) {
    const double computed = bytes_a_sample(plan_.branch_kept(worker, b));
    const double kept = checkpoints_
                            ? bytes_a_sample(plan_.branch_kept(worker, b, /*checkpoint_activations=*/true))
                            : computed;
    sizes.kept.push_back(kept + bytes_a_sample(plan_.layout.branches[b].shared_kept));
    sizes.recomputed.push_back(computed - kept);
    sizes.moment.push_back(bytes_a_sample(plan_.branch_moment(worker, b)) + sizes.recomputed.back());
  }
  return sizes;
}

void Walk::run() {
  for (const BucketSizes& bucket : buckets_) {
    now_.buckets += bucket.updated;  // of the step before, until it is published
    missing_.push_back(static_cast<int>(bucket.parameters.all.size()));
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
    flights_.push_back(&buckets_[next_publish_]);
    now_.buckets += flights_.back()->publish_send + flights_.back()->publish_receive;
  }
  record();
}

void Walk::await_values(int branch) {
  while (!flights_.empty() && flights_.front()->parameters.needed_before <= branch) {
    const BucketSizes& bucket = *flights_.front();
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
  for (size_t b = 0; b < buckets_.size(); ++b) {
    const std::vector<int>& parameters = buckets_[b].parameters.all;
    if (std::find(parameters.begin(), parameters.end(), parameter) == parameters.end()) continue;
    accumulate_in(b);
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
  const BucketSizes& bucket = buckets_[next_reduce_--];
  now_.buckets += bucket.reduce_send + bucket.reduce_receive + bucket.own + bucket.strided;
  record();
  now_.buckets -= bucket.strided;
  now_.gradients -= bucket.accumulator;
  for (int parameter : bucket.parameters.first_of)
    now_.gradients -= std::exchange(standing_[parameter], 0);
  flights_.push_back(&bucket);
}

void Walk::finish_reduce() {
  const BucketSizes& bucket = *flights_.front();
  flights_.pop_front();
  now_.buckets -= bucket.reduce_send;
  now_.gradients += bucket.own;
  record();
  now_.buckets -= bucket.reduce_receive + bucket.own;
}

void Walk::spread_gradients() {
  const auto finish_one = [&] {
    const BucketSizes& bucket = *flights_.front();
    flights_.pop_front();
    now_.gradients += bucket.full_gradient;
    record();
    now_.gradients -= bucket.own;
    now_.buckets -= bucket.spread_send + bucket.spread_receive;
  };
  for (const BucketSizes& bucket : buckets_) {
    flights_.push_back(&bucket);
    now_.buckets += bucket.spread_send + bucket.spread_receive;
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

PeakBytes peak_of(const SubnetPlan& plan, const Schedule& schedule, const Cost& cost, int process,
                  const TrainSpec& train) {
  return Walk(plan, schedule, cost, process, train).walked(train.batch_size_per_worker).peak();
}

int64_t most_activations(const SubnetPlan& plan, const Schedule& schedule, const Cost& cost, int process,
                         const TrainSpec& train) {
  return Walk(plan, schedule, cost, process, train).walked(train.batch_size_per_worker).most_activations();
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

int64_t largest_batch(const SubnetPlan& plan, const Schedule& schedule, const Cost& cost, int process,
                      const TrainSpec& train, int64_t memory_bytes) {
  const Walk walk(plan, schedule, cost, process, train);
  return largest_batch([&](int64_t batch) { return walk.walked(batch).peak().total() <= memory_bytes; });
}

}  // namespace sdp
