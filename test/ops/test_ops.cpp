// The operators on the test's device, compared with plain formulas in fp64 and autograd's gradients.

#include <utility>

#include "catch.h"
#include "formulas.h"
#include "ops/ops.h"
#include "ops/rows.h"
#include "test_device.h"

namespace sdp {
namespace {

using test::are_within;
using test::difference;
using test::tolerance;
using test::value_and_gradients;

constexpr auto kTypes = {at::kDouble, at::kFloat, at::kBFloat16};

struct Shape {
  int64_t rows, width;
};
/// One element, none, rows that do not divide into packs, and rows longer than a block.
constexpr Shape kShapes[] = {{1, 1}, {0, 16}, {3, 7}, {70, 64}, {5, 1032}, {2, 20'000}, {1100, 24}};

at::Tensor noise(at::IntArrayRef shape, at::ScalarType type, double scale = 1) {
  return (at::randn(shape, at::TensorOptions(at::kDouble).device(test_device())) * scale).to(type);
}

at::ScalarType wide(at::ScalarType type) {
  return type == at::kDouble ? at::kDouble : at::kFloat;
}

TEST_CASE("rms_norm and its gradients") {
  for (const at::ScalarType type : kTypes)
    for (const at::ScalarType of_weight : {type, wide(type)})
      for (const auto [rows, width] : kShapes) {
        INFO(type << ", weight " << of_weight << ", " << rows << " x " << width);
        const at::Tensor x = noise({rows, width}, type), weight = noise({width}, of_weight);
        const at::Tensor gradient = noise({rows, width}, type);
        const auto [y, scale] = ops::rms_norm(x, weight, test::kEps);
        CHECK(y.scalar_type() == type);
        CHECK(scale.sizes() == at::IntArrayRef({rows, 1}));
        const auto [dx, dweight] = ops::rms_norm_backward(gradient, x, weight, scale, /*of_weight=*/true);
        CHECK(are_within(tolerance(type), {y, dx, dweight},
                         value_and_gradients(test::rms_norm, gradient, x, weight)));
        CHECK(dweight.scalar_type() == of_weight);
        const auto [again, none] = ops::rms_norm_backward(gradient, x, weight, scale, /*of_weight=*/false);
        CHECK(at::equal(again, dx));
        CHECK(!none.defined());
      }
}

TEST_CASE("swiglu and its gradients, also of tensors that are not contiguous") {
  for (const at::ScalarType type : kTypes)
    for (const auto [rows, width] : kShapes)
      for (const bool is_transposed : {false, true}) {
        INFO(type << ", " << rows << " x " << width << (is_transposed ? ", transposed" : ""));
        const auto draw = [&, r = rows, w = width](double scale) {
          return is_transposed ? noise({w, r}, type, scale).t() : noise({r, w}, type, scale);
        };
        const at::Tensor gate = draw(3), up = draw(1), gradient = draw(1);
        const auto [dgate, dup] = ops::swiglu_backward(gradient, gate, up);
        CHECK(are_within(tolerance(type), {ops::swiglu(gate, up), dgate, dup},
                         value_and_gradients(test::swiglu, gradient, gate, up)));
      }
}

TEST_CASE("rotate, and back") {
  for (const at::ScalarType type : kTypes)
    for (const auto& [heads, half] : {std::pair(1, 1), {3, 5}, {4, 32}, {2, 64}}) {
      INFO(type << ", " << heads << " heads of " << 2 * half);
      constexpr int64_t kTokens = 9;
      const at::Tensor x = noise({2, kTokens, heads, 2 * half}, type);
      const at::Tensor angle = noise({kTokens, 1, half}, at::kDouble, 3);
      const at::Tensor cos = angle.cos().to(wide(type)), sin = angle.sin().to(wide(type));
      const at::Tensor turned = ops::rotate(x, cos, sin, /*inverse=*/false);
      CHECK(turned.scalar_type() == type);
      CHECK(difference(turned, test::rotate(x.to(at::kDouble), angle)) < tolerance(type));
      CHECK(difference(ops::rotate(turned, cos, sin, /*inverse=*/true), x.to(at::kDouble)) <
            2 * tolerance(type));
    }
}

TEST_CASE("cross_entropy_ and its gradient") {
  for (const at::ScalarType type : kTypes)
    for (const auto [rows, width] : kShapes)
      for (const auto& [smoothing, gap] : {std::pair(0.0, 0), {0.1, 0}, {0.1, 5}}) {
        INFO(type << ", " << rows << " x " << width << ", smoothing " << smoothing << ", gap " << gap);
        // Between the rows, elements that must not matter.
        const auto with_gaps = [&](const at::Tensor& values) {
          return at::full({rows, width + gap}, NAN, values.options()).narrow(1, 0, width).copy_(values);
        };
        at::Tensor logits = with_gaps(noise({rows, width}, type, 4));
        const at::Tensor labels =
            at::randint(width, {rows}, at::TensorOptions(at::kLong).device(test_device()));
        const auto formula = [&, smoothing = smoothing](const at::Tensor& x) {
          return test::cross_entropy(x, labels, smoothing);
        };
        const std::vector expected = value_and_gradients(formula, at::ones_like(labels), logits);
        at::Tensor copy = with_gaps(logits);
        const at::Tensor alone = ops::cross_entropy_(copy, labels, smoothing, /*with_gradient=*/false);
        const at::Tensor losses = ops::cross_entropy_(logits, labels, smoothing, /*with_gradient=*/true);
        CHECK(at::equal(losses, alone));
        CHECK(losses.sizes() == at::IntArrayRef({rows, 1}));
        // The losses of bf16 logits are fp32.
        CHECK(difference(losses.squeeze(1), expected[0]) < tolerance(wide(type)));
        CHECK(difference(logits, expected[1]) < tolerance(type));
      }
}

TEST_CASE("logits that are not finite give a loss that is not finite") {
  for (const double bad : {double(INFINITY), double(NAN)}) {
    at::Tensor logits = noise({2, 40}, at::kFloat);
    logits[1][17] = bad;
    const at::Tensor labels = at::zeros({2}, at::TensorOptions(at::kLong).device(test_device()));
    const at::Tensor losses = ops::cross_entropy_(logits, labels, 0, /*with_gradient=*/true);
    CHECK(losses[0].isfinite().item<bool>());
    CHECK_FALSE(losses[1].isfinite().item<bool>());
  }
}

// The bodies of the device kernels, compiled for the host, compared with the operators' formulas.

constexpr OneLane kLane;

template <class T>
constexpr at::ScalarType kType = c10::CppTypeToScalarType<T>::value;

template <class T>
T* data(const at::Tensor& x) {
  return static_cast<T*>(x.data_ptr());
}

template <class T>
at::Tensor noise(at::IntArrayRef shape, double scale = 1) {
  return (at::randn(shape, at::kDouble) * scale).to(kType<T>);
}

template <class T>
constexpr int kPack = 16 / sizeof(T);

template <int N, class T, class P>
void check_norm(int64_t rows, int64_t width) {
  INFO(kType<T> << ", weight " << kType<P> << ", " << rows << " x " << width << " by " << N);
  const at::Tensor x = noise<T>({rows, width}), weight = noise<P>({width}),
                   gradient = noise<T>({rows, width});
  const at::Tensor y = at::empty_like(x), dx = at::empty_like(x);
  const at::Tensor sums = at::zeros({width}, kType<Wide<T>>);
  for (int64_t r = 0; r < rows; ++r) {
    Wide<T> scale = 0;
    rms_norm_row<N>(kLane, data<T>(x[r]), data<P>(weight), data<T>(y[r]), &scale, width,
                    static_cast<Wide<T>>(test::kEps));
    rms_norm_gradient_row<N>(kLane, data<T>(gradient[r]), data<T>(x[r]), data<P>(weight), scale,
                             data<T>(dx[r]), data<Wide<T>>(sums), width);
  }
  CHECK(are_within(tolerance(kType<T>), {y, dx, sums},
                   value_and_gradients(test::rms_norm, gradient, x, weight)));
}

TEMPLATE_TEST_CASE("rows of rms_norm", "", double, float, c10::BFloat16) {
  check_norm<1, TestType, Wide<TestType>>(3, 7);
  check_norm<kPack<TestType>, TestType, Wide<TestType>>(3, 64);
  check_norm<kPack<TestType>, TestType, TestType>(3, 64);
}

template <int N, class T>
void check_swiglu(int64_t size) {
  INFO(kType<T> << ", " << size << " by " << N);
  const at::Tensor gate = noise<T>({size}, 3), up = noise<T>({size}), gradient = noise<T>({size});
  const at::Tensor h = at::empty_like(gate), dgate = at::empty_like(gate), dup = at::empty_like(gate);
  swiglu_row<N>(kLane, data<T>(gate), data<T>(up), data<T>(h), size);
  swiglu_gradient_row<N>(kLane, data<T>(gradient), data<T>(gate), data<T>(up), data<T>(dgate), data<T>(dup),
                         size);
  CHECK(are_within(tolerance(kType<T>), {h, dgate, dup},
                   value_and_gradients(test::swiglu, gradient, gate, up)));
}

TEMPLATE_TEST_CASE("rows of swiglu", "", double, float, c10::BFloat16) {
  for (const int64_t size : {0, 1, 37})
    check_swiglu<1, TestType>(size);
  check_swiglu<kPack<TestType>, TestType>(64);
}

template <int N, class T>
void check_rotation(int heads, int half) {
  INFO(kType<T> << ", " << heads << " heads of " << 2 * half << " by " << N);
  const at::Tensor x = noise<T>({heads, 2 * half});
  const at::Tensor angle = noise<double>({half}, 3);
  const at::Tensor cos = angle.cos().to(kType<Wide<T>>), sin = angle.sin().to(kType<Wide<T>>);
  const at::Tensor y = at::empty_like(x), back = at::empty_like(x);
  const auto turn = [&](const at::Tensor& from, const at::Tensor& to, bool inverse) {
    rotate_row<N>(kLane, data<T>(from), data<Wide<T>>(cos), data<Wide<T>>(sin), data<T>(to), heads, half,
                  inverse);
  };
  turn(x, y, false);
  turn(y, back, true);
  CHECK(difference(y, test::rotate(x.to(at::kDouble), angle)) < tolerance(kType<T>));
  CHECK(difference(back, x.to(at::kDouble)) < 2 * tolerance(kType<T>));
}

TEMPLATE_TEST_CASE("rows of rotate", "", double, float, c10::BFloat16) {
  check_rotation<1, TestType>(3, 5);
  check_rotation<kPack<TestType>, TestType>(3, 8);
}

/// Rows begin at `offset` elements from an aligned address.
template <class T>
void check_cross_entropy(int64_t size, int64_t offset, double smoothing) {
  INFO(kType<T> << ", " << size << " from " << offset << ", smoothing " << smoothing);
  const at::Tensor room = noise<T>({size + offset}, 4);
  const at::Tensor logits = room.narrow(0, offset, size);
  const int64_t label = size / 2;
  const auto formula = [&](const at::Tensor& x) {
    return test::cross_entropy(x.unsqueeze(0), at::full({1}, label, at::kLong), smoothing);
  };
  const std::vector expected = value_and_gradients(formula, at::ones({1}), logits);
  const double loss = expected[0].template item<double>();
  const auto loss_of = [&](bool with_gradient) {
    return cross_entropy_row<kPack<T>>(kLane, data<T>(logits), label, size, static_cast<Wide<T>>(smoothing),
                                       with_gradient);
  };
  const Wide<T> alone = loss_of(false);
  CHECK(loss_of(true) == alone);
  CHECK(std::abs(alone - loss) < tolerance(kType<Wide<T>>) * std::max(1.0, loss));
  CHECK(difference(logits, expected[1]) < tolerance(kType<T>));
}

TEMPLATE_TEST_CASE("rows of cross_entropy_, wherever they begin", "", double, float, c10::BFloat16) {
  for (const int64_t size : {1, 2, 7, 33, 500})
    for (const int64_t offset : {0, 1, 3, 7})
      for (const double smoothing : {0.0, 0.1})
        check_cross_entropy<TestType>(size, offset, smoothing);
}

}  // namespace
}  // namespace sdp
