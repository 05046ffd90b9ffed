#include "cost/peak.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <numeric>
#include <utility>

#include "cost/local_steps.h"
#include "cost/record_step.h"
#include "cost/step_limits.h"
#include "subnet/exchange.h"
#include "subnet/storage.h"

namespace sdp {

/// Sizes of a bucket's tensors on a process, in bytes.
struct StepMemory::BucketSizes {
  std::array<Volume, kExchangeKinds.size()> buffers = {};  ///< by ExchangeKind
  int64_t own = 0;            ///< the process's share of averaged gradients; the same size again while summed
  int64_t accumulator = 0;    ///< buffer in which gradients are accumulated, if they are
  int64_t strided = 0;        ///< strided gradients, which are copied once more when packed
  int64_t full_gradient = 0;  ///< averaged gradients without shard, if any are exchanged
  int64_t updated = 0;        ///< copy in which values are updated, if they are not updated in place
  int64_t unpacked = 0;       ///< new values of non-contiguous segments, which are assembled before unpacking
  bool is_alone = false;      ///< no gradients are exchanged (BucketElements::is_alone)
  bool begins_sum = false;    ///< what this process contributes becomes the sum (BucketElements::begins_sum)
  bool keeps_gradients = false;  ///< they are applied in place (subnet/storage.h): there is no own

  /// Whether the buffer in which gradients are accumulated becomes the averaged gradient.
  bool moves_accumulator() const { return is_alone && accumulator > 0; }
  const Volume& of(ExchangeKind kind) const { return buffers[static_cast<size_t>(kind)]; }
};

/// One step of the engine on one process, with sizes instead of tensors.
class StepMemory::Simulation {
 public:
  Simulation(const StepMemory& memory, const Cost& cost, int process);
  /// Maxima over a step with this batch size per worker. Simulates a copy: this object stays at the start.
  StepMaxima maxima(int64_t batch_size) const {
    Simulation step = *this;
    step.batch_size_ = static_cast<double>(batch_size);
    step.run();
    return {.peak = step.peak_, .activations = step.most_activations_};
  }

 private:
  /// What a slot's forward and backward pass allocate.
  struct SlotSizes {
    std::vector<int64_t> gradients;  ///< by parameter: bytes of the gradient of the part that the worker owns
    StepCapture capture;
  };

  void run();
  void forward(const SlotSizes& slot);
  void backward(const SlotSizes& slot);
  void replay(const SlotSizes& slot, const std::vector<CaptureEvent>& events, int first_parameter);
  void gradient_ready(int parameter);
  void accumulate_in(int bucket);
  void release_gradients(int bucket);
  void update();

  static std::vector<int> owned_parameters(const SlotSizes& slot);
  void run(const ExchangeEvents& events);
  void begin_exchange(ExchangeKind kind, int bucket);
  void end_exchange(ExchangeKind kind, int bucket);
  void end_reduction(int bucket);

  void record() {
    if (now_.total() > peak_.total()) peak_ = now_;
    most_activations_ = std::max(most_activations_, now_.activations);
  }

  const StepMemory& memory_;
  const ExchangePlan& exchanges_;
  double batch_size_ = 1;
  std::vector<SlotSizes> slots_;
  std::vector<BucketSizes> buckets_;
  std::vector<int64_t> standing_;     ///< by parameter: current bytes of its gradient
  std::vector<int64_t> accumulated_;  ///< by bucket: current bytes of its accumulation buffer
  std::vector<int64_t> unreduced_;    ///< by bucket: the process's share of gradients; 0 once reduced
  ExchangeOrder order_;
  MemoryByKind now_;
  MemoryByKind peak_;
  int64_t most_activations_ = 0;
};

StepMemory::Simulation::Simulation(const StepMemory& memory, const Cost& cost, int process)
    : memory_(memory),
      exchanges_(memory.exchanges_),
      standing_(memory.plan_.layout.parameters.size(), 0),
      accumulated_(exchanges_.buckets.size(), 0),
      order_(memory.index_) {
  now_.weights = cost.parameter_bytes;
  now_.optimizer = cost.optimizer_bytes;
  const std::vector<Slot> slots = exchanges_.slot_map.slots_of(process);
  const std::vector<char> scattered = scattered_parameters(memory.plan_, slots);
  for (size_t b = 0; b < exchanges_.buckets.size(); ++b) {
    const BucketSizes& bucket = buckets_.emplace_back(memory.sizes_of(b, process, scattered));
    unreduced_.push_back(bucket.own);
    now_.buckets += bucket.updated;  // by the previous step, until they are gathered
  }
  for (const Slot& slot : slots)
    slots_.push_back({gradient_bytes(memory.plan_, exchanges_.options.precision, slot.worker),
                      memory.captures_.of(slot.worker)});
}

void StepMemory::Simulation::run() {
  run(order_.begin_gathering());
  // Micro-batches between the first and the last need no more memory than these two.
  const int64_t micro_batches = std::min<int64_t>(exchanges_.options.accumulate_steps, 2);
  const bool reduces_each = exchanges_.reductions_per_step() > 1;
  for (int64_t micro_batch = 0; micro_batch < micro_batches; ++micro_batch) {
    for (size_t s = 0; s < slots_.size(); ++s) {
      const int64_t others = now_.activations;
      forward(slots_[s]);
      if (order_.is_reducing()) run(order_.finish_reducing());
      const bool is_reduced = reduces_each || micro_batch + 1 == micro_batches;
      order_.begin_backward(owned_parameters(slots_[s]), /*last=*/is_reduced && s + 1 == slots_.size());
      backward(slots_[s]);
      now_.activations = others;  // the batch and the loss are freed last
    }
  }
  run(order_.finish_reducing());
  if (!exchanges_.options.shard) run(order_.gather_gradients());
  update();
}

std::vector<int> StepMemory::Simulation::owned_parameters(const SlotSizes& slot) {
  std::vector<int> owned;
  for (size_t p = 0; p < slot.gradients.size(); ++p)
    if (slot.gradients[p] > 0) owned.push_back(static_cast<int>(p));
  return owned;
}

void StepMemory::Simulation::run(const ExchangeEvents& events) {
  for (const ExchangeEvent& event : events) {
    if (event.what == ExchangeEvent::What::kBegin)
      begin_exchange(event.kind, event.bucket);
    else
      end_exchange(event.kind, event.bucket);
  }
}

void StepMemory::Simulation::begin_exchange(ExchangeKind kind, int bucket) {
  const BucketSizes& sizes = buckets_[static_cast<size_t>(bucket)];
  now_.buckets += sizes.of(kind).sent + sizes.of(kind).received;
  if (kind == ExchangeKind::kReduceGradients) {
    accumulate_in(bucket);
    if (!sizes.moves_accumulator()) now_.buckets += sizes.own + sizes.strided;
  }
  record();
  if (kind != ExchangeKind::kReduceGradients || sizes.keeps_gradients) return;
  if (!sizes.moves_accumulator()) {
    now_.buckets -= sizes.strided;
    now_.gradients -= std::exchange(accumulated_[static_cast<size_t>(bucket)], 0);
  }
  release_gradients(bucket);
}

void StepMemory::Simulation::release_gradients(int bucket) {
  for (int parameter : memory_.index_.parameters_of[static_cast<size_t>(bucket)].first_of)
    now_.gradients -= std::exchange(standing_[parameter], 0);
}

void StepMemory::Simulation::end_exchange(ExchangeKind kind, int bucket) {
  const BucketSizes& sizes = buckets_[static_cast<size_t>(bucket)];
  const Volume& buffers = sizes.of(kind);
  switch (kind) {
    case ExchangeKind::kReduceGradients:
      now_.buckets -= buffers.sent;
      return end_reduction(bucket);
    case ExchangeKind::kGatherGradients:
      if (sizes.is_alone) return;
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

void StepMemory::Simulation::forward(const SlotSizes& slot) {
  const auto& layer_groups = slot.capture.layer_groups;
  for (size_t s = 0; s < layer_groups.size(); ++s) {
    if (s + 1 < layer_groups.size()) run(order_.reach(static_cast<int>(s) - 1));  // not the loss
    replay(slot, layer_groups[s]->forward.events, layer_groups[s].first_parameter);
  }
}

void StepMemory::Simulation::backward(const SlotSizes& slot) {
  for (auto group = slot.capture.layer_groups.rbegin(); group != slot.capture.layer_groups.rend(); ++group)
    replay(slot, (*group)->backward.events, group->first_parameter);
}

void StepMemory::Simulation::replay(const SlotSizes& slot, const std::vector<CaptureEvent>& events,
                                    int first_parameter) {
  using What = CaptureEvent::What;
  for (const CaptureEvent& event : events) {
    int64_t bytes = std::llround(slot.capture.bytes_of(event, batch_size_));
    if (event.what == What::kConvolution && memory_.convolution_workspace_bytes_ > 0)
      bytes = memory_.convolution_workspace_bytes_;
    now_.activations += bytes;
    if (event.what == What::kGradient) {
      const int parameter = first_parameter + event.parameter;
      now_.gradients += standing_[parameter] = slot.gradients[parameter];
      record();
      gradient_ready(parameter);
      continue;
    }
    if (bytes > 0) record();
    if (event.what != What::kTensor) now_.activations -= bytes;  // copies exist during one operation
  }
}

void StepMemory::Simulation::gradient_ready(int parameter) {
  if (!exchanges_.options.release_gradients) return;
  const ExchangeEvents events = order_.gradient_ready(parameter);
  for (int bucket : memory_.index_.buckets_of[static_cast<size_t>(parameter)])
    accumulate_in(bucket);
  record();
  if (exchanges_.accumulates()) now_.gradients -= std::exchange(standing_[parameter], 0);
  run(events);
}

/// Allocates the bucket's accumulation buffer, if it has one.
void StepMemory::Simulation::accumulate_in(int bucket) {
  const auto b = static_cast<size_t>(bucket);
  now_.gradients += buckets_[b].accumulator - accumulated_[b];
  accumulated_[b] = buckets_[b].accumulator;
}

/// What this process contributes can become the sum of the first reduction.
void StepMemory::Simulation::end_reduction(int bucket) {
  const BucketSizes& sizes = buckets_[static_cast<size_t>(bucket)];
  const int64_t sum = std::exchange(unreduced_[static_cast<size_t>(bucket)], 0);
  const bool becomes_sum = sizes.begins_sum && sum > 0;
  if (!becomes_sum) {
    now_.gradients += sum;
    record();
  }
  if (sizes.moves_accumulator())
    now_.gradients -= std::exchange(accumulated_[static_cast<size_t>(bucket)], 0);
  else
    now_.buckets -= sizes.own;
  now_.buckets -= sizes.of(ExchangeKind::kReduceGradients).received;
  if (becomes_sum) now_.gradients += sum;
}

void StepMemory::Simulation::update() {
  for (size_t b = 0; b < buckets_.size(); ++b) {
    const BucketSizes& bucket = buckets_[b];
    now_.buckets += bucket.updated;
    record();
    now_.gradients -= bucket.full_gradient > 0 ? bucket.full_gradient : bucket.own;
    if (bucket.keeps_gradients) release_gradients(static_cast<int>(b));
  }
}

StepMemory::StepMemory(const ExchangePlan& exchanges, StepCaptures& captures,
                       int64_t convolution_workspace_bytes)
    : plan_(captures.plan()),
      exchanges_(exchanges),
      captures_(captures),
      convolution_workspace_bytes_(convolution_workspace_bytes),
      index_(index_buckets(plan_.layout, exchanges)) {
  // As on a process that has several units of each branch.
  std::vector<bool> is_strided;  // by parameter
  for (const ParameterLayout& parameter : plan_.layout.parameters)
    is_strided.push_back(!is_contiguous(parameter, plan_.units_of(parameter).size()));
  for (const Bucket& bucket : exchanges.buckets) {
    std::vector<int64_t>& strided_of_segment = strided_elements_of_.emplace_back();
    for (const Segment& segment : bucket.segments) {
      int64_t strided = 0;
      for (const Slice& slice : segment.slices)
        if (is_strided[slice.parameter]) strided += slice.elements;
      strided_of_segment.push_back(strided);
    }
  }
}

StepMemory::BucketSizes StepMemory::sizes_of(size_t index, int process,
                                             const std::vector<char>& scattered) const {
  const Bucket& bucket = exchanges_.buckets[index];
  const Precision precision = exchanges_.options.precision;
  const int64_t sum_bytes = bytes_of(sum_type(precision));
  const int64_t type_bytes = bytes_of(bucket.type);
  const BucketElements elements = elements_on(exchanges_, static_cast<int>(index), process);
  const bool is_in_place = updates_in_place(exchanges_, static_cast<int>(index), process, scattered);
  BucketSizes sizes{.own = elements.shard * sum_bytes,
                    .is_alone = elements.is_alone,
                    .begins_sum = elements.begins_sum,
                    .keeps_gradients = is_in_place && elements.has_one_summand};
  if (sizes.keeps_gradients) sizes.own = 0;
  for (ExchangeKind kind : kExchangeKinds) {
    const int64_t wire_bytes = bytes_of(Exchange(exchanges_, static_cast<int>(index), kind).type());
    sizes.buffers[static_cast<size_t>(kind)] = {.sent = elements.of(kind).sent * wire_bytes,
                                                .received = elements.of(kind).received * wire_bytes};
  }
  for (size_t s = 0; s < bucket.segments.size(); ++s) {
    const Segment& segment = bucket.segments[s];
    const int64_t strided = strided_elements_of_[index][s];
    if (strided == 0 || !segment.is_read_by(process) || segment.holders.empty()) continue;
    sizes.unpacked += segment.elements * type_bytes;
    if (segment.is_held_by(process) && !exchanges_.accumulates()) sizes.strided += strided * type_bytes;
  }
  if (exchanges_.accumulates()) sizes.accumulator = elements.held * sum_bytes;
  if (!exchanges_.options.shard && !elements.is_alone) sizes.full_gradient = elements.held * type_bytes;
  if (!has_master_values(bucket.type, precision) && !is_in_place)
    sizes.updated = elements.updated * sum_bytes;
  return sizes;
}

StepMemory::StepMemory(const ExperimentSpec& spec, const ExchangePlan& exchanges, StepCaptures& captures,
                       int64_t convolution_workspace_bytes)
    : StepMemory(exchanges, captures, convolution_workspace_bytes) {
  if (spec.exchange.is_local()) local_spec_ = &spec;
}

std::function<StepMaxima(int64_t batch_size)> StepMemory::maxima_of(const Cost& cost, int process) const {
  if (!local_spec_)
    return [step = Simulation(*this, cost, process)](int64_t batch_size) { return step.maxima(batch_size); };
  const auto steps = std::make_shared<LocalStepMemory>(*local_spec_, exchanges_, captures_,
                                                       convolution_workspace_bytes_, process);
  return [steps, &cost](int64_t batch_size) { return steps->maxima(cost, batch_size); };
}

StepMaxima StepMemory::maxima(const Cost& cost, int process, int64_t batch_size) const {
  return maxima_of(cost, process)(batch_size);
}

int64_t StepMemory::largest_batch(const Cost& cost, int process, int64_t memory_bytes) const {
  const auto maxima = maxima_of(cost, process);
  return sdp::largest_batch([&](int64_t batch) { return maxima(batch).peak.total() <= memory_bytes; });
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

MemoryByKind planned_peak(const Experiment& experiment, int process, bool on_gpu) {
  StepCaptures captures(step_shape(experiment.spec, on_gpu), experiment.plan);
  return StepMemory(experiment.spec, experiment.exchanges, captures, /*convolution_workspace_bytes=*/0)
      .maxima(cost_of(experiment, process), process, experiment.spec.train.batch_size_per_worker)
      .peak;
}

int64_t evaluation_bytes(const Experiment& experiment, bool on_gpu, int64_t convolution_workspace_bytes) {
  const ExperimentSpec& spec = experiment.spec;
  const SubnetPlan& plan = experiment.plan;
  const SlotMap& slot_map = experiment.exchanges.slot_map;
  const Precision precision = spec.train.precision;
  const int64_t sum_bytes = bytes_of(sum_type(precision));
  std::vector<int64_t> values(plan.layout.branches.size() + 2);  // by layer group, those of no branch first
  for (const ParameterLayout& parameter : plan.layout.parameters)
    values[parameter.branch ? static_cast<size_t>(*parameter.branch) + 1 : 0] +=
        parameter.elements() * bytes_of(element_type(parameter, precision));
  int64_t statistics = 0;
  for (const BufferLayout& buffer : plan.layout.buffers)
    statistics += buffer.elements() * sum_bytes;

  const bool is_streamed = spec.eval.mode == EvalMode::kStreamed;
  const int64_t kept = is_streamed ? values.front() : std::reduce(values.begin(), values.end());
  const bool has_average = spec.optimizer.ema_decay > 0;
  // What not all processes have is received beside the tensors that it is copied to; of an average, all.
  const bool is_received = slot_map.processes > 1 && has_subnetworks(plan);
  const int64_t largest = std::ranges::max(values) * sum_bytes / bytes_of(compute_type(precision));
  values.front() = 0;  // not received with a branch
  const int64_t received = has_average ? largest : is_received ? std::ranges::max(values) : 0;

  const SubnetPlan whole = dense_plan(plan, plan.construction);
  const bool copies_batch = on_gpu || spec.model.reads_tokens() || precision != Precision::kFp32;
  const auto pass = [&](int64_t batch_size, bool training) {
    int64_t most = received, now = 0;
    const auto layer_groups =
        record_evaluation(step_shape(spec, on_gpu), whole, batch_size, training, copies_batch);
    for (size_t s = 0; s < layer_groups.size(); ++s) {
      const int64_t bound = is_streamed ? values[s] : 0;
      most = std::max(most, now + bound * (received > 0 ? 2 : 1));
      for (const RecordedEvent& event : layer_groups[s].forward.events) {
        const bool is_workspace =
            event.what == CaptureEvent::What::kConvolution && convolution_workspace_bytes > 0;
        most = std::max(most, now + bound + (is_workspace ? convolution_workspace_bytes : event.bytes));
        if (event.what == CaptureEvent::What::kTensor) now += event.bytes;
      }
    }
    return most;
  };
  const int64_t batch_size = *spec.eval.batch_size;
  int64_t most = pass(std::min(batch_size, spec.eval.max_samples.value_or(batch_size)), false);
  if (statistics > 0 && *spec.eval.recalibrate_batches > 0)
    most = std::max(most, pass(spec.train.batch_size_per_worker, true));
  // Statistics of the slots, the assembled model and, in the trial, both branch scales.
  const int64_t copies =
      slot_map.slots_per_process() + (spec.eval.branch_scale == BranchScale::kAuto ? 3 : 1);
  return copies * statistics + kept * (has_average ? 2 : 1) + most;
}

}  // namespace sdp
