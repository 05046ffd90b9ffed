#include "ops/ops.h"

#include <ATen/ATen.h>
#include <ATen/OpMathType.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <vector>

namespace sdp::ops {
namespace {

using at::Tensor;
using Pair = std::tuple<Tensor, Tensor>;

template <class Signature>
c10::TypedOperatorHandle<Signature> find(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").template typed<Signature>();
}

/// x.to(type), without calling an operator where x has this type.
Tensor in_type(const Tensor& x, at::ScalarType type) {
  return x.scalar_type() == type ? x : x.to(type);
}

}  // namespace

namespace composed {

Pair rms_norm(const Tensor& x, const Tensor& weight, double eps) {
  const Tensor wide = in_type(x, at::toOpMathType(x.scalar_type()));
  const Tensor scale = wide.square().mean(-1, /*keepdim=*/true).add_(eps).rsqrt_();  // [.., 1]
  return {in_type(in_type(wide * scale, x.scalar_type()) * weight, x.scalar_type()), scale};
}

// With n = s x, s = (mean(x^2) + eps)^(-1/2) and g the gradient of n: ds/dx = -s^3 x / W, so
// dx = s (g - n mean(g n)).
Pair rms_norm_backward(const Tensor& gradient, const Tensor& x, const Tensor& weight, const Tensor& scale,
                       bool of_weight) {
  const Tensor normed = in_type(x, scale.scalar_type()) * scale;
  const Tensor out = in_type(gradient, scale.scalar_type());
  const Tensor products = out * normed;
  const Tensor sums = at::matmul(products, in_type(weight, scale.scalar_type())).unsqueeze(-1);  // of g n
  Tensor dx = out * weight;
  dx.addcmul_(normed, sums, -1 / static_cast<double>(x.size(-1))).mul_(scale);
  Tensor dweight;
  if (of_weight) dweight = in_type(products.flatten(0, -2).sum(0), weight.scalar_type());
  return {in_type(dx, x.scalar_type()), dweight};
}

Tensor swiglu(const Tensor& gate, const Tensor& up) {
  return at::silu(gate).mul_(up);
}

Pair swiglu_backward(const Tensor& gradient, const Tensor& gate, const Tensor& up) {
  Tensor dgate = gradient * up;
  at::silu_backward_out(dgate, dgate, gate);
  return {dgate, at::silu(gate).mul_(gradient)};
}

Tensor rotate(const Tensor& x, const Tensor& cos, const Tensor& sin, bool inverse) {
  const std::vector<Tensor> half = in_type(x, cos.scalar_type()).chunk(2, /*dim=*/-1);
  const Tensor y = at::empty(x.sizes(), cos.options());
  std::vector<Tensor> turned = y.chunk(2, -1);
  const double sign = inverse ? -1 : 1;
  at::mul_out(turned[0], half[0], cos).addcmul_(half[1], sin, -sign);
  at::mul_out(turned[1], half[1], cos).addcmul_(half[0], sin, sign);
  return in_type(y, x.scalar_type());
}

Tensor cross_entropy_(Tensor& logits, const Tensor& labels, double smoothing, bool with_gradient) {
  Tensor wide = in_type(logits, at::toOpMathType(logits.scalar_type()));
  const Tensor label = labels.unsqueeze(1);  // [R, 1]
  const Tensor highest = wide.amax(1, /*keepdim=*/true);
  Tensor losses = highest - wide.gather(1, label) * (1 - smoothing);
  if (smoothing > 0) losses.sub_(wide.mean(1, /*keepdim=*/true), smoothing);
  // ATen's softmax is for contiguous tensors: the elements between the rows take part as logits of -inf. It
  // reads an element before it writes its share, so that it can work in place. (exp() is five times as slow.)
  const int64_t stride = wide.size(0) > 1 ? wide.stride(0) : wide.size(1);
  Tensor whole = wide.as_strided({wide.size(0), stride}, {stride, 1});
  whole.narrow(1, wide.size(1), stride - wide.size(1)).fill_(-INFINITY);
  at::softmax_out(whole, whole, 1);
  losses.sub_(wide.amax(1, /*keepdim=*/true).log_());  // the highest share is 1 / sum exp (z - highest)
  if (!with_gradient) return losses;
  wide.scatter_add_(1, label, at::full_like(losses, smoothing - 1));
  if (smoothing > 0) wide.sub_(smoothing / static_cast<double>(logits.size(1)));
  if (!wide.is_same(logits)) logits.copy_(wide);
  return losses;
}

}  // namespace composed

TORCH_LIBRARY(sdp, library) {
  // A name alone stands for the function's own schema, in which nothing is written to.
  const auto define = [&](const char* schema, auto* composition) {
    library.def(schema, torch::dispatch(c10::DispatchKey::CompositeExplicitAutograd, composition));
  };
  define("rms_norm", &composed::rms_norm);
  define("rms_norm_backward", &composed::rms_norm_backward);
  define("swiglu", &composed::swiglu);
  define("swiglu_backward", &composed::swiglu_backward);
  define("rotate", &composed::rotate);
  define("cross_entropy_(Tensor(a!) logits, Tensor labels, float smoothing, bool with_gradient) -> Tensor",
         &composed::cross_entropy_);
}

Pair rms_norm(const Tensor& x, const Tensor& weight, double eps) {
  static const auto op = find<decltype(composed::rms_norm)>("sdp::rms_norm");
  return op.call(x, weight, eps);
}

Pair rms_norm_backward(const Tensor& gradient, const Tensor& x, const Tensor& weight, const Tensor& scale,
                       bool of_weight) {
  static const auto op = find<decltype(composed::rms_norm_backward)>("sdp::rms_norm_backward");
  return op.call(gradient, x, weight, scale, of_weight);
}

Tensor swiglu(const Tensor& gate, const Tensor& up) {
  static const auto op = find<decltype(composed::swiglu)>("sdp::swiglu");
  return op.call(gate, up);
}

Pair swiglu_backward(const Tensor& gradient, const Tensor& gate, const Tensor& up) {
  static const auto op = find<decltype(composed::swiglu_backward)>("sdp::swiglu_backward");
  return op.call(gradient, gate, up);
}

Tensor rotate(const Tensor& x, const Tensor& cos, const Tensor& sin, bool inverse) {
  static const auto op = find<decltype(composed::rotate)>("sdp::rotate");
  return op.call(x, cos, sin, inverse);
}

Tensor cross_entropy_(Tensor& logits, const Tensor& labels, double smoothing, bool with_gradient) {
  static const auto op = find<decltype(composed::cross_entropy_)>("sdp::cross_entropy_");
  return op.call(logits, labels, smoothing, with_gradient);
}

}  // namespace sdp::ops
