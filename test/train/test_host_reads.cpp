// The host waits for no result of a step, and for one where steps may be skipped. Computed on LibTorch's
// "meta" device, whose tensors have no values: whatever reads one throws.

#include <torch/library.h>
#include <torch/torch.h>

#include <tuple>

#include "catch.h"
#include "cost/make_experiment.h"
#include "cost/recorder.h"
#include "doctor/measure.h"
#include "engine/engine_cases.h"
#include "engine/train_step.h"
#include "layers/loss.h"
#include "model/make_model.h"

namespace sdp {
namespace {

const at::TensorOptions kMeta(at::kMeta);

void add_update_rules() {
  static torch::Library library(torch::Library::IMPL, "aten", c10::DispatchKey::Meta, __FILE__, __LINE__);
  using List = at::TensorList;
  using Optional = const std::optional<at::Tensor>&;
  library.impl("_fused_adamw_", [](List, List, List, List, List, List, double, double, double, double, double,
                                   bool, bool, Optional, Optional) {});
  library.impl("_fused_sgd_",
               [](List, List, List, double, double, double, double, bool, bool, bool, Optional, Optional) {});
}

TEST_CASE("the host waits for no result of a step, and for one where steps may be skipped") {
  CHECK_THROWS(at::ones({1}, kMeta).item<float>());
  CHECK_THROWS(at::ones({1}, kMeta).cpu());
  add_meta_kernels();
  add_update_rules();
  for (const auto& [model, optimizer, shard] :
       {std::tuple("resnet18", "sgd", true), {"swin_t", "adamw", false}, {"mlp", "adamw", true}}) {
    INFO(model << ", " << optimizer << ", shard " << shard);
    ExperimentSpec spec = spec_of({.processes = 2, .optimizer = optimizer, .shard = shard, .model = model});
    spec.optimizer.clip_norm = 1;
    const Experiment experiment = make_experiment(spec, 2);
    const std::unique_ptr<Communicator> comm = fake_communicator(0, 2, at::kMeta);
    Engine engine(experiment.plan, experiment.exchanges, spec.optimizer, *comm);
    const std::unique_ptr<Model> network = make_subnetwork(
        spec.model, experiment.plan, engine.store().slots()[0].worker, engine.store().slot(0));
    engine.await_values(-1);
    const at::Tensor images =
        at::empty({2, spec.model.image_channels(), spec.model.image_size(), spec.model.image_size()}, kMeta);
    const at::Tensor features = network->features(
        images, {.training = true, .before_branch = [&](int branch) { engine.await_values(branch); }});
    const at::Tensor loss =
        training_loss(features, network->head(), {.labels = at::empty({2}, kMeta.dtype(at::kLong))}, 0.1)
            .loss;
    engine.begin_backward(0, /*last=*/true);
    loss.backward();
    engine.end_backward();
    engine.reduce(/*measures_norm=*/true);
    const at::Tensor finite = engine.gradients_are_finite();
    engine.step(0.1);
    engine.gather_values();
    engine.await_all_values();
    CHECK_THROWS_WITH(find_nonfinite(*comm, loss.detach().to(at::kDouble).view({1}), finite),
                      Catch::Contains("meta"));
  }
}

}  // namespace
}  // namespace sdp
