#include <ATen/ATen.h>

#include "catch.h"
#include "train/loss.h"

namespace sdp {
namespace {

TEST_CASE("label smoothing mixes in the uniform distribution") {
  TrainSpec spec;
  spec.label_smoothing = 0.1;
  spec.precision = Precision::kFp64;
  const at::Tensor logits = at::randn({5, 7}, at::kDouble);
  const at::Tensor labels = at::arange(5);
  const at::Tensor log_p = at::log_softmax(logits, 1);
  const at::Tensor expected =
      -(0.9 * log_p.gather(1, labels.unsqueeze(1)).squeeze(1) + 0.1 * log_p.mean(1)).mean();
  CHECK(classification_loss(logits, labels, spec).item<double>() ==
        Approx(expected.item<double>()).epsilon(1e-12));
}

}  // namespace
}  // namespace sdp
