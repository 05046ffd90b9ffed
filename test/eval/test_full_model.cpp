#include <ATen/ATen.h>

#include <atomic>
#include <functional>
#include <set>

#include "catch.h"
#include "comm/thread_ranks.h"
#include "cost/make_experiment.h"
#include "data/dataset.h"
#include "data/device_loader.h"
#include "engine/full_model.h"
#include "eval/evaluation.h"
#include "message_of.h"
#include "process/freed_memory.h"
#include "run/progress.h"
#include "spec/error.h"

namespace sdp {
namespace {

/// A few images of one color each.
class Colors : public ImageDataset {
 public:
  explicit Colors(std::set<int64_t> damaged = {})
      : ImageDataset(OnError::kSkip), damaged_(std::move(damaged)) {}

  int64_t size() const override { return 6; }
  DataIdentity identity() const override { return {.samples = 6}; }
  ImageShape shape() const override { return {3, 4, 4}; }
  int64_t num_classes() const override { return 10; }
  int64_t label(int64_t index) const override { return index; }
  void read(int64_t index, std::span<uint8_t> chw) const override {
    if (damaged_.contains(index)) throw DamagedImageError("image " + std::to_string(index));
    std::fill(chw.begin(), chw.end(), static_cast<uint8_t>(40 * index));
  }
  const Normalization& normalization() const override { return normalization_; }

 private:
  std::set<int64_t> damaged_;
  Normalization normalization_{{0.5F, 0.5F, 0.5F}, {0.5F, 0.5F, 0.5F}};
};

ExperimentSpec small_experiment(EvalMode mode) {
  ExperimentSpec spec;
  spec.model.kind = MlpSpec{.width = 8, .image_size = 4};
  resolve_model(spec.model);
  spec.subnetwork.workers = 2;
  spec.subnetwork.coverage.text = "1/2";
  spec.eval.mode = mode;
  spec.eval.recalibrate_batches = 0;
  spec.eval.branch_scale = BranchScale::kNone;
  spec.eval.batch_size = 4;
  return spec;
}

/// Runs `check` on both ranks with the evaluation's record and the full model.
void evaluate(const ExperimentSpec& spec, const Colors& data,
              const std::function<void(const EvalRecord&, LiveFullModel&)>& check) {
  poison_freed_memory();
  const Experiment experiment = make_experiment(spec, 2);
  run_ranks(2, [&](Communicator& comm) {
    Engine engine(experiment.plan, experiment.exchanges, spec.optimizer, comm);
    engine.initialize(3);
    LiveFullModel full(experiment.plan, experiment.exchanges, engine, comm);
    const DeviceDataset source(data, spec.data, spec.train.precision, comm.device());
    ProgressLine line(-1);
    const auto on_skipped = [](const std::string& message) {
      if (!message.starts_with("image ")) throw std::runtime_error("skipped: " + message);
    };
    check(sdp::evaluate({experiment, source, source, comm, line, on_skipped}, {.full = full}), full);
  });
}

TEST_CASE("after streamed evaluation no branch is held, after full evaluation all are") {
  for (const EvalMode mode : {EvalMode::kFull, EvalMode::kStreamed})
    evaluate(small_experiment(mode), Colors(), [&](const EvalRecord&, LiveFullModel& full) {
      const bool held =
          message_of<std::logic_error>([&] { full.parameter("blocks.0.mlp.0.weight"); }).empty();
      if (held != (mode == EvalMode::kFull)) throw std::runtime_error("what is held after an evaluation");
    });
}

TEST_CASE("the assembled model has the values that were drawn, whichever processes hold them") {
  constexpr uint64_t kSeed = 3;
  for (const Construction construction : {Construction::kBlock, Construction::kNeuron})
    for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
      ExperimentSpec spec = small_experiment(EvalMode::kFull);
      spec.subnetwork.workers = 4;
      spec.subnetwork.construction = construction;
      spec.train.precision = precision;
      const Experiment experiment = make_experiment(spec, 4);
      const auto check_values = [&](Communicator& comm) {
        Engine engine(experiment.plan, experiment.exchanges, spec.optimizer, comm);
        engine.initialize(kSeed);
        LiveFullModel full(experiment.plan, experiment.exchanges, engine, comm);
        full.fetch_shared();
        for (int branch = 0; branch < static_cast<int>(experiment.plan.layout.branches.size()); ++branch)
          full.fetch_branch(branch);
        for (const ParameterLayout& parameter : experiment.plan.layout.parameters) {
          const at::Tensor values = full.parameter(parameter.name).cpu();
          if (!values.equal(draw_parameter(parameter, kSeed).to(values.scalar_type())))
            throw std::runtime_error(parameter.name + " has other values");
        }
      };
      run_ranks(4, check_values);
    }
}

TEST_CASE("a damaged image does not contribute to the mean, even if a batch has no other image") {
  for (const EvalMode mode : {EvalMode::kFull, EvalMode::kStreamed})
    for (const int64_t batch_size : {4, 1}) {
      ExperimentSpec spec = small_experiment(mode);
      spec.eval.batch_size = batch_size;
      const auto loss_without = [&](const std::set<int64_t>& damaged) {
        std::atomic<double> loss = 0;
        evaluate(spec, Colors(damaged), [&](const EvalRecord& record, LiveFullModel&) {
          if (record.skipped_samples != static_cast<int64_t>(damaged.size()))
            throw std::runtime_error("how many were skipped");
          loss = record.loss;
        });
        return loss.load();
      };
      const double all = loss_without({});
      CHECK((5 * loss_without({4}) + loss_without({0, 1, 2, 3, 5})) / 6 == Approx(all).epsilon(1e-6));
      CHECK(loss_without({4}) != Approx(all).epsilon(1e-3));
    }
}

}  // namespace
}  // namespace sdp
