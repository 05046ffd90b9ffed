// Swin-T's sizes, and properties of its passes that the Python test (swin_parity.py) does not cover.

#include <torch/torch.h>

#include <cmath>

#include "capture/layouts.h"
#include "catch.h"
#include "model/swin/swin.h"
#include "model/window_attention.h"
#include "test_device.h"

namespace sdp {
namespace {

SwinSpec swin(int64_t width, int64_t patch, int64_t window, int64_t image, int64_t classes) {
  SwinSpec spec{.num_classes = classes,
                .width = width,
                .num_heads = std::vector<int64_t>{3, 6, 12, 24},
                .image_size = image,
                .patch_size = patch,
                .window_size = window};
  spec.resolve("swin_t");
  return spec;
}

Flops all_flops(const ModelLayout& layout) {
  Flops sum = layout.shared_flops;
  for (const BranchLayout& branch : layout.branches)
    sum += branch.flops;
  return sum;
}

class DrawnTensors : public TensorSource {
 public:
  explicit DrawnTensors(const ModelLayout& layout) : layout_(layout) {}
  int parts(int) const override { return 1; }

 private:
  at::Tensor find_parameter(const std::string& name, int) const override {
    return draw_parameter(layout_.parameters[static_cast<size_t>(layout_.parameter_index(name))], 4)
        .to(test_device());
  }
  at::Tensor find_buffer(const std::string& name, int) const override {
    throw std::logic_error("no buffer " + name);
  }

  const ModelLayout& layout_;
};

TEST_CASE("parameters and FLOPs match torchvision's swin_t") {
  // From torch.utils.flop_counter.FlopCounterMode over the forward and the backward pass of one image.
  SwinSpec spec{.num_classes = 1000};
  spec.resolve("swin_t");
  const ModelLayout full = layout_of({.kind = spec});
  CHECK(full.parameter_count() == 28'288'354);
  CHECK(all_flops(full).forward == 8'981'133'312);
  CHECK(all_flops(full).weight_gradient + all_flops(full).input_gradient == 17'933'365'248);
  // Maps of side 14, 7, 4 and 2 in windows of side 4.
  const ModelLayout padded = layout_of({.kind = swin(24, 2, 4, 28, 10)});
  CHECK(padded.parameter_count() == 1'739'308);
  CHECK(all_flops(padded).forward == 51'244'032);
  CHECK(all_flops(padded).weight_gradient + all_flops(padded).input_gradient == 102'375'168);
}

TEST_CASE("relative_position_index matches torchvision's buffer") {
  const at::Tensor two = at::tensor({4, 3, 1, 0, 5, 4, 2, 1, 7, 6, 4, 3, 8, 7, 5, 4}, at::kLong);
  CHECK(relative_position_index(2).equal(two));
  const at::Tensor seven = relative_position_index(7);
  REQUIRE(seven.numel() == 49 * 49);
  const auto entry = [&](int64_t query, int64_t key) { return seven[query * 49 + key].item<int64_t>(); };
  CHECK(entry(0, 0) == 84);
  CHECK(entry(0, 1) == 83);
  CHECK(entry(0, 7) == 71);
  CHECK(entry(0, 48) == 0);
  CHECK(entry(48, 0) == 168);
}

TEST_CASE("Swin-T drops both branches of a block with the block's probability") {
  const SwinSpec spec = swin(6, 2, 2, 8, 3);
  const ModelLayout layout = layout_of(spec, 1);
  const DrawnTensors tensors(layout);
  const at::AutoGradMode no_gradients(false);
  SwinT model(spec, {.stochastic_depth = 0.5});
  model.bind_shared(tensors);
  constexpr int64_t kSamples = 1000;
  const at::Tensor images = at::randn({1, 3, 8, 8}, at::detail::createCPUGenerator(1))
                                .to(test_device())
                                .expand({kSamples, 3, 8, 8})
                                .contiguous();
  const at::Tensor without = model.forward(images, {.training = true});
  for (const int branch : {0, 1, 12, 13, 22, 23}) {
    model.bind_branch(branch, tensors);
    const at::Tensor with = model.forward(images, {.training = true});
    REQUIRE(with.ne(without).any(1).all().item<bool>());
    const at::Tensor out = model.forward(images, {.training = true, .generator = test_generator(2)});
    const double dropped = out.eq(without).all(1).to(at::kDouble).mean().item<double>();
    const double p = 0.5 * (branch / 2) / 11;
    CAPTURE(branch, p);
    CHECK(std::abs(dropped - p) <= 4 * std::sqrt(p * (1 - p) / kSamples));
    model.unbind_branch(branch);
  }
  CHECK(model.forward(images, {.training = true}).equal(without));
}

}  // namespace
}  // namespace sdp
