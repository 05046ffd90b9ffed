#include "cost/recorded_call.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <string_view>
#include <vector>

namespace sdp {
namespace {

using Arguments = c10::ArrayRef<const c10::IValue>;

int64_t bytes(const at::Tensor& x) {
  return x.numel() * static_cast<int64_t>(x.element_size());
}

/// Of oneDNN: on CPUs with AVX-512, unless ONEDNN_MAX_CPU_ISA excludes it.
bool has_bf16() {
  static const bool has = c10::Dispatcher::singleton()
                              .findSchemaOrThrow("mkldnn::_is_mkldnn_bf16_supported", "")
                              .typed<bool()>()
                              .call();
  return has;
}

/// Whether ATen computes convolutions of this type with oneDNN. Otherwise it multiplies by the columns of the
/// image (im2col), as it does for fp64, and for bf16 on CPUs without AVX-512.
bool is_onednn(at::ScalarType type) {
  return type == at::kFloat ||
         (type == at::kBFloat16 && has_bf16() && at::globalContext().userEnabledMkldnn());
}

/// Bytes of the columns of a convolution. Those of a 1x1 convolution are the image itself.
int64_t column_bytes(const at::Tensor& x, const at::Tensor& weight, int64_t output_bytes,
                     at::IntArrayRef stride, at::IntArrayRef padding) {
  const int64_t area = weight.size(2) * weight.size(3);
  if (area == 1 && stride.front() == 1 && padding.front() == 0) return 0;
  return output_bytes / weight.size(0) * x.size(1) * area;
}

/// Output bytes of convolution(input, weight, bias, stride, padding, ..). A single stride is that of both
/// sides.
int64_t output_bytes(Arguments a) {
  const at::Tensor &x = a[0].toTensor(), &w = a[1].toTensor();
  int64_t result = x.size(0) * w.size(0) * static_cast<int64_t>(x.element_size());
  for (const int64_t d : {2, 3}) {
    const auto of_side = [&](const c10::IValue& list) {
      return d == 2 ? list.toIntVector().front() : list.toIntVector().back();
    };
    result *= (x.size(d) + 2 * of_side(a[4]) - w.size(d)) / of_side(a[3]) + 1;
  }
  return result;
}

bool is_channels_last(const at::Tensor& map) {
  return map.suggest_memory_format() == at::MemoryFormat::ChannelsLast;
}

int64_t bytes_if_converted(const at::Tensor& map) {
  return is_channels_last(map) ? 0 : bytes(map);
}

/// Bytes of a weight in oneDNN's blocked layout. Few input channels, such as those of images, are no blocks.
int64_t blocked_bytes(const at::Tensor& weight) {
  constexpr int64_t kFewChannels = 4, kBlock = 16;
  const auto whole_blocks = [](int64_t channels) { return (channels + kBlock - 1) / kBlock * kBlock; };
  const int64_t outputs = weight.size(0), inputs = weight.size(1);
  return bytes(weight) / outputs * whole_blocks(outputs) / inputs *
         (inputs < kFewChannels ? inputs : whole_blocks(inputs));
}

/// oneDNN computes maps in channels_last as they are; weights are stored in it, so that others are converted.
/// The weight is copied to blocks, and its gradient from blocks, in bf16 of fp32 sums. In a matrix product
/// nothing is copied. (A batch of one image may take less.)
int64_t copies_of_weight(const at::Tensor& weight, int64_t stride, bool of_weight) {
  const bool is_bf16 = weight.scalar_type() == at::kBFloat16;
  if (weight.size(2) == 1 && stride == 1 && !is_bf16) return 0;
  const int64_t blocks = blocked_bytes(weight);
  if (!of_weight) return blocks;
  return blocks + (is_bf16 ? 2 * blocks - bytes(weight) : bytes(weight));
}

int64_t copies_of_convolution(Arguments a) {
  const at::Tensor &x = a[0].toTensor(), &weight = a[1].toTensor();
  const std::vector<int64_t> stride = a[3].toIntVector();
  if (!is_onednn(x.scalar_type()))
    return column_bytes(x, weight, output_bytes(a), stride, a[4].toIntVector());
  return copies_of_weight(weight, stride.front(), /*of_weight=*/false) + bytes_if_converted(x);
}

/// oneDNN's AVX2 kernel takes no image lower than the kernel. The one that multiplies by columns takes its
/// place: every thread has its columns, the image, and a sum for which oneDNN allocates four times the bytes.
int64_t sums_of_threads(const at::Tensor& gradient, const at::Tensor& x, const at::Tensor& weight) {
  if (x.size(2) >= weight.size(2) || has_bf16()) return 0;
  const int64_t of_image =
      x.size(2) * x.size(3) + gradient.size(2) * gradient.size(3) * weight.size(2) * weight.size(3);
  return at::get_num_threads() *
         (4 * bytes(weight) + of_image * weight.size(1) * static_cast<int64_t>(x.element_size()));
}

/// oneDNN has kernels for the weight's gradient of 3x3 convolutions of each channel by itself. For larger
/// ones it takes a channel as one of a block of inputs and of outputs.
int64_t copies_of_depthwise(const at::Tensor& x, const at::Tensor& weight, bool of_weight) {
  const int64_t block = has_bf16() ? 16 : 8;
  const bool in_blocks = of_weight && weight.size(2) > 3 && (x.size(2) >= weight.size(2) || has_bf16());
  const int64_t sums = in_blocks ? block * block * bytes(weight) : 0;
  return bytes(weight) + sums;
}

/// convolution_backward(gradient, x, weight, bias_sizes, stride, padding, dilation, transposed,
/// output_padding, groups, output_mask).
int64_t copies_of_gradients(Arguments a) {
  const at::Tensor &gradient = a[0].toTensor(), &x = a[1].toTensor(), &weight = a[2].toTensor();
  const bool of_weight = a[10].toBoolList()[1];
  const std::vector<int64_t> stride = a[4].toIntVector();
  if (!is_onednn(x.scalar_type()))
    return of_weight ? column_bytes(x, weight, bytes(gradient), stride, a[5].toIntVector()) : 0;
  const bool is_depthwise = a[9].toInt() > 1 && weight.size(1) == 1;
  return std::max(is_depthwise ? copies_of_depthwise(x, weight, of_weight)
                               : copies_of_weight(weight, stride.front(), of_weight),
                  of_weight ? sums_of_threads(gradient, x, weight) : 0) +
         bytes_if_converted(x) + bytes_if_converted(gradient);
}

int64_t bytes_if_strided(const at::Tensor& x) {
  return x.is_contiguous() ? 0 : bytes(x);
}

/// Copies of the arguments that have another type than the result.
int64_t converted_bytes(const at::Tensor& a, const at::Tensor& b) {
  const at::ScalarType wide = at::promote_types(a.scalar_type(), b.scalar_type());
  const auto copy = [&](const at::Tensor& x) {
    return x.dim() == 0 || x.scalar_type() == wide ? 0
                                                   : x.numel() * static_cast<int64_t>(at::elementSize(wide));
  };
  return copy(a) + copy(b);
}

}  // namespace

KernelCopies copies_of_call(const char* name, Arguments a) {
  const std::string_view op = name;
  if (op == "aten::convolution") return {copies_of_convolution(a), true};
  if (op == "aten::convolution_backward") return {copies_of_gradients(a), true};
  if (op == "aten::native_layer_norm") return {bytes_if_strided(a[0].toTensor()), false};
  if (op == "aten::native_layer_norm_backward")
    return {bytes_if_strided(a[0].toTensor()) + bytes_if_strided(a[1].toTensor()), false};
  for (const char* elementwise : {"aten::add", "aten::add_", "aten::sub", "aten::mul", "aten::mul_"})
    if (op == elementwise && a[1].isTensor())
      return {converted_bytes(a[0].toTensor(), a[1].toTensor()), false};
  return {};
}

}  // namespace sdp
