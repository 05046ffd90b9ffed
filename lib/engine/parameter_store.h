#pragma once

// The tensors of one process. Values stand in flat storage, one tensor a bucket, segments one after another;
// parameters are views of it. The local slots share that storage and have leaves of their own (with version
// counters of their own, so that publishing does not disturb a slot's graph) and BatchNorm buffers of their
// own.

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

#include "model/tensor_source.h"
#include "subnet/schedule.h"

namespace sdp {

/// One slot's subnetwork as the model sees it.
class SlotTensors : public TensorSource {
 public:
  /// Leaf that requires a gradient; std::logic_error for a parameter the worker does not hold.
  at::Tensor parameter(const std::string& name) const override;
  at::Tensor buffer(const std::string& name) const override;

  const std::map<std::string, at::Tensor>& parameters() const { return parameters_; }
  const std::map<std::string, at::Tensor>& buffers() const { return buffers_; }

 private:
  friend class ParameterStore;
  std::map<std::string, at::Tensor> parameters_;
  std::map<std::string, at::Tensor> buffers_;
};

class ParameterStore {
 public:
  /// Allocates everything the process holds; values are unset, buffers initial.
  ParameterStore(const SubnetPlan& plan, const Schedule& schedule, int process, at::Device device);

  const std::vector<Slot>& slots() const { return slots_; }
  const SlotTensors& slot(int local_slot) const { return slot_tensors_.at(local_slot); }

  bool holds(int bucket, int segment) const { return offsets_.at(bucket).at(segment) >= 0; }
  /// Values of a held segment: [segment.elements], a view.
  at::Tensor segment_values(int bucket, int segment) const;
  /// Gradients that the slot's backward pass left for the segment, flat, zeros where none;
  /// [segment.elements].
  at::Tensor segment_gradients(int local_slot, int bucket, int segment) const;
  /// Forgets the gradients of the segment's parameters, which gives their memory back.
  void release_gradients(int local_slot, int bucket, int segment);

  /// Draws every held value from its own seed (model/model.h), one parameter at a time.
  void initialize(uint64_t seed);

  int64_t parameter_bytes() const;
  /// Gradients of a slot standing now.
  int64_t slot_gradient_bytes(int local_slot) const;

 private:
  void make_slot(Slot slot);

  const SubnetPlan& plan_;
  const Schedule& schedule_;
  at::Device device_;
  std::vector<Slot> slots_;
  std::vector<at::Tensor> values_;  ///< per bucket: [held elements]
  std::vector<std::vector<int64_t>>
      offsets_;  ///< per bucket and segment: offset in values_, -1 when not held
  std::vector<SlotTensors> slot_tensors_;
};

}  // namespace sdp
