// Convolution and ReLU with maps in channels_last, as on a GPU: the same values and gradients, in the same
// format; and convolutions of few channels.

#include <torch/torch.h>

#include <array>
#include <vector>

#include "catch.h"
#include "layers/conv.h"
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
  for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kBFloat16})
    for (const at::MemoryFormat format : kFormats)
      for (const int64_t kernel : {1, 3})
        for (const int64_t stride : {1, 2}) {
          INFO(type << ", " << format << ", kernel " << kernel << ", stride " << stride);
          const at::Tensor values = noise({2, 3, 6, 6}).to(type),
                           weight = noise({4, 3, kernel, kernel}).to(type);
          const at::Tensor x = values.clone(format).requires_grad_();
          const at::Tensor y = conv2d(x, weight, stride, kernel / 2);
          const at::Tensor gradient = noise(y.sizes()).to(type);
          y.backward(gradient.contiguous(format));
          const at::Tensor plain = values.to(at::kDouble).clone().requires_grad_();
          const at::Tensor expected = at::conv2d(plain, weight.to(at::kDouble), {}, stride, kernel / 2);
          expected.backward(gradient.to(at::kDouble));
          // Where oneDNN has no bf16, the columns of an image are summed in bf16: nine terms of up to 10.
          const double tolerance = type == at::kBFloat16 ? 0.1 : type == at::kFloat ? 1e-5 : 1e-12;
          CHECK(at::allclose(y.to(at::kDouble), expected, tolerance, tolerance));
          CHECK(at::allclose(x.grad().to(at::kDouble), plain.grad(), tolerance, tolerance));
        }
}

/// y, and the gradients of x and of the weight.
template <class Convolution>
std::vector<at::Tensor> results_of(const Convolution& convolution, const at::Tensor& x,
                                   const at::Tensor& weight) {
  const at::Tensor y = convolution(x.requires_grad_(), weight.requires_grad_());
  y.backward(at::linspace(-1, 1, y.numel(), y.options()).view(y.sizes()));
  return {y.detach(), x.grad(), weight.grad()};
}

// Of fewer input channels than a block, oneDNN's kernel for the weight's gradient writes beyond its buffer:
// the process dies or hangs, or numbers are wrong. bench/conv_shapes.py runs all shapes.
TEST_CASE("narrow convolutions in fp32 are those in fp64") {
  for (const int64_t inputs : {1, 2, 3, 5, 6, 7, 8, 9, 13, 15, 16, 17})
    for (const int64_t outputs : {inputs, 2 * inputs, int64_t{11}})
      for (const auto [kernel, stride, size] :
           {std::array<int64_t, 3>{1, 2, 16}, {1, 2, 7}, {1, 3, 9}, {3, 2, 8}})
        for (const int64_t batch : {1, 2, 3}) {
          INFO(inputs << " to " << outputs << " channels, kernel " << kernel << ", stride " << stride
                      << ", size " << size << ", batch " << batch);
          const at::Tensor values = noise({batch, inputs, size, size});
          const at::Tensor weights = noise({outputs, inputs, kernel, kernel});
          const auto atens = [stride = stride, padding = kernel / 2](const at::Tensor& x,
                                                                     const at::Tensor& weight) {
            return at::conv2d(x, weight, {}, stride, padding);
          };
          const auto ours = [stride = stride, padding = kernel / 2](const at::Tensor& x,
                                                                    const at::Tensor& weight) {
            return conv2d(x, weight, stride, padding);
          };
          const std::vector exact = results_of(atens, values.clone(), weights.clone());
          const std::vector found =
              results_of(ours, values.to(at::kFloat).clone(map_format(at::kFloat, values.is_cuda())),
                         weights.to(at::kFloat).clone(at::MemoryFormat::ChannelsLast));
          for (size_t i = 0; i < exact.size(); ++i) {
            const double scale = exact[i].abs().max().item<double>();
            CHECK((found[i] - exact[i]).abs().max().item<double>() <= 1e-5 * scale);
          }
        }
}

}  // namespace
}  // namespace sdp
