#pragma once

// The tensors of one process: one for every part of a parameter that its slots hold (subnet/storage.h). Slots
// that hold the same part share its storage; each has a leaf of its own (with a version counter of its own,
// so that an all-gather does not disturb a slot's graph) and BatchNorm buffers of its own.
//
// The engine sees segments of flat elements (subnet/schedule.h). A piece of a divided parameter is a strided
// view of its part, so values are copied in and out; a segment's elements are those of its pieces, each in
// row-major order of its slice.

#include <ATen/core/Tensor.h>

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/flat_copies.h"
#include "model/tensor_source.h"
#include "subnet/schedule.h"
#include "subnet/storage.h"

namespace sdp {

/// One slot's subnetwork as the model sees it. Owned tensors are leaves that require a gradient, frozen ones
/// do not. Names that the worker does not hold throw std::logic_error.
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

/// A unit's piece of a slot's buffer, a view.
struct BufferPiece {
  int buffer = 0;
  int unit = kSharedUnit;
  bool frozen = false;
  at::Tensor values;
};

class ParameterStore {
 public:
  /// Allocates everything the process holds; values are unset, buffers initial.
  ParameterStore(const SubnetPlan& plan, const Schedule& schedule, int process, at::Device device);

  const std::vector<Slot>& slots() const { return slots_; }
  const SlotTensors& slot(int local_slot) const { return slot_tensors_.at(local_slot); }

  /// A unit's piece of a parameter as this process holds it, a view in the shape of its slice.
  at::Tensor piece(int parameter, int unit) const;
  /// Adds the copies that fill `values`, flat and of any type, from the elements of a segment that begin at
  /// `begin`.
  void add_segment_reads(FlatCopies& copies, const Segment& segment, int64_t begin,
                         const at::Tensor& values) const;
  /// Adds the copies that set a segment, [segment.elements] of any type, wherever this process stores it.
  void add_segment_writes(FlatCopies& copies, const Segment& segment, const at::Tensor& values);
  /// Whether this process stores every piece of the segment in one stretch, so that ranges of it can be set.
  bool is_flat(const Segment& segment) const;
  /// The same for the elements from `begin` on of a flat segment.
  void add_range_writes(FlatCopies& copies, const Segment& segment, int64_t begin, const at::Tensor& values);
  /// Sets a parameter, in the full model's shape and any type, wherever this process stores something of it.
  void write_parameter(int parameter, const at::Tensor& full);

  /// Parameters of which the slot owns some, ascending.
  std::vector<int> owned_parameters(int local_slot) const;
  /// What the slot owns of the parameter.
  const at::Tensor& leaf(int local_slot, int parameter) const {
    return slot(local_slot).owned_.at(parameter).leaf;
  }
  /// Gradient that the slot's backward pass left for a unit's piece of the parameter, flat; zeros where none.
  at::Tensor piece_gradient(int local_slot, int parameter, int unit) const;
  /// Forgets the parameter's gradient, if the slot owns some of it, which gives its memory back.
  void release_gradients(int local_slot, int parameter);

  std::vector<BufferPiece> buffer_pieces(int local_slot) const;

  int64_t parameter_bytes() const;
  /// Gradients of a slot standing now.
  int64_t slot_gradient_bytes(int local_slot) const;

 private:
  void make_slot(Slot slot);

  const SubnetPlan& plan_;
  const Schedule& schedule_;
  at::Device device_;
  std::vector<Slot> slots_;
  std::map<StoredPart, at::Tensor> stored_;
  /// By parameter and unit: views into every stored part that has it.
  std::map<std::pair<int, int>, std::vector<at::Tensor>> pieces_;
  std::set<std::pair<int, int>> strided_;  ///< of these, those with a view that is not one stretch
  std::vector<SlotTensors> slot_tensors_;
};

}  // namespace sdp
