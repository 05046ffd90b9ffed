#include "layers/conv.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

namespace sdp {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::MemoryFormat map_format_of(const at::Tensor& x) {
  return map_format(x.scalar_type(), x.is_cuda());
}

/// The gradient of a convolution's input does not depend on the input's values: an expanded tensor of its
/// shape, which takes almost no memory, is enough. But only a dense one can be in channels_last.
at::Tensor stand_in(at::IntArrayRef shape, const at::Tensor& gradient) {
  if (map_format_of(gradient) == at::MemoryFormat::ChannelsLast)
    return at::empty(shape, gradient.options(), at::MemoryFormat::ChannelsLast);
  return at::empty({1}, gradient.options()).expand(shape);
}

/// Saves x only for the weight's gradient, and never a copy of the weight.
class Conv2d : public torch::autograd::Function<Conv2d> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            int64_t stride, int64_t padding) {
    context->save_for_backward({weight.requires_grad() ? x : at::Tensor(), weight});
    context->saved_data["shape"] = x.sizes().vec();
    context->saved_data["stride"] = stride;
    context->saved_data["padding"] = padding;
    return at::conv2d(x, weight.contiguous(map_format_of(x)), /*bias=*/{}, stride, padding);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &gradient = gradients[0], &weight = saved[1];
    const int64_t stride = context->saved_data["stride"].toInt();
    const int64_t padding = context->saved_data["padding"].toInt();
    const at::Tensor x =
        saved[0].defined() ? saved[0] : stand_in(context->saved_data["shape"].toIntVector(), gradient);
    const auto [of_x, of_weight, of_bias] = at::convolution_backward(
        gradient, x, weight.contiguous(map_format_of(gradient)), /*bias_sizes=*/c10::nullopt,
        {stride, stride}, {padding, padding}, {1, 1}, /*transposed=*/false, {0, 0}, /*groups=*/1,
        {context->needs_input_grad(0), weight.requires_grad(), false});
    return {of_x, of_weight, at::Tensor(), at::Tensor()};
  }
};

constexpr int64_t kBits = 8;

/// 1, 2, 4, .., 128, computed on the device, so that the host need not wait for a copy.
at::Tensor bit_values(at::Device device) {
  return at::bitwise_left_shift(1, at::arange(kBits, at::TensorOptions(at::kByte).device(device)));
}

/// [B, S, S, C] of a map [B, C, S, S] in channels_last, whose memory is in that order.
at::Tensor in_memory_order(const at::Tensor& map) {
  return map.suggest_memory_format() == at::MemoryFormat::ChannelsLast ? map.permute({0, 2, 3, 1}) : map;
}

/// One bit per element of a mask, in the order of its memory. The last byte is padded with zeros.
at::Tensor pack_bits(const at::Tensor& mask) {
  at::Tensor flat = in_memory_order(mask).reshape({-1}).to(at::kByte);
  const int64_t missing = (kBits - flat.numel() % kBits) % kBits;
  if (missing > 0) flat = at::constant_pad_nd(flat, {0, missing});
  return flat.view({-1, kBits}).mul(bit_values(mask.device())).sum(1, /*keepdim=*/false, at::kByte);
}

/// A mask of this map's shape and memory format.
at::Tensor unpack_bits(const at::Tensor& bits, at::IntArrayRef shape, at::MemoryFormat format) {
  const at::Tensor mask = bits.unsqueeze(1).bitwise_and(bit_values(bits.device())).ne(0).reshape({-1});
  const at::Tensor flat = mask.narrow(0, 0, c10::multiply_integers(shape));
  if (format != at::MemoryFormat::ChannelsLast) return flat.view(shape);
  return flat.view({shape[0], shape[2], shape[3], shape[1]}).permute({0, 3, 1, 2});
}

class ReluKeepingBits : public torch::autograd::Function<ReluKeepingBits> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x) {
    context->save_for_backward({pack_bits(x.gt(0))});
    context->saved_data["format"] = x.suggest_memory_format();
    context->mark_dirty({x});
    return x.relu_();
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const at::Tensor mask = unpack_bits(context->get_saved_variables().front(), gradients[0].sizes(),
                                        context->saved_data["format"].toMemoryFormat());
    return {gradients[0] * mask};
  }
};

}  // namespace

at::MemoryFormat map_format(at::ScalarType type, bool on_gpu) {
  return on_gpu && type != at::kBFloat16 ? at::MemoryFormat::Contiguous : at::MemoryFormat::ChannelsLast;
}

at::Tensor conv2d(const at::Tensor& x, const at::Tensor& weight, int64_t stride, int64_t padding) {
  // oneDNN copies such an x to a buffer, and writes whole blocks of channels (8 with AVX2, 16 with AVX-512)
  // beyond its end if there are fewer: crashes, endless loops or wrong gradients (uxlfoundation/oneDNN#6035).
  constexpr int64_t kLargestBlock = 16;
  if (weight.size(2) == 1 && stride > 1 && padding == 0 && weight.size(1) < kLargestBlock)
    return conv2d(at::avg_pool2d(x, 1, stride), weight, 1, padding);
  const bool is_frozen = x.requires_grad() && !weight.requires_grad();
  const bool is_converted = map_format_of(x) != at::MemoryFormat::ChannelsLast;
  return at::GradMode::is_enabled() && (is_frozen || is_converted)
             ? Conv2d::apply(x, weight, stride, padding)
             : at::conv2d(x, weight.contiguous(map_format_of(x)), /*bias=*/{}, stride, padding);
}

at::Tensor relu_keeping_bits(const at::Tensor& x) {
  return at::GradMode::is_enabled() && x.requires_grad() ? ReluKeepingBits::apply(x) : x.relu_();
}

}  // namespace sdp
