#include <ATen/ATen.h>

#include <algorithm>

#include "catch.h"
#include "model/loss.h"
#include "test_device.h"

namespace sdp {
namespace {

at::TensorOptions doubles() {
  return at::TensorOptions(at::kDouble).device(test_device());
}

/// A head whose logits are the features.
Head identity_head() {
  return {.weight = at::eye(7, doubles()), .bias = at::zeros({7}, doubles())};
}

TEST_CASE("label smoothing mixes in the uniform distribution") {
  const at::Tensor logits = at::randn({5, 7}, doubles());
  const at::Tensor labels = at::arange(5, doubles().dtype(at::kLong));
  const at::Tensor log_p = at::log_softmax(logits, 1);
  const at::Tensor expected =
      -(0.9 * log_p.gather(1, labels.unsqueeze(1)).squeeze(1) + 0.1 * log_p.mean(1)).mean();
  CHECK(training_loss(logits, identity_head(), {labels}, 0.1).loss.item<double>() ==
        Approx(expected.item<double>()).epsilon(1e-12));
}

TEST_CASE("the loss of a mixed batch is that of its soft labels") {
  const at::Tensor logits = at::randn({5, 7}, doubles());
  const Targets mixed{.labels = at::arange(5, doubles().dtype(at::kLong)),
                      .mixed_labels = at::arange(5, doubles().dtype(at::kLong)).roll(1),
                      .mix = 0.3};
  const at::Tensor soft = 0.3 * at::one_hot(mixed.labels, 7).to(at::kDouble) +
                          0.7 * at::one_hot(mixed.mixed_labels, 7).to(at::kDouble);
  const at::Tensor expected = at::cross_entropy_loss(logits, soft, {}, at::Reduction::Mean, -100, 0.1);
  CHECK(training_loss(logits, identity_head(), mixed, 0.1).loss.item<double>() ==
        Approx(expected.item<double>()).epsilon(1e-12));
}

TEST_CASE("images of the class of their label are counted; mixed images and tokens are not") {
  const at::Tensor logits = at::randn({64, 7}, doubles());
  const at::Tensor labels = at::arange(64, doubles().dtype(at::kLong)).remainder(7);
  const at::Tensor rows = logits.cpu();
  int64_t expected = 0;
  for (int64_t image = 0; image < 64; ++image) {
    const double* const row = rows.const_data_ptr<double>() + 7 * image;
    expected += std::max_element(row, row + 7) - row == image % 7;
  }
  CHECK(training_loss(logits, identity_head(), {labels}, 0).correct.item<int64_t>() == expected);
  const Targets mixed{.labels = labels, .mixed_labels = labels.roll(1), .mix = 0.3};
  CHECK_FALSE(training_loss(logits, identity_head(), mixed, 0).correct.defined());
  const Targets tokens{labels.view({4, 16})};
  CHECK_FALSE(training_loss(logits.view({4, 16, 7}), identity_head(), tokens, 0).correct.defined());
}

TEST_CASE("the loss of a language model is the mean over its tokens") {
  const at::Tensor logits = at::randn({2, 3, 7}, doubles());
  const at::Tensor labels = at::tensor({2, 3, 4, 6, 0, 1}, doubles().dtype(at::kLong)).view({2, 3});
  const at::Tensor expected = -at::log_softmax(logits, 2).gather(2, labels.unsqueeze(2)).mean();
  CHECK(training_loss(logits, identity_head(), {labels}, 0).loss.item<double>() ==
        Approx(expected.item<double>()).epsilon(1e-12));
}

}  // namespace
}  // namespace sdp
