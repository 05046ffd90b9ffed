#include "capture/recorded_call.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <stdexcept>
#include <string_view>

namespace sdp {
namespace {

/// A recorded call has the sizes of its own batch, which depend on nothing.
constexpr double kOwnBatch = 0;

std::vector<double> sizes_of(const RecordedTensor& tensor) {
  std::vector<double> sizes;
  for (const BatchSize& size : tensor.sizes)
    sizes.push_back(size.fixed);
  return sizes;
}

/// a [.., m, k] times b [.., k, n].
ProductSize product(const RecordedTensor& a, const RecordedTensor& b) {
  const auto left = sizes_of(a), right = sizes_of(b);
  const size_t d = left.size();
  return {.m = left[d - 2], .k = left[d - 1], .n = right.back(), .count = d == 3 ? left[0] : 1};
}

/// A convolution as a product [pixels, in k k] x [in k k, out] (implicit GEMM, Chetlur et al. 2014).
ProductSize convolution(const RecordedTensor& output, const RecordedTensor& weight) {
  const auto map = sizes_of(output), w = sizes_of(weight);
  return {.m = map[0] * map[2] * map[3], .k = w[1] * w[2] * w[3], .n = w[0]};
}

std::vector<ProductSize> gradients_of_convolution(const RecordedCall& call) {
  const ProductSize forward = convolution(call.tensor(0), call.tensor(2));
  const auto wanted = call.value(10).toBoolList();
  std::vector<ProductSize> products;
  if (wanted[0]) products.push_back({.m = forward.m, .k = forward.n, .n = forward.k});
  if (wanted[1]) products.push_back({.m = forward.k, .k = forward.m, .n = forward.n});
  return products;
}

/// q k^T, once per product of a fused attention; q [B, N, T, D], k [B, N, S, D].
std::vector<ProductSize> attention(const RecordedTensor& q, const RecordedTensor& k, bool is_causal,
                                   size_t products) {
  const auto of_q = sizes_of(q), of_k = sizes_of(k);
  const ProductSize one{
      .m = of_q[2], .k = of_q[3], .n = of_k[2], .count = of_q[0] * of_q[1], .computed = is_causal ? 0.5 : 1};
  return std::vector<ProductSize>(products, one);
}

std::vector<ProductSize> products_of(const RecordedCall& call) {
  const std::string_view op = call.op.name;
  if (op == "aten::mm" || op == "aten::bmm") return {product(call.tensor(0), call.tensor(1))};
  if (op == "aten::addmm" || op == "aten::addmm_" || op == "aten::baddbmm")
    return {product(call.tensor(1), call.tensor(2))};
  if (op == "aten::convolution") return {convolution(call.results.front(), call.tensor(1))};
  if (op == "aten::convolution_backward") return gradients_of_convolution(call);
  if (op == "aten::_scaled_dot_product_flash_attention_for_cpu")
    return attention(call.tensor(0), call.tensor(1), call.value(4).toBool(), 2);
  // Two products for the gradients of each of the two, and q k^T again, which the kernel does not save.
  if (op == "aten::_scaled_dot_product_flash_attention_for_cpu_backward")
    return attention(call.tensor(1), call.tensor(2), call.value(7).toBool(), 5);
  return {};
}

/// Operators that read only some rows of their first argument.
bool looks_up(std::string_view op) {
  constexpr auto kLookups =
      std::to_array<std::string_view>({"aten::embedding", "aten::index_select", "aten::gather"});
  return std::find(kLookups.begin(), kLookups.end(), op) != kLookups.end();
}

double bytes_of(const RecordedCall& call) {
  double results = 0;
  for (const RecordedTensor& result : call.results)
    results += result.bytes(kOwnBatch);
  if (looks_up(call.op.name)) return 2 * results;
  double arguments = 0;
  for (const RecordedArgument& argument : call.arguments) {
    if (const auto* tensor = std::get_if<RecordedTensor>(&argument)) arguments += tensor->bytes(kOwnBatch);
    if (const auto* list = std::get_if<std::vector<RecordedTensor>>(&argument))
      for (const RecordedTensor& tensor : *list)
        arguments += tensor.bytes(kOwnBatch);
  }
  // Reads the logits, and overwrites them with their gradient.
  if (call.op.name == "sdp::cross_entropy_") results += call.tensor(0).bytes(kOwnBatch);
  return arguments + results;
}

}  // namespace

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

CallCost cost_of(const RecordedCall& call) {
  return {.products = products_of(call), .bytes = bytes_of(call)};
}

}  // namespace sdp
