// Initialisation and the models' states. Their forward and backward passes are compared with PyTorch's in
// test/cli.

#include <torch/torch.h>

#include <algorithm>
#include <cmath>

#include "catch.h"
#include "model/layouts.h"
#include "model/model.h"

namespace sdp {
namespace {

class DrawnTensors : public TensorSource {
 public:
  explicit DrawnTensors(const ModelLayout& layout) : layout_(layout) {}
  at::Tensor parameter(const std::string& name) const override {
    return draw_parameter(layout_.parameters[layout_.parameter_index(name)], 4);
  }
  at::Tensor buffer(const std::string& name) const override {
    for (const BufferLayout& buffer : layout_.buffers)
      if (buffer.name == name) return at::full(buffer.shape, buffer.initial);
    throw std::logic_error("no buffer " + name);
  }

 private:
  const ModelLayout& layout_;
};

ModelSpec spec_of(ModelName name) {
  ModelSpec spec;
  spec.name = name;
  spec.width = 8;
  spec.image_size = 16;
  return spec;
}

TEST_CASE("parameters are drawn as torchvision initialises them") {
  ModelSpec spec = spec_of(ModelName::kResNet18);
  spec.width = 32;
  const ModelLayout layout = layout_of(spec);
  const auto draw = [&](const char* name) {
    return draw_parameter(layout.parameters[layout.parameter_index(name)], 1);
  };
  const at::Tensor conv = draw("layer4.1.conv2.weight");  // Kaiming normal over fan-out: sqrt(2 / (9 * 256))
  CHECK(conv.std().item<double>() == Approx(std::sqrt(2.0 / (9 * 256))).epsilon(0.01));
  CHECK(conv.mean().item<double>() == Approx(0).margin(2e-4));
  const at::Tensor fc = draw("fc.weight");  // uniform(+-1/sqrt(256))
  CHECK(fc.abs().max().item<double>() <= 1.0 / 16);
  CHECK(fc.abs().max().item<double>() > 0.99 / 16);
  CHECK(fc.std().item<double>() == Approx(1.0 / 16 / std::sqrt(3.0)).epsilon(0.03));
  CHECK(draw("bn1.weight").eq(1).all().item<bool>());
  CHECK(draw("bn1.bias").eq(0).all().item<bool>());
}

TEST_CASE("a parameter's values depend on the seed and its name only") {
  const ModelLayout layout = layout_of(spec_of(ModelName::kResNet18));
  const auto draw = [&](const char* name, uint64_t seed) {
    return draw_parameter(layout.parameters[layout.parameter_index(name)], seed);
  };
  CHECK(at::equal(draw("layer1.0.conv1.weight", 1), draw("layer1.0.conv1.weight", 1)));
  CHECK(!at::equal(draw("layer1.0.conv1.weight", 1), draw("layer1.0.conv2.weight", 1)));
  CHECK(!at::equal(draw("layer1.0.conv1.weight", 1), draw("layer1.0.conv1.weight", 2)));
}

TEST_CASE("an unbound branch is one multiplied by zero, and can come and go") {
  for (const ModelName name : {ModelName::kResNet18, ModelName::kMlp}) {
    const ModelSpec spec = spec_of(name);
    const ModelLayout layout = layout_of(spec);
    const DrawnTensors tensors(layout);
    const std::unique_ptr<Model> model = make_model(spec);
    model->bind_shared(tensors);
    const at::NoGradGuard no_grad;
    const at::Tensor images = at::randn({4, 3, 16, 16});
    const int branches = static_cast<int>(layout.branches.size());
    for (int b = 0; b < branches; ++b)
      model->bind_branch(b, tensors);
    const at::Tensor full = model->forward(images, {.training = false});
    for (int b = 0; b < branches; ++b)
      model->unbind_branch(b);
    const at::Tensor none = model->forward(images, {.training = false});
    CHECK(!at::allclose(full, none));

    std::vector<int> order;
    ForwardMode streamed{.training = false};
    streamed.before_branch = [&](int b) {
      order.push_back(b);
      model->bind_branch(b, tensors);
    };
    streamed.after_branch = [&](int b) { model->unbind_branch(b); };
    CHECK(at::equal(model->forward(images, streamed), full));
    CHECK(order.size() == layout.branches.size());
    CHECK(std::is_sorted(order.begin(), order.end()));
    CHECK(at::equal(model->forward(images, {.training = false}), none));
  }
}

}  // namespace
}  // namespace sdp
