#include "engine/outer_exchange.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <map>
#include <utility>

#include "engine/flat_copies.h"
#include "engine/local_exchange.h"
#include "layers/tensors.h"
#include "process/allocations.h"
#include "subnet/exchange.h"

namespace sdp {

/// A bucket on one process. Its flat tensors are [copies]: the segments of every local owner; [read]: all
/// segments that the process stores, those that it holds first; [held]: these; [shard]: what it averages.
class OuterExchange::Bucket {
 public:
  Bucket(OuterExchange& outer, const SubnetPlan& plan, const ExchangePlan& exchanges, int bucket,
         const std::vector<Engine*>& engines);

  void set_anchors();
  void exchange();
  std::vector<StateRange> state() const;
  void load(const std::function<void(const StateRange& range)>& read);
  void read_average(int parameter, int unit, const at::Tensor& flat) const;

 private:
  /// A slice as an engine stores it, and where it is in flat tensors. Of an owner, one is also a copy.
  struct Place {
    at::Tensor values;
    int64_t read = 0;
    int64_t copy = 0;
  };
  /// What a worker contributes to a shard: in [copies] or, of another process's worker, in what is received.
  struct Summand {
    bool is_own = true;
    int64_t offset = 0;
  };
  struct Messages {
    std::vector<int64_t> splits;  ///< by process
    int64_t elements = 0;
  };

  void add_segments();
  void add_places(Engine& engine, size_t segment);
  void add_messages();
  std::vector<int> owners_on(int process, size_t segment) const;

  at::Tensor flat(const std::vector<Place>& copies) const;
  void set(const std::vector<Place>& places, const at::Tensor& read) const;
  at::Tensor mean_over_owners(const at::Tensor& of_copies);
  at::Tensor gather(const at::Tensor& shard);
  at::Tensor anchor_shard() const;
  void exchange_values();
  void add_squares(int64_t index, const at::Tensor& x) { outer_.squares_[index].add_(at::dot(x, x)); }

  OuterExchange& outer_;
  const SubnetPlan& plan_;
  const SlotMap& slot_map_;
  const sdp::Bucket& layout_;
  const Exchange reduction_;
  LocalExchange values_;
  const at::TensorOptions options_;

  std::map<size_t, int64_t> offsets_;                     ///< by segment: in [read]
  std::map<std::pair<size_t, int>, int64_t> copies_;      ///< by segment and worker: in [copies]
  std::vector<Place> owned_;                              ///< one per slice of a copy
  std::vector<std::vector<Place>> moments_;               ///< by name: likewise
  std::vector<Place> stored_;                             ///< all places of values
  std::vector<SegmentRange> shards_;                      ///< offsets in [shard]
  std::vector<std::vector<Summand>> summands_;            ///< by shard, in the order of workers
  std::vector<std::pair<int64_t, int64_t>> sent_ranges_;  ///< in [copies]: first element, elements
  Messages sent_, received_;
  int64_t copy_elements_ = 0, read_elements_ = 0, held_elements_ = 0, shard_elements_ = 0;

  at::Tensor anchors_;   ///< [held]
  at::Tensor momentum_;  ///< [shard]; undefined without momentum
  at::Tensor average_;   ///< [shard]; undefined without ema_decay
};

OuterExchange::Bucket::Bucket(OuterExchange& outer, const SubnetPlan& plan, const ExchangePlan& exchanges,
                              int bucket, const std::vector<Engine*>& engines)
    : outer_(outer),
      plan_(plan),
      slot_map_(exchanges.slot_map),
      layout_(exchanges.buckets[static_cast<size_t>(bucket)]),
      reduction_(exchanges, bucket, ExchangeKind::kReduceGradients),
      values_(Exchange(exchanges, bucket, ExchangeKind::kGatherValues), outer.comm_, outer.gather_clock_),
      options_(at::TensorOptions(scalar_type(layout_.type)).device(outer.comm_.device())),
      moments_(outer.inner_states_.size()) {
  add_segments();
  for (Engine* engine : engines)
    for (const auto& [segment, offset] : offsets_)
      add_places(*engine, segment);
  add_messages();
  const MemoryScope scope(MemoryKind::kOptimizer);
  anchors_ = at::zeros({held_elements_}, options_);
  if (outer.spec_.outer.momentum > 0) momentum_ = at::zeros({shard_elements_}, options_);
  if (outer.ema_decay_ > 0) average_ = at::zeros({shard_elements_}, options_);
}

void OuterExchange::Bucket::add_segments() {
  const int me = outer_.comm_.rank();
  for (const bool held : {true, false}) {
    for (size_t s = 0; s < layout_.segments.size(); ++s) {
      const Segment& segment = layout_.segments[s];
      if (!segment.is_read_by(me) || segment.is_held_by(me) != held) continue;
      offsets_[s] = std::exchange(read_elements_, read_elements_ + segment.elements);
      const int64_t shard = segment.shard_elements(me);
      if (shard == 0) continue;
      shards_.push_back({s, segment.shard_begin(me), shard, shard_elements_});
      shard_elements_ += shard;
    }
    if (held) held_elements_ = read_elements_;
  }
}

void OuterExchange::Bucket::add_places(Engine& engine, size_t s) {
  const Segment& segment = layout_.segments[s];
  const int worker = engine.store().slots().front().worker;
  const bool is_copy = plan_.owners(segment.unit).contains(worker);
  if (is_copy) copies_[{s, worker}] = std::exchange(copy_elements_, copy_elements_ + segment.elements);
  for (const Slice& slice : segment.slices) {
    const std::pair key(slice.parameter, segment.unit);
    const int64_t read = offsets_.at(s) + slice.offset;
    if (const auto found = engine.store().slices().find(key); found != engine.store().slices().end())
      for (const at::Tensor& view : found->second)
        stored_.push_back({view, read});
    if (!is_copy) continue;
    const int64_t copy = copies_.at({s, worker}) + slice.offset;
    const at::Tensor master = engine.find_state("value", key.first, key.second);
    if (master.defined()) stored_.push_back({master, read});
    owned_.push_back({stored_.back().values, read, copy});
    for (size_t m = 0; m < moments_.size(); ++m)
      moments_[m].push_back({engine.find_state(outer_.inner_states_[m], key.first, key.second), read, copy});
  }
}

std::vector<int> OuterExchange::Bucket::owners_on(int process, size_t segment) const {
  std::vector<int> owners;
  for (const int worker : slot_map_.workers_of(process))
    if (plan_.owners(layout_.segments[segment].unit).contains(worker)) owners.push_back(worker);
  return owners;
}

/// A message has each range once for every worker of the sender that owns it.
void OuterExchange::Bucket::add_messages() {
  const int me = outer_.comm_.rank();
  std::map<std::pair<size_t, int>, Summand> found;  // of this process's shards, by segment and worker
  for (const SegmentRange& shard : shards_)
    for (const int worker : owners_on(me, shard.segment))
      found[{shard.segment, worker}] = {true, copies_.at({shard.segment, worker}) + shard.begin};
  for (int other = 0; other < outer_.comm_.size(); ++other) {
    const int64_t sent_before = sent_.elements, received_before = received_.elements;
    reduction_.for_each_range(me, other, [&](size_t segment, int64_t begin, int64_t elements) {
      for (const int worker : owners_on(me, segment)) {
        sent_ranges_.emplace_back(copies_.at({segment, worker}) + begin, elements);
        sent_.elements += elements;
      }
    });
    reduction_.for_each_range(other, me, [&](size_t segment, int64_t, int64_t elements) {
      for (const int worker : owners_on(other, segment))
        found[{segment, worker}] = {false, std::exchange(received_.elements, received_.elements + elements)};
    });
    sent_.splits.push_back(sent_.elements - sent_before);
    received_.splits.push_back(received_.elements - received_before);
  }
  for (const SegmentRange& shard : shards_) {
    std::vector<Summand>& summands = summands_.emplace_back();
    for (const int worker : plan_.owners(layout_.segments[shard.segment].unit))
      summands.push_back(found.at({shard.segment, worker}));
  }
}

/// [copies]
at::Tensor OuterExchange::Bucket::flat(const std::vector<Place>& copies) const {
  const at::Tensor all = at::empty({copy_elements_}, options_);
  FlatCopies packed;
  for (const Place& place : copies)
    packed.add(all.narrow(0, place.copy, place.values.numel()).view(place.values.sizes()), place.values);
  packed.run();
  return all;
}

void OuterExchange::Bucket::set(const std::vector<Place>& places, const at::Tensor& read) const {
  FlatCopies copies;
  for (const Place& place : places)
    copies.add(place.values, read.narrow(0, place.read, place.values.numel()).view(place.values.sizes()));
  copies.run();
}

/// [shard]
at::Tensor OuterExchange::Bucket::mean_over_owners(const at::Tensor& of_copies) {
  const at::Tensor send = at::empty({sent_.elements}, options_);
  const at::Tensor received = at::empty({received_.elements}, options_);
  FlatCopies packed;
  int64_t offset = 0;
  for (const auto& [begin, elements] : sent_ranges_)
    packed.add(send.narrow(0, std::exchange(offset, offset + elements), elements),
               of_copies.narrow(0, begin, elements));
  packed.run();
  if (reduction_.has_peers()) {
    auto start = outer_.reduce_clock_.start(static_cast<int64_t>(send.nbytes()));
    Pending pending = outer_.comm_.all_to_all(received, send, received_.splits, sent_.splits);
    outer_.reduce_clock_.wait(std::move(start), pending);
  }
  const at::Tensor mean = at::zeros({shard_elements_}, options_);
  for (size_t i = 0; i < shards_.size(); ++i) {
    const at::Tensor sum = mean.narrow(0, shards_[i].offset, shards_[i].elements);
    for (const Summand& summand : summands_[i])
      sum.add_((summand.is_own ? of_copies : received).narrow(0, summand.offset, sum.numel()));
    sum.div_(static_cast<double>(summands_[i].size()));
  }
  return mean;
}

/// [read], from all shards
at::Tensor OuterExchange::Bucket::gather(const at::Tensor& shard) {
  const at::Tensor read = at::empty({read_elements_}, options_);
  const auto place_of = [&](const SegmentRange& range) {
    return read.narrow(0, offsets_.at(range.segment) + range.begin, range.elements);
  };
  for (const SegmentRange& range : shards_)
    place_of(range).copy_(shard.narrow(0, range.offset, range.elements));
  values_.allocate();
  FlatCopies packed;
  for (const SegmentRange& range : values_.sent())
    packed.add(values_.send.narrow(0, range.offset, range.elements), place_of(range));
  packed.run();
  values_.start();
  values_.wait();
  FlatCopies unpacked;
  for (const SegmentRange& range : values_.received())
    unpacked.add(place_of(range), values_.receive.narrow(0, range.offset, range.elements));
  unpacked.run();
  values_.free();
  return read;
}

at::Tensor OuterExchange::Bucket::anchor_shard() const {
  std::vector<at::Tensor> parts = {at::empty({0}, options_)};
  for (const SegmentRange& shard : shards_)
    parts.push_back(anchors_.narrow(0, offsets_.at(shard.segment) + shard.begin, shard.elements));
  return at::cat(parts);
}

void OuterExchange::Bucket::exchange_values() {
  const OuterSpec& rule = outer_.spec_.outer;
  at::Tensor changes = flat(owned_).neg_();
  for (const auto& [copy, offset] : copies_) {
    const int64_t elements = layout_.segments[copy.first].elements;
    changes.narrow(0, offset, elements).add_(anchors_.narrow(0, offsets_.at(copy.first), elements));
  }
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
  if (average_.defined()) average_.lerp_(shard, 1 - outer_.ema_decay_);
  const at::Tensor read = gather(shard);
  anchors_.copy_(read.narrow(0, 0, held_elements_));
  set(stored_, read);
}

void OuterExchange::Bucket::exchange() {
  const MemoryScope scope(MemoryKind::kBuckets);
  exchange_values();
  for (const std::vector<Place>& moment : moments_) {
    if (outer_.spec_.inner_state == InnerState::kAverage) {
      const at::Tensor mean = mean_over_owners(flat(moment));
      set(moment, gather(mean));
    } else if (outer_.spec_.inner_state == InnerState::kReset) {
      for (const Place& place : moment)
        place.values.zero_();
    }
  }
}

void OuterExchange::Bucket::set_anchors() {
  for (const Place& place : owned_)
    anchors_.narrow(0, place.read, place.values.numel()).view(place.values.sizes()).copy_(place.values);
  if (average_.defined()) average_.copy_(anchor_shard());
}

std::vector<StateRange> OuterExchange::Bucket::state() const {
  const std::pair<const char*, at::Tensor> kinds[] = {
      {"value", anchor_shard()}, {kOuterMomentumName, momentum_}, {kAverageName, average_}};
  std::vector<StateRange> ranges;
  for (const SegmentRange& shard : shards_)
    for (const SliceRange& slice : slice_ranges(layout_.segments[shard.segment], shard.begin, shard.elements))
      for (const auto& [kind, tensor] : kinds)
        if (tensor.defined())
          ranges.push_back(state_range(kind, slice, tensor.narrow(0, shard.offset, shard.elements)));
  return ranges;
}

void OuterExchange::Bucket::load(const std::function<void(const StateRange& range)>& read) {
  for (const auto& [s, offset] : offsets_)
    if (offset < held_elements_)
      for (const SliceRange& slice : slice_ranges(layout_.segments[s], 0, layout_.segments[s].elements))
        read(state_range("value", slice, anchors_.narrow(0, offset, layout_.segments[s].elements)));
  for (const StateRange& range : state())
    if (range.kind != "value") read(range);
}

void OuterExchange::Bucket::read_average(int parameter, int unit, const at::Tensor& flat) const {
  for (const SegmentRange& shard : shards_) {
    const Segment& segment = layout_.segments[shard.segment];
    if (segment.unit != unit) continue;
    const at::Tensor average = average_.narrow(0, shard.offset, shard.elements);
    for (const SliceRange& slice : slice_ranges(segment, shard.begin, shard.elements))
      if (slice.parameter == parameter)
        flat.narrow(0, slice.begin, slice.elements())
            .copy_(average.narrow(0, slice.offset, slice.elements()));
  }
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
