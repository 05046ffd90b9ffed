#include "engine/local_bucket.h"

#include <ATen/ATen.h>

#include <utility>

#include "engine/flat_copies.h"
#include "layers/tensors.h"
#include "process/allocations.h"

namespace sdp {
namespace {

at::Tensor range_of(const at::Tensor& tensor, const SegmentRange& range) {
  return tensor.narrow(0, range.offset, range.elements);
}

int64_t bytes_in(const std::vector<at::Tensor>& tensors) {
  int64_t bytes = 0;
  for (const at::Tensor& tensor : tensors)
    if (tensor.defined()) bytes += static_cast<int64_t>(tensor.nbytes());
  return bytes;
}

}  // namespace

StateRange state_range(const std::string& kind, const SliceRange& slice, const at::Tensor& tensor) {
  return {.kind = kind,
          .parameter = slice.parameter,
          .unit = slice.unit,
          .begin = slice.begin,
          .end = slice.end,
          .values = tensor.narrow(0, slice.offset, slice.elements())};
}

LocalBucket::LocalBucket(const BucketContext& context, int bucket, bool in_place)
    : context_(context),
      layout_(context.exchanges.buckets[bucket]),
      first_of_(context.index.parameters_of[bucket].first_of),
      elements_(elements_on(context.exchanges, bucket, context.comm.rank())),
      sum_options_(at::TensorOptions(scalar_type(sum_type(context.exchanges.options.precision)))
                       .device(context.comm.device())),
      value_options_(sum_options_.dtype(scalar_type(layout_.type))),
      local_exchanges_{make_exchange(bucket, kExchangeKinds[0]), make_exchange(bucket, kExchangeKinds[1]),
                       make_exchange(bucket, kExchangeKinds[2])} {
  add_segments();
  add_state_tensors(in_place);
}

LocalExchange LocalBucket::make_exchange(int bucket, ExchangeKind kind) const {
  return {Exchange(context_.exchanges, bucket, kind), context_.comm,
          kind == ExchangeKind::kGatherValues ? context_.gather_clock : context_.reduce_clock};
}

void LocalBucket::add_segments() {
  const int me = context_.comm.rank();
  const ExchangeOptions& options = context_.exchanges.options;
  std::vector<SegmentRange> held, assembled;
  SegmentOffsets next;  // of the next held segment
  for (size_t s = 0; s < layout_.segments.size(); ++s) {
    const Segment& segment = layout_.segments[s];
    const SegmentRange shard{s, segment.shard_begin(me), segment.shard_elements(me), next.shard};
    SegmentOffsets& offsets = offsets_.emplace_back(next);
    offsets.state = options.shard ? next.shard : next.held + shard.begin;
    const bool gets_values = segment.is_read_by(me) && !segment.holders.empty();
    if (gets_values && !context_.store.is_flat(segment)) {
      offsets.assembled = assembled_elements_;
      assembled.push_back({s, 0, segment.elements, assembled_elements_});
      assembled_elements_ += segment.elements;
    }
    if (!segment.is_held_by(me)) continue;
    held.push_back({s, 0, segment.elements, next.held});
    if (shard.elements > 0) add_shard(shard, segment.owner_slots * options.accumulate_steps);
    next.held += segment.elements;
    next.shard += shard.elements;
    next.first_slice += segment.slices.size();
  }
  const std::vector<SegmentRange>& updated = options.shard ? shards_ : held;
  held_slices_ = slices_in(held);
  shard_slices_ = slices_in(shards_);
  updated_slices_ = slices_in(updated);
  sent_gradients_ = slices_in(exchange_of(ExchangeKind::kReduceGradients).sent());
  assembled_slices_ = slices_in(assembled);
  updated_writes_ = writes_of(updated);
  received_writes_ = writes_of(exchange_of(ExchangeKind::kGatherValues).received());
}

void LocalBucket::add_shard(const SegmentRange& shard, int64_t summands) {
  shards_.push_back(shard);
  if (divisions_.empty() || divisions_.back().summands != summands)
    divisions_.push_back({.begin = shard.offset, .elements = 0, .summands = summands});
  divisions_.back().elements += shard.elements;
}

void LocalBucket::add_state_tensors(bool in_place) {
  const MemoryScope scope(MemoryKind::kOptimizer);
  for (size_t m = 0; m < context_.optimizer.state_names().size(); ++m)
    moments_.push_back(at::zeros({elements_.updated}, sum_options_));
  if (has_master_values(layout_.type, context_.exchanges.options.precision))
    master_ = at::empty({elements_.updated}, sum_options_);
  if (in_place && !updated_slices_.empty()) {
    sent_values_ = slices_in(exchange_of(ExchangeKind::kGatherValues).sent());
    for (const SliceRange& range : updated_slices_) {
      places_.push_back(context_.store.slice(range.parameter, range.unit)
                            .view({-1})
                            .narrow(0, range.begin, range.elements()));
      update_sizes_.push_back(range.elements());
    }
  } else {
    update_sizes_ = {elements_.updated};
  }
  for (const at::Tensor& moment : moments_)
    update_state_.push_back(moment.split_with_sizes(update_sizes_));
}

std::vector<SliceRange> LocalBucket::slices_in(const std::vector<SegmentRange>& ranges) const {
  std::vector<SliceRange> slices;
  for (const SegmentRange& range : ranges)
    for (SliceRange slice : slice_ranges(layout_.segments[range.segment], range.begin, range.elements)) {
      slice.offset += range.offset;
      slice.slice += offsets_[range.segment].first_slice;
      slices.push_back(slice);
    }
  return slices;
}

std::vector<SliceRange> LocalBucket::saved_slices() const {
  std::vector<SegmentRange> saved = shards_;
  for (SegmentRange& range : saved)
    range.offset = offsets_[range.segment].state;
  return slices_in(saved);
}

LocalBucket::Writes LocalBucket::writes_of(const std::vector<SegmentRange>& ranges) const {
  Writes writes;
  std::vector<SegmentRange> flat;
  for (const SegmentRange& range : ranges)
    (offsets_[range.segment].assembled < 0 ? flat : writes.assembled).push_back(range);
  writes.stored = slices_in(flat);
  return writes;
}

void LocalBucket::accumulate(int local_slot, int parameter) {
  allocate_accumulator();
  const int worker = context_.store.slots()[local_slot].worker;
  for (size_t i = 0; i < held_slices_.size(); ++i) {
    const SliceRange& slice = held_slices_[i];
    if (slice.parameter == parameter && context_.plan.holding(worker, slice.unit) == Holding::kOwned)
      sums_[i].add_(context_.store.slice_gradient(local_slot, parameter, slice.unit));
  }
}

void LocalBucket::allocate_accumulator() {
  if (accumulator_.defined()) return;
  accumulator_ = at::zeros({elements_.held}, sum_options_);
  for (const SliceRange& slice : held_slices_)
    sums_.push_back(context_.store.view_as_gradient(accumulator_, slice.offset, slice.parameter, slice.unit));
}

void LocalBucket::begin(ExchangeKind kind) {
  const MemoryScope scope(MemoryKind::kBuckets);
  LocalExchange& exchange = exchange_of(kind);
  exchange.allocate();
  if (kind == ExchangeKind::kReduceGradients)
    take_gradients(exchange);
  else
    pack_shards(exchange, /*of_values=*/kind == ExchangeKind::kGatherValues);
  exchange.start();
}

void LocalBucket::end(ExchangeKind kind) {
  LocalExchange& exchange = exchange_of(kind);
  exchange.wait();
  const MemoryScope scope(kind == ExchangeKind::kGatherValues ? MemoryKind::kBuckets
                                                              : MemoryKind::kGradients);
  if (kind == ExchangeKind::kReduceGradients)
    add_received(exchange);
  else if (kind == ExchangeKind::kGatherGradients)
    assemble_gradients(exchange);
  else
    set_values(exchange);
  exchange.free();
}

/// Buckets are packed from the last to the first, so once a parameter's first slice is packed, all its slices
/// are, and its gradient can be freed.
void LocalBucket::take_gradients(LocalExchange& exchange) {
  const bool accumulates = context_.exchanges.accumulates();
  if (accumulates) allocate_accumulator();
  if (elements_.is_alone && accumulates)
    contribution_ = {accumulator_};
  else if (!places_.empty() && elements_.has_one_summand)
    for (const SliceRange& range : updated_slices_)
      contribution_.push_back(context_.store.flat_gradient(/*local_slot=*/0, range.parameter, range.unit));
  else
    pack_gradients(exchange);
  accumulator_ = at::Tensor();
  sums_.clear();
  if (!accumulates)
    for (int parameter : first_of_)
      context_.store.release_gradients(/*local_slot=*/0, parameter);
}

void LocalBucket::pack_gradients(LocalExchange& exchange) {
  std::vector<at::Tensor> gradients;  // flat, by held slice
  for (const SliceRange& slice : held_slices_)
    gradients.push_back(accumulator_.defined()
                            ? accumulator_.narrow(0, slice.offset, slice.elements())
                            : context_.store.flat_gradient(/*local_slot=*/0, slice.parameter, slice.unit));
  FlatCopies copies;
  const auto pack = [&](const std::vector<SliceRange>& slices, const at::Tensor& to) {
    for (const SliceRange& range : slices)
      copies.add(to.narrow(0, range.offset, range.elements()),
                 gradients[range.slice].narrow(0, range.begin, range.elements()));
  };
  pack(sent_gradients_, exchange.send);
  contribution_ = {at::empty({elements_.shard}, sum_options_)};
  pack(shard_slices_, contribution_.front());
  copies.run();
}

/// Sums in process order, which is worker order, not in order of arrival: the result must not depend on
/// timing.
void LocalBucket::add_received(LocalExchange& exchange) {
  exchange.send = at::Tensor();
  bool adds_own = true;
  if (reductions_ == 0 && elements_.begins_sum) {
    adds_own = false;
    gradients_ = std::move(contribution_);
    for (const at::Tensor& gradient : gradients_)
      assign_kind(gradient, MemoryKind::kGradients);
  } else if (reductions_ == 0) {
    gradients_ = {at::zeros({elements_.shard}, sum_options_)};
  }
  const auto add_own = [&] {
    if (std::exchange(adds_own, false)) gradient_shard().add_(contribution_.front());
  };
  for (const SegmentRange& range : exchange.received()) {
    if (!exchange.precedes_own(range)) add_own();
    gradient_shard()
        .narrow(0, offsets_[range.segment].shard, range.elements)
        .add_(range_of(exchange.receive, range));
  }
  add_own();
  contribution_.clear();
  if (++reductions_ < context_.exchanges.reductions_per_step()) return;
  reductions_ = 0;
  for (const Division& division : divisions_)
    if (division.summands > 1)
      gradient_shard()
          .narrow(0, division.begin, division.elements)
          .div_(static_cast<double>(division.summands));
}

void LocalBucket::pack_shards(LocalExchange& exchange, bool of_values) {
  FlatCopies copies;
  if (of_values && !places_.empty()) {
    for (const SliceRange& slice : sent_values_)
      context_.store.add_read(copies, slice, exchange.send);
  } else {
    for (const SegmentRange& range : exchange.sent()) {
      const SegmentOffsets& offsets = offsets_[range.segment];
      copies.add(range_of(exchange.send, range),
                 of_values ? new_values_.narrow(0, offsets.state, range.elements)
                           : gradient_shard().narrow(0, offsets.shard, range.elements));
    }
  }
  copies.run();
}

/// Assembles the averaged gradient of all held segments from this process's shard and the received shards.
void LocalBucket::assemble_gradients(const LocalExchange& exchange) {
  if (elements_.is_alone) return;
  const at::Tensor full = at::empty({elements_.held}, value_options_);
  FlatCopies copies;
  const auto copy = [&](const SegmentRange& range, const at::Tensor& values) {
    copies.add(full.narrow(0, offsets_[range.segment].held + range.begin, range.elements), values);
  };
  // Round this process's shard to the wire type, in which the other holders receive it, so that all of them
  // apply the same bits.
  for (const SegmentRange& shard : shards_)
    copy(shard, range_of(gradient_shard(), shard).to(exchange.receive.scalar_type()));
  for (const SegmentRange& range : exchange.received())
    copy(range, range_of(exchange.receive, range));
  copies.run();
  gradients_ = {full};
}

/// Sets every segment that this process reads from the values it updated and the values it received. A
/// segment that is not stored contiguously is assembled first.
void LocalBucket::set_values(const LocalExchange& exchange) {
  const at::Tensor assembled = at::empty({assembled_elements_}, value_options_);
  FlatCopies copies;
  const auto write = [&](const Writes& writes, const at::Tensor& values) {
    for (const SliceRange& slice : writes.stored)
      context_.store.add_write(copies, slice, values);
    for (const SegmentRange& range : writes.assembled)
      copies.add(assembled.narrow(0, offsets_[range.segment].assembled + range.begin, range.elements),
                 range_of(values, range));
  };
  if (places_.empty()) write(updated_writes_, new_values_);
  write(received_writes_, exchange.receive);
  copies.run();
  FlatCopies unpacked;
  for (const SliceRange& slice : assembled_slices_)
    context_.store.add_write(unpacked, slice, assembled);
  unpacked.run();
  new_values_ = at::Tensor();
}

at::Tensor LocalBucket::updated_values() const {
  if (master_.defined()) return master_;
  at::Tensor values = at::empty({elements_.updated}, sum_options_);
  FlatCopies copies;
  for (const SliceRange& slice : updated_slices_)
    context_.store.add_read(copies, slice, values);
  copies.run();
  return values;
}

void LocalBucket::step(UpdateStep rates) {
  if (places_.empty()) new_values_ = updated_values();
  rates.lr *= context_.optimizer.lr_factor(layout_.group);
  rates.weight_decay = context_.optimizer.weight_decay(layout_.group, layout_.decays);
  if (elements_.updated > 0) update(context_.optimizer, rates, update_tensors());
  gradients_.clear();
}

UpdateTensors LocalBucket::update_tensors() const {
  UpdateTensors tensors{.values = places_, .gradients = gradients_, .state = update_state_};
  if (places_.empty()) tensors.values = {new_values_};
  if (gradients_.at(0).dtype() != sum_options_.dtype()) tensors.gradients = {gradients_[0].to(sum_options_)};
  if (tensors.gradients.size() != update_sizes_.size())
    tensors.gradients = tensors.gradients[0].split_with_sizes(update_sizes_);
  return tensors;
}

int64_t LocalBucket::optimizer_bytes() const {
  return bytes_in({master_}) + bytes_in(moments_);
}

int64_t LocalBucket::gradient_bytes() const {
  return bytes_in({accumulator_}) + bytes_in(gradients_);
}

/// Master values start from the given values, not from those rounded to the parameter's type.
void LocalBucket::set_master(int parameter, const at::Tensor& full) {
  if (!master_.defined()) return;
  const ParameterLayout& layout = context_.plan.layout.parameters[parameter];
  const std::vector<int> units = context_.plan.units_of(layout);
  for (const SliceRange& range : updated_slices_) {
    if (range.parameter != parameter) continue;
    const at::Tensor slice = slice_view(full, layout.slice, context_.plan, units, range.unit);
    master_.narrow(0, range.offset, range.elements())
        .copy_(slice.reshape({-1}).narrow(0, range.begin, range.elements()));
  }
}

std::vector<StateRange> LocalBucket::state_of(const std::vector<SliceRange>& slices,
                                              const at::Tensor& values) const {
  const std::vector<std::string> names = context_.optimizer.state_names();
  std::vector<StateRange> ranges;
  for (const SliceRange& slice : slices) {
    if (values.defined()) ranges.push_back(state_range("value", slice, values));
    for (size_t m = 0; m < names.size(); ++m)
      ranges.push_back(state_range(names[m], slice, moments_[m]));
  }
  return ranges;
}

at::Tensor LocalBucket::find_state(const std::string& kind, int parameter, int unit) const {
  for (const SliceRange& slice : updated_slices_)
    if (slice.parameter == parameter && slice.unit == unit)
      for (const StateRange& range : state_of({slice}, master_))
        if (range.kind == kind) return range.values;
  return {};
}

void LocalBucket::load(const std::function<void(const StateRange& range)>& read) {
  for (const StateRange& range : state_of(updated_slices_, master_))
    read(range);
  for (const Segment& segment : layout_.segments) {
    if (!segment.is_read_by(context_.comm.rank())) continue;
    const at::Tensor values = at::empty({segment.elements}, value_options_);
    FlatCopies copies;
    for (const SliceRange& slice : slice_ranges(segment, 0, segment.elements)) {
      read(state_range("value", slice, values));
      context_.store.add_write(copies, slice, values);
    }
    copies.run();
  }
}

void LocalBucket::read_average(int parameter, int unit, const at::Tensor& flat) const {
  for (const SliceRange& range : saved_slices())
    if (range.parameter == parameter && range.unit == unit)
      flat.narrow(0, range.begin, range.elements())
          .copy_(moments_.back().narrow(0, range.offset, range.elements()));
}

}  // namespace sdp
