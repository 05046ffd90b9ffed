// Convolution and ReLU with maps in channels_last, as on a GPU: the same values and gradients, in the same
// format.

#include <torch/torch.h>

#include "catch.h"
#include "model/conv.h"
#include "test_device.h"

namespace sdp {
namespace {

constexpr auto kFormats = {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast};

at::Tensor noise(at::IntArrayRef shape) {
  return at::randn(shape, at::TensorOptions(at::kDouble).device(test_device()));
}

TEST_CASE("relu_keeping_bits in both formats") {
  const at::Tensor values = noise({2, 3, 5, 7}), weights = noise({2, 3, 5, 7});
  for (const at::MemoryFormat of_x : kFormats)
    for (const at::MemoryFormat of_gradient : kFormats) {
      INFO(of_x << ", gradient " << of_gradient);
      const at::Tensor x = values.clone(of_x).requires_grad_();
      const at::Tensor y = relu_keeping_bits(x.clone());
      CHECK(y.suggest_memory_format() == of_x);
      CHECK(at::equal(y, values.clamp_min(0)));
      y.backward(weights.contiguous(of_gradient));
      CHECK(at::equal(x.grad(), weights * values.gt(0)));
    }
}

TEST_CASE("a convolution with a frozen weight in both formats") {
  const at::Tensor values = noise({2, 3, 6, 6}), weight = noise({4, 3, 3, 3});
  for (const at::MemoryFormat format : kFormats)
    for (const int64_t stride : {1, 2}) {
      INFO(format << ", stride " << stride);
      const at::Tensor x = values.clone(format).requires_grad_();
      const at::Tensor y = conv2d(x, weight, stride, 1);
      const at::Tensor gradient = noise(y.sizes()).contiguous(format);
      y.backward(gradient);
      const at::Tensor plain = values.clone().requires_grad_();
      const at::Tensor expected = at::conv2d(plain, weight, {}, stride, 1);
      expected.backward(gradient.contiguous());
      CHECK(at::allclose(y, expected, 1e-12, 1e-12));
      CHECK(at::allclose(x.grad(), plain.grad(), 1e-12, 1e-12));
    }
}

}  // namespace
}  // namespace sdp
