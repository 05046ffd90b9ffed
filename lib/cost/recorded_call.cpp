#include "cost/recorded_call.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace sdp {
namespace {

std::vector<double> sizes_of(const RecordedTensor& tensor) {
  return {tensor.sizes.begin(), tensor.sizes.end()};
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
    results += result.bytes();
  if (looks_up(call.op.name)) return 2 * results;
  double arguments = 0;
  for (const RecordedArgument& argument : call.arguments) {
    if (const auto* tensor = std::get_if<RecordedTensor>(&argument)) arguments += tensor->bytes();
    if (const auto* list = std::get_if<std::vector<RecordedTensor>>(&argument))
      for (const RecordedTensor& tensor : *list)
        arguments += tensor.bytes();
  }
  // Reads the logits, and overwrites them with their gradient.
  if (call.op.name == "sdp::cross_entropy_") results += call.tensor(0).bytes();
  return arguments + results;
}

}  // namespace

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

CallCost cost_of(const RecordedCall& call) {
  return {.products = products_of(call), .bytes = bytes_of(call)};
}

}  // namespace sdp
