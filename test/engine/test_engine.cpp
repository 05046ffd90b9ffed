// The engine on ranks that are threads: memory and traffic against the plan's figures, and bit-identical
// values on all holders. What it computes is compared with plain PyTorch in test/cli/test_equivalence.py.

#include <torch/torch.h>

#include <nlohmann/json.hpp>

#include "catch.h"
#include "comm/thread_ranks.h"
#include "engine/engine.h"
#include "model/layouts.h"
#include "model/model.h"
#include "spec/model_defaults.h"
#include "subnet/accounting.h"

namespace sdp {
namespace {

struct Case {
  int64_t workers = 4;
  int64_t replicas = 1;
  int64_t processes = 4;
  std::string coverage = "2/4";
  Precision precision = Precision::kFp32;
  OptimizerName optimizer = OptimizerName::kSgd;
  bool shard = true;
  int64_t accumulate_steps = 1;
  ModelName model = ModelName::kResNet18;
  Construction construction = Construction::kBlock;
  Masking masking = Masking::kForward;
};

ExperimentSpec spec_of(const Case& c) {
  ExperimentSpec spec;
  spec.model.name = c.model;
  spec.model.width = 8;
  spec.model.hidden_width = 24;
  spec.model.image_size = 8;
  spec.model.heads = 4;
  spec.model.patch_size = 2;
  spec.model.window_size = 2;
  spec.model.vocab_size = 32;
  resolve_model(spec.model);
  spec.subnetwork.workers = c.workers;
  spec.subnetwork.replicas = c.replicas;
  spec.subnetwork.coverage.text = c.coverage;
  spec.subnetwork.construction = c.construction;
  spec.subnetwork.masking = c.masking;
  // A window of slices gives every worker some of every branch, and so a gradient of all it owns.
  spec.subnetwork.assignment =
      c.construction == Construction::kNeuron ? Assignment::kWindow : Assignment::kRandom;
  spec.optimizer.name = c.optimizer;
  spec.optimizer.lr = 0.01;
  spec.optimizer.shard = c.shard;
  spec.train.precision = c.precision;
  spec.train.accumulate_steps = c.accumulate_steps;
  spec.train.batch_size_per_worker = 2;
  spec.train.bucket_megabytes = 0.1;
  return spec;
}

/// Catch's assertions are not for threads: a rank that finds a difference throws.
void expect(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

void expect_equal(int64_t actual, int64_t planned, const std::string& what) {
  expect(actual == planned, what + ": " + std::to_string(actual) + ", planned " + std::to_string(planned));
}

/// Forward and backward of every local slot on noise.
void backward(Engine& engine, const ExperimentSpec& spec, const SubnetPlan& plan, int step) {
  for (size_t s = 0; s < engine.store().slots().size(); ++s) {
    const Slot slot = engine.store().slots()[s];
    const std::unique_ptr<Model> model =
        make_subnetwork(spec.model, plan, slot.worker, engine.store().slot(static_cast<int>(s)));
    at::Generator noise = at::detail::createCPUGenerator(1000 * step + 10 * slot.worker + slot.replica);
    const at::Tensor input =
        is_llama(spec.model.name)
            ? at::randint(*spec.model.vocab_size, {2, 6}, noise, at::kLong)
            : at::randn({2, 3, 8, 8}, noise).to(scalar_type(compute_type(spec.train.precision)));
    model->forward(input, {.training = true}).to(at::kFloat).square().mean().backward();
  }
}

/// All processes that have a segment's values have the same bits.
void expect_readers_agree(const Engine& engine, const Schedule& schedule, Communicator& comm) {
  for (const Bucket& bucket : schedule.buckets) {
    for (const Segment& segment : bucket.segments) {
      const bool reads = segment.is_read_by(comm.rank());
      const auto options = at::TensorOptions(scalar_type(bucket.type));
      const at::Tensor mine = reads ? engine.store().read_segment(segment, 0, segment.elements)
                                    : at::empty({segment.elements}, options);
      at::Tensor first = mine.clone();
      comm.broadcast(first, segment.holders.front());
      if (!reads) continue;
      const auto bits = [](const at::Tensor& t) { return t.contiguous().view(at::kByte); };
      expect(at::equal(bits(first), bits(mine)), "readers of a segment differ");
      expect(at::isfinite(mine).all().item<bool>(), "values are not finite");
    }
  }
}

void check_case(const Case& c) {
  const ExperimentSpec spec = spec_of(c);
  const SubnetPlan plan = make_plan(layout_of(spec.model), spec.subnetwork, 9);
  const Schedule schedule =
      make_schedule(plan, make_placement(c.workers, c.replicas, c.processes), schedule_options(spec));
  run_thread_ranks(static_cast<int>(c.processes), [&](Communicator& comm) {
    const Cost planned =
        cost_of(plan, schedule, spec.optimizer, comm.rank(), spec.train.batch_size_per_worker);
    Engine engine(plan, schedule, spec.optimizer, comm);
    engine.initialize(3);
    expect_equal(engine.store().parameter_bytes(), planned.parameter_bytes, "parameter bytes");
    expect_equal(engine.optimizer_bytes(), planned.optimizer_bytes, "optimizer bytes");
    for (int step = 0; step < 3; ++step) {
      for (int64_t micro_batch = 0; micro_batch < c.accumulate_steps; ++micro_batch) {
        int64_t largest_gradient = 0;
        backward(engine, spec, plan, step);
        for (size_t s = 0; s < engine.store().slots().size(); ++s) {
          largest_gradient =
              std::max(largest_gradient, engine.store().slot_gradient_bytes(static_cast<int>(s)));
          engine.absorb(static_cast<int>(s));
        }
        // What stands at the end of a slot's backward pass: its own gradients, and the sums where there are
        // any.
        const int64_t standing = engine.gradient_bytes() + (schedule.accumulates() ? largest_gradient : 0);
        expect_equal(standing, planned.gradient_bytes, "gradient bytes");
      }
      const int64_t sent_before = comm.traffic().all_to_all_bytes;
      engine.reduce();
      expect_equal(engine.gradient_bytes(), 0, "gradient bytes after reduce");
      engine.step(spec.optimizer.lr);
      engine.publish();
      expect_equal(comm.traffic().all_to_all_bytes - sent_before, planned.bytes_sent_per_step(),
                   "bytes sent");
      expect_readers_agree(engine, schedule, comm);
    }
    expect_equal(engine.optimizer_bytes(), planned.optimizer_bytes, "optimizer bytes after steps");
  });
}

TEST_CASE("bytes held and sent are the plan's, and all who have a value have the same bits") {
  for (const bool shard : {true, false}) {
    for (const Precision precision : {Precision::kFp64, Precision::kFp32, Precision::kBf16}) {
      for (const OptimizerName optimizer : {OptimizerName::kSgd, OptimizerName::kAdamW}) {
        const ModelName model = precision == Precision::kBf16 ? ModelName::kMlp : ModelName::kResNet18;
        check_case({.precision = precision, .optimizer = optimizer, .shard = shard, .model = model});
      }
    }
  }
}

TEST_CASE("the same for other coverages") {
  for (const char* coverage : {"1/4", "3/4", "1"})
    check_case({.coverage = coverage, .model = ModelName::kMlp});
  check_case({.workers = 3, .processes = 3, .coverage = "2/3"});
}

TEST_CASE("the same in every regime") {
  for (const Construction construction : {Construction::kBlock, Construction::kNeuron}) {
    for (const Masking masking : {Masking::kForward, Masking::kBackward}) {
      for (const bool shard : {true, false})
        check_case({.shard = shard, .construction = construction, .masking = masking});
      check_case({.processes = 2, .construction = construction, .masking = masking});
      check_case({.workers = 3,
                  .processes = 3,
                  .coverage = "2/3",
                  .precision = Precision::kBf16,
                  .optimizer = OptimizerName::kAdamW,
                  .accumulate_steps = 2,
                  .model = ModelName::kMlp,
                  .construction = construction,
                  .masking = masking});
      check_case({.replicas = 2,
                  .processes = 2,
                  .shard = false,
                  .model = ModelName::kMlp,
                  .construction = construction,
                  .masking = masking});
    }
  }
}

TEST_CASE("the same for transformers") {
  for (const ModelName model : {ModelName::kSwinT, ModelName::kLlamaTiny})
    for (const Construction construction : {Construction::kBlock, Construction::kNeuron})
      for (const Masking masking : {Masking::kForward, Masking::kBackward})
        check_case({.precision = Precision::kBf16,
                    .optimizer = OptimizerName::kAdamW,
                    .model = model,
                    .construction = construction,
                    .masking = masking});
}

TEST_CASE("the same for several workers a process, replicas and accumulation") {
  check_case({.processes = 2});
  check_case({.processes = 1, .precision = Precision::kBf16, .model = ModelName::kMlp});
  check_case({.replicas = 2, .processes = 8, .model = ModelName::kMlp});
  check_case({.replicas = 2, .processes = 2, .precision = Precision::kBf16, .model = ModelName::kMlp});
  check_case({.accumulate_steps = 3, .model = ModelName::kMlp});
  check_case({.processes = 2, .shard = false, .accumulate_steps = 2, .model = ModelName::kMlp});
}

TEST_CASE("a worker whose backward pass left nothing counts as zero gradients") {
  const ExperimentSpec spec = [] {
    ExperimentSpec s = spec_of({.workers = 2, .processes = 2, .coverage = "1", .model = ModelName::kMlp});
    s.optimizer.momentum = 0;
    s.optimizer.weight_decay = 0;
    return s;
  }();
  const SubnetPlan plan = make_plan(layout_of(spec.model), spec.subnetwork, 0);
  const Schedule schedule = make_schedule(plan, make_placement(2, 1, 2), schedule_options(spec));
  run_thread_ranks(2, [&](Communicator& comm) {
    Engine engine(plan, schedule, spec.optimizer, comm);
    engine.initialize(3);
    at::Tensor gradient;
    const std::string name = "head.weight";
    const at::Tensor before = engine.store().slot(0).parameter(name).detach().clone();
    if (comm.rank() == 0) backward(engine, spec, plan, 0);
    if (comm.rank() == 0) gradient = engine.store().slot(0).parameter(name).grad().clone();
    engine.absorb(0);
    engine.reduce();
    engine.step(0.5);
    engine.publish();
    at::Tensor expected = comm.rank() == 0 ? (before - 0.5 * gradient / 2) : at::empty_like(before);
    comm.broadcast(expected, 0);
    expect(at::allclose(engine.store().slot(0).parameter(name), expected, 0, 1e-7),
           "half of the one gradient");
  });
}

TEST_CASE("the clipped norm counts every parameter once, whoever holds it") {
  std::vector<double> norms;
  for (const auto& [processes, shard] :
       {std::pair<int64_t, bool>{4, true}, {2, true}, {1, true}, {4, false}}) {
    ExperimentSpec spec = spec_of(
        {.processes = processes, .precision = Precision::kFp64, .shard = shard, .model = ModelName::kMlp});
    spec.optimizer.clip_norm = 0.01;
    const SubnetPlan plan = make_plan(layout_of(spec.model), spec.subnetwork, 9);
    const Schedule schedule = make_schedule(plan, make_placement(4, 1, processes), schedule_options(spec));
    std::vector<double> of_rank(processes);
    run_thread_ranks(static_cast<int>(processes), [&](Communicator& comm) {
      Engine engine(plan, schedule, spec.optimizer, comm);
      engine.initialize(3);
      backward(engine, spec, plan, 0);
      for (size_t s = 0; s < engine.store().slots().size(); ++s)
        engine.absorb(static_cast<int>(s));
      engine.reduce();
      of_rank[comm.rank()] = engine.gradient_norm().item<double>();
    });
    for (double norm : of_rank)
      norms.push_back(norm);
  }
  CHECK(norms.front() > 0.01);
  for (double norm : norms)
    CHECK(norm == Approx(norms.front()).epsilon(1e-12));
}

TEST_CASE("bf16: master values start as drawn and gradients are summed in fp32") {
  ExperimentSpec spec = spec_of({.coverage = "1", .precision = Precision::kBf16, .model = ModelName::kMlp});
  spec.optimizer.momentum = 0;
  spec.optimizer.weight_decay = 0;
  const SubnetPlan plan = make_plan(layout_of(spec.model), spec.subnetwork, 0);
  const Schedule schedule = make_schedule(plan, make_placement(4, 1, 4), schedule_options(spec));
  run_thread_ranks(4, [&](Communicator& comm) {
    Engine engine(plan, schedule, spec.optimizer, comm);
    engine.initialize(3);
    const auto expect_moved_by = [&](double distance) {
      for (const StateRange& range : engine.owned_state()) {
        const ParameterLayout& parameter = plan.layout.parameters[range.parameter];
        if (range.kind != "value" || parameter.name != "head.weight") continue;
        const at::Tensor drawn = draw_parameter(parameter, 3).reshape({-1}).slice(0, range.begin, range.end);
        expect(at::allclose(range.values, drawn - distance, 0, 1e-6), "master values");
      }
    };
    expect_moved_by(0);
    // In bf16 256 + 1 is 256 again.
    const at::Tensor leaf = engine.store().slot(0).parameter("head.weight");
    leaf.mutable_grad() = at::full_like(leaf.detach(), comm.rank() == 0 ? 256 : 1);
    engine.absorb(0);
    engine.reduce();
    engine.step(1.0 / 64);
    engine.publish();
    expect_moved_by(259.0 / 4 / 64);
  });
}

}  // namespace
}  // namespace sdp
