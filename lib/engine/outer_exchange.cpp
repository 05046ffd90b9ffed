#include "engine/outer_exchange.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <map>
#include <optional>

#include "engine/flat_copies.h"
#include "engine/local_exchange.h"
#include "experiment/local_plan.h"
#include "layers/tensors.h"
#include "process/allocations.h"
#include "subnet/exchange.h"

namespace sdp {

/// A bucket on one process. Flat tensors are [copies]: every segment of every local owner, [held]: every
/// segment that a local worker owns, [read]: the same with frozen ones, and [shard]: what the process sums.
class OuterExchange::Bucket {
 public:
  Bucket(OuterExchange& outer, const SubnetPlan& plan, const ExchangePlan& exchanges, int bucket,
         const std::vector<Engine*>& engines);

  void set_anchors();
  void exchange();
  int64_t bytes() const;
  std::vector<StateRange> state() const;
  void load(const std::function<void(const StateRange& range)>& read);
  void read_average(int parameter, int unit, const at::Tensor& flat) const;

 private:
  /// A segment as a local worker owns it. Its tensors are views of the engine's, by slice.
  struct Copy {
    int worker = 0;
    SegmentRange range;  ///< in [copies]
    std::vector<at::Tensor> values;
    std::vector<std::vector<at::Tensor>> moments;  ///< by name
  };
  /// A slice's values, wherever an engine stores them, and where the slice is in [read].
  struct Target {
    at::Tensor values;
    int64_t offset = 0;
  };
  /// One summand of a shard: in [copies] or, of another process's worker, in what was received.
  struct Summand {
    bool is_own = true;
    int64_t offset = 0;
  };
  struct Message {
    std::vector<SegmentRange> ranges;  ///< offsets in [copies]
    std::vector<int64_t> splits;
    int64_t elements = 0;
  };

  void add_segments(const std::vector<Engine*>& engines);
  void add_copy(Engine& engine, int worker, size_t segment);
  void add_targets(const Engine& engine, size_t segment);
  void add_messages();
  std::vector<int> owners_on(int process, size_t segment) const;

  at::Tensor flat(const std::function<const std::vector<at::Tensor>&(const Copy&)>& tensors) const;
  at::Tensor mean_over_owners(const at::Tensor& of_copies);
  at::Tensor gather(const at::Tensor& shard);
  at::Tensor anchor_shard() const;
  void set_values(const at::Tensor& read);
  void average_moments();
  StateRange range_of(const char* kind, const SliceRange& slice, const at::Tensor& tensor) const;

  OuterExchange& outer_;
  const SubnetPlan& plan_;
  const ExchangePlan& exchanges_;
  const sdp::Bucket& layout_;
  const Exchange reduction_;
  LocalExchange values_;
  const at::TensorOptions options_;

  std::vector<Copy> copies_;
  std::vector<Target> targets_;
  std::map<size_t, int64_t> held_;  ///< by segment: offset in [held]
  std::map<size_t, int64_t> read_;
  std::vector<SegmentRange> shards_;
  std::vector<std::vector<Summand>> summands_;  ///< by shard, in the order of workers
  Message sent_;
  std::vector<int64_t> received_splits_;
  int64_t copied_elements_ = 0, held_elements_ = 0, read_elements_ = 0, shard_elements_ = 0;
  int64_t received_elements_ = 0;

  at::Tensor anchors_;   ///< [held]
  at::Tensor momentum_;  ///< [shard]; undefined without momentum
  at::Tensor average_;   ///< [shard]; undefined without ema_decay
};

OuterExchange::Bucket::Bucket(OuterExchange& outer, const SubnetPlan& plan, const ExchangePlan& exchanges,
                              int bucket, const std::vector<Engine*>& engines)
    : outer_(outer),
      plan_(plan),
      exchanges_(exchanges),
      layout_(exchanges.buckets[static_cast<size_t>(bucket)]),
      reduction_(exchanges, bucket, ExchangeKind::kReduceGradients),
      values_(Exchange(exchanges, bucket, ExchangeKind::kGatherValues), outer.comm_, outer.gather_clock_),
      options_(at::TensorOptions(scalar_type(layout_.type)).device(outer.comm_.device())) {
  add_segments(engines);
  add_messages();
  const MemoryScope scope(MemoryKind::kOptimizer);
  anchors_ = at::zeros({held_elements_}, options_);
  if (outer.spec_.outer.momentum > 0) momentum_ = at::zeros({shard_elements_}, options_);
  if (outer.ema_decay_ > 0) average_ = at::zeros({shard_elements_}, options_);
}

void OuterExchange::Bucket::add_segments(const std::vector<Engine*>& engines) {
  const int me = outer_.comm_.rank();
  for (size_t s = 0; s < layout_.segments.size(); ++s) {
    const Segment& segment = layout_.segments[s];
    if (!segment.is_read_by(me)) continue;
    read_[s] = read_elements_;
    for (Engine* engine : engines) {
      const int worker = engine->store().slots().front().worker;
      if (plan_.owners(segment.unit).contains(worker)) add_copy(*engine, worker, s);
      add_targets(*engine, s);
    }
    read_elements_ += segment.elements;
    if (!segment.is_held_by(me)) continue;
    held_[s] = held_elements_;
    held_elements_ += segment.elements;
    if (const int64_t elements = segment.shard_elements(me); elements > 0) {
      shards_.push_back({s, segment.shard_begin(me), elements, shard_elements_});
      shard_elements_ += elements;
    }
  }
}

void OuterExchange::Bucket::add_copy(Engine& engine, int worker, size_t s) {
  const Segment& segment = layout_.segments[s];
  Copy& copy = copies_.emplace_back();
  copy.worker = worker;
  copy.range = {s, 0, segment.elements, copied_elements_};
  copied_elements_ += segment.elements;
  copy.moments.resize(outer_.inner_states_.size());
  for (const Slice& slice : segment.slices) {
    const at::Tensor master = engine.find_state("value", slice.parameter, segment.unit);
    copy.values.push_back(master.defined() ? master : engine.store().slice(slice.parameter, segment.unit));
    if (master.defined()) targets_.push_back({master, read_.at(s) + slice.offset});
    for (size_t m = 0; m < copy.moments.size(); ++m)
      copy.moments[m].push_back(engine.find_state(outer_.inner_states_[m], slice.parameter, segment.unit));
  }
}

void OuterExchange::Bucket::add_targets(const Engine& engine, size_t s) {
  const Segment& segment = layout_.segments[s];
  for (const Slice& slice : segment.slices) {
    const auto stored = engine.store().slices().find({slice.parameter, segment.unit});
    if (stored == engine.store().slices().end()) continue;
    for (const at::Tensor& view : stored->second)
      targets_.push_back({view, read_.at(s) + slice.offset});
  }
}

/// The process's owners of the segment.
std::vector<int> OuterExchange::Bucket::owners_on(int process, size_t segment) const {
  std::vector<int> owners;
  for (const int worker : workers_of(exchanges_.slot_map, process))
    if (plan_.owners(layout_.segments[segment].unit).contains(worker)) owners.push_back(worker);
  return owners;
}

/// A message has each range once for every worker of the sender that owns it.
void OuterExchange::Bucket::add_messages() {
  const int me = outer_.comm_.rank();
  std::map<std::pair<size_t, int>, Summand> found;  // of this process's shards, by segment and worker
  for (const Copy& copy : copies_)
    found[{copy.range.segment, copy.worker}] = {
        .is_own = true, .offset = copy.range.offset + layout_.segments[copy.range.segment].shard_begin(me)};
  for (int other = 0; other < outer_.comm_.size(); ++other) {
    const int64_t sent_before = sent_.elements, received_before = received_elements_;
    reduction_.for_each_range(me, other, [&](size_t segment, int64_t begin, int64_t elements) {
      for (const Copy& copy : copies_) {
        if (copy.range.segment != segment) continue;
        sent_.ranges.push_back({segment, begin, elements, copy.range.offset + begin});
        sent_.elements += elements;
      }
    });
    reduction_.for_each_range(other, me, [&](size_t segment, int64_t, int64_t elements) {
      for (const int worker : owners_on(other, segment)) {
        found[{segment, worker}] = {.is_own = false, .offset = received_elements_};
        received_elements_ += elements;
      }
    });
    sent_.splits.push_back(sent_.elements - sent_before);
    received_splits_.push_back(received_elements_ - received_before);
  }
  for (const SegmentRange& shard : shards_) {
    std::vector<Summand>& summands = summands_.emplace_back();
    for (const int worker : plan_.owners(layout_.segments[shard.segment].unit))
      summands.push_back(found.at({shard.segment, worker}));
  }
}

/// [copies] of the tensors that each copy has by slice.
at::Tensor OuterExchange::Bucket::flat(
    const std::function<const std::vector<at::Tensor>&(const Copy&)>& tensors) const {
  const at::Tensor all = at::empty({copied_elements_}, options_);
  FlatCopies copies;
  for (const Copy& copy : copies_) {
    const std::vector<Slice>& slices = layout_.segments[copy.range.segment].slices;
    for (size_t i = 0; i < slices.size(); ++i) {
      const at::Tensor& from = tensors(copy)[i];
      copies.add(all.narrow(0, copy.range.offset + slices[i].offset, slices[i].elements).view(from.sizes()),
                 from);
    }
  }
  copies.run();
  return all;
}

/// [shard]. Frees `of_copies` if the caller does not hold it.
at::Tensor OuterExchange::Bucket::mean_over_owners(const at::Tensor& of_copies) {
  const at::Tensor send = at::empty({sent_.elements}, options_);
  const at::Tensor received = at::empty({received_elements_}, options_);
  FlatCopies packed;
  int64_t offset = 0;
  for (const SegmentRange& range : sent_.ranges) {
    packed.add(send.narrow(0, offset, range.elements), of_copies.narrow(0, range.offset, range.elements));
    offset += range.elements;
  }
  packed.run();
  if (reduction_.has_peers()) {
    auto start = outer_.reduce_clock_.start(static_cast<int64_t>(send.nbytes()));
    Pending pending = outer_.comm_.all_to_all(received, send, received_splits_, sent_.splits);
    outer_.reduce_clock_.wait(std::move(start), pending);
  }
  const at::Tensor mean = at::empty({shard_elements_}, options_);
  for (size_t i = 0; i < shards_.size(); ++i) {
    const at::Tensor sum = mean.narrow(0, shards_[i].offset, shards_[i].elements);
    bool is_first = true;
    for (const Summand& summand : summands_[i]) {
      const at::Tensor one =
          (summand.is_own ? of_copies : received).narrow(0, summand.offset, shards_[i].elements);
      if (std::exchange(is_first, false))
        sum.copy_(one);
      else
        sum.add_(one);
    }
    sum.div_(static_cast<double>(summands_[i].size()));
  }
  return mean;
}

/// [read]: every process's shard.
at::Tensor OuterExchange::Bucket::gather(const at::Tensor& shard) {
  const at::Tensor whole = at::empty({read_elements_}, options_);
  const auto place_of = [&](const SegmentRange& range) {
    return whole.narrow(0, read_.at(range.segment) + range.begin, range.elements);
  };
  values_.allocate();
  FlatCopies packed;
  std::map<size_t, int64_t> shard_of;  // by segment
  for (const SegmentRange& range : shards_) {
    shard_of[range.segment] = range.offset;
    packed.add(place_of(range), shard.narrow(0, range.offset, range.elements));
  }
  for (const SegmentRange& range : values_.sent())
    packed.add(values_.send.narrow(0, range.offset, range.elements),
               shard.narrow(0, shard_of.at(range.segment), range.elements));
  packed.run();
  values_.start();
  values_.wait();
  FlatCopies unpacked;
  for (const SegmentRange& range : values_.received())
    unpacked.add(place_of(range), values_.receive.narrow(0, range.offset, range.elements));
  unpacked.run();
  values_.free();
  return whole;
}

at::Tensor OuterExchange::Bucket::anchor_shard() const {
  std::vector<at::Tensor> parts = {at::empty({0}, options_)};
  for (const SegmentRange& shard : shards_)
    parts.push_back(anchors_.narrow(0, held_.at(shard.segment) + shard.begin, shard.elements));
  return at::cat(parts);
}

void OuterExchange::Bucket::exchange() {
  const MemoryScope scope(MemoryKind::kBuckets);
  const OuterSpec& rule = outer_.spec_.outer;
  at::Tensor changes = flat([](const Copy& copy) -> const auto& { return copy.values; }).neg_();
  for (const Copy& copy : copies_)
    changes.narrow(0, copy.range.offset, copy.range.elements)
        .add_(anchors_.narrow(0, held_.at(copy.range.segment), copy.range.elements));
  const auto add_squares = [&](int64_t index, const at::Tensor& x) {
    outer_.squares_[index].add_(at::dot(x, x));  // in one pass, without a copy
  };
  add_squares(0, changes);
  at::Tensor update = mean_over_owners(changes);
  changes.reset();
  add_squares(1, update);
  if (momentum_.defined()) {
    momentum_.mul_(rule.momentum).add_(update);
    update = rule.nesterov ? update.add_(momentum_, rule.momentum) : momentum_.clone();
  }
  update.mul_(rule.lr);
  add_squares(2, update);
  const at::Tensor shard = anchor_shard().sub_(update);
  if (average_.defined()) average_.mul_(outer_.ema_decay_).add_(shard, 1 - outer_.ema_decay_);
  set_values(gather(shard));
  if (outer_.spec_.inner_state != InnerState::kKeep) average_moments();
}

/// Sets anchors and all values of the engines.
void OuterExchange::Bucket::set_values(const at::Tensor& read) {
  FlatCopies copies;
  for (const auto& [segment, offset] : held_) {
    const int64_t elements = layout_.segments[segment].elements;
    copies.add(anchors_.narrow(0, offset, elements), read.narrow(0, read_.at(segment), elements));
  }
  for (const Target& target : targets_)
    copies.add(target.values,
               read.narrow(0, target.offset, target.values.numel()).view(target.values.sizes()));
  copies.run();
}

void OuterExchange::Bucket::average_moments() {
  for (size_t m = 0; m < outer_.inner_states_.size(); ++m) {
    const auto moment = [m](const Copy& copy) -> const auto& { return copy.moments[m]; };
    const bool resets = outer_.spec_.inner_state == InnerState::kReset;
    const at::Tensor read = resets ? at::zeros({read_elements_}, options_) : gather(mean_over_owners(flat(moment)));
    FlatCopies copies;
    for (const Copy& copy : copies_) {
      const std::vector<Slice>& slices = layout_.segments[copy.range.segment].slices;
      for (size_t i = 0; i < slices.size(); ++i)
        copies.add(moment(copy)[i],
                   read.narrow(0, read_.at(copy.range.segment) + slices[i].offset, slices[i].elements));
    }
    copies.run();
  }
}

void OuterExchange::Bucket::set_anchors() {
  for (const Copy& copy : copies_) {
    const std::vector<Slice>& slices = layout_.segments[copy.range.segment].slices;
    for (size_t i = 0; i < slices.size(); ++i)
      anchors_.narrow(0, held_.at(copy.range.segment) + slices[i].offset, slices[i].elements)
          .view(copy.values[i].sizes())
          .copy_(copy.values[i]);
  }
  if (average_.defined()) average_.copy_(anchor_shard());
}

int64_t OuterExchange::Bucket::bytes() const {
  int64_t bytes = 0;
  for (const at::Tensor& tensor : {anchors_, momentum_, average_})
    if (tensor.defined()) bytes += static_cast<int64_t>(tensor.nbytes());
  return bytes;
}

StateRange OuterExchange::Bucket::range_of(const char* kind, const SliceRange& slice,
                                           const at::Tensor& tensor) const {
  return {.kind = kind,
          .parameter = slice.parameter,
          .unit = slice.unit,
          .begin = slice.begin,
          .end = slice.end,
          .values = tensor.narrow(0, slice.offset, slice.elements())};
}

std::vector<StateRange> OuterExchange::Bucket::state() const {
  std::vector<StateRange> ranges;
  const at::Tensor anchors = anchor_shard();
  for (const SegmentRange& shard : shards_)
    for (SliceRange slice : slice_ranges(layout_.segments[shard.segment], shard.begin, shard.elements)) {
      slice.offset += shard.offset;
      ranges.push_back(range_of("value", slice, anchors));
      if (momentum_.defined()) ranges.push_back(range_of(kOuterMomentumName, slice, momentum_));
      if (average_.defined()) ranges.push_back(range_of(kAverageName, slice, average_));
    }
  return ranges;
}

void OuterExchange::Bucket::load(const std::function<void(const StateRange& range)>& read) {
  for (const auto& [segment, offset] : held_)
    for (SliceRange slice : slice_ranges(layout_.segments[segment], 0, layout_.segments[segment].elements)) {
      slice.offset += offset;
      read(range_of("value", slice, anchors_));
    }
  for (const StateRange& range : state())
    if (range.kind != "value") read(range);
}

void OuterExchange::Bucket::read_average(int parameter, int unit, const at::Tensor& flat) const {
  for (const StateRange& range : state())
    if (range.kind == kAverageName && range.parameter == parameter && range.unit == unit)
      flat.narrow(0, range.begin, range.end - range.begin).copy_(range.values);
}

OuterExchange::OuterExchange(const SubnetPlan& plan, const ExchangePlan& exchanges, const ExchangeSpec& spec,
                             double ema_decay, const std::vector<Engine*>& engines, Communicator& comm)
    : spec_(spec),
      ema_decay_(ema_decay),
      inner_states_(engines.front()->state_names()),
      comm_(comm),
      reduce_clock_(comm),
      gather_clock_(comm),
      squares_(at::zeros({3}, at::TensorOptions(at::kDouble).device(comm.device()))) {
  for (int b = 0; b < static_cast<int>(exchanges.buckets.size()); ++b)
    buckets_.push_back(std::make_unique<Bucket>(*this, plan, exchanges, b, engines));
}

OuterExchange::~OuterExchange() = default;

void OuterExchange::set_anchors() {
  const at::NoGradGuard no_grad;
  for (const auto& bucket : buckets_)
    bucket->set_anchors();
}

void OuterExchange::run() {
  const at::NoGradGuard no_grad;
  const PhaseScope phase(comm_, "exchange");
  squares_.zero_();
  for (const auto& bucket : buckets_)
    bucket->exchange();
  is_between_rounds_ = true;
}

int64_t OuterExchange::bytes() const {
  int64_t bytes = 0;
  for (const auto& bucket : buckets_)
    bytes += bucket->bytes();
  return bytes;
}

void OuterExchange::read_average(int parameter, int unit, const at::Tensor& flat) const {
  for (const auto& bucket : buckets_)
    bucket->read_average(parameter, unit, flat);
}

std::vector<StateRange> OuterExchange::owned_state() const {
  std::vector<StateRange> ranges;
  for (const auto& bucket : buckets_)
    for (StateRange& range : bucket->state())
      ranges.push_back(std::move(range));
  return ranges;
}

void OuterExchange::load_state(const std::function<void(const StateRange& range)>& read) {
  const at::NoGradGuard no_grad;
  for (const auto& bucket : buckets_)
    bucket->load(read);
}

}  // namespace sdp
