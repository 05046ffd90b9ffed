#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "catch.h"
#include "comm/thread_ranks.h"
#include "cost/make_experiment.h"
#include "engine/checks.h"
#include "engine/engine_cases.h"
#include "engine/train_step.h"
#include "message_of.h"
#include "process/freed_memory.h"
#include "run/checkpoint_reader.h"
#include "run/restore_checkpoint.h"
#include "run/run_history.h"
#include "run/save_checkpoint.h"
#include "spec/error.h"
#include "step_batch.h"
#include "temp_folder.h"

namespace sdp {
namespace {

constexpr int kSteps = 5;
constexpr int kPoisoned = 2;

enum class Poison { kLoss, kGradient };

/// The state of this process that a checkpoint would save, and the engine's step count.
std::map<std::string, at::Tensor> state_of(const Experiment& experiment, Engine& engine) {
  std::map<std::string, at::Tensor> state;
  for (const StateRange& range : engine.owned_state())
    state[range_name(key_of(experiment.plan, range), range.begin, range.end)] = range.values.clone();
  for (size_t s = 0; s < engine.store().slots().size(); ++s)
    for (const BufferSlice& slice : engine.store().buffer_slices(static_cast<int>(s)))
      state[buffer_name(buffer_key(experiment.plan, slice.buffer, slice.unit), engine.store().slots()[s])] =
          slice.values.clone();
  state["updates"] = at::tensor(engine.step_count());
  return state;
}

/// Trains five steps, the third of which is poisoned on the last rank, or omitted.
std::map<std::string, at::Tensor> train(const Experiment& experiment, Communicator& comm,
                                        std::optional<Poison> poison) {
  Engine engine(experiment.plan, experiment.exchanges, experiment.spec.optimizer, comm);
  engine.initialize(3);
  TrainStep train_step(experiment, engine, comm);
  const bool is_last = comm.rank() + 1 == comm.size();
  bool poison_gradient = false;
  for (int parameter : engine.store().owned_parameters(0)) {
    at::Tensor leaf = engine.store().leaf(0, parameter);
    leaf.register_hook([&](const at::Tensor& gradient) {
      return poison_gradient ? gradient * std::numeric_limits<double>::infinity() : gradient;
    });
  }
  const std::vector<Slot>& slots = engine.store().slots();
  for (int step = 0; step < kSteps; ++step) {
    if (step == kPoisoned && !poison) continue;
    const bool poisons = step == kPoisoned && is_last;
    poison_gradient = poisons && poison == Poison::kGradient;
    size_t pass = 0;
    const StepResult result = train_step.run(step, 0.01 * (step + 1), [&] {
      TensorBatch batch = batch_of(experiment.spec, step, slots[pass % slots.size()],
                                   static_cast<int64_t>(pass / slots.size()));
      if (poisons && poison == Poison::kLoss && pass == 0) batch.input.fill_(std::nan(""));
      ++pass;
      return batch;
    });
    expect(result.nonfinite.has_value() == (step == kPoisoned), "which step is skipped");
    if (!result.nonfinite) continue;
    const size_t poisoned_slot = static_cast<size_t>(comm.size() - 1) * slots.size();
    expect(result.nonfinite->slots ==
               (poison == Poison::kLoss ? std::vector<size_t>{poisoned_slot} : std::vector<size_t>{}),
           "whose loss is not finite");
    expect(!result.nonfinite->gradient_ranks.empty(), "whose gradients are not finite");
  }
  return state_of(experiment, engine);
}

TEST_CASE("a run that skips a poisoned step matches a run without that step, bit by bit") {
  const auto c = GENERATE(
      Case{.processes = 2}, Case{.optimizer = "adamw", .masking = Masking::kBackward},
      Case{.processes = 2,
           .precision = Precision::kBf16,
           .optimizer = "adamw",
           .accumulate_steps = 2,
           .construction = Construction::kNeuron},
      Case{.workers = 2, .processes = 2, .coverage = "1/2", .shard = false, .release_gradients = false},
      Case{.workers = 2, .replicas = 2, .processes = 4, .coverage = "1", .model = "mlp"});
  ExperimentSpec spec = spec_of(c);
  spec.train.on_nonfinite = OnNonfinite::kSkip;
  spec.optimizer.clip_norm = GENERATE(0.0, 0.5);
  const Experiment experiment = make_experiment(spec, c.processes);
  poison_freed_memory();
  run_ranks(c.processes, [&](Communicator& comm) {
    const auto without = train(experiment, comm, std::nullopt);
    for (const Poison poison : {Poison::kLoss, Poison::kGradient}) {
      const auto skipped = train(experiment, comm, poison);
      expect(skipped.size() == without.size(), "what is saved");
      for (const auto& [name, values] : without)
        expect(at::equal(skipped.at(name), values), name);
    }
  });
}

/// Returns the message of the error that every rank must throw.
std::string error_of(Communicator& comm, const std::function<void()>& call) {
  std::string message;
  try {
    call();
  } catch (const Error& error) {
    if (error.code() == ExitCode::kInternal) message = error.what();
  }
  for (const std::string& other : comm.all_gather_strings(message))
    expect(!other.empty() && other == message, "every rank refuses with one message: " + other);
  return message;
}

TEST_CASE("non-finite values on one rank are not saved by any rank, and the good checkpoint stays") {
  const Case c{.processes = 2, .optimizer = "adamw"};
  ExperimentSpec spec = spec_of(c);
  spec.checkpoint.keep_last = 1;
  const Experiment experiment = make_experiment(spec, c.processes);
  const RunDescription description = describe_run(experiment, new_history());
  const TempFolder run;
  poison_freed_memory();
  run_ranks(2, [&](Communicator& comm) {
    Engine engine(experiment.plan, experiment.exchanges, spec.optimizer, comm);
    engine.initialize(3);
    const auto save = [&](int64_t step) {
      save_checkpoint(run.path(), experiment, engine, comm, {.step = step, .threads = 1}, {}, description,
                      ignore_progress);
    };
    save(1);
    const double infinity = std::numeric_limits<double>::infinity();
    const auto spoiled = [&](const at::Tensor& values, double value) {
      const at::NoGradGuard no_grad;
      const at::Tensor before = values.clone();
      if (comm.rank() == 1) values.reshape({-1})[0] = value;
      const std::string message = error_of(comm, [&] { save(2); });
      expect(contains(message, "on rank 1"), message);
      values.copy_(before);
    };
    spoiled(engine.store().buffer_slices(0).front().values, infinity);
    const std::vector<StateRange> state = engine.owned_state();
    const auto moment = std::find_if(state.begin(), state.end(),
                                     [](const StateRange& range) { return range.kind == "exp_avg"; });
    spoiled(moment->values, std::nan(""));
    const int owned = engine.store().owned_parameters(0).back();
    at::Tensor weight = engine.store().leaf(0, owned).detach();
    spoiled(weight.view({-1}).slice(0, weight.numel() - 1), -infinity);
    comm.barrier();
    expect(CheckpointStore(run.path()).steps() == std::vector<int64_t>{1}, "the good checkpoint stays");
    save(2);
    expect(CheckpointStore(run.path()).steps() == std::vector<int64_t>{2},
           "and goes when there is a newer one");
  });
}

/// Changes the last value in a checkpoint's file, and its hash, as if an older program had saved it.
void put_nan(const CheckpointStore& store, int64_t step) {
  Manifest manifest = store.read(step, /*verify_hashes=*/false);
  ManifestFile& file = manifest.files.front();
  const std::filesystem::path path = store.folder(step) / file.name;
  std::string bytes = get(path);
  const float value = std::nanf("");
  bytes.replace(bytes.size() - sizeof value, sizeof value, reinterpret_cast<const char*>(&value),
                sizeof value);
  put(path, bytes);
  file.xxh3_128 = xxh3_128(bytes);
  put(store.folder(step) / kManifestName, manifest_text(manifest));
}

TEST_CASE("a checkpoint is read only if it is finite and belongs to the same experiment") {
  const Case c{.processes = 1};
  const ExperimentSpec spec = spec_of(c);
  const Experiment experiment = make_experiment(spec, 1);
  const TempFolder run;
  run_ranks(1, [&](Communicator& comm) {
    Engine engine(experiment.plan, experiment.exchanges, spec.optimizer, comm);
    engine.initialize(3);
    save_checkpoint(run.path(), experiment, engine, comm, {.step = 4, .skipped_steps = 1, .threads = 1}, {},
                    describe_run(experiment, new_history()), ignore_progress);
    const CheckpointStore store(run.path());
    const auto refusal = [&](const Experiment& now) {
      return message_of<DataError>([&] {
        restore(CheckpointReader(run.path(), std::nullopt, /*verify_hashes=*/true), now, now, engine);
      });
    };
    expect(refusal(experiment).empty(), "a good checkpoint");
    expect(engine.step_count() == 3, "updates are steps without those skipped");

    const Manifest good = store.read(4, false);
    for (const auto number : {&Manifest::replicas, &Manifest::workers}) {  // others: test/run/test_store.cpp
      Manifest manifest = good;
      manifest.*number *= 2;
      put(store.folder(4) / kManifestName, manifest_text(manifest));
      expect(contains(refusal(experiment), (store.folder(4) / kManifestName).string()), "names the file");
    }
    put(store.folder(4) / kManifestName, manifest_text(good));
    put_nan(store, 4);
    const std::string last =
        SafetensorsFile(store.folder(4) / good.files.front().name).entries().back().entry.name;
    expect(contains(refusal(experiment), last + " has values that are not finite"), "names the tensor");
  });
}

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
  run_ranks(processes, [&](Communicator& comm) {
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
  });
}

TEST_CASE("a worker whose loss is not finite skips the step alone") {
  Case c{.processes = 2, .optimizer = "adamw", .construction = Construction::kNeuron};
  Experiment experiment = local_experiment(c);
  experiment.spec.train.on_nonfinite = OnNonfinite::kSkip;
  run_ranks(2, [&](Communicator& comm) {
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
  });
}

TEST_CASE("a run that leaves out local steps begins with the mean of its owners' moments") {
  const Experiment experiment = local_experiment({.processes = 1, .optimizer = "adamw"});
  Experiment without = experiment;
  without.spec.exchange = {};
  const TempFolder folder;
  run_ranks(1, [&](Communicator& comm) {
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
        const at::Tensor difference = restored.all().front()->find_state(name, parameter, unit) - all.mean(0);
        expect(difference.abs().max().item<double>() <= 1e-6 * all.abs().max().item<double>(), name);
        expect(at::equal(restored.find_slice(parameter, unit), engines.find_slice(parameter, unit)),
               "values");
      }
  });
}

}  // namespace
}  // namespace sdp
