#pragma once

// A bucket on one process: its state, and its exchanges with the other processes. What it sends, receives and
// updates is computed once, when it is made.

#include <ATen/core/Tensor.h>

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "engine/clocks.h"
#include "engine/local_exchange.h"
#include "engine/parameter_store.h"
#include "optim/update.h"
#include "subnet/exchange.h"

namespace sdp {

/// Stands for no single worker.
inline constexpr int kAllWorkers = -1;

/// A range of a parameter's state, for checkpoints: elements [begin, end) of a unit's slice of the
/// parameter.
struct StateRange {
  std::string kind;  ///< "value" (master value) or a name from OptimizerSpec::state_names()
  int parameter = 0;
  int unit = kSharedUnit;
  int64_t begin = 0;
  int64_t end = 0;
  at::Tensor values;  ///< flat
  /// Whose own state it is, with local steps; kAllWorkers: that of the model.
  int worker = kAllWorkers;
};

/// The range that is at the slice's offset in a flat tensor.
StateRange state_range(const std::string& kind, const SliceRange& slice, const at::Tensor& tensor);

/// What all buckets of an engine use. All of it must outlive them.
struct BucketContext {
  const SubnetPlan& plan;
  const ExchangePlan& exchanges;
  const OptimizerSpec& optimizer;
  const BucketIndex& index;
  ParameterStore& store;
  Communicator& comm;
  ExchangeClock& reduce_clock;
  ExchangeClock& gather_clock;
};

class LocalBucket {
 public:
  /// `in_place`: values are updated where the model reads them (updates_in_place).
  LocalBucket(const BucketContext& context, int bucket, bool in_place);

  /// Adds the slot's gradient of the bucket's slices of the parameter to a buffer of the sum type.
  void accumulate(int local_slot, int parameter);
  /// Packs and sends what the exchange transfers. A reduction takes the gradients out of the store.
  void begin(ExchangeKind kind);
  /// Waits for the exchange and uses what was received.
  void end(ExchangeKind kind);

  /// The averaged gradient, or what has been summed of it; empty before the step's first reduction and after
  /// step(). Flat tensors: one of this process's shard or, if it is applied in place, one for each value
  /// tensor, in the sum type; after the exchange of averaged gradients one of all held elements, in the
  /// bucket's type.
  std::vector<at::Tensor>& gradients() { return gradients_; }
  const std::vector<at::Tensor>& gradients() const { return gradients_; }
  /// Applies the gradients and frees them. The new values reach the store when they have been gathered.
  /// `rates` has the learning rate before the group's factor, and no weight decay.
  void step(UpdateStep rates);

  int64_t optimizer_bytes() const;
  /// Accumulated and averaged gradients.
  int64_t gradient_bytes() const;

  /// Sets the master values, where there are any, of the parameter. `full` has the full model's shape.
  void set_master(int parameter, const at::Tensor& full);
  /// The state that this process saves: that of its shard.
  std::vector<StateRange> saved_state(bool with_values) const {
    return state_of(saved_slices(), with_values ? updated_values() : at::Tensor());
  }
  /// This kind of state of a slice of which this process updates every element, as a flat view; undefined for
  /// values without master values and for slices of other buckets.
  at::Tensor find_state(const std::string& kind, int parameter, int unit) const;
  /// Loads the state of everything that this process updates, and the values of everything that it reads.
  void load(const std::function<void(const StateRange& range)>& read);
  /// Writes the part of a slice's moving average that this process saves into `flat`, as large as the slice.
  void read_average(int parameter, int unit, const at::Tensor& flat) const;

 private:
  /// Offsets of a segment, or of this process's shard of it, in flat tensors.
  struct SegmentOffsets {
    int64_t held = 0;        ///< in the accumulator and in the gradient of all held elements
    int64_t shard = 0;       ///< of the shard in the shard of the gradient
    int64_t state = 0;       ///< of the shard in the state tensors
    int64_t assembled = -1;  ///< in the tensor of assembled segments; -1 for the others
    size_t first_slice = 0;  ///< index of its first slice among the held ones
  };
  /// Consecutive shards whose gradients have the same number of summands.
  struct Division {
    int64_t begin = 0;  ///< in the shard of the gradient
    int64_t elements = 0;
    int64_t summands = 1;
  };
  /// Where new values that are in a flat tensor are written to.
  struct Writes {
    std::vector<SliceRange> stored;       ///< directly to the store
    std::vector<SegmentRange> assembled;  ///< to the tensor of assembled segments
  };
  void add_segments();
  void add_shard(const SegmentRange& shard, int64_t summands);
  void add_state_tensors(bool in_place);
  /// The slices in the ranges. Offsets are in the ranges' tensor; `slice` is the index among the held slices.
  std::vector<SliceRange> slices_in(const std::vector<SegmentRange>& ranges) const;
  std::vector<SliceRange> saved_slices() const;  ///< of own shards; offsets in the state tensors
  Writes writes_of(const std::vector<SegmentRange>& ranges) const;

  std::vector<StateRange> state_of(const std::vector<SliceRange>& slices, const at::Tensor& values) const;
  LocalExchange make_exchange(int bucket, ExchangeKind kind) const;
  LocalExchange& exchange_of(ExchangeKind kind) { return local_exchanges_[static_cast<size_t>(kind)]; }

  void take_gradients(LocalExchange& exchange);
  void pack_gradients(LocalExchange& exchange);
  void add_received(LocalExchange& exchange);
  void pack_shards(LocalExchange& exchange, bool of_values);
  void assemble_gradients(const LocalExchange& exchange);
  void set_values(const LocalExchange& exchange);
  void allocate_accumulator();
  const at::Tensor& gradient_shard() const { return gradients_.at(0); }  ///< [shard]
  at::Tensor updated_values() const;  ///< master values, or else a copy of the values
  UpdateTensors update_tensors() const;

  const BucketContext& context_;
  const Bucket& layout_;
  const std::vector<int>& first_of_;  ///< BucketParameters::first_of
  const BucketElements elements_;
  const at::TensorOptions sum_options_;
  const at::TensorOptions value_options_;
  std::array<LocalExchange, kExchangeKinds.size()> local_exchanges_;  ///< by ExchangeKind

  std::vector<SegmentOffsets> offsets_;  ///< by segment
  std::vector<SegmentRange> shards_;     ///< offsets in the shard of the gradient
  std::vector<Division> divisions_;
  std::vector<SliceRange> held_slices_;     ///< offsets in the accumulator
  std::vector<SliceRange> shard_slices_;    ///< offsets in the shard of the gradient
  std::vector<SliceRange> updated_slices_;  ///< offsets in the state tensors
  std::vector<SliceRange> sent_gradients_;  ///< offsets in the buffers of the exchange
  std::vector<SliceRange> sent_values_;
  std::vector<SliceRange> assembled_slices_;  ///< of read segments that are not stored contiguously
  int64_t assembled_elements_ = 0;
  Writes updated_writes_;
  Writes received_writes_;

  std::vector<at::Tensor> moments_;  ///< sum type, [updated]
  at::Tensor master_;                ///< likewise; undefined where the values themselves have that type
  /// The values of `updated_slices_` where the model reads them, flat, if they are updated in place; else
  /// empty.
  std::vector<at::Tensor> places_;
  std::vector<int64_t> update_sizes_;  ///< of the tensors that an update changes: `places_` or `new_values_`
  std::vector<std::vector<at::Tensor>> update_state_;  ///< `moments_`, each in as many tensors
  at::Tensor new_values_;         ///< sum type, [updated]; from step() until they are gathered
  at::Tensor accumulator_;        ///< sum type, [held]; from the first gradient until the bucket is sent
  std::vector<at::Tensor> sums_;  ///< views of it by held slice, in the shapes of gradients
  std::vector<at::Tensor> contribution_;  ///< of this process to `gradients_`, during a reduction
  std::vector<at::Tensor> gradients_;
  int64_t reductions_ = 0;  ///< number of this step's reductions summed in `gradients_`
};

}  // namespace sdp
