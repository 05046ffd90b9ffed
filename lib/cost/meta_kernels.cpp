#include "cost/recorder.h"

#include <ATen/ATen.h>
#include <ATen/OpMathType.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/ConvUtils.h>
#include <torch/library.h>

#include <array>
#include <tuple>
#include <utility>
#include <vector>

#include "ops/ops.h"

namespace sdp {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;
using Pair = std::tuple<Tensor, Tensor>;
using Triple = std::tuple<Tensor, Tensor, Tensor>;

Tensor like_if(bool wanted, const Tensor& x) {
  return wanted ? at::empty_like(x) : Tensor();
}

Tensor like_if(bool wanted, const OptionalTensor& x) {
  return wanted && x ? at::empty_like(*x) : Tensor();
}

/// In channels_last if one of the two is.
at::MemoryFormat format_of(const Tensor& input, const Tensor& weight) {
  const at::MemoryFormat format = input.suggest_memory_format();
  return format == at::MemoryFormat::ChannelsLast ? format : weight.suggest_memory_format();
}

Tensor like_if(bool wanted, const Tensor& x, at::MemoryFormat format) {
  return wanted ? at::empty(x.sizes(), x.options(), format) : Tensor();
}

/// Statistics of a norm are in the type of its parameters, if it has any, and at least fp32.
at::TensorOptions statistics(const Tensor& input, const OptionalTensor& weight) {
  const at::ScalarType type = weight && weight->defined() ? weight->scalar_type() : input.scalar_type();
  return input.options().dtype(type == at::kBFloat16 ? at::kFloat : type);
}

/// Maps of one pixel are in both formats, and batch norms take them as contiguous.
Tensor normalized_like(const Tensor& maps) {
  return at::empty_like(maps,
                        maps.is_contiguous() ? at::MemoryFormat::Contiguous : maps.suggest_memory_format());
}

Triple batch_norm_sizes(const Tensor& input, const OptionalTensor& weight, const OptionalTensor& /*bias*/,
                        const OptionalTensor& /*running_mean*/, const OptionalTensor& /*running_var*/,
                        bool training, double /*momentum*/, double /*eps*/) {
  const int64_t size = training ? input.size(1) : 0;
  return {normalized_like(input), at::empty({size}, statistics(input, weight)),
          at::empty({size}, statistics(input, weight))};
}

Triple batch_norm_backward_sizes(const Tensor& /*grad_out*/, const Tensor& input,
                                 const OptionalTensor& weight, const OptionalTensor& /*running_mean*/,
                                 const OptionalTensor& /*running_var*/, const OptionalTensor& /*mean*/,
                                 const OptionalTensor& /*invstd*/, bool /*train*/, double /*eps*/,
                                 std::array<bool, 3> mask) {
  return {mask[0] ? normalized_like(input) : Tensor(), like_if(mask[1], weight), like_if(mask[2], weight)};
}

Triple layer_norm_sizes(const Tensor& input, c10::SymIntArrayRef normalized_shape,
                        const OptionalTensor& weight, const OptionalTensor& /*bias*/, double /*eps*/) {
  std::vector<int64_t> shape = input.sizes().vec();
  for (size_t i = shape.size() - normalized_shape.size(); i < shape.size(); ++i)
    shape[i] = 1;
  return {at::empty(input.sizes(), input.options()), at::empty(shape, statistics(input, weight)),
          at::empty(shape, statistics(input, weight))};
}

Triple layer_norm_backward_sizes(const Tensor& /*grad_out*/, const Tensor& input,
                                 c10::SymIntArrayRef /*shape*/, const Tensor& /*mean*/,
                                 const Tensor& /*rstd*/, const OptionalTensor& weight,
                                 const OptionalTensor& bias, std::array<bool, 3> mask) {
  return {like_if(mask[0], input), like_if(mask[1], weight), like_if(mask[2], bias)};
}

std::vector<int64_t> to_ints(c10::SymIntArrayRef values) {
  std::vector<int64_t> result;
  for (const c10::SymInt& value : values)
    result.push_back(value.expect_int());
  return result;
}

Tensor convolution_sizes(const Tensor& input, const Tensor& weight, const OptionalTensor& /*bias*/,
                         c10::SymIntArrayRef stride, c10::SymIntArrayRef padding,
                         c10::SymIntArrayRef dilation, bool /*transposed*/,
                         c10::SymIntArrayRef /*output_padding*/, c10::SymInt /*groups*/) {
  return at::empty(at::native::conv_output_size(input.sizes(), weight.sizes(), to_ints(padding),
                                                to_ints(stride), to_ints(dilation)),
                   input.options(), format_of(input, weight));
}

Triple convolution_backward_sizes(const Tensor& grad_output, const Tensor& input, const Tensor& weight,
                                  c10::SymIntArrayRef /*stride*/, c10::SymIntArrayRef /*padding*/,
                                  c10::SymIntArrayRef /*dilation*/, bool /*transposed*/,
                                  c10::SymIntArrayRef /*output_padding*/, c10::SymInt /*groups*/,
                                  std::array<bool, 3> mask) {
  const at::MemoryFormat format = format_of(input, weight);
  return {like_if(mask[0], input, format), like_if(mask[1], weight, format),
          mask[2] ? at::empty({weight.size(0)}, grad_output.options()) : Tensor()};
}

/// [B, N, T, D], a view of [B, T, N, D], as ATen's CPU kernel allocates it.
Tensor heads_like(const Tensor& x) {
  return at::empty({x.size(0), x.size(2), x.size(1), x.size(3)}, x.options()).transpose(1, 2);
}

Pair attention_sizes(const Tensor& q, const Tensor& /*k*/, const Tensor& /*v*/, double /*dropout*/,
                     bool /*causal*/, const OptionalTensor& /*mask*/, std::optional<double> /*scale*/) {
  const at::ScalarType type = at::toOpMathType(q.scalar_type());
  return {heads_like(q),
          at::empty({q.size(0), q.size(2), q.size(1)}, q.options().dtype(type)).transpose(1, 2)};
}

Triple attention_backward_sizes(const Tensor& /*grad_out*/, const Tensor& q, const Tensor& k, const Tensor& v,
                                const Tensor& /*out*/, const Tensor& /*logsumexp*/, double /*dropout*/,
                                bool /*causal*/, const OptionalTensor& /*mask*/,
                                std::optional<double> /*scale*/) {
  return {heads_like(q), heads_like(k), heads_like(v)};
}

Tensor index_select_sizes(const Tensor& x, int64_t dim, const Tensor& index) {
  std::vector<int64_t> shape = x.sizes().vec();
  shape[static_cast<size_t>(at::maybe_wrap_dim(dim, x.dim()))] = index.numel();
  return at::empty(shape, x.options());
}

Tensor embedding_dense_backward_sizes(const Tensor& grad, const Tensor& /*indices*/, c10::SymInt rows,
                                      c10::SymInt /*padding*/, bool /*scale*/) {
  return at::empty({rows.expect_int(), grad.size(-1)}, grad.options());
}

Tensor& abs_sizes(const Tensor& x, Tensor& out) {
  out.resize_(x.sizes());
  return out;
}

Tensor roll_sizes(const Tensor& x, c10::SymIntArrayRef /*shifts*/, at::IntArrayRef /*dims*/) {
  return at::empty(x.sizes(), x.options());
}

Tensor like_wide(const Tensor& x, std::vector<int64_t> shape) {
  return at::empty(shape, x.options().dtype(at::toOpMathType(x.scalar_type())));
}

Pair rms_norm_sizes(const Tensor& x, const Tensor& weight, double eps) {
  if (!records_device_kernels()) return ops::composed::rms_norm(x, weight, eps);
  std::vector<int64_t> shape = x.sizes().vec();
  shape.back() = 1;
  return {at::empty_like(x), like_wide(x, shape)};
}

Pair rms_norm_backward_sizes(const Tensor& gradient, const Tensor& x, const Tensor& weight,
                             const Tensor& scale, bool of_weight) {
  if (!records_device_kernels())
    return ops::composed::rms_norm_backward(gradient, x, weight, scale, of_weight);
  return {at::empty_like(x), like_if(of_weight, weight)};
}

Tensor swiglu_sizes(const Tensor& gate, const Tensor& up) {
  return records_device_kernels() ? at::empty_like(gate) : ops::composed::swiglu(gate, up);
}

Pair swiglu_backward_sizes(const Tensor& gradient, const Tensor& gate, const Tensor& up) {
  if (!records_device_kernels()) return ops::composed::swiglu_backward(gradient, gate, up);
  return {at::empty_like(gate), at::empty_like(up)};
}

Tensor rotate_sizes(const Tensor& x, const Tensor& cos, const Tensor& sin, bool inverse) {
  return records_device_kernels() ? at::empty(x.sizes(), x.options())
                                  : ops::composed::rotate(x, cos, sin, inverse);
}

Tensor cross_entropy_sizes(Tensor& logits, const Tensor& labels, double smoothing, bool with_gradient) {
  if (!records_device_kernels())
    return ops::composed::cross_entropy_(logits, labels, smoothing, with_gradient);
  return like_wide(logits, {logits.size(0), 1});
}

template <class Kernel>
void add(torch::Library& library, const char* name, Kernel kernel, const char* overload = "") {
  const auto op = c10::Dispatcher::singleton().findSchema({std::string("aten::") + name, overload});
  if (!op || op->hasKernelForDispatchKey(c10::DispatchKey::Meta)) return;
  library.impl(*overload ? (std::string(name) + "." + overload).c_str() : name, kernel);
}

/// For kernels of the meta device for the operators of a namespace.
torch::Library* library_of(const char* name) {
  return new torch::Library(torch::Library::IMPL, name, c10::DispatchKey::Meta, __FILE__, __LINE__);
}

}  // namespace

void add_meta_kernels() {
  static const auto never_destroyed = [] {
    torch::Library* const aten = library_of("aten");
    add(*aten, "relu", [](const Tensor& x) { return at::empty_like(x); });
    add(*aten, "native_batch_norm", &batch_norm_sizes);
    add(*aten, "native_batch_norm_backward", &batch_norm_backward_sizes);
    add(*aten, "native_layer_norm", &layer_norm_sizes);
    add(*aten, "native_layer_norm_backward", &layer_norm_backward_sizes);
    add(*aten, "convolution_overrideable", &convolution_sizes);
    add(*aten, "convolution_backward_overrideable", &convolution_backward_sizes);
    add(*aten, "_scaled_dot_product_flash_attention_for_cpu", &attention_sizes);
    add(*aten, "_scaled_dot_product_flash_attention_for_cpu_backward", &attention_backward_sizes);
    add(*aten, "abs", &abs_sizes, "out");
    add(*aten, "roll", &roll_sizes);
    add(*aten, "index_select", &index_select_sizes);
    add(*aten, "embedding_dense_backward", &embedding_dense_backward_sizes);
    torch::Library* const own = library_of("sdp");
    own->impl("rms_norm", &rms_norm_sizes);
    own->impl("rms_norm_backward", &rms_norm_backward_sizes);
    own->impl("swiglu", &swiglu_sizes);
    own->impl("swiglu_backward", &swiglu_backward_sizes);
    own->impl("rotate", &rotate_sizes);
    own->impl("cross_entropy_", &cross_entropy_sizes);
    return std::pair(aten, own);
  }();
  static_cast<void>(never_destroyed);
}

}  // namespace sdp
