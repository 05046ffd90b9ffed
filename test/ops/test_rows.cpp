// The bodies of the device kernels, compiled for the host, compared with the operators' formulas.

#include "catch.h"
#include "formulas.h"
#include "ops/rows.h"

namespace sdp {
namespace {

using test::difference;
using test::leaf;
using test::tolerance;

constexpr OneLane kLane;
constexpr double kRowEps = 1e-5;

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
  const at::Tensor x64 = leaf(x), weight64 = leaf(weight);
  const at::Tensor expected = test::rms_norm(x64, weight64, kRowEps);
  expected.backward(gradient.to(at::kDouble));
  const at::Tensor y = at::empty_like(x), dx = at::empty_like(x);
  const at::Tensor sums = at::zeros({width}, kType<Wide<T>>);
  for (int64_t r = 0; r < rows; ++r) {
    Wide<T> scale = 0;
    rms_norm_row<N>(kLane, data<T>(x[r]), data<P>(weight), data<T>(y[r]), &scale, width,
                    static_cast<Wide<T>>(kRowEps));
    rms_norm_gradient_row<N>(kLane, data<T>(gradient[r]), data<T>(x[r]), data<P>(weight), scale,
                             data<T>(dx[r]), data<Wide<T>>(sums), width);
  }
  CHECK(difference(y, expected) < tolerance(kType<T>));
  CHECK(difference(dx, x64.grad()) < tolerance(kType<T>));
  CHECK(difference(sums, weight64.grad()) < tolerance(kType<T>));
}

TEST_CASE("rows of rms_norm") {
  check_norm<1, double, double>(3, 7);
  check_norm<kPack<double>, double, double>(3, 64);
  check_norm<1, float, float>(3, 7);
  check_norm<kPack<float>, float, float>(3, 64);
  check_norm<1, c10::BFloat16, float>(3, 7);
  check_norm<kPack<c10::BFloat16>, c10::BFloat16, float>(3, 64);
  check_norm<kPack<c10::BFloat16>, c10::BFloat16, c10::BFloat16>(3, 64);
}

template <int N, class T>
void check_swiglu(int64_t size) {
  INFO(kType<T> << ", " << size << " by " << N);
  const at::Tensor gate = noise<T>({size}, 3), up = noise<T>({size}), gradient = noise<T>({size});
  const at::Tensor gate64 = leaf(gate), up64 = leaf(up);
  const at::Tensor expected = test::swiglu(gate64, up64);
  expected.backward(gradient.to(at::kDouble));
  const at::Tensor h = at::empty_like(gate), dgate = at::empty_like(gate), dup = at::empty_like(gate);
  swiglu_row<N>(kLane, data<T>(gate), data<T>(up), data<T>(h), size);
  swiglu_gradient_row<N>(kLane, data<T>(gradient), data<T>(gate), data<T>(up), data<T>(dgate), data<T>(dup),
                         size);
  CHECK(difference(h, expected) < tolerance(kType<T>));
  CHECK(difference(dgate, gate64.grad()) < tolerance(kType<T>));
  CHECK(difference(dup, up64.grad()) < tolerance(kType<T>));
}

TEST_CASE("rows of swiglu") {
  for (const int64_t size : {0, 1, 37}) {
    check_swiglu<1, double>(size);
    check_swiglu<1, float>(size);
    check_swiglu<1, c10::BFloat16>(size);
  }
  check_swiglu<kPack<double>, double>(64);
  check_swiglu<kPack<float>, float>(64);
  check_swiglu<kPack<c10::BFloat16>, c10::BFloat16>(64);
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

TEST_CASE("rows of rotate") {
  check_rotation<1, double>(3, 5);
  check_rotation<kPack<double>, double>(3, 8);
  check_rotation<1, float>(3, 5);
  check_rotation<kPack<float>, float>(3, 8);
  check_rotation<1, c10::BFloat16>(3, 5);
  check_rotation<kPack<c10::BFloat16>, c10::BFloat16>(3, 8);
}

/// Rows begin at `offset` elements from an aligned address.
template <class T>
void check_cross_entropy(int64_t size, int64_t offset, double smoothing) {
  INFO(kType<T> << ", " << size << " from " << offset << ", smoothing " << smoothing);
  const at::Tensor room = noise<T>({size + offset}, 4);
  const at::Tensor logits = room.narrow(0, offset, size);
  const at::Tensor logits64 = leaf(logits);
  const int64_t label = size / 2;
  const at::Tensor labels = at::full({1}, label, at::kLong);
  const at::Tensor expected = test::cross_entropy(logits64.unsqueeze(0), labels, smoothing);
  expected.sum().backward();
  const auto loss_of = [&](bool with_gradient) {
    return cross_entropy_row<kPack<T>>(kLane, data<T>(logits), label, size, static_cast<Wide<T>>(smoothing),
                                       with_gradient);
  };
  const Wide<T> alone = loss_of(false);
  CHECK(loss_of(true) == alone);
  CHECK(std::abs(alone - expected.item<double>()) <
        tolerance(kType<Wide<T>>) * std::max(1.0, expected.item<double>()));
  CHECK(difference(logits, logits64.grad()) < tolerance(kType<T>));
}

TEST_CASE("rows of cross_entropy_, wherever they begin") {
  for (const int64_t size : {1, 2, 7, 33, 500})
    for (const int64_t offset : {0, 1, 3, 7})
      for (const double smoothing : {0.0, 0.1}) {
        check_cross_entropy<double>(size, offset, smoothing);
        check_cross_entropy<float>(size, offset, smoothing);
        check_cross_entropy<c10::BFloat16>(size, offset, smoothing);
      }
}

}  // namespace
}  // namespace sdp
