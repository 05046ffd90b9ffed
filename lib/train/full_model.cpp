#include "train/full_model.h"

#include <ATen/ATen.h>

#include <stdexcept>

namespace sdp {

void FullModel::fetch(std::optional<int> branch) {
  for (size_t i = 0; i < plan_.layout.parameters.size(); ++i) {
    const ParameterLayout& parameter = plan_.layout.parameters[i];
    if (parameter.branch != branch) continue;
    parameters_[parameter.name] = read_one(static_cast<int>(i));
  }
}

at::Tensor FullModel::read_one(int index) {
  const at::Tensor values = read_parameter(index);
  const bool scaled = plan_.layout.parameters[index].scales_branch_output && branch_scale_ != 1;
  return scaled ? values * branch_scale_ : values;
}

void FullModel::fetch_shared() {
  fetch(std::nullopt);
}

void FullModel::fetch_branch(int branch) {
  fetch(branch);
}

void FullModel::drop_branch(int branch) {
  for (const ParameterLayout& parameter : plan_.layout.parameters)
    if (parameter.branch == branch) parameters_.erase(parameter.name);
}

at::Tensor FullModel::parameter(const std::string& name) const {
  const auto found = parameters_.find(name);
  if (found == parameters_.end()) throw std::logic_error(name + " was not fetched");
  return found->second;
}

at::Tensor FullModel::buffer(const std::string& name) const {
  return buffers_.at(name);
}

LiveFullModel::LiveFullModel(const SubnetPlan& plan, const Schedule& schedule, const Engine& engine,
                             Communicator& comm)
    : FullModel(plan), schedule_(schedule), store_(engine.store()), comm_(comm) {
  for (int b = 0; b < static_cast<int>(schedule.buckets.size()); ++b)
    for (int r = 0; r < static_cast<int>(schedule.buckets[b].segments.size()); ++r)
      for (const Piece& piece : schedule.buckets[b].segments[r].pieces)
        if (!locations_.emplace(piece.parameter, Location{b, r, piece}).second)
          throw std::logic_error("a parameter that is divided over units cannot be assembled");
  average_buffers();
}

at::Tensor LiveFullModel::read_parameter(int index) {
  const at::NoGradGuard no_grad;
  const Location& location = locations_.at(index);
  const Bucket& bucket = schedule_.buckets[location.bucket];
  const Segment& segment = bucket.segments[location.segment];
  const std::vector<int64_t>& shape = plan_.layout.parameters[index].shape;
  const bool held = store_.holds(location.bucket, location.segment);
  at::Tensor values = held ? store_.segment_values(location.bucket, location.segment)
                                 .narrow(0, location.piece.offset, location.piece.elements)
                           : at::empty({location.piece.elements},
                                       at::TensorOptions(scalar_type(bucket.type)).device(comm_.device()));
  const bool everyone_holds_it = static_cast<int>(segment.holders.size()) == comm_.size();
  if (!everyone_holds_it) comm_.broadcast(values, segment.holders.front());
  return values.view(shape);
}

void LiveFullModel::average_buffers() {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> sums;
  const at::TensorOptions options =
      at::TensorOptions(scalar_type(sum_type(schedule_.options.precision))).device(comm_.device());
  for (const BufferLayout& buffer : plan_.layout.buffers) {
    at::Tensor sum = at::zeros(buffer.shape, options);
    for (size_t s = 0; s < store_.slots().size(); ++s)
      if (!buffer.branch || plan_.owns_any_of(store_.slots()[s].worker, *buffer.branch))
        sum.add_(store_.slot(static_cast<int>(s)).buffer(buffer.name));
    int owners = plan_.workers;
    if (buffer.branch) {
      owners = 0;
      for (int worker = 0; worker < plan_.workers; ++worker)
        owners += plan_.owns_any_of(worker, *buffer.branch);
    }
    sums.push_back(sum.div_(owners * schedule_.placement.replicas).reshape({-1}));
  }
  if (sums.empty()) return;
  at::Tensor all = at::cat(sums);
  comm_.all_reduce_sum(all);
  int64_t at = 0;
  for (const BufferLayout& buffer : plan_.layout.buffers) {
    buffers_[buffer.name] = all.narrow(0, at, buffer.elements()).reshape(buffer.shape).clone();
    at += buffer.elements();
  }
}

}  // namespace sdp
