#include "engine/full_model.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <stdexcept>

#include "layers/tensors.h"

namespace sdp {

bool takes_branch_scale(const SubnetPlan& plan, const ParameterLayout& parameter) {
  const int unit = plan.units_of(parameter).front();
  return parameter.scales_branch_output && unit != kSharedUnit && !plan.is_kept_frozen(unit);
}

void FullModel::fetch(std::optional<int> branch) {
  const std::vector<ParameterLayout>& parameters = plan_.layout.parameters;
  std::vector<int> indices;
  for (size_t i = 0; i < parameters.size(); ++i)
    if (parameters[i].branch == branch) indices.push_back(static_cast<int>(i));
  for (const int index : indices)
    parameters_.erase(parameters[index].name);  // not beside the new values
  const std::vector<at::Tensor> values = read_scaled(indices);
  for (size_t i = 0; i < indices.size(); ++i)
    parameters_[parameters[indices[i]].name] = values[i];
}

std::vector<at::Tensor> FullModel::read_scaled(const std::vector<int>& indices) {
  std::vector<at::Tensor> values = read_parameters(indices);
  for (size_t i = 0; i < indices.size(); ++i) {
    const ParameterLayout& parameter = plan_.layout.parameters[indices[i]];
    if (branch_scale_ != 1 && takes_branch_scale(plan_, parameter))
      values[i] = values[i] * plan_.coverage(*parameter.branch);
  }
  return values;
}

void FullModel::drop_branch(int branch) {
  for (const ParameterLayout& parameter : plan_.layout.parameters)
    if (parameter.branch == branch) parameters_.erase(parameter.name);
}

at::Tensor FullModel::find_parameter(const std::string& name, int) const {
  const auto found = parameters_.find(name);
  if (found == parameters_.end()) throw std::logic_error(name + " has not been fetched");
  return found->second;
}

LiveFullModel::LiveFullModel(const SubnetPlan& plan, const ExchangePlan& exchanges, const Engines& engines,
                             Communicator& comm, ModelValues values)
    : FullModel(plan, values), exchanges_(exchanges), engines_(engines), comm_(comm) {
  average_buffers();
}

std::vector<at::Tensor> LiveFullModel::read_parameters(const std::vector<int>& indices) {
  const at::NoGradGuard no_grad;
  struct Received {
    int parameter, unit, sender;
    at::Tensor slice;  ///< of the whole parameter
    at::ScalarType type;
    int64_t offset, bytes;
  };
  std::vector<Received> received;  // what not all processes have
  int64_t bytes = 0;
  std::vector<at::Tensor> wholes;
  const bool is_average = values() == ModelValues::kAverage;
  for (const int index : indices) {
    const ParameterLayout& parameter = plan_.layout.parameters[index];
    const at::ScalarType type = scalar_type(element_type(parameter, exchanges_.options.precision));
    const at::ScalarType sent = is_average ? scalar_type(sum_type(exchanges_.options.precision)) : type;
    wholes.push_back(at::empty(parameter.shape, at::TensorOptions(type).device(comm_.device())));
    const std::vector<int> units = plan_.units_of(parameter);
    const std::vector<at::Tensor> slices = slice_views(wholes.back(), parameter.slice, plan_, units);
    for (size_t i = 0; i < units.size(); ++i) {
      const MemberSet owners = exchanges_.slot_map.processes_of(plan_.owners(units[i]));
      const bool is_everywhere =
          plan_.is_kept_frozen(units[i]) || static_cast<int>(owners.size()) == comm_.size();
      if (is_everywhere && !is_average) {
        slices[i].copy_(engines_.find_slice(index, units[i]));
        continue;
      }
      const int64_t of_slice = slices[i].numel() * static_cast<int64_t>(elementSize(sent));
      received.push_back({index, units[i], owners.front(), slices[i], sent, bytes, of_slice});
      bytes += (of_slice + 7) / 8 * 8;
    }
  }
  if (received.empty()) return wholes;
  const at::Tensor words = at::zeros({bytes / 8}, at::TensorOptions(at::kLong).device(comm_.device()));
  const auto place_of = [&](const Received& one) {
    return words.view(at::kByte).narrow(0, one.offset, one.bytes).view(one.type);
  };
  for (const Received& one : received)
    if (is_average)  // each process the elements whose state it has
      engines_.read_average(one.parameter, one.unit, place_of(one));
    else if (one.sender == comm_.rank())
      place_of(one).view(one.slice.sizes()).copy_(engines_.find_slice(one.parameter, one.unit));
  comm_.all_reduce_sum(words);  // a copy: every byte is 0 on all processes but one
  for (const Received& one : received)
    one.slice.copy_(place_of(one).view(one.slice.sizes()));
  return wholes;
}

/// Running statistics are averaged over the slots of the owners.
void LiveFullModel::average_buffers() {
  const at::NoGradGuard no_grad;
  const at::TensorOptions options =
      at::TensorOptions(scalar_type(sum_type(exchanges_.options.precision))).device(comm_.device());
  std::vector<at::Tensor> sums;
  for (const BufferLayout& buffer : plan_.layout.buffers)
    sums.push_back(at::zeros(buffer.shape, options));
  if (sums.empty()) return;
  for (const Engines::Place& place : engines_.slots()) {
    for (const BufferSlice& slice : place.buffers()) {
      if (slice.frozen) continue;
      const BufferLayout& buffer = plan_.layout.buffers[slice.buffer];
      const auto owners = static_cast<double>(plan_.owners(slice.unit).size());
      slice_view(sums[slice.buffer], buffer.slice, plan_, plan_.units_of(buffer), slice.unit)
          .add_(slice.values / (owners * exchanges_.slot_map.replicas));
    }
  }
  for (at::Tensor& sum : sums)
    sum = sum.reshape({-1});
  at::Tensor all = at::cat(sums);
  comm_.all_reduce_sum(all);
  int64_t at = 0;
  for (const BufferLayout& buffer : plan_.layout.buffers) {
    buffers_[buffer.name] = all.narrow(0, at, buffer.elements()).reshape(buffer.shape).clone();
    at += buffer.elements();
  }
}

}  // namespace sdp
