#include "capture/recorded_call.h"

#include <ATen/core/Tensor.h>

namespace sdp {

double RecordedTensor::bytes() const {
  auto bytes = static_cast<double>(c10::elementSize(type));
  for (const int64_t size : sizes)
    bytes *= static_cast<double>(size);
  return bytes;
}

RecordedTensor shape_of(const at::Tensor& tensor) {
  return {.sizes = tensor.sizes().vec(), .type = tensor.scalar_type()};
}

RecordedArgument recorded(const c10::IValue& argument) {
  if (argument.isTensor()) {
    const at::Tensor& tensor = argument.toTensor();
    if (!tensor.defined()) return c10::IValue();
    return shape_of(tensor);
  }
  if (argument.isTensorList()) {
    std::vector<RecordedTensor> list;
    for (const at::Tensor& tensor : argument.toTensorVector())
      list.push_back(shape_of(tensor));
    return list;
  }
  if (argument.isOptionalTensorList()) return c10::IValue();  // would keep the tensors
  return argument;
}

}  // namespace sdp
