#pragma once

// Small experiments for tests of the engine on ranks that are threads.

#include <torch/torch.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "comm/thread_ranks.h"
#include "cost/accounting.h"
#include "cost/layouts.h"
#include "cost/make_experiment.h"
#include "engine/engines.h"
#include "model/make_model.h"
#include "optim/registry.h"
#include "process/freed_memory.h"
#include "test_device.h"

namespace sdp {

struct Case {
  int64_t workers = 4;
  int64_t replicas = 1;
  int64_t processes = 4;
  std::string coverage = "2/4";
  Precision precision = Precision::kFp32;
  std::optional<WireType> reduce_dtype = {};
  std::string_view optimizer = "sgd";
  bool shard = true;
  int64_t accumulate_steps = 1;
  std::string_view model = "resnet18";
  Construction construction = Construction::kBlock;
  Masking masking = Masking::kForward;
  bool release_gradients = true;
  ReduceEvery reduce_every = ReduceEvery::kStep;
};

inline ExperimentSpec spec_of(const Case& c) {
  ExperimentSpec spec;
  spec.model = tiny_model(c.model);
  spec.subnetwork.workers = c.workers;
  spec.subnetwork.replicas = c.replicas;
  spec.subnetwork.coverage.text = c.coverage;
  spec.subnetwork.construction = c.construction;
  spec.subnetwork.masking = c.masking;
  // A window of slices gives every worker part of every branch, and therefore gradients of all it owns.
  spec.subnetwork.assignment =
      c.construction == Construction::kNeuron ? Assignment::kWindow : Assignment::kRandom;
  spec.optimizer.rule = UpdateRule(c.optimizer);
  spec.optimizer.rule.visit([](auto& rule) { rule.lr = 0.01; });
  spec.optimizer.shard = c.shard;
  spec.train.precision = c.precision;
  spec.train.reduce_dtype = c.reduce_dtype;
  spec.train.accumulate_steps = c.accumulate_steps;
  spec.train.release_gradients = c.release_gradients;
  spec.train.reduce_every = c.reduce_every;
  spec.train.batch_size_per_worker = 2;
  spec.train.bucket_megabytes = 0.1;
  return spec;
}

/// An experiment with its plan and exchange plan.
struct Planned {
  explicit Planned(ExperimentSpec the_spec, int64_t the_processes, uint64_t seed = 0)
      : spec(std::move(the_spec)),
        plan(make_plan(layout_of(spec.model, spec.data.sequence_length()), spec.subnetwork, seed)),
        processes(static_cast<int>(the_processes)),
        exchanges(make_exchange_plan(
            plan, make_slot_map(spec.subnetwork.workers, spec.subnetwork.replicas, the_processes),
            exchange_options(spec, plan.layout))) {}

  ExperimentSpec spec;
  SubnetPlan plan;
  int processes;
  ExchangePlan exchanges;
};

/// SGD of which a step is lr times the gradient.
inline ExperimentSpec plain_sgd(const Case& c) {
  ExperimentSpec spec = spec_of(c);
  spec.optimizer.rule = SgdSpec{.weight_decay = 0, .momentum = 0};
  return spec;
}

/// An engine of the experiment on every rank, and then again over a backend that exchanges as late as NCCL
/// may. Freed memory is filled with NaN, so that an exchange cannot read the old values there.
inline void run_engine(const Planned& experiment, const std::function<void(Engine&, Communicator&)>& body) {
  poison_freed_memory();
  for (const Exchanges exchanges : {Exchanges::kAtOnce, Exchanges::kLate})
    run_thread_ranks(
        experiment.processes,
        [&](Communicator& comm) {
          Engine engine(experiment.plan, experiment.exchanges, experiment.spec.optimizer, comm);
          engine.initialize(3);
          body(engine, comm);
        },
        exchanges, test_device());
}

/// A parameter of a slot that every worker owns, after all values were set to zero.
inline at::Tensor zero_leaf(Engine& engine, const Planned& experiment) {
  Engines(engine).set_values([&](int p) { return at::zeros(experiment.plan.layout.parameters[p].shape); });
  return engine.store().slot(0).parameter("head.weight");
}

/// The rest of a step, after the backward passes.
inline void finish_step(Engine& engine, double lr) {
  engine.reduce();
  engine.step(lr);
  engine.gather_values();
  engine.await_all_values();
}

/// A step in which a parameter of the first slot has this gradient in all elements, and others have none.
inline void step_with_gradient(Engine& engine, const at::Tensor& leaf, double gradient, double lr) {
  engine.begin_backward(0, /*last=*/true);
  leaf.mutable_grad() = at::full_like(leaf.detach(), gradient);
  engine.end_backward();
  finish_step(engine, lr);
}

inline void expect_equal(int64_t actual, int64_t planned, const std::string& what) {
  expect(actual == planned, what + ": " + std::to_string(actual) + ", planned " + std::to_string(planned));
}

/// Forward and backward passes of every local slot on noise. The passes are the last ones before a reduction
/// unless another micro-batch follows. `look` is called at the end of each pass, before the engine takes the
/// remaining gradients.
inline void backward(Engine& engine, const ExperimentSpec& spec, const SubnetPlan& plan, int step,
                     bool more_follow = false, const std::function<void(int slot)>& look = {}) {
  const size_t slots = engine.store().slots().size();
  for (size_t s = 0; s < slots; ++s) {
    const Slot slot = engine.store().slots()[s];
    const std::unique_ptr<Model> model =
        make_subnetwork(spec.model, plan, slot.worker, engine.store().slot(static_cast<int>(s)));
    at::Generator noise = at::detail::createCPUGenerator(1000 * step + 10 * slot.worker + slot.replica);
    const at::Tensor host_input =
        spec.model.reads_tokens()
            ? at::randint(spec.model.vocab_size(), {2, 6}, noise, at::kLong)
            : at::randn({2, 3, 8, 8}, noise).to(scalar_type(compute_type(spec.train.precision)));
    const at::Tensor input = host_input.to(test_device());
    engine.await_values(-1);
    const ForwardMode mode{.training = true, .before_branch = [&](int b) { engine.await_values(b); }};
    const at::Tensor loss = model->forward(input, mode).to(at::kFloat).square().mean();
    expect(at::isfinite(loss).item<bool>(), "values were read before they came");
    engine.begin_backward(static_cast<int>(s), !more_follow && s + 1 == slots);
    loss.backward();
    if (look) look(static_cast<int>(s));
    engine.end_backward();
  }
}

}  // namespace sdp
