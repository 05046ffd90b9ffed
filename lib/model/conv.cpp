#include "model/conv.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

namespace sdp {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// The gradient of a convolution's input does not depend on the input's values: an expanded tensor of its
/// shape, which takes almost no memory, is enough. But only a dense one can be in channels_last.
at::Tensor stand_in(at::IntArrayRef shape, const at::Tensor& gradient) {
  if (gradient.suggest_memory_format() == at::MemoryFormat::ChannelsLast)
    return at::empty(shape, gradient.options(), at::MemoryFormat::ChannelsLast);
  return at::empty({1}, gradient.options()).expand(shape);
}

class FrozenConv2d : public torch::autograd::Function<FrozenConv2d> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            int64_t stride, int64_t padding) {
    context->save_for_backward({weight});
    context->saved_data["shape"] = x.sizes().vec();
    context->saved_data["stride"] = stride;
    context->saved_data["padding"] = padding;
    return at::conv2d(x, weight, /*bias=*/{}, stride, padding);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const at::Tensor weight = context->get_saved_variables().front();
    const int64_t stride = context->saved_data["stride"].toInt();
    const int64_t padding = context->saved_data["padding"].toInt();
    const at::Tensor shape_only = stand_in(context->saved_data["shape"].toIntVector(), gradients[0]);
    const at::Tensor gradient = std::get<0>(
        at::convolution_backward(gradients[0], shape_only, weight, /*bias_sizes=*/c10::nullopt,
                                 {stride, stride}, {padding, padding}, {1, 1},
                                 /*transposed=*/false, {0, 0}, /*groups=*/1, {true, false, false}));
    return {gradient, at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

constexpr int64_t kBits = 8;

/// 1, 2, 4, .., 128, computed on the device, so that the host need not wait for a copy.
at::Tensor bit_values(at::Device device) {
  const at::Tensor places = at::arange(kBits, at::TensorOptions(at::kByte).device(device));
  return at::bitwise_left_shift(at::ones_like(places), places);
}

at::MemoryFormat format_of(const at::Tensor& x) {
  return x.suggest_memory_format();
}

/// [B, S, S, C] of a map [B, C, S, S] in channels_last, whose memory is in that order.
at::Tensor in_memory_order(const at::Tensor& map) {
  return format_of(map) == at::MemoryFormat::ChannelsLast ? map.permute({0, 2, 3, 1}) : map;
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
    context->saved_data["format"] = format_of(x);
    return at::relu(x);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const at::Tensor mask = unpack_bits(context->get_saved_variables().front(), gradients[0].sizes(),
                                        context->saved_data["format"].toMemoryFormat());
    return {gradients[0] * mask};
  }
};

}  // namespace

at::MemoryFormat map_format(at::ScalarType type, bool on_gpu) {
  const bool channels_last = type == at::kBFloat16 || (type == at::kFloat && !on_gpu);
  return channels_last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
}

at::Tensor conv2d(const at::Tensor& x, const at::Tensor& weight, int64_t stride, int64_t padding) {
  const bool only_input_gradient = at::GradMode::is_enabled() && x.requires_grad() && !weight.requires_grad();
  return only_input_gradient ? FrozenConv2d::apply(x, weight, stride, padding)
                             : at::conv2d(x, weight, /*bias=*/{}, stride, padding);
}

at::Tensor relu_keeping_bits(const at::Tensor& x) {
  return at::GradMode::is_enabled() && x.requires_grad() ? ReluKeepingBits::apply(x) : at::relu(x);
}

}  // namespace sdp
