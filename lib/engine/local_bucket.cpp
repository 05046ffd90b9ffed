#include "engine/local_bucket.h"

#include <ATen/ATen.h>

#include <utility>

#include "engine/flat_copies.h"
#include "memory/allocations.h"
#include "model/tensors.h"

namespace sdp {
namespace {

at::Tensor range_of(const at::Tensor& tensor, const SegmentRange& range) {
  return tensor.narrow(0, range.offset, range.elements);
}

StateRange state_range(const std::string& kind, const PieceRange& piece, const at::Tensor& tensor) {
  return {.kind = kind,
          .parameter = piece.parameter,
          .unit = piece.unit,
          .begin = piece.begin,
          .end = piece.end,
          .values = tensor.narrow(0, piece.offset, piece.elements())};
}

int64_t bytes_in(const std::vector<at::Tensor>& tensors) {
  int64_t bytes = 0;
  for (const at::Tensor& tensor : tensors)
    if (tensor.defined()) bytes += static_cast<int64_t>(tensor.nbytes());
  return bytes;
}

}  // namespace

LocalBucket::LocalBucket(const BucketContext& context, int bucket, bool in_place)
    : context_(context),
      layout_(context.schedule.buckets[bucket]),
      first_of_(context.index.parameters_of[bucket].first_of),
      elements_(elements_on(context.schedule, bucket, context.comm.rank())),
      sum_options_(at::TensorOptions(scalar_type(sum_type(context.schedule.options.precision)))
                       .device(context.comm.device())),
      value_options_(sum_options_.dtype(scalar_type(layout_.type))),
      local_exchanges_{exchange_of(bucket, kExchangeKinds[0]), exchange_of(bucket, kExchangeKinds[1]),
                       exchange_of(bucket, kExchangeKinds[2])} {
  add_segments();
  add_state_tensors(in_place);
}

LocalExchange LocalBucket::exchange_of(int bucket, ExchangeKind kind) const {
  return {Exchange(context_.schedule, bucket, kind), context_.comm,
          kind == ExchangeKind::kGatherValues ? context_.gather_clock : context_.reduce_clock};
}

void LocalBucket::add_segments() {
  const int me = context_.comm.rank();
  const ScheduleOptions& options = context_.schedule.options;
  std::vector<SegmentRange> held, assembled;
  SegmentOffsets next;  // of the next held segment
  for (size_t s = 0; s < layout_.segments.size(); ++s) {
    const Segment& segment = layout_.segments[s];
    const SegmentRange share{s, segment.share_begin(me), segment.share_elements(me), next.share};
    SegmentOffsets& offsets = offsets_.emplace_back(next);
    offsets.state = options.shard ? next.share : next.held + share.begin;
    if (segment.is_read_by(me) && !context_.store.is_flat(segment)) {
      offsets.assembled = assembled_elements_;
      assembled.push_back({s, 0, segment.elements, assembled_elements_});
      assembled_elements_ += segment.elements;
    }
    if (!segment.is_held_by(me)) continue;
    held.push_back({s, 0, segment.elements, next.held});
    if (share.elements > 0) add_share(share, segment.owner_slots * options.accumulate_steps);
    next.held += segment.elements;
    next.share += share.elements;
    next.first_piece += segment.pieces.size();
  }
  const std::vector<SegmentRange>& updated = options.shard ? shares_ : held;
  held_pieces_ = pieces_in(held);
  share_pieces_ = pieces_in(shares_);
  updated_pieces_ = pieces_in(updated);
  sent_gradients_ = pieces_in(exchange_of(ExchangeKind::kReduceGradients).sent());
  assembled_pieces_ = pieces_in(assembled);
  updated_writes_ = writes_of(updated);
  received_writes_ = writes_of(exchange_of(ExchangeKind::kGatherValues).received());
}

void LocalBucket::add_share(const SegmentRange& share, int64_t summands) {
  shares_.push_back(share);
  if (divisions_.empty() || divisions_.back().summands != summands)
    divisions_.push_back({.begin = share.offset, .elements = 0, .summands = summands});
  divisions_.back().elements += share.elements;
}

void LocalBucket::add_state_tensors(bool in_place) {
  const MemoryScope scope(MemoryKind::kOptimizer);
  for (size_t m = 0; m < context_.optimizer.state_names().size(); ++m)
    moments_.push_back(at::zeros({elements_.updated}, sum_options_));
  if (has_master_values(layout_.type, context_.schedule.options.precision))
    master_ = at::empty({elements_.updated}, sum_options_);
  if (!in_place || updated_pieces_.empty()) {
    update_sizes_ = {elements_.updated};
    return;
  }
  sent_values_ = pieces_in(exchange_of(ExchangeKind::kGatherValues).sent());
  for (const PieceRange& range : updated_pieces_) {
    places_.push_back(context_.store.piece(range.parameter, range.unit)
                          .view({-1})
                          .narrow(0, range.begin, range.elements()));
    update_sizes_.push_back(range.elements());
  }
}

std::vector<PieceRange> LocalBucket::pieces_in(const std::vector<SegmentRange>& ranges) const {
  std::vector<PieceRange> pieces;
  for (const SegmentRange& range : ranges)
    for (PieceRange piece : piece_ranges(layout_.segments[range.segment], range.begin, range.elements)) {
      piece.offset += range.offset;
      piece.piece += offsets_[range.segment].first_piece;
      pieces.push_back(piece);
    }
  return pieces;
}

std::vector<PieceRange> LocalBucket::saved_pieces() const {
  std::vector<SegmentRange> saved = shares_;
  for (SegmentRange& range : saved)
    range.offset = offsets_[range.segment].state;
  return pieces_in(saved);
}

LocalBucket::Writes LocalBucket::writes_of(const std::vector<SegmentRange>& ranges) const {
  Writes writes;
  std::vector<SegmentRange> flat;
  for (const SegmentRange& range : ranges)
    (offsets_[range.segment].assembled < 0 ? flat : writes.assembled).push_back(range);
  writes.stored = pieces_in(flat);
  return writes;
}

void LocalBucket::accumulate(int local_slot, int parameter) {
  allocate_accumulator();
  const int worker = context_.store.slots()[local_slot].worker;
  for (const PieceRange& piece : held_pieces_)
    if (piece.parameter == parameter && context_.plan.holding(worker, piece.unit) == Holding::kOwned)
      accumulator_.narrow(0, piece.offset, piece.elements())
          .add_(context_.store.piece_gradient(local_slot, parameter, piece.unit));
}

void LocalBucket::allocate_accumulator() {
  if (!accumulator_.defined()) accumulator_ = at::zeros({elements_.held}, sum_options_);
}

void LocalBucket::begin(ExchangeKind kind) {
  const MemoryScope scope(MemoryKind::kBuckets);
  LocalExchange& exchange = exchange_of(kind);
  exchange.allocate();
  if (kind == ExchangeKind::kReduceGradients)
    take_gradients(exchange);
  else
    pack_shares(exchange, /*of_values=*/kind == ExchangeKind::kGatherValues);
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

/// Buckets are packed from the last to the first, so once a parameter's first piece is packed, all its pieces
/// are, and its gradient can be freed.
void LocalBucket::take_gradients(LocalExchange& exchange) {
  const bool accumulates = context_.schedule.accumulates();
  if (accumulates) allocate_accumulator();
  if (elements_.is_alone && accumulates)
    contribution_ = {accumulator_};
  else if (!places_.empty() && elements_.has_one_summand)
    for (const PieceRange& range : updated_pieces_)
      contribution_.push_back(context_.store.piece_gradient(/*local_slot=*/0, range.parameter, range.unit));
  else
    pack_gradients(exchange);
  accumulator_ = at::Tensor();
  if (!accumulates)
    for (int parameter : first_of_)
      context_.store.release_gradients(/*local_slot=*/0, parameter);
}

void LocalBucket::pack_gradients(LocalExchange& exchange) {
  std::vector<at::Tensor> gradients;  // flat, by held piece
  for (const PieceRange& piece : held_pieces_)
    gradients.push_back(accumulator_.defined()
                            ? accumulator_.narrow(0, piece.offset, piece.elements())
                            : context_.store.piece_gradient(/*local_slot=*/0, piece.parameter, piece.unit));
  FlatCopies copies;
  const auto pack = [&](const std::vector<PieceRange>& pieces, const at::Tensor& to) {
    for (const PieceRange& range : pieces)
      copies.add(to.narrow(0, range.offset, range.elements()),
                 gradients[range.piece].narrow(0, range.begin, range.elements()));
  };
  pack(sent_gradients_, exchange.send);
  contribution_ = {at::empty({elements_.share}, sum_options_)};
  pack(share_pieces_, contribution_.front());
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
    gradients_ = {at::zeros({elements_.share}, sum_options_)};
  }
  const auto add_own = [&] {
    if (std::exchange(adds_own, false)) gradient_share().add_(contribution_.front());
  };
  for (const SegmentRange& range : exchange.received()) {
    if (!exchange.precedes_own(range)) add_own();
    gradient_share()
        .narrow(0, offsets_[range.segment].share, range.elements)
        .add_(range_of(exchange.receive, range));
  }
  add_own();
  contribution_.clear();
  if (++reductions_ < context_.schedule.reductions_per_step()) return;
  reductions_ = 0;
  for (const Division& division : divisions_)
    if (division.summands > 1)
      gradient_share()
          .narrow(0, division.begin, division.elements)
          .div_(static_cast<double>(division.summands));
}

void LocalBucket::pack_shares(LocalExchange& exchange, bool of_values) {
  FlatCopies copies;
  if (of_values && !places_.empty()) {
    for (const PieceRange& piece : sent_values_)
      context_.store.add_read(copies, piece, exchange.send);
  } else {
    for (const SegmentRange& range : exchange.sent()) {
      const SegmentOffsets& offsets = offsets_[range.segment];
      copies.add(range_of(exchange.send, range),
                 of_values ? new_values_.narrow(0, offsets.state, range.elements)
                           : gradient_share().narrow(0, offsets.share, range.elements));
    }
  }
  copies.run();
}

/// Assembles the averaged gradient of all held segments from this process's share and the received shares.
void LocalBucket::assemble_gradients(const LocalExchange& exchange) {
  if (elements_.is_alone) return;
  const at::Tensor full = at::empty({elements_.held}, value_options_);
  FlatCopies copies;
  const auto copy = [&](const SegmentRange& range, const at::Tensor& values) {
    copies.add(full.narrow(0, offsets_[range.segment].held + range.begin, range.elements), values);
  };
  // Round this process's share to the wire type, in which the other holders receive it, so that all of them
  // apply the same bits.
  for (const SegmentRange& share : shares_)
    copy(share, range_of(gradient_share(), share).to(exchange.receive.scalar_type()));
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
    for (const PieceRange& piece : writes.stored)
      context_.store.add_write(copies, piece, values);
    for (const SegmentRange& range : writes.assembled)
      copies.add(assembled.narrow(0, offsets_[range.segment].assembled + range.begin, range.elements),
                 range_of(values, range));
  };
  if (places_.empty()) write(updated_writes_, new_values_);
  write(received_writes_, exchange.receive);
  copies.run();
  FlatCopies unpacked;
  for (const PieceRange& piece : assembled_pieces_)
    context_.store.add_write(unpacked, piece, assembled);
  unpacked.run();
  new_values_ = at::Tensor();
}

at::Tensor LocalBucket::updated_values() const {
  if (master_.defined()) return master_;
  at::Tensor values = at::empty({elements_.updated}, sum_options_);
  FlatCopies copies;
  for (const PieceRange& piece : updated_pieces_)
    context_.store.add_read(copies, piece, values);
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
  UpdateTensors tensors{.values = places_, .gradients = gradients_};
  if (places_.empty()) tensors.values = {new_values_};
  if (gradients_.at(0).dtype() != sum_options_.dtype()) tensors.gradients = {gradients_[0].to(sum_options_)};
  if (tensors.gradients.size() != update_sizes_.size())
    tensors.gradients = tensors.gradients[0].split_with_sizes(update_sizes_);
  for (const at::Tensor& moment : moments_)
    tensors.state.push_back(moment.split_with_sizes(update_sizes_));
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
  for (const PieceRange& range : updated_pieces_) {
    if (range.parameter != parameter) continue;
    const at::Tensor piece = piece_view(full, layout.slice, context_.plan, units, range.unit);
    master_.narrow(0, range.offset, range.elements())
        .copy_(piece.reshape({-1}).narrow(0, range.begin, range.elements()));
  }
}

std::vector<StateRange> LocalBucket::state_of(const std::vector<PieceRange>& pieces,
                                              const at::Tensor& values) const {
  const std::vector<std::string> names = context_.optimizer.state_names();
  std::vector<StateRange> ranges;
  for (const PieceRange& piece : pieces) {
    if (values.defined()) ranges.push_back(state_range("value", piece, values));
    for (size_t m = 0; m < names.size(); ++m)
      ranges.push_back(state_range(names[m], piece, moments_[m]));
  }
  return ranges;
}

void LocalBucket::load(const std::function<void(const StateRange& range)>& read) {
  for (const StateRange& range : state_of(updated_pieces_, master_))
    read(range);
  for (const Segment& segment : layout_.segments) {
    if (!segment.is_read_by(context_.comm.rank())) continue;
    const at::Tensor values = at::empty({segment.elements}, value_options_);
    FlatCopies copies;
    for (const PieceRange& piece : piece_ranges(segment, 0, segment.elements)) {
      read(state_range("value", piece, values));
      context_.store.add_write(copies, piece, values);
    }
    copies.run();
  }
}

void LocalBucket::read_average(int parameter, int unit, const at::Tensor& flat) const {
  for (const PieceRange& range : saved_pieces())
    if (range.parameter == parameter && range.unit == unit)
      flat.narrow(0, range.begin, range.elements())
          .copy_(moments_.back().narrow(0, range.offset, range.elements()));
}

}  // namespace sdp
