// The operators on CUDA, by the device kernels.

#include <ATen/ATen.h>
#include <ATen/OpMathType.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

#include <tuple>
#include <type_traits>

#include "ops/availability.h"
#include "ops/device_kernels.h"

namespace sdp::ops {
namespace {

using at::Tensor;
using Pair = std::tuple<Tensor, Tensor>;

template <class T>
using Type = std::type_identity<T>;

/// Calls `use` with the type of the tensor's elements.
template <class Use>
void with_type(const Tensor& x, Use use) {
  switch (x.scalar_type()) {
    case at::kDouble:
      return use(Type<double>());
    case at::kFloat:
      return use(Type<float>());
    case at::kBFloat16:
      return use(Type<c10::BFloat16>());
    default:
      TORCH_CHECK_TYPE(false, "expected fp64, fp32 or bf16, found ", x.scalar_type());
  }
}

/// Calls `use` with the types of the elements and of the norm's weight: the same, or fp32 with bf16.
template <class Use>
void with_types(const Tensor& x, const Tensor& weight, Use use) {
  with_type(x, [&]<class T>(Type<T> type) {
    if (weight.scalar_type() == x.scalar_type()) return use(type, type);
    if constexpr (std::is_same_v<T, c10::BFloat16>)
      if (weight.scalar_type() == at::kFloat) return use(type, Type<float>());
    TORCH_CHECK_TYPE(false, "rms_norm: a weight of ", weight.scalar_type(), " for ", x.scalar_type());
  });
}

Tensor wide_empty(at::IntArrayRef shape, const Tensor& x) {
  return at::empty(shape, x.options().dtype(at::toOpMathType(x.scalar_type())));
}

template <class T>
T* data(const Tensor& x) {
  return static_cast<T*>(x.data_ptr());
}

cudaStream_t stream() {
  return c10::cuda::getCurrentCUDAStream();
}

/// Rows of the last dimension.
int64_t rows_of(const Tensor& x) {
  return x.size(-1) == 0 ? 0 : x.numel() / x.size(-1);
}

Pair device_rms_norm(const Tensor& given, const Tensor& weight, double eps) {
  const c10::cuda::CUDAGuard guard(given.device());
  const Tensor x = given.contiguous();
  std::vector<int64_t> shape = x.sizes().vec();
  shape.back() = 1;
  const Tensor y = at::empty_like(x), scale = wide_empty(shape, x);
  with_types(x, weight, [&]<class T, class P>(Type<T>, Type<P>) {
    device::rms_norm(data<T>(x), data<P>(weight), data<T>(y), data<Wide<T>>(scale), rows_of(x), x.size(-1),
                     eps, stream());
  });
  return {y, scale};
}

Pair device_rms_norm_backward(const Tensor& given_gradient, const Tensor& given, const Tensor& weight,
                              const Tensor& scale, bool of_weight) {
  const c10::cuda::CUDAGuard guard(given.device());
  const Tensor x = given.contiguous(), gradient = given_gradient.contiguous();
  const Tensor dx = at::empty_like(x);
  Tensor sums;  // of the weight's gradient, by block of the kernel
  if (of_weight) sums = wide_empty({device::rms_norm_partial_sums(rows_of(x)), x.size(-1)}, x);
  with_types(x, weight, [&]<class T, class P>(Type<T>, Type<P>) {
    device::rms_norm_gradient(data<T>(gradient), data<T>(x), data<P>(weight), data<Wide<T>>(scale),
                              data<T>(dx), of_weight ? data<Wide<T>>(sums) : nullptr, rows_of(x), x.size(-1),
                              stream());
  });
  return {dx, of_weight ? sums.sum(0).to(weight.scalar_type()) : Tensor()};
}

Tensor device_swiglu(const Tensor& given_gate, const Tensor& given_up) {
  const c10::cuda::CUDAGuard guard(given_gate.device());
  const Tensor gate = given_gate.contiguous(), up = given_up.contiguous();
  const Tensor h = at::empty_like(gate);
  with_type(gate, [&]<class T>(Type<T>) {
    device::swiglu(data<T>(gate), data<T>(up), data<T>(h), h.numel(), stream());
  });
  return h;
}

Pair device_swiglu_backward(const Tensor& given_gradient, const Tensor& given_gate, const Tensor& given_up) {
  const c10::cuda::CUDAGuard guard(given_gate.device());
  const Tensor gradient = given_gradient.contiguous(), gate = given_gate.contiguous(),
               up = given_up.contiguous();
  const Tensor dgate = at::empty_like(gate), dup = at::empty_like(up);
  with_type(gate, [&]<class T>(Type<T>) {
    device::swiglu_gradient(data<T>(gradient), data<T>(gate), data<T>(up), data<T>(dgate), data<T>(dup),
                            gate.numel(), stream());
  });
  return {dgate, dup};
}

Tensor device_rotate(const Tensor& given, const Tensor& cos, const Tensor& sin, bool inverse) {
  const c10::cuda::CUDAGuard guard(given.device());
  const Tensor x = given.contiguous();
  const Tensor y = at::empty_like(x);
  with_type(x, [&]<class T>(Type<T>) {
    device::rotate(data<T>(x), data<Wide<T>>(cos), data<Wide<T>>(sin), data<T>(y), x.size(0), x.size(1),
                   static_cast<int>(x.size(2)), static_cast<int>(x.size(3) / 2), inverse, stream());
  });
  return y;
}

Tensor device_cross_entropy(Tensor& logits, const Tensor& labels, double smoothing, bool with_gradient) {
  const c10::cuda::CUDAGuard guard(logits.device());
  TORCH_CHECK_VALUE(logits.stride(1) == 1 && labels.is_contiguous(),
                    "cross_entropy_: expected contiguous labels and rows of logits");
  const Tensor losses = wide_empty({logits.size(0), 1}, logits);
  with_type(logits, [&]<class T>(Type<T>) {
    device::cross_entropy(data<T>(logits), data<int64_t>(labels), data<Wide<T>>(losses), logits.size(0),
                          logits.size(1), logits.stride(0), smoothing, with_gradient, stream());
  });
  return losses;
}

}  // namespace

TORCH_LIBRARY_IMPL(sdp, CUDA, library) {
  library.impl("rms_norm", &device_rms_norm);
  library.impl("rms_norm_backward", &device_rms_norm_backward);
  library.impl("swiglu", &device_swiglu);
  library.impl("swiglu_backward", &device_swiglu_backward);
  library.impl("rotate", &device_rotate);
  library.impl("cross_entropy_", &device_cross_entropy);
}

bool has_device_kernels() {
  return true;
}

}  // namespace sdp::ops
