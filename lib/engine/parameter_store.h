#pragma once

// The tensors of one process: one for every part of a parameter that its slots hold (subnet/storage.h). Slots
// that hold the same part share its storage. Each slot has separate BatchNorm buffers and separate leaves,
// whose version counters are separate too, so that an all-gather does not invalidate a slot's graph.
//
// The engine works on segments of flat elements (subnet/exchange_plan.h). A slice of a divided parameter is a
// strided view of its part, so values are copied in and out. A segment's elements are the elements of its
// slices, each in its storage order.

#include <ATen/core/Tensor.h>

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/flat_copies.h"
#include "layers/tensors.h"
#include "subnet/exchange_plan.h"
#include "subnet/storage.h"

namespace sdp {

/// One slot's subnetwork as the model sees it. Owned tensors are leaves that require a gradient; frozen
/// tensors do not require one. Looking up a name that the worker does not hold throws std::logic_error.
class SlotTensors : public TensorSource {
 public:
  int parts(int branch) const override { return parts_.at(static_cast<size_t>(branch)); }

 private:
  friend class ParameterStore;
  struct OwnedPart {
    at::Tensor leaf;
    std::vector<int> units;
  };
  at::Tensor find_parameter(const std::string& name, int part) const override;
  at::Tensor find_buffer(const std::string& name, int part) const override;

  std::map<std::pair<std::string, int>, at::Tensor> parameters_;  ///< by name and part
  std::map<std::pair<std::string, int>, at::Tensor> buffers_;
  std::vector<int> parts_;          ///< by branch
  std::map<int, OwnedPart> owned_;  ///< by parameter
};

/// A unit's slice of a slot's buffer, as a view.
struct BufferSlice {
  int buffer = 0;
  int unit = kSharedUnit;
  bool frozen = false;
  at::Tensor values;
};

class ParameterStore {
 public:
  /// Allocates everything the process holds. Values are left unset; buffers have their initial values.
  ParameterStore(const SubnetPlan& plan, const ExchangePlan& exchanges, int process, at::Device device);

  const std::vector<Slot>& slots() const { return slots_; }
  const SlotTensors& slot(int local_slot) const { return slot_tensors_.at(local_slot); }

  /// By parameter and unit: views into every stored part that contains the slice, in its shape.
  const std::map<std::pair<int, int>, std::vector<at::Tensor>>& slices() const { return slices_; }
  /// A unit's slice of a parameter on this process, as a view in its shape.
  at::Tensor slice(int parameter, int unit) const;
  /// Adds the copy of the range into `values`, flat and of any type, at the range's offset.
  void add_read(FlatCopies& copies, const SliceRange& range, const at::Tensor& values) const;
  /// Adds the copies that set the range, wherever this process stores it, from the elements of `values` at
  /// the range's offset. Only a whole slice can be set where it is not stored contiguously.
  void add_write(FlatCopies& copies, const SliceRange& range, const at::Tensor& values);
  /// Whether this process stores every slice of the segment contiguously.
  bool is_flat(const Segment& segment) const;
  /// Sets all parts of a parameter that this process stores. `full` has the full model's shape and any type.
  void write_parameter(int parameter, const at::Tensor& full);

  /// Parameters of which the slot owns at least one unit, in ascending order.
  std::vector<int> owned_parameters(int local_slot) const;
  /// The part of the parameter that the slot owns.
  const at::Tensor& leaf(int local_slot, int parameter) const {
    return slot(local_slot).owned_.at(parameter).leaf;
  }
  /// The gradient of a unit's slice of the parameter from the slot's backward pass; zeros if there is none.
  /// Of a parameter that is not sliced, the tensor that autograd has left; else a view in the slice's shape.
  at::Tensor slice_gradient(int local_slot, int parameter, int unit) const;
  /// Likewise, flat.
  at::Tensor flat_gradient(int local_slot, int parameter, int unit) const;
  /// A view of the flat tensor's elements from `offset` on in the shape of slice_gradient().
  at::Tensor view_as_gradient(const at::Tensor& flat, int64_t offset, int parameter, int unit) const;
  /// Frees the parameter's gradient. Does nothing if the slot owns no part of the parameter.
  void release_gradients(int local_slot, int parameter);

  std::vector<BufferSlice> buffer_slices(int local_slot) const;

  int64_t parameter_bytes() const;
  /// Bytes of the slot's gradients that exist now.
  int64_t slot_gradient_bytes(int local_slot) const;

 private:
  void make_slot(Slot slot);
  /// Whether the unit's part of the parameter is a slice of it.
  bool is_sliced(int parameter, int unit) const;

  const SubnetPlan& plan_;
  const ExchangePlan& exchanges_;
  at::Device device_;
  std::vector<Slot> slots_;
  std::map<StoredPart, at::Tensor> stored_;
  std::map<std::pair<int, int>, std::vector<at::Tensor>> slices_;
  std::set<std::pair<int, int>> strided_;  ///< keys of slices_ with a view that is not contiguous
  std::vector<SlotTensors> slot_tensors_;
};

}  // namespace sdp
