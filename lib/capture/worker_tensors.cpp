#include "capture/worker_tensors.h"

#include "model/slices.h"

namespace sdp {

WorkerTensors::WorkerTensors(const SubnetPlan& plan, int worker, Precision precision, const MakeTensor& make)
    : plan_(plan), worker_(worker) {
  const auto add = [&](const auto& layout, at::ScalarType type) {
    std::vector<BranchPart> parts = plan.parts_of(worker, layout);
    for (int part = 0; part < static_cast<int>(parts.size()); ++part)
      tensors_[{layout.name, part}] =
          make(shape_of_units(layout.shape, layout.slice, plan, parts[part].units), type)
              .contiguous(storage_format(layout.shape.size()));
    return parts;
  };
  for (int p = 0; p < static_cast<int>(plan.layout.parameters.size()); ++p) {
    const ParameterLayout& parameter = plan.layout.parameters[p];
    const std::vector<BranchPart> parts = add(parameter, scalar_type(element_type(parameter, precision)));
    if (!parts.empty() && !parts.front().frozen)
      owned_.emplace_back(p, tensors_.at({parameter.name, 0}).requires_grad_());
  }
  for (const BufferLayout& buffer : plan.layout.buffers)
    add(buffer, precision == Precision::kFp64 ? at::kDouble : at::kFloat);
}

at::Tensor WorkerTensors::find_parameter(const std::string& name, int part) const {
  return tensors_.at({name, part});
}

at::Tensor WorkerTensors::find_buffer(const std::string& name, int part) const {
  return tensors_.at({name, part});
}

}  // namespace sdp
