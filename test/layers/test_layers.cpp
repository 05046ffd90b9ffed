// Convolution and ReLU with maps in channels_last, as on a GPU: the same values and gradients, in the same
// format; convolutions of few channels; and losses.

#include <torch/torch.h>

#include <array>
#include <vector>

#include "catch.h"
#include "layers/conv.h"
#include "layers/loss.h"
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

at::TensorOptions doubles() {
  return at::TensorOptions(at::kDouble).device(test_device());
}

/// A head whose logits are the features.
Head identity_head() {
  return {.weight = at::eye(7, doubles()), .bias = at::zeros({7}, doubles())};
}

at::Tensor labels_of(const std::vector<int64_t>& labels) {
  return at::tensor(labels, doubles().dtype(at::kLong));
}

TEST_CASE("the loss is the mean cross-entropy of what the targets are mixed from") {
  const Targets labels{labels_of({0, 1, 2, 3, 4, 6})};
  const Targets mixed{.labels = labels.labels, .mixed_labels = labels.labels.roll(1), .mix = 0.3};
  const Targets tokens{labels_of({2, 3, 4, 6, 0, 1}).view({2, 3})};
  const double smoothing = GENERATE(0.0, 0.1);
  for (const Targets& targets : {labels, mixed, tokens}) {
    const auto one_hot = [](const at::Tensor& of) { return at::one_hot(of, 7).to(at::kDouble); };
    at::Tensor wanted = one_hot(targets.labels);
    if (targets.mixed_labels.defined()) wanted = 0.3 * wanted + 0.7 * one_hot(targets.mixed_labels);
    wanted = (1 - smoothing) * wanted + smoothing / 7;
    const at::Tensor logits = at::randn(wanted.sizes(), doubles());
    const at::Tensor expected = -(wanted * at::log_softmax(logits, -1)).sum(-1).mean();
    CHECK(training_loss(logits, identity_head(), targets, smoothing).loss.item<double>() ==
          Approx(expected.item<double>()).epsilon(1e-12));
  }
}

TEST_CASE("images of the class of their label are counted; mixed images and tokens are not") {
  const at::Tensor logits = at::randn({64, 7}, doubles());
  const at::Tensor labels = at::arange(64, doubles().dtype(at::kLong)).remainder(7);
  const at::Tensor of_labels = logits.gather(1, labels.unsqueeze(1));
  const int64_t expected = logits.le(of_labels).all(1).sum().item<int64_t>();
  CHECK(training_loss(logits, identity_head(), {labels}, 0).correct.item<int64_t>() == expected);
  const Targets mixed{.labels = labels, .mixed_labels = labels.roll(1), .mix = 0.3};
  CHECK_FALSE(training_loss(logits, identity_head(), mixed, 0).correct.defined());
  const Targets tokens{labels.view({4, 16})};
  CHECK_FALSE(training_loss(logits.view({4, 16, 7}), identity_head(), tokens, 0).correct.defined());
}

// ---- the loss of a language model, in chunks of rows ----

constexpr int64_t kRows = 10;
constexpr int64_t kWidth = 6;
constexpr int64_t kVocabulary = 13;

at::Tensor noise(int64_t rows, int64_t columns, at::ScalarType type) {
  return at::randn({rows, columns}, doubles()).to(type);
}

at::Tensor draw_labels(int64_t rows) {
  return at::randint(kVocabulary, {rows}, doubles().dtype(at::kLong));
}

struct Result {
  at::Tensor loss, x_gradient, weight_gradient;
};

/// The gradients are those of 3 times the loss.
template <class Loss>
Result result_of(const at::Tensor& x, const at::Tensor& weight, Loss loss_of) {
  const at::Tensor own_x = x.detach().clone().requires_grad_();
  const at::Tensor own_weight = weight.detach().clone().requires_grad_();
  const at::Tensor loss = loss_of(own_x, own_weight);
  (3 * loss).backward();
  return {.loss = loss.detach(), .x_gradient = own_x.grad(), .weight_gradient = own_weight.grad()};
}

TEST_CASE("the chunked loss and its gradients match ATen's") {
  const double smoothing = GENERATE(0.0, 0.1);
  const int64_t rows_at_a_time = GENERATE(1, 3, 5, 10, 64);
  INFO("smoothing " << smoothing << ", rows " << rows_at_a_time);
  const at::Tensor x = noise(kRows, kWidth, at::kDouble);
  const at::Tensor weight = noise(kVocabulary, kWidth, at::kDouble) * 4;
  const at::Tensor labels = draw_labels(kRows);
  const auto loss_of = [&](const at::Tensor& own_x, const at::Tensor& own_weight) {
    return linear_cross_entropy(own_x, own_weight, labels, smoothing, rows_at_a_time);
  };
  const Result ours = result_of(x, weight, loss_of);
  const Result atens = result_of(x, weight, [&](const at::Tensor& own_x, const at::Tensor& own_weight) {
    return at::cross_entropy_loss(at::linear(own_x, own_weight), labels, {}, at::Reduction::Mean, -100,
                                  smoothing);
  });
  CHECK(at::allclose(ours.loss, atens.loss, 1e-12, 1e-12));
  CHECK(at::allclose(ours.x_gradient, atens.x_gradient, 1e-12, 1e-12));
  CHECK(at::allclose(ours.weight_gradient, atens.weight_gradient, 1e-12, 1e-12));
  const at::NoGradGuard no_grad;
  CHECK(loss_of(x, weight).allclose(ours.loss, 1e-12, 1e-12));
}

TEST_CASE("bf16 weights have a bf16 gradient that was summed in fp32") {
  const at::Tensor x = noise(512, kWidth, at::kBFloat16);
  const at::Tensor weight = noise(kVocabulary, kWidth, at::kBFloat16);
  const at::Tensor labels = draw_labels(512);
  const auto loss_of = [&](const at::Tensor& own_x, const at::Tensor& own_weight) {
    return linear_cross_entropy(own_x, own_weight, labels, 0, 16);
  };
  const Result narrow = result_of(x, weight, loss_of);
  const Result wide = result_of(x.to(at::kFloat), weight.to(at::kFloat), loss_of);
  CHECK(narrow.loss.scalar_type() == at::kFloat);
  CHECK(narrow.weight_gradient.scalar_type() == at::kBFloat16);
  CHECK(narrow.x_gradient.scalar_type() == at::kBFloat16);
  const double norm = wide.weight_gradient.norm().item<double>();
  CHECK((narrow.weight_gradient.to(at::kFloat) - wide.weight_gradient).norm().item<double>() < 0.01 * norm);
  CHECK(narrow.loss.item<double>() == Approx(wide.loss.item<double>()).epsilon(0.01));
}

}  // namespace
}  // namespace sdp
