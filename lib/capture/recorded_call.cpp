#include "capture/recorded_call.h"

#include <ATen/core/Tensor.h>

#include <cmath>
#include <stdexcept>

namespace sdp {

std::vector<int64_t> RecordedTensor::shape(double samples) const {
  std::vector<int64_t> result;
  for (const BatchSize& size : sizes)
    result.push_back(std::llround(size.of(samples)));
  return result;
}

double RecordedTensor::elements(double samples) const {
  double product = 1;
  for (const BatchSize& size : sizes)
    product *= size.of(samples);
  return product;
}

double RecordedTensor::bytes(double samples) const {
  return elements(samples) * static_cast<double>(c10::elementSize(type));
}

RecordedTensor shape_of(const at::Tensor& tensor) {
  RecordedTensor result{.sizes = {},
                        .type = tensor.scalar_type(),
                        .is_channels_last = tensor.suggest_memory_format() == at::MemoryFormat::ChannelsLast};
  for (const int64_t size : tensor.sizes())
    result.sizes.push_back({.fixed = static_cast<double>(size)});
  return result;
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

namespace {

void check_same(bool same) {
  if (!same) throw std::logic_error("a step calls different operators for batches of different size");
}

RecordedTensor between(const RecordedTensor& tensor, const RecordedTensor& larger, double batch) {
  check_same(tensor.sizes.size() == larger.sizes.size() && tensor.type == larger.type &&
             tensor.is_channels_last == larger.is_channels_last);
  RecordedTensor result = tensor;
  for (size_t d = 0; d < result.sizes.size(); ++d)
    result.sizes[d] = BatchSize::between(tensor.sizes[d].fixed, larger.sizes[d].fixed, batch);
  return result;
}

std::vector<RecordedTensor> between(const std::vector<RecordedTensor>& tensors,
                                    const std::vector<RecordedTensor>& larger, double batch) {
  check_same(tensors.size() == larger.size());
  std::vector<RecordedTensor> result;
  for (size_t i = 0; i < tensors.size(); ++i)
    result.push_back(between(tensors[i], larger[i], batch));
  return result;
}

}  // namespace

RecordedCall of_any_batch(const RecordedCall& call, const RecordedCall& larger, double batch) {
  check_same(call.op == larger.op && call.arguments.size() == larger.arguments.size());
  RecordedCall result{.op = call.op,
                      .arguments = {},
                      .results = between(call.results, larger.results, batch),
                      .is_recomputation = call.is_recomputation};
  for (size_t i = 0; i < call.arguments.size(); ++i) {
    check_same(call.arguments[i].index() == larger.arguments[i].index());
    result.arguments.push_back(std::visit(
        [&]<class T>(const T& argument) -> RecordedArgument {
          if constexpr (std::is_same_v<T, c10::IValue>)
            return argument;
          else
            return between(argument, std::get<T>(larger.arguments[i]), batch);
        },
        call.arguments[i]));
  }
  return result;
}

}  // namespace sdp
