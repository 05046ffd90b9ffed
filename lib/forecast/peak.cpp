#include "forecast/peak.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "subnet/exchange_order.h"

namespace sdp {
namespace {

/// One step of the engine on one process, with sizes instead of tensors.
class StepSimulation {
 public:
  StepSimulation(const StepSizes& sizes, const Cost& cost, int process);
  /// Maxima over a step with this batch size per worker. Simulates a copy: this object stays at the start.
  StepMaxima maxima(int64_t batch_size) const {
    StepSimulation step = *this;
    step.batch_size_ = static_cast<double>(batch_size);
    step.run();
    return {.peak = step.peak_, .activations = step.most_activations_};
  }

 private:
  void run();
  int64_t convolution_workspace_bytes(int parameter) const;
  int64_t of_batch(double bytes_a_sample) const { return std::llround(bytes_a_sample * batch_size_); }

  void forward(const SlotSizes& slot);
  void loss();
  void backward(const SlotSizes& slot);
  void gradient_came(int parameter);
  void accumulate_in(int bucket);
  void update();

  void run(const ExchangeEvents& events);
  void begin_exchange(ExchangeKind kind, int bucket);
  void end_exchange(ExchangeKind kind, int bucket);

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
  std::vector<int64_t> standing_;     ///< by parameter: current bytes of its gradient
  std::vector<int64_t> accumulated_;  ///< by bucket: current bytes of its accumulation buffer
  std::vector<int64_t> unreduced_;    ///< by bucket: the process's share of gradients; 0 once reduced
  ExchangeOrder order_;
  MemoryByKind now_;
  MemoryByKind peak_;
  int64_t most_activations_ = 0;
};

StepSimulation::StepSimulation(const StepSizes& sizes, const Cost& cost, int process)
    : sizes_(sizes),
      plan_(sizes.plan()),
      schedule_(sizes.schedule()),
      depth_(sizes.depths()),
      buckets_(sizes.buckets_on(process)),
      head_gradient_(sizes.head_gradient_bytes()),
      standing_(plan_.layout.parameters.size(), 0),
      accumulated_(buckets_.size(), 0),
      order_(sizes.index()) {
  now_.weights = cost.parameter_bytes;
  now_.optimizer = cost.optimizer_bytes;
  for (const BucketSizes& bucket : buckets_) {
    unreduced_.push_back(bucket.own);
    now_.buckets += bucket.updated;  // by the previous step, until they are gathered
  }
  for (const Slot& slot : schedule_.placement.slots_of(process))
    slots_.push_back(sizes.slot_of(slot.worker));
}

void StepSimulation::run() {
  std::vector<int> parameters(standing_.size());
  std::iota(parameters.begin(), parameters.end(), 0);
  run(order_.begin_gathering());
  // Micro-batches between the first and the last need no more memory than these two.
  const int64_t micro_batches = std::min<int64_t>(schedule_.options.accumulate_steps, 2);
  const bool reduces_each = schedule_.reductions_per_step() > 1;
  for (int64_t micro_batch = 0; micro_batch < micro_batches; ++micro_batch) {
    for (size_t s = 0; s < slots_.size(); ++s) {
      forward(slots_[s]);
      loss();
      if (order_.is_reducing()) run(order_.finish_reducing());
      // Gradients of parts that the worker does not own count as 0 bytes.
      const bool is_reduced = reduces_each || micro_batch + 1 == micro_batches;
      order_.begin_backward(parameters, /*last=*/is_reduced && s + 1 == slots_.size());
      backward(slots_[s]);
    }
  }
  run(order_.finish_reducing());
  if (!schedule_.options.shard) run(order_.gather_gradients());
  update();
}

void StepSimulation::run(const ExchangeEvents& events) {
  for (const ExchangeEvent& event : events) {
    if (event.what == ExchangeEvent::What::kBegin)
      begin_exchange(event.kind, event.bucket);
    else
      end_exchange(event.kind, event.bucket);
  }
}

void StepSimulation::begin_exchange(ExchangeKind kind, int bucket) {
  const BucketSizes& sizes = buckets_[static_cast<size_t>(bucket)];
  now_.buckets += sizes.of(kind).sent + sizes.of(kind).received;
  if (kind == ExchangeKind::kReduceGradients) {
    accumulate_in(bucket);
    now_.buckets += sizes.own + sizes.strided;
  }
  record();
  if (kind != ExchangeKind::kReduceGradients) return;
  now_.buckets -= sizes.strided;
  now_.gradients -= std::exchange(accumulated_[static_cast<size_t>(bucket)], 0);
  for (int parameter : sizes_.index().parameters_of[static_cast<size_t>(bucket)].first_of)
    now_.gradients -= std::exchange(standing_[parameter], 0);
}

void StepSimulation::end_exchange(ExchangeKind kind, int bucket) {
  const BucketSizes& sizes = buckets_[static_cast<size_t>(bucket)];
  const Volume& buffers = sizes.of(kind);
  switch (kind) {
    case ExchangeKind::kReduceGradients:
      now_.buckets -= buffers.sent;
      now_.gradients += std::exchange(unreduced_[static_cast<size_t>(bucket)], 0);
      record();
      now_.buckets -= buffers.received + sizes.own;
      return;
    case ExchangeKind::kGatherGradients:
      now_.gradients += sizes.full_gradient;
      record();
      now_.gradients -= sizes.own;
      now_.buckets -= buffers.sent + buffers.received;
      return;
    case ExchangeKind::kGatherValues:
      now_.buckets += sizes.unpacked;
      record();
      now_.buckets -= sizes.unpacked + sizes.updated + buffers.sent + buffers.received;
      return;
  }
}

void StepSimulation::forward(const SlotSizes& slot) {
  now_.activations += of_batch(slot.stem_saved);
  run(order_.reach(-1));
  for (int b = 0; b < static_cast<int>(slot.saved.size()); ++b) {
    run(order_.reach(b));
    now_.activations += of_batch(slot.saved[b]) + of_batch(slot.recomputed[b]);
    record();
    now_.activations -= of_batch(slot.recomputed[b]);
  }
}

void StepSimulation::loss() {
  const ChunkedLoss& loss = plan_.layout.loss;
  if (loss.head < 0) return;
  const double logits = std::min(loss.logits * batch_size_, loss.logits_at_once);
  const auto sum_bytes = static_cast<double>(bytes_of(sum_type(schedule_.options.precision)));
  int64_t workspace = std::llround(2 * logits * sum_bytes);  // the logits and their exponentials
  // If the head's type is narrower than the sums', its gradient of a chunk is a tensor of its own, on a CPU
  // with a copy in the type of the sums.
  const ParameterLayout& head = plan_.layout.parameters[static_cast<size_t>(loss.head)];
  const ElementType type = element_type(head, schedule_.options.precision);
  if (has_master_values(type, schedule_.options.precision))
    workspace += head.elements() * bytes_of(type) + head_gradient_;
  now_.activations += workspace + head_gradient_;
  record();
  now_.activations -= workspace;
}

void StepSimulation::backward(const SlotSizes& slot) {
  const auto parameters = static_cast<int>(plan_.layout.parameters.size());
  for (int p = parameters - 1; p >= 0; --p) {
    const int branch = depth_[p];
    const bool enters = p + 1 == parameters || depth_[p + 1] != branch;
    const bool leaves = p == 0 || depth_[p - 1] != branch;
    if (enters && branch >= 0) {
      const int64_t workspace = of_batch(slot.workspace[branch]);
      now_.activations += workspace;
      record();
      now_.activations -= workspace;
    }
    // When the first layer's gradient is complete, its input and its saved activations have been freed.
    if (p == 0) now_.activations -= of_batch(slot.stem_saved);
    standing_[p] = slot.gradients[p];
    now_.gradients += standing_[p];
    const int64_t workspace = convolution_workspace_bytes(p);
    now_.activations += workspace;
    record();
    now_.activations -= workspace;
    if (p == plan_.layout.loss.head) now_.activations -= head_gradient_;
    gradient_came(p);
    if (leaves && branch >= 0) now_.activations -= of_batch(slot.saved[branch]);
  }
}

/// Workspace of a convolution's gradients: cuDNN's, if it is known. oneDNN first computes the weight's
/// gradient in another memory layout and in the type of the sums.
int64_t StepSimulation::convolution_workspace_bytes(int index) const {
  const ParameterLayout& parameter = plan_.layout.parameters[index];
  const Precision precision = schedule_.options.precision;
  if (parameter.shape.size() != 4) return 0;
  if (sizes_.convolution_workspace_bytes() > 0) return sizes_.convolution_workspace_bytes();
  return standing_[index] / bytes_of(element_type(parameter, precision)) * bytes_of(sum_type(precision));
}

void StepSimulation::gradient_came(int parameter) {
  if (!schedule_.options.release_gradients) return;
  const ExchangeEvents events = order_.gradient_came(parameter);
  for (int bucket : sizes_.index().buckets_of[static_cast<size_t>(parameter)])
    accumulate_in(bucket);
  record();
  if (schedule_.accumulates()) now_.gradients -= std::exchange(standing_[parameter], 0);
  run(events);
}

/// Allocates the bucket's accumulation buffer, if it has one.
void StepSimulation::accumulate_in(int bucket) {
  const auto b = static_cast<size_t>(bucket);
  now_.gradients += buckets_[b].accumulator - accumulated_[b];
  accumulated_[b] = buckets_[b].accumulator;
}

void StepSimulation::update() {
  for (const BucketSizes& bucket : buckets_) {
    now_.buckets += bucket.updated;
    record();
    now_.gradients -= schedule_.options.shard ? bucket.own : bucket.full_gradient;
  }
}

}  // namespace

StepMemory::StepMemory(const SubnetPlan& plan, const Schedule& schedule, const TrainSpec& train,
                       int64_t convolution_workspace_bytes)
    : sizes_(plan, schedule, train.checkpoint_activations, convolution_workspace_bytes),
      batch_size_(train.batch_size_per_worker) {}

StepMaxima StepMemory::maxima(const Cost& cost, int process) const {
  return StepSimulation(sizes_, cost, process).maxima(batch_size_);
}

int64_t StepMemory::largest_batch(const Cost& cost, int process, int64_t memory_bytes) const {
  const StepSimulation step(sizes_, cost, process);
  return sdp::largest_batch([&](int64_t batch) { return step.maxima(batch).peak.total() <= memory_bytes; });
}

int64_t StepMemory::most_activations(const Cost& cost, int process, int64_t batch_size) const {
  return StepSimulation(sizes_, cost, process).maxima(batch_size).activations;
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

MemoryByKind planned_peak(const Experiment& experiment, int process) {
  return StepMemory(experiment.plan, experiment.schedule, experiment.spec.train,
                    /*convolution_workspace_bytes=*/0)
      .peak(cost_of(experiment, process), process);
}

}  // namespace sdp
