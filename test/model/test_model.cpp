// Initialization and the models' states. Their forward and backward passes are compared with PyTorch's in
// test/cli.

#include <torch/torch.h>

#include <algorithm>
#include <cmath>

#include "catch.h"
#include "cost/layouts.h"
#include "model/make_model.h"
#include "model_names.h"
#include "test_device.h"

namespace sdp {
namespace {

/// The full model's tensors, with the output of branch `silent` multiplied by zero.
class DrawnTensors : public TensorSource {
 public:
  explicit DrawnTensors(const ModelLayout& layout, std::optional<int> silent = {})
      : layout_(layout), silent_(silent) {}
  int parts(int) const override { return 1; }

 private:
  at::Tensor find_parameter(const std::string& name, int) const override {
    const ParameterLayout& parameter = layout_.parameters[layout_.parameter_index(name)];
    const bool is_silent = silent_ && parameter.branch == silent_ && parameter.scales_branch_output;
    const at::Tensor values = is_silent ? at::zeros(parameter.shape) : draw_parameter(parameter, 4);
    return values.to(test_device());
  }
  at::Tensor find_buffer(const std::string& name, int) const override {
    for (const BufferLayout& buffer : layout_.buffers)
      if (buffer.name == name) return at::full(buffer.shape, buffer.initial, test_device());
    throw std::logic_error("no buffer " + name);
  }

  const ModelLayout& layout_;
  const std::optional<int> silent_;
};

constexpr int64_t kTokens = 6;

at::Tensor input_of(const ModelSpec& spec) {
  const at::TensorOptions options = test_device();
  return spec.reads_tokens() ? at::randint(spec.vocab_size(), {4, kTokens}, options.dtype(at::kLong))
                             : at::randn({4, 3, spec.image_size(), spec.image_size()}, options);
}

/// The model with every branch bound.
std::unique_ptr<Model> bound_model(const ModelSpec& spec, const ModelLayout& layout,
                                   const TensorSource& tensors) {
  std::unique_ptr<Model> model = make_model(spec);
  model->bind_shared(tensors);
  for (int b = 0; b < static_cast<int>(layout.branches.size()); ++b)
    model->bind_branch(b, tensors);
  return model;
}

TEST_CASE("parameters are drawn as torchvision initializes them, by the seed and their name") {
  ModelSpec spec{.kind = ResNetSpec{.width = 32}};
  resolve_model(spec);
  const ModelLayout layout = layout_of(spec, kTokens);
  const auto draw = [&](const char* name, uint64_t seed = 1) {
    return draw_parameter(layout.parameters[layout.parameter_index(name)], seed);
  };
  const at::Tensor conv = draw("layer4.1.conv2.weight");  // Kaiming normal over fan-out: sqrt(2 / (9 * 256))
  CHECK(conv.std().item<double>() == Approx(std::sqrt(2.0 / (9 * 256))).epsilon(0.01));
  CHECK(conv.mean().item<double>() == Approx(0).margin(2e-4));
  const at::Tensor fc = draw("fc.weight");  // uniform(+-1/sqrt(256))
  CHECK(fc.abs().max().item<double>() == Approx(1.0 / 16).epsilon(0.01));
  CHECK(fc.abs().max().item<double>() <= 1.0 / 16);
  CHECK(fc.std().item<double>() == Approx(1.0 / 16 / std::sqrt(3.0)).epsilon(0.03));
  CHECK(draw("bn1.weight").eq(1).all().item<bool>());
  CHECK(draw("bn1.bias").eq(0).all().item<bool>());

  CHECK(conv.equal(draw("layer4.1.conv2.weight")));
  CHECK_FALSE(conv.equal(draw("layer4.1.conv2.weight", 2)));
  CHECK_FALSE(conv.equal(draw("layer4.1.conv1.weight")));
}

TEST_CASE("branches are bound and unbound in any state, and an unbound one is one multiplied by zero") {
  const at::NoGradGuard no_grad;
  for (const std::string_view name : first_model_names()) {
    const ModelSpec spec = tiny_model(name);
    const ModelLayout layout = layout_of(spec, kTokens);
    const at::Tensor input = input_of(spec);
    const DrawnTensors tensors(layout);
    const std::unique_ptr<Model> model = bound_model(spec, layout, tensors);
    const auto features = [&](Model& of) { return of.features(input, {.training = false}); };
    const at::Tensor full = features(*model);
    const int branches = static_cast<int>(layout.branches.size());
    for (int b = 0; b < branches; ++b) {
      INFO(layout.name << ", " << layout.branches[b].name);
      model->unbind_branch(b);
      const at::Tensor without = features(*model);
      const DrawnTensors silenced(layout, b);
      CHECK(at::allclose(without, features(*bound_model(spec, layout, silenced)), /*rtol=*/1e-5,
                         /*atol=*/1e-6));
      CHECK(!at::allclose(without, full));
      model->bind_branch(b, tensors);
    }

    INFO(layout.name);
    for (int b = 0; b < branches; ++b)
      model->unbind_branch(b);
    const at::Tensor none = features(*model);
    CHECK(!at::allclose(full, none));
    std::vector<int> order;
    ForwardMode streamed{.training = false};
    streamed.before_branch = [&](int b) {
      order.push_back(b);
      model->bind_branch(b, tensors);
    };
    streamed.after_branch = [&](int b) { model->unbind_branch(b); };
    CHECK(at::equal(model->features(input, streamed), full));
    CHECK(order.size() == layout.branches.size());
    CHECK(std::is_sorted(order.begin(), order.end()));
    CHECK(at::equal(features(*model), none));
  }
}

TEST_CASE("Swin-T drops both branches of a block with the block's probability") {
  SwinSpec swin{
      .width = 6, .num_heads = {{3, 6, 12, 24}}, .image_size = 8, .patch_size = 2, .window_size = 2};
  swin.resolve("swin_t");
  const ModelSpec spec{.kind = swin, .stochastic_depth = 0.5};
  const ModelLayout layout = layout_of(spec, kTokens);
  const DrawnTensors tensors(layout);
  const at::AutoGradMode no_gradients(false);
  const std::unique_ptr<Model> model = make_model(spec);
  model->bind_shared(tensors);
  constexpr int64_t kSamples = 1000;
  const at::Tensor images = at::randn({1, 3, 8, 8}, at::detail::createCPUGenerator(1))
                                .to(test_device())
                                .expand({kSamples, 3, 8, 8})
                                .contiguous();
  const at::Tensor without = model->forward(images, {.training = true});
  for (const int branch : {0, 1, 12, 13, 22, 23}) {
    model->bind_branch(branch, tensors);
    const at::Tensor with = model->forward(images, {.training = true});
    REQUIRE(with.ne(without).any(1).all().item<bool>());
    const at::Tensor out = model->forward(images, {.training = true, .generator = test_generator(2)});
    const double dropped = out.eq(without).all(1).to(at::kDouble).mean().item<double>();
    const double p = 0.5 * (branch / 2) / 11;
    CAPTURE(branch, p);
    CHECK(std::abs(dropped - p) <= 4 * std::sqrt(p * (1 - p) / kSamples));
    model->unbind_branch(branch);
  }
  CHECK(model->forward(images, {.training = true}).equal(without));
}

TEST_CASE("GPT-2's sizes match the transformers library") {
  // Sums over GPT2LMHeadModel.parameters().
  using Size = std::pair<std::string_view, int64_t>;
  for (const auto& [name, parameters] : {Size{"gpt2", 124'439'808}, Size{"gpt2_medium", 354'823'168},
                                         Size{"gpt2_large", 774'030'080}, Size{"gpt2_xl", 1'557'611'200}})
    CHECK(layout_of(model_named(name), kTokens).parameter_count() == parameters);
}

TEST_CASE("a frozen branch of a LLaMA recomputes what its gradient needs") {
  ModelSpec spec{.kind = LlamaSpec{.heads = 8, .kv_heads = 2}};
  resolve_model(spec);
  const ModelLayout layout = layout_of(spec, 64);
  const Flops &attention = layout.branches[0].flops, &mlp = layout.branches[1].flops;
  // A frozen attention lacks the gradients of its weights and recomputes nothing.
  double weights = 0;
  for (const ParameterLayout& parameter : layout.parameters)
    if (parameter.branch == 0 && parameter.slice) weights += static_cast<double>(parameter.elements());
  CHECK(attention.training() - attention.training_frozen() == 2 * 64 * weights);
  CHECK(attention.frozen_recompute == 0);
  // A frozen MLP recomputes gate and up, without down, and passes on the gradient of its input.
  CHECK(mlp.training() == Approx(3 * mlp.forward));
  CHECK(mlp.frozen_recompute == Approx(mlp.forward * 2 / 3));
  CHECK(mlp.training_frozen() == Approx((1 + 2.0 / 3 + 1) * mlp.forward));
}

}  // namespace
}  // namespace sdp
