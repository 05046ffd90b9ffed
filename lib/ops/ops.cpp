#include "ops/ops.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include "ops/composed.h"

namespace sdp::ops {
namespace {

using at::Tensor;
using Pair = std::tuple<Tensor, Tensor>;

template <class Signature>
c10::TypedOperatorHandle<Signature> find(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").template typed<Signature>();
}

}  // namespace

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
