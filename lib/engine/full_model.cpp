#include "engine/full_model.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <stdexcept>

#include "model/tensors.h"

namespace sdp {

bool takes_branch_scale(const SubnetPlan& plan, const ParameterLayout& parameter) {
  return parameter.scales_branch_output && plan.units_of(parameter).front() != kSharedUnit;
}

void FullModel::fetch(std::optional<int> branch) {
  for (size_t i = 0; i < plan_.layout.parameters.size(); ++i) {
    const ParameterLayout& parameter = plan_.layout.parameters[i];
    if (parameter.branch != branch) continue;
    parameters_[parameter.name] = read_one(static_cast<int>(i));
  }
}

at::Tensor FullModel::read_one(int index) {
  const at::Tensor values = read_parameter(index);
  const bool is_scaled = branch_scale_ != 1 && takes_branch_scale(plan_, plan_.layout.parameters[index]);
  return is_scaled ? values * branch_scale_ : values;
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

LiveFullModel::LiveFullModel(const SubnetPlan& plan, const Schedule& schedule, const Engine& engine,
                             Communicator& comm, ModelValues values)
    : FullModel(plan, values), schedule_(schedule), engine_(engine), store_(engine.store()), comm_(comm) {
  average_buffers();
}

at::Tensor LiveFullModel::read_parameter(int index) {
  const at::NoGradGuard no_grad;
  const ParameterLayout& parameter = plan_.layout.parameters[index];
  const at::TensorOptions options =
      at::TensorOptions(scalar_type(element_type(parameter, schedule_.options.precision)))
          .device(comm_.device());
  const at::Tensor full = at::empty(parameter.shape, options);
  const std::vector<int> units = plan_.units_of(parameter);
  const std::vector<at::Tensor> views = piece_views(full, parameter.slice, plan_, units);
  for (size_t i = 0; i < units.size(); ++i)
    read_piece(index, units[i], views[i]);
  return full;
}

void LiveFullModel::read_piece(int parameter, int unit, const at::Tensor& view) const {
  if (values() == ModelValues::kAverage) {
    at::Tensor flat =
        at::zeros({view.numel()}, view.options().dtype(scalar_type(sum_type(schedule_.options.precision))));
    engine_.read_average(parameter, unit, flat);
    comm_.all_reduce_sum(flat);  // one of the summands of every element is not 0
    view.copy_(flat.view(view.sizes()));
    return;
  }
  const MemberSet owners = schedule_.placement.processes_of(plan_.owners(unit));
  const bool owns = owners.contains(comm_.rank());
  const bool everyone_has_it = plan_.keeps_frozen_units() || static_cast<int>(owners.size()) == comm_.size();
  if (owns || everyone_has_it) view.copy_(store_.piece(parameter, unit));
  if (everyone_has_it) return;
  at::Tensor piece = view.contiguous();
  comm_.broadcast(piece, owners.front());
  view.copy_(piece);
}

/// Running statistics are averaged over the slots of the owners.
void LiveFullModel::average_buffers() {
  const at::NoGradGuard no_grad;
  const at::TensorOptions options =
      at::TensorOptions(scalar_type(sum_type(schedule_.options.precision))).device(comm_.device());
  std::vector<at::Tensor> sums;
  for (const BufferLayout& buffer : plan_.layout.buffers)
    sums.push_back(at::zeros(buffer.shape, options));
  if (sums.empty()) return;
  for (size_t s = 0; s < store_.slots().size(); ++s) {
    for (const BufferPiece& piece : store_.buffer_pieces(static_cast<int>(s))) {
      if (piece.frozen) continue;
      const BufferLayout& buffer = plan_.layout.buffers[piece.buffer];
      const auto owners = static_cast<double>(plan_.owners(piece.unit).size());
      piece_view(sums[piece.buffer], buffer.slice, plan_, plan_.units_of(buffer), piece.unit)
          .add_(piece.values / (owners * schedule_.placement.replicas));
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
