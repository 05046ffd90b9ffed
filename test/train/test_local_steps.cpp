#include <torch/torch.h>

#include <cmath>

#include "catch.h"
#include "comm/thread_ranks.h"
#include "cost/make_experiment.h"
#include "engine/checks.h"
#include "engine/engine_cases.h"
#include "engine/train_step.h"
#include "run/checkpoint_reader.h"
#include "run/restore_checkpoint.h"
#include "run/run_history.h"
#include "run/save_checkpoint.h"
#include "step_batch.h"
#include "temp_folder.h"
#include "test_device.h"

namespace sdp {
namespace {

constexpr int kRound = 3;

Experiment local_experiment(Case c) {
  ExperimentSpec spec = spec_of(c);
  spec.exchange.every_steps = kRound;
  return make_experiment(spec, c.processes);
}

/// A step in which the input of `poisoned` is not finite.
StepResult run_step(TrainStep& train_step, const ExperimentSpec& spec, const Engines& engines, int64_t step,
                    int poisoned = -1) {
  const std::vector<Engines::Place> slots = engines.slots();
  size_t pass = 0;
  return train_step.run(step, 0.01, [&] {
    const Slot& slot = slots[pass++].slot;
    TensorBatch batch = batch_of(spec, step, slot, 0);
    if (slot.worker == poisoned) batch.input.fill_(std::nan(""));
    return batch;
  });
}

TEST_CASE("nothing is sent within a round, and an exchange sends and keeps what the plan says") {
  const auto [construction, masking] = GENERATE(std::pair(Construction::kBlock, Masking::kForward),
                                                std::pair(Construction::kBlock, Masking::kBackward),
                                                std::pair(Construction::kNeuron, Masking::kForward),
                                                std::pair(Construction::kNeuron, Masking::kBackward));
  const int64_t processes = GENERATE(1, 2, 4);
  const Experiment experiment = local_experiment(
      {.processes = processes, .optimizer = "adamw", .construction = construction, .masking = masking});
  run_thread_ranks(
      static_cast<int>(processes),
      [&](Communicator& comm) {
        const OwnedEngines owned(experiment, comm);
        const Engines engines = owned.engines();
        engines.initialize(3);
        TrainStep train_step(experiment, engines, comm);
        const Traffic before = comm.traffic();
        for (int step = 0; step < kRound; ++step)
          run_step(train_step, experiment.spec, engines, step);
        expect(comm.traffic() == before, "something is sent within a round");
        engines.outer()->run();
        const Cost planned = cost_of(experiment, comm.rank());
        Traffic expected = before;
        expected.all_to_all_bytes = comm.traffic().all_to_all_bytes;
        expect(comm.traffic() == expected, "an exchange is all-to-alls only");
        const int64_t sent = expected.all_to_all_bytes - before.all_to_all_bytes;
        expect(std::abs(sent / kRound - planned.bytes_sent_per_step()) <= 1, "bytes sent");
        expect(find_different_copies(engines, comm).empty(), "copies differ after an exchange");
      },
      Exchanges::kAtOnce, test_device());
}

TEST_CASE("a worker whose loss is not finite skips the step alone") {
  Case c{.processes = 2, .optimizer = "adamw", .construction = Construction::kNeuron};
  Experiment experiment = local_experiment(c);
  experiment.spec.train.on_nonfinite = OnNonfinite::kSkip;
  run_thread_ranks(
      2,
      [&](Communicator& comm) {
        std::vector<std::vector<at::Tensor>> values;  // by run and state
        for (const int poisoned : {-1, 1}) {
          const OwnedEngines owned(experiment, comm);
          const Engines engines = owned.engines();
          engines.initialize(3);
          TrainStep train_step(experiment, engines, comm);
          run_step(train_step, experiment.spec, engines, 0);
          std::vector<at::Tensor> before;
          for (const StateRange& range : engines.owned_state())
            if (range.worker == 1) before.push_back(range.values.clone());
          const StepResult result = run_step(train_step, experiment.spec, engines, 1, poisoned);
          const bool is_here = poisoned == 1 && comm.rank() == 0;
          expect(result.skipped_workers == (is_here ? std::vector<int>{1} : std::vector<int>{}), "who skips");
          size_t own = 0;
          std::vector<at::Tensor>& others = values.emplace_back();
          for (const StateRange& range : engines.owned_state())
            if (range.worker != 1)
              others.push_back(range.values.clone());
            else if (is_here)
              expect(at::equal(range.values, before.at(own++)), range.kind + " of the worker that skips");
        }
        for (size_t i = 0; i < values[0].size(); ++i)
          expect(at::equal(values[0][i], values[1].at(i)), "state of other workers");
      },
      Exchanges::kAtOnce, test_device());
}

TEST_CASE("a run that leaves out local steps begins with the mean of its owners' moments") {
  const Experiment experiment = local_experiment({.processes = 1, .optimizer = "adamw"});
  Experiment without = experiment;
  without.spec.exchange = {};
  const TempFolder folder;
  run_thread_ranks(
      1,
      [&](Communicator& comm) {
        const OwnedEngines owned(experiment, comm), owned_without(without, comm);
        const Engines engines = owned.engines(), restored = owned_without.engines();
        engines.initialize(3);
        TrainStep train_step(experiment, engines, comm);
        for (int step = 0; step < kRound; ++step)
          run_step(train_step, experiment.spec, engines, step);
        engines.outer()->run();
        save_checkpoint(folder.path(), experiment, engines, comm, {.step = kRound, .threads = 1}, {},
                        describe_run(experiment, new_history()), ignore_progress);
        const CheckpointReader reader(folder.path(), kRound, /*verify_hashes=*/true);
        restore(reader, experiment, without, restored);
        for (const std::string& name : experiment.spec.optimizer.state_names())
          for (const auto& [place, views] : restored.all().front()->store().slices()) {
            const auto [parameter, unit] = place;
            std::vector<at::Tensor> moments;
            for (const Engine* engine : engines.all())
              if (const at::Tensor own = engine->find_state(name, parameter, unit); own.defined())
                moments.push_back(own);
            expect(moments.size() == experiment.plan.owners(unit).size(), "number of owners");
            const at::Tensor all = at::stack(moments);
            const at::Tensor difference =
                restored.all().front()->find_state(name, parameter, unit) - all.mean(0);
            expect(difference.abs().max().item<double>() <= 1e-6 * all.abs().max().item<double>(), name);
            expect(at::equal(restored.find_slice(parameter, unit), engines.find_slice(parameter, unit)),
                   "values");
          }
      },
      Exchanges::kAtOnce, test_device());
}

}  // namespace
}  // namespace sdp
