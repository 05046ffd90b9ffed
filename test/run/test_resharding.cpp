// State that one division of the network saved, restored by another one. The oracle says by index arithmetic
// which element of the full model an element of a unit is. Statistics of BatchNorm:
// test/cli/test_resharding.py.

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>
#include <atomic>
#include <cmath>

#include "catch.h"
#include "cost/make_experiment.h"
#include "engine/engine_cases.h"
#include "engine/engines.h"
#include "experiment/run_steps.h"
#include "process/allocations.h"
#include "run/checkpoint_reader.h"
#include "run/restore_checkpoint.h"
#include "run/resumed_run.h"
#include "run/save_checkpoint.h"
#include "temp_folder.h"

namespace sdp {
namespace {

using enum Construction;
using enum Masking;
using enum Precision;

struct Division {
  int64_t workers = 4, replicas = 1, processes = 2;
  std::string coverage = "2/4";
  Construction construction = kBlock;
  Masking masking = kForward;
  std::optional<int64_t> slices = {};
  Precision precision = kFp32;
  bool shard = true;
};

const std::vector<Division> kDivisions = {
    {.workers = 8, .processes = 8, .coverage = "4/8"},
    {.workers = 6, .processes = 3, .coverage = "3/6"},
    {.workers = 8, .processes = 2, .coverage = "4/8", .precision = kBf16},
    {.workers = 1, .processes = 1, .coverage = "1"},
    {.construction = kNeuron, .slices = 4},
    {.processes = 4, .coverage = "1", .shard = false},
    {.construction = kNeuron, .masking = kBackward, .slices = 2, .precision = kBf16, .shard = false},
    {.workers = 3, .replicas = 2, .processes = 6, .coverage = "2/3", .construction = kNeuron, .slices = 3},
    {.workers = 2, .replicas = 3, .processes = 6, .coverage = "1/2", .masking = kBackward},
    {.coverage = "1/4"},
    {.coverage = "3/4", .construction = kNeuron, .slices = 2},
    {.processes = 1, .masking = kBackward}};

ExperimentSpec spec_of(const Division& division, std::string_view model) {
  ExperimentSpec spec = spec_of(Case{.workers = division.workers,
                                     .replicas = division.replicas,
                                     .coverage = division.coverage,
                                     .precision = division.precision,
                                     .optimizer = "adamw",
                                     .shard = division.shard,
                                     .model = model,
                                     .construction = division.construction,
                                     .masking = division.masking});
  spec.subnetwork.slices_per_branch = division.slices;
  spec.optimizer.ema_decay = 0.9;
  return spec;
}

/// The element of the full tensor that element `index` of the unit's slice is, by their order in memory: that
/// of a convolution's weight is [out, k, k, in].
int64_t element_of(const SubnetPlan& plan, std::vector<int64_t> shape, const std::optional<SliceRule>& rule,
                   int unit, int64_t index) {
  if (!rule || unit == kSharedUnit) return index;
  const auto [branch, begin, end, owners] = plan.units[static_cast<size_t>(unit)];
  auto dim = static_cast<size_t>(rule->dim);
  if (shape.size() == 4) {
    shape = {shape[0], shape[2], shape[3], shape[1]};
    if (dim == 1) dim = 3;
  }
  int64_t inner = 1;
  for (size_t d = dim + 1; d < shape.size(); ++d)
    inner *= shape[d];
  const int64_t width = (end - begin) * rule->elements_per_hidden;
  const int64_t full_width = shape[dim] / rule->blocks;
  const int64_t block = index / inner / width;
  const int64_t row = index / inner % width;
  return (block * full_width + begin * rule->elements_per_hidden + row) * inner + index % inner;
}

/// A value that fp32 represents, different for neighbouring elements, parameters and kinds.
double value_of(const std::string& kind, int parameter, int64_t element) {
  const int64_t of_kind = kind == "value" ? 1 : kind == "exp_avg" ? 2 : kind == "exp_avg_sq" ? 3 : 5;
  return static_cast<double>((element * 16807 + parameter * 48271 + of_kind * 69621) % (1 << 22)) / 1024;
}

void fill(const at::Tensor& flat, const std::function<double(int64_t)>& value) {
  std::vector<double> values(static_cast<size_t>(flat.numel()));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = value(static_cast<int64_t>(i));
  flat.copy_(torch::tensor(values, at::kDouble).view(flat.sizes()));
}

void save(const Experiment& experiment, const std::filesystem::path& run, Communicator& comm) {
  const at::NoGradGuard no_grad;
  const SubnetPlan& plan = experiment.plan;
  Engine engine(plan, experiment.exchanges, experiment.spec.optimizer, comm);
  engine.load_state([&](const StateRange& range) {
    const ParameterLayout& parameter = plan.layout.parameters[static_cast<size_t>(range.parameter)];
    fill(range.values, [&](int64_t i) {
      return value_of(range.kind, range.parameter,
                      element_of(plan, parameter.shape, parameter.slice, range.unit, range.begin + i));
    });
  });
  save_checkpoint(run, experiment, engine, comm, {.step = 9, .skipped_steps = 2, .threads = 1}, {},
                  describe_run(experiment, new_history()), ignore_progress);
}

/// A run that ranks of its own have saved.
struct SavedRun {
  SavedRun(const Division& division, std::string_view model)
      : experiment(make_experiment(spec_of(division, model), division.processes)) {
    run_ranks(division.processes, [&](Communicator& comm) { save(experiment, folder.path(), comm); });
  }
  CheckpointReader reader() const { return {folder.path(), std::nullopt, /*verify_hashes=*/true}; }

  Experiment experiment;
  TempFolder folder;
};

/// `elements`: of state that the ranks hold, each counted where it is saved.
void restore_and_compare(const SavedRun& saved, const Experiment& now, Communicator& comm,
                         std::atomic<int64_t>& elements) {
  const at::NoGradGuard no_grad;
  const SubnetPlan& plan = now.plan;
  Engine engine(plan, now.exchanges, now.spec.optimizer, comm);
  restore(saved.reader(), saved.experiment, now, engine);
  expect(engine.step_count() == 7, "updates");
  for (const StateRange& range : engine.owned_state()) {
    const ParameterLayout& parameter = plan.layout.parameters[static_cast<size_t>(range.parameter)];
    const at::Tensor values = range.values.to(at::kCPU, at::kDouble).contiguous();
    elements += values.numel();
    int64_t wrong = 0;
    for (int64_t i = 0; i < values.numel(); ++i) {
      const int64_t element = element_of(plan, parameter.shape, parameter.slice, range.unit, range.begin + i);
      wrong += values.const_data_ptr<double>()[i] != value_of(range.kind, range.parameter, element);
    }
    expect(wrong == 0, range.kind + " of " + parameter.name);
  }
}

TEST_CASE("state is carried over from every division to another one, element by element") {
  struct Pairs {
    std::string_view model;
    size_t first, step, to;  ///< from division first, first + step, ... to the one that is `to` further
  };
  for (const auto& [model, first, step, to] :
       {Pairs{"resnet18", 0, 1, 1}, Pairs{"gpt2", 0, 2, 5}, Pairs{"swin_t", 1, 2, 1}})
    for (size_t i = first; i < kDivisions.size(); i += step) {
      INFO(model << ", from division " << i);
      const Division& division = kDivisions[(i + to) % kDivisions.size()];
      const SavedRun saved(kDivisions[i], model);
      std::atomic<int64_t> elements = 0;
      const Experiment now = make_experiment(spec_of(division, model), division.processes);
      run_ranks(division.processes,
                [&](Communicator& comm) { restore_and_compare(saved, now, comm, elements); });
      CHECK(elements == 4 * now.plan.layout.parameter_count());
    }
}

TEST_CASE("restoring takes no more memory than a process then holds, one range and the averaged statistics") {
  const SavedRun saved({.construction = kNeuron, .slices = 4}, "resnet18");
  for (const Division& to : {Division{.processes = 1, .coverage = "1"},
                             Division{.processes = 1, .masking = kBackward, .precision = kBf16}}) {
    const Experiment now = make_experiment(spec_of(to, "resnet18"), to.processes);
    int64_t range = 0, statistics = 0;
    for (const Bucket& bucket : now.exchanges.buckets)
      for (const Segment& segment : bucket.segments)
        range = std::max(range, segment.elements * bytes_of(bucket.type));
    for (const BufferLayout& buffer : now.plan.layout.buffers)
      statistics += 4 * buffer.elements();
    run_ranks(1, [&](Communicator& comm) {
      count_allocations(test_device());
      Engine engine(now.plan, now.exchanges, now.spec.optimizer, comm);
      reset_peak();
      const int64_t held = allocated_now().total();
      restore(saved.reader(), saved.experiment, now, engine);
      const int64_t peak = allocated_at_peak().total();
      constexpr int64_t kSlack = 4096;  // of the checks for finite values
      expect(held > 0 && allocated_now().total() == held, "what is held");
      expect(peak <= held + range + statistics + kSlack,
             fmt::format("peak {}, held {}, range {}", peak, held, range));
    });
  }
}

TEST_CASE("the origin of the steps is where samples, micro-batches or the budget changed") {
  const ExperimentSpec spec = spec_of(Division{}, "mlp");
  const Experiment before = make_experiment(spec, 1);
  Manifest manifest;
  manifest.step = 10;
  manifest.updates = manifest.batch_norm_updates = 9;
  manifest.training_data = {.samples = 32, .hash = "x"};
  const auto origin = [&](const std::function<void(ExperimentSpec&)>& change) {
    ExperimentSpec changed = spec;
    change(changed);
    return origin_of_resumed(manifest, before, make_experiment(changed, 1), 32);
  };
  const StepOrigin expected{.step = 10, .updates = 9, .samples = 80, .batch_norm_updates = 9, .epochs = 2.5};
  CHECK(origin([](ExperimentSpec&) {}) == StepOrigin());
  CHECK(origin([](ExperimentSpec& same) {  // 8 samples per step, divided among fewer workers
          same.subnetwork.workers = 2;
          same.subnetwork.coverage.text = "1/2";
          same.train.batch_size_per_worker = 4;
        }) == StepOrigin());
  CHECK(origin([](ExperimentSpec& larger) { larger.train.batch_size_per_worker = 3; }) == expected);
  CHECK(origin([](ExperimentSpec& accumulated) {  // counts BatchNorm's updates differently
          accumulated.train.batch_size_per_worker = 1;
          accumulated.train.accumulate_steps = 2;
        }) == expected);
  CHECK(origin([](ExperimentSpec& budget) { budget.train.budget = Budget::kCoverage; }) == expected);
}

/// A run of 400 samples in parts, each of which resumes from the end of the part before.
struct Parts {
  Manifest manifest = {};
  ExperimentSpec spec = {};  ///< of the last part

  /// The steps of a part with these samples per step that ends after step `last`.
  RunSteps next(const ExperimentSpec& now, int64_t last) {
    constexpr int64_t kSamples = 400;
    const Experiment experiment = make_experiment(now, 1);
    StepOrigin origin;
    if (manifest.step > 0)
      origin = origin_of_resumed(manifest, make_experiment(spec, 1), experiment, kSamples);
    spec = now;
    manifest.training_data = {.samples = kSamples, .hash = "x"};
    manifest.origin = origin;
    manifest.step = manifest.updates = last;
    return run_steps(experiment, kSamples, origin);
  }
};

ExperimentSpec warming_up(int64_t batch, ScheduleName name, const std::string& coverage = "1") {
  ExperimentSpec spec = spec_of(Division{.coverage = coverage}, "mlp");
  spec.train.batch_size_per_worker = batch;  // of 4 workers
  spec.train.epochs = 6;
  spec.schedule.name = name;
  spec.schedule.final_lr_factor = 0.1;
  return spec;
}

TEST_CASE("a warm-up takes the samples that it took, however often the size of the steps changes") {
  struct Plan {
    std::vector<std::pair<int64_t, int64_t>> parts;  ///< batch of a worker, last step
    std::optional<int64_t> warmup_steps;
    double warmup_epochs, warmup_samples;
  };
  const std::vector<Plan> plans = {
      {{{2, 27}, {9, 31}, {1, 70}, {3, 0}}, 20, 0, 160},  // finished before the first change
      {{{5, 4}, {2, 9}, {7, 12}, {1, 0}}, 11, 0, 220},    // stopped twice during the warm-up
      {{{1, 30}, {8, 41}, {2, 0}}, {}, 0.37, 148},        // in epochs, stopped during it
      {{{6, 40}, {1, 90}, {25, 0}}, {}, 1.25, 21 * 24}};  // in epochs, 20.8 steps
  for (const Plan& plan : plans)
    for (const ScheduleName name : {ScheduleName::kConstant, ScheduleName::kCosine, ScheduleName::kLinear}) {
      Parts run;
      int64_t step = 0;
      for (const auto& [batch, last] : plan.parts) {
        ExperimentSpec spec = warming_up(batch, name);
        spec.schedule.warmup_steps = plan.warmup_steps;
        spec.schedule.warmup_epochs = plan.warmup_epochs;
        const RunSteps steps = run.next(spec, last);
        const auto total = static_cast<double>(steps.samples_after(steps.length.total_steps));
        for (const int64_t end = last > 0 ? last : steps.length.total_steps; step < end; ++step) {
          // By the samples before the step, and those of the step.
          const auto done = static_cast<double>(steps.samples_after(step));
          const auto own = static_cast<double>(4 * batch);
          const double t = (done - plan.warmup_samples) / (total - plan.warmup_samples);
          const double after = name == ScheduleName::kConstant ? 1
                               : name == ScheduleName::kLinear ? 1 - 0.9 * t
                                                               : 0.1 + 0.9 * (1 + std::cos(M_PI * t)) / 2;
          const double expected = done < plan.warmup_samples - 1e-6
                                      ? std::min(done + own, plan.warmup_samples) / plan.warmup_samples
                                      : after;
          CAPTURE(plan.parts, name, step, batch);
          CHECK(learning_rate(spec.schedule, 1, steps.length, step) == Approx(expected).epsilon(1e-9));
        }
      }
      CHECK(step > run.manifest.step);
    }
}

TEST_CASE("a run whose length is in steps keeps the steps of its warm-up; new keys begin a new one") {
  const auto in_steps = [](int64_t batch, double warmup_epochs) {
    ExperimentSpec spec = warming_up(batch, ScheduleName::kLinear);
    spec.train.max_steps = 200;
    spec.schedule.warmup_epochs = warmup_epochs;
    return spec;
  };
  for (const int64_t stopped : {7, 24, 25, 60}) {  // the warm-up takes 25 steps of 16
    Parts run;
    const ScheduleSpec& schedule = run.spec.schedule;
    const RunLength whole = run.next(in_steps(4, 1), stopped).length;
    const RunLength later = run.next(in_steps(1, 1), stopped + 10).length;
    for (int64_t step = stopped; step < 200; ++step)
      CHECK(learning_rate(schedule, 1, later, step) == learning_rate(schedule, 1, whole, step));
    CHECK(run.next(in_steps(2, 0.5), 100).length.warmup_steps == 25);  // of 8, half an epoch
  }
}

TEST_CASE("a warm-up that is finished stays finished if the budget's price of a step changes") {
  for (const auto& [before, after] : {std::pair("1/4", "1"), {"1", "2/4"}, {"3/4", "1/4"}}) {
    Parts run;
    ExperimentSpec spec = warming_up(2, ScheduleName::kCosine, before);
    spec.train.budget = Budget::kCoverage;
    spec.schedule.warmup_steps = 30;
    const double was = learning_rate(spec.schedule, 1, run.next(spec, 40).length, 40);
    spec.subnetwork.coverage.text = after;
    const RunLength second = run.next(spec, 41).length;
    const double is = learning_rate(spec.schedule, 1, second, 40);
    CAPTURE(before, after);
    CHECK(is == Approx(was).epsilon(0.002));
    CHECK(learning_rate(spec.schedule, 1, second, 41) < is);
  }
}

}  // namespace
}  // namespace sdp
