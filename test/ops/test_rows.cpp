// The bodies of the device kernels, compiled for the host, compared with the operators' formulas.

#include "catch.h"
#include "formulas.h"
#include "ops/rows.h"

namespace sdp {
namespace {

using test::are_within;
using test::difference;
using test::tolerance;
using test::value_and_gradients;

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
