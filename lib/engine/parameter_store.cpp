#include "engine/parameter_store.h"

#include <ATen/ATen.h>

#include <stdexcept>

namespace sdp {
namespace {

at::Tensor find(const std::map<std::string, at::Tensor>& tensors, const std::string& name) {
  const auto found = tensors.find(name);
  if (found == tensors.end()) throw std::logic_error("the worker does not hold " + name);
  return found->second;
}

}  // namespace

at::Tensor SlotTensors::parameter(const std::string& name) const {
  return find(parameters_, name);
}

at::Tensor SlotTensors::buffer(const std::string& name) const {
  return find(buffers_, name);
}

ParameterStore::ParameterStore(const SubnetPlan& plan, const Schedule& schedule, int process,
                               at::Device device)
    : plan_(plan), schedule_(schedule), device_(device), slots_(schedule.placement.slots_of(process)) {
  for (const Bucket& bucket : schedule.buckets) {
    int64_t end = 0;
    std::vector<int64_t>& offsets = offsets_.emplace_back();
    for (const Segment& segment : bucket.segments) {
      const bool held = segment.holder_index(process) >= 0;
      offsets.push_back(held ? end : -1);
      if (held) end += segment.elements;
    }
    values_.push_back(at::empty({end}, at::TensorOptions(scalar_type(bucket.type)).device(device)));
  }
  for (Slot slot : slots_)
    make_slot(slot);
}

void ParameterStore::make_slot(Slot slot) {
  SlotTensors& tensors = slot_tensors_.emplace_back();
  for (int b = 0; b < static_cast<int>(schedule_.buckets.size()); ++b) {
    const Bucket& bucket = schedule_.buckets[b];
    for (int r = 0; r < static_cast<int>(bucket.segments.size()); ++r) {
      const Segment& segment = bucket.segments[r];
      if (plan_.holding(slot.worker, segment.unit) != Holding::kOwned) continue;
      for (const Piece& piece : segment.pieces) {
        const ParameterLayout& parameter = plan_.layout.parameters[piece.parameter];
        const at::Tensor view =
            segment_values(b, r).narrow(0, piece.offset, piece.elements).view(parameter.shape);
        tensors.parameters_[parameter.name] = view.variable_data().set_requires_grad(true);
      }
    }
  }
  const at::TensorOptions options =
      at::TensorOptions(scalar_type(sum_type(schedule_.options.precision))).device(device_);
  for (const BufferLayout& buffer : plan_.layout.buffers)
    if (!buffer.branch || plan_.owns_any_of(slot.worker, *buffer.branch))
      tensors.buffers_[buffer.name] = at::full(buffer.shape, buffer.initial, options);
}

at::Tensor ParameterStore::segment_values(int bucket, int segment) const {
  const int64_t offset = offsets_.at(bucket).at(segment);
  if (offset < 0) throw std::logic_error("values of a segment that is not held");
  return values_[bucket].narrow(0, offset, schedule_.buckets[bucket].segments[segment].elements);
}

at::Tensor ParameterStore::segment_gradients(int local_slot, int bucket, int segment) const {
  std::vector<at::Tensor> gradients;
  for (const Piece& piece : schedule_.buckets[bucket].segments[segment].pieces) {
    const at::Tensor& leaf = slot(local_slot).parameters_.at(plan_.layout.parameters[piece.parameter].name);
    gradients.push_back(leaf.grad().defined() ? leaf.grad().reshape({-1})
                                              : at::zeros({piece.elements}, leaf.options()));
  }
  return gradients.size() == 1 ? gradients.front() : at::cat(gradients);
}

void ParameterStore::release_gradients(int local_slot, int bucket, int segment) {
  for (const Piece& piece : schedule_.buckets[bucket].segments[segment].pieces)
    slot_tensors_.at(local_slot)
        .parameters_.at(plan_.layout.parameters[piece.parameter].name)
        .mutable_grad() = at::Tensor();
}

void ParameterStore::initialize(uint64_t seed) {
  for (int b = 0; b < static_cast<int>(schedule_.buckets.size()); ++b) {
    for (int r = 0; r < static_cast<int>(schedule_.buckets[b].segments.size()); ++r) {
      if (!holds(b, r)) continue;
      const at::Tensor values = segment_values(b, r);
      for (const Piece& piece : schedule_.buckets[b].segments[r].pieces) {
        const ParameterLayout& parameter = plan_.layout.parameters[piece.parameter];
        values.narrow(0, piece.offset, piece.elements).copy_(draw_parameter(parameter, seed).reshape({-1}));
      }
    }
  }
}

int64_t ParameterStore::parameter_bytes() const {
  int64_t bytes = 0;
  for (const at::Tensor& values : values_)
    bytes += static_cast<int64_t>(values.nbytes());
  return bytes;
}

int64_t ParameterStore::slot_gradient_bytes(int local_slot) const {
  int64_t bytes = 0;
  for (const auto& [name, leaf] : slot(local_slot).parameters_)
    if (leaf.grad().defined()) bytes += static_cast<int64_t>(leaf.grad().nbytes());
  return bytes;
}

}  // namespace sdp
