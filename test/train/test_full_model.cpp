#include <ATen/ATen.h>

#include "catch.h"
#include "comm/thread_ranks.h"
#include "spec/model_defaults.h"
#include "train/evaluation.h"

namespace sdp {
namespace {

/// A few images of one colour each.
class Colours : public ImageDataset {
 public:
  int64_t size() const override { return 6; }
  ImageShape shape() const override { return {3, 4, 4}; }
  int64_t num_classes() const override { return 10; }
  int64_t label(int64_t index) const override { return index; }
  void read(int64_t index, std::span<uint8_t> chw) const override {
    std::fill(chw.begin(), chw.end(), static_cast<uint8_t>(40 * index));
  }
  const Normalization& normalization() const override { return normalization_; }

 private:
  Normalization normalization_{{0.5F, 0.5F, 0.5F}, {0.5F, 0.5F, 0.5F}};
};

TEST_CASE("streamed evaluation holds no branch afterwards, full evaluation all") {
  const Colours data;
  for (const EvalMode mode : {EvalMode::kFull, EvalMode::kStreamed}) {
    ExperimentSpec spec;
    spec.model.name = ModelName::kMlp;
    spec.model.width = 8;
    spec.model.image_size = 4;
    resolve_model(spec.model);
    spec.subnetwork.workers = 2;
    spec.subnetwork.coverage.text = "1/2";
    spec.eval.mode = mode;
    spec.eval.recalibrate_batches = 0;
    spec.eval.batch_size = 4;
    const Experiment experiment = make_experiment(spec, 2);
    run_thread_ranks(2, [&](Communicator& comm) {
      Engine engine(experiment.plan, experiment.schedule, spec.optimizer, comm);
      engine.initialize(3);
      LiveFullModel full(experiment.plan, experiment.schedule, engine, comm);
      Evaluator(experiment, data, data, comm).evaluate(full);
      bool held = true;
      try {
        full.parameter("blocks.0.mlp.0.weight");
      } catch (const std::logic_error&) {
        held = false;
      }
      if (held != (mode == EvalMode::kFull)) throw std::runtime_error("what is held after an evaluation");
    });
  }
}

}  // namespace
}  // namespace sdp
