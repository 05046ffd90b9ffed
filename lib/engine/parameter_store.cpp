#include "engine/parameter_store.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "process/allocations.h"

namespace sdp {
namespace {

using Tensors = std::map<std::pair<std::string, int>, at::Tensor>;

at::Tensor find(const Tensors& tensors, const std::string& name, int part) {
  const auto found = tensors.find({name, part});
  if (found == tensors.end())
    throw std::logic_error(fmt::format("the worker does not hold {}, part {}", name, part));
  return found->second;
}

int64_t bytes_in(const at::Tensor& tensor) {
  return static_cast<int64_t>(tensor.nbytes());
}

/// tensor.as_strided() without the dispatcher and autograd, whose work takes the host longer than the view.
at::Tensor view_of(const at::Tensor& tensor, at::IntArrayRef sizes, at::IntArrayRef strides, int64_t offset) {
  auto view = tensor.unsafeGetTensorImpl()->shallow_copy_and_detach(c10::VariableVersion(/*version=*/0),
                                                                    /*allow_tensor_metadata_change=*/true);
  view->set_sizes_and_strides(sizes, strides, offset);
  return at::Tensor(std::move(view));
}

}  // namespace

at::Tensor SlotTensors::find_parameter(const std::string& name, int part) const {
  return find(parameters_, name, part);
}

at::Tensor SlotTensors::find_buffer(const std::string& name, int part) const {
  return find(buffers_, name, part);
}

ParameterStore::ParameterStore(const SubnetPlan& plan, const ExchangePlan& exchanges, int process,
                               at::Device device)
    : plan_(plan), exchanges_(exchanges), device_(device), slots_(exchanges.slot_map.slots_of(process)) {
  const MemoryScope scope(MemoryKind::kWeights);
  for (const StoredPart& part : stored_parts(plan, slots_)) {
    const ParameterLayout& parameter = plan.layout.parameters[part.parameter];
    const at::ScalarType type = scalar_type(element_type(parameter, exchanges.options.precision));
    const at::Tensor tensor =
        at::empty(shape_of_units(parameter.shape, parameter.slice, plan, part.units),
                  at::TensorOptions(type).device(device), storage_format(parameter.shape.size()));
    const std::vector<at::Tensor> views = slice_views(tensor, parameter.slice, plan, part.units);
    for (size_t i = 0; i < views.size(); ++i) {
      slices_[{part.parameter, part.units[i]}].push_back(views[i]);
      if (!is_contiguous(parameter, part.units.size())) strided_.emplace(part.parameter, part.units[i]);
    }
    stored_[part] = tensor;
  }
  for (Slot slot : slots_)
    make_slot(slot);
}

void ParameterStore::make_slot(Slot slot) {
  SlotTensors& tensors = slot_tensors_.emplace_back();
  for (int p = 0; p < static_cast<int>(plan_.layout.parameters.size()); ++p) {
    const ParameterLayout& parameter = plan_.layout.parameters[p];
    int index = 0;
    for (const BranchPart& part : plan_.parts_of(slot.worker, parameter)) {
      const at::Tensor leaf = stored_.at({p, part.units}).variable_data();
      leaf.set_requires_grad(!part.frozen);
      if (!part.frozen) tensors.owned_[p] = {leaf, part.units};
      tensors.parameters_[{parameter.name, index++}] = leaf;
    }
  }
  for (int b = 0; b < static_cast<int>(plan_.layout.branches.size()); ++b)
    tensors.parts_.push_back(static_cast<int>(plan_.parts_of(slot.worker, b).size()));
  const at::TensorOptions options =
      at::TensorOptions(scalar_type(sum_type(exchanges_.options.precision))).device(device_);
  for (const BufferLayout& buffer : plan_.layout.buffers) {
    int index = 0;
    for (const BranchPart& part : plan_.parts_of(slot.worker, buffer))
      tensors.buffers_[{buffer.name, index++}] =
          at::full(shape_of_units(buffer.shape, buffer.slice, plan_, part.units), buffer.initial, options);
  }
}

at::Tensor ParameterStore::slice(int parameter, int unit) const {
  return slices_.at({parameter, unit}).front();
}

void ParameterStore::add_read(FlatCopies& copies, const SliceRange& range, const at::Tensor& values) const {
  copies.add(values.narrow(0, range.offset, range.elements()),
             slice(range.parameter, range.unit).reshape({-1}).narrow(0, range.begin, range.elements()));
}

void ParameterStore::add_write(FlatCopies& copies, const SliceRange& range, const at::Tensor& values) {
  const at::Tensor from = values.narrow(0, range.offset, range.elements());
  for (const at::Tensor& view : slices_.at({range.parameter, range.unit})) {
    if (range.elements() == view.numel())
      copies.add(view, from.view(view.sizes()));
    else
      copies.add(view.view({-1}).narrow(0, range.begin, range.elements()), from);
  }
}

bool ParameterStore::is_flat(const Segment& segment) const {
  return std::none_of(segment.slices.begin(), segment.slices.end(), [&](const Slice& slice) {
    return strided_.contains({slice.parameter, segment.unit});
  });
}

void ParameterStore::write_parameter(int parameter, const at::Tensor& full) {
  const ParameterLayout& layout = plan_.layout.parameters[parameter];
  const std::vector<int> units = plan_.units_of(layout);
  const std::vector<at::Tensor> sources = slice_views(full, layout.slice, plan_, units);
  for (size_t i = 0; i < units.size(); ++i) {
    const auto found = slices_.find({parameter, units[i]});
    if (found == slices_.end()) continue;
    for (const at::Tensor& view : found->second)
      view.copy_(sources[i]);
  }
}

std::vector<int> ParameterStore::owned_parameters(int local_slot) const {
  std::vector<int> parameters;
  for (const auto& [parameter, part] : slot(local_slot).owned_)
    parameters.push_back(parameter);
  return parameters;
}

bool ParameterStore::is_sliced(int parameter, int unit) const {
  return sdp::is_sliced(plan_.layout.parameters[parameter].slice, plan_, unit);
}

at::Tensor ParameterStore::slice_gradient(int local_slot, int parameter, int unit) const {
  const SlotTensors::OwnedPart& part = slot(local_slot).owned_.at(parameter);
  const at::Tensor& gradient = part.leaf.grad();
  if (!is_sliced(parameter, unit)) return gradient.defined() ? gradient : at::zeros_like(part.leaf);
  if (!gradient.defined()) return at::zeros(slice(parameter, unit).sizes(), part.leaf.options());
  return slice_view(gradient, plan_.layout.parameters[parameter].slice, plan_, part.units, unit);
}

at::Tensor ParameterStore::flat_gradient(int local_slot, int parameter, int unit) const {
  const at::Tensor gradient = slice_gradient(local_slot, parameter, unit);
  if (is_sliced(parameter, unit)) return gradient.reshape({-1});
  return view_of(gradient, {gradient.numel()}, {1}, gradient.storage_offset());
}

at::Tensor ParameterStore::view_as_gradient(const at::Tensor& flat, int64_t offset, int parameter,
                                            int unit) const {
  if (is_sliced(parameter, unit)) {
    const at::Tensor like = slice(parameter, unit);
    return flat.narrow(0, offset, like.numel()).view(like.sizes());
  }
  const at::Tensor& like = stored_.lower_bound({parameter, {}})->second;
  return view_of(flat, like.sizes(), like.strides(), offset);
}

void ParameterStore::release_gradients(int local_slot, int parameter) {
  const auto owned = slot_tensors_.at(local_slot).owned_.find(parameter);
  if (owned != slot_tensors_[local_slot].owned_.end()) owned->second.leaf.mutable_grad() = at::Tensor();
}

std::vector<BufferSlice> ParameterStore::buffer_slices(int local_slot) const {
  std::vector<BufferSlice> slices;
  for (int b = 0; b < static_cast<int>(plan_.layout.buffers.size()); ++b) {
    const BufferLayout& buffer = plan_.layout.buffers[b];
    int index = 0;
    for (const BranchPart& part : plan_.parts_of(slots_.at(local_slot).worker, buffer)) {
      const std::vector<at::Tensor> views =
          slice_views(slot(local_slot).buffer(buffer.name, index++), buffer.slice, plan_, part.units);
      for (size_t i = 0; i < views.size(); ++i)
        slices.push_back({.buffer = b, .unit = part.units[i], .frozen = part.frozen, .values = views[i]});
    }
  }
  return slices;
}

int64_t ParameterStore::parameter_bytes() const {
  int64_t bytes = 0;
  for (const auto& [part, tensor] : stored_)
    bytes += bytes_in(tensor);
  return bytes;
}

int64_t ParameterStore::slot_gradient_bytes(int local_slot) const {
  int64_t bytes = 0;
  for (const auto& [parameter, part] : slot(local_slot).owned_)
    if (part.leaf.grad().defined()) bytes += bytes_in(part.leaf.grad());
  return bytes;
}

}  // namespace sdp
