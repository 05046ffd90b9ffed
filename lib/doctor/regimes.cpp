#include "doctor/regimes.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <limits>
#include <map>

#include "capture/layouts.h"
#include "engine/engine.h"
#include "experiment/spec/regime.h"
#include "model/tensors.h"
#include "train/train_step.h"

namespace sdp {
namespace {

constexpr int64_t kSteps = 3;
constexpr int64_t kBatch = 8;
constexpr int64_t kTokens = 6;
constexpr std::chrono::seconds kTimeout{60};  // for a world of size one, which waits for no other process

/// The same on every device and in every world: drawn on the CPU, seeded by the step and the worker.
TensorBatch batch_of(const ExperimentSpec& spec, int64_t step, int worker, at::Device device) {
  at::Generator noise = at::detail::createCPUGenerator(static_cast<uint64_t>(1000 * step + worker));
  if (spec.model.reads_tokens()) {
    const at::Tensor tokens = at::randint(spec.model.vocab_size(), {kBatch, kTokens + 1}, noise, at::kLong);
    return {.input = tokens.narrow(1, 0, kTokens).contiguous().to(device),
            .labels = tokens.narrow(1, 1, kTokens).contiguous().to(device)};
  }
  const auto type = scalar_type(compute_type(spec.train.precision));
  const int64_t side = spec.model.image_size();
  const at::Tensor images =
      at::randn({kBatch, spec.model.image_channels(), side, side}, noise, at::TensorOptions(at::kDouble));
  return {.input = images.to(type).to(device),
          .labels = at::randint(spec.model.num_classes(), {kBatch}, noise, at::kLong).to(device)};
}

/// Gathers all parameters of the model from the ranges that this process updates; zeros elsewhere.
FullValues owned_values(Engine& engine, const SubnetPlan& plan) {
  FullValues full;
  for (const ParameterLayout& parameter : plan.layout.parameters)
    full.push_back(at::zeros(parameter.shape, at::kDouble));
  for (const StateRange& range : engine.owned_state()) {
    if (range.kind != "value") continue;
    const ParameterLayout& parameter = plan.layout.parameters[static_cast<size_t>(range.parameter)];
    at::Tensor piece = piece_view(full[static_cast<size_t>(range.parameter)], parameter.slice, plan,
                                  plan.units_of(parameter), range.unit);
    const at::Tensor flat = at::zeros({piece.numel()}, at::kDouble);
    flat.narrow(0, range.begin, range.end - range.begin).copy_(range.values);
    piece.add_(flat.view(piece.sizes()));
  }
  return full;
}

FullValues train(const Experiment& experiment, Communicator& comm) {
  const ExperimentSpec& spec = experiment.spec;
  Engine engine(experiment.plan, experiment.schedule, spec.optimizer, comm);
  engine.initialize(static_cast<uint64_t>(spec.seed));
  TrainStep train_step(experiment, engine, comm);
  const std::vector<Slot>& slots = engine.store().slots();
  for (int64_t step = 0; step < kSteps; ++step) {
    size_t next = 0;
    train_step.run(step, spec.optimizer.lr(),
                   [&] { return batch_of(spec, step, slots[next++].worker, comm.device()); });
  }
  const at::NoGradGuard no_grad;
  return owned_values(engine, experiment.plan);
}

FullValues plain_values(const ExperimentSpec& spec) {
  const SubnetPlan plan = make_plan(layout_of(spec.model), spec.subnetwork, static_cast<uint64_t>(spec.seed));
  FullValues values = initial_values(spec);
  train_masked_mlp(values, plan, spec.optimizer, kSteps, [&](int64_t step, int worker) {
    const TensorBatch batch = batch_of(spec, step, worker, at::kCPU);
    return MlpBatch{.images = batch.input, .labels = batch.labels};
  });
  return values;
}

struct Difference {
  std::string_view model;
  Precision precision;
  double share = 0;
};

std::string model_names() {
  std::string names;
  for (const std::string_view model : first_model_names())
    names += (names.empty() ? "" : ", ") + std::string(model);
  return names;
}

double tolerance_of(Precision precision) {
  return precision == Precision::kFp64 ? kFp64Tolerance : kBf16Tolerance;
}

std::string share_text(double share) {
  return share < 1e-3 ? fmt::format("{:.1g}", share) : fmt::format("{:.2g} %", 100 * share);
}

Finding judge_method(const CheckedMethod& method, const std::vector<Difference>& found) {
  std::string wrong;
  std::map<Precision, double> largest;
  for (const auto& [model, precision, share] : found) {
    largest[precision] = std::max(largest[precision], share);
    if (share > tolerance_of(precision))
      wrong +=
          fmt::format("{}{} in {} differs from the CPU by {}, at most {} passes", wrong.empty() ? "" : "; ",
                      model, name_of(precision), share_text(share), share_text(tolerance_of(precision)));
  }
  if (!wrong.empty())
    return failed(method.name, wrong,
                  "This device, or the libraries on it, compute wrong results. Run with --device cpu and "
                  "with --nproc 1 to "
                  "find out which; CUDA_VISIBLE_DEVICES selects another GPU.");
  return pass(method.name,
              fmt::format("{} steps of {}: fp64 within {} of the CPU, bf16 within {}", kSteps, model_names(),
                          share_text(largest[Precision::kFp64]), share_text(largest[Precision::kBf16])));
}

}  // namespace

std::vector<CheckedMethod> checked_methods() {
  std::vector<CheckedMethod> methods;
  for (const Regime& regime : all_regimes())
    methods.push_back(
        {.name = method_name(regime), .construction = regime.construction, .masking = regime.masking});
  methods.push_back({.name = "data parallelism", .half_coverage = false});
  return methods;
}

std::vector<Precision> checked_precisions(std::string_view model) {
  if (tiny_model(model).has_batch_norm()) return {Precision::kFp64};
  return {Precision::kFp64, Precision::kBf16};
}

ExperimentSpec tiny_spec(const CheckedMethod& method, std::string_view model, Precision precision,
                         int processes) {
  ExperimentSpec spec;
  spec.seed = 5;
  spec.model = tiny_model(model);
  if (spec.model.reads_tokens()) {
    spec.data.set = TokensSpec{.sequence_length = kTokens};
  }
  int64_t workers = processes;
  while (workers < 4 || workers % 2 != 0)
    workers += processes;
  spec.subnetwork.workers = workers;
  spec.subnetwork.coverage.text = method.half_coverage ? "1/2" : "1";
  spec.subnetwork.construction = method.construction;
  spec.subnetwork.masking = method.masking;
  if (method.construction == Construction::kNeuron) spec.subnetwork.slices_per_branch = 2;
  spec.subnetwork.assignment = Assignment::kRandom;
  spec.optimizer.rule = SgdSpec{.lr = 0.01};
  spec.train.precision = precision;
  spec.train.batch_size_per_worker = kBatch;
  spec.train.bucket_megabytes = 0.02;  // small, for several exchanges
  return spec;
}

FullValues initial_values(const ExperimentSpec& spec) {
  FullValues values;
  for (const ParameterLayout& parameter : layout_of(spec.model, spec.data.sequence_length()).parameters)
    values.push_back(draw_parameter(parameter, static_cast<uint64_t>(spec.seed)).to(at::kDouble));
  return values;
}

FullValues reference_values(const ExperimentSpec& fp64_spec) {
  if (fp64_spec.model.kind.is<MlpSpec>()) return plain_values(fp64_spec);
  const std::unique_ptr<Communicator> alone = connect(Ranks{}, at::kCPU, {.timeout = kTimeout});
  return train(make_experiment(fp64_spec, /*processes=*/1), *alone);
}

FullValues trained_share(const ExperimentSpec& spec, Communicator& comm) {
  return train(make_experiment(spec, comm.size()), comm);
}

double relative_difference(const FullValues& found, const FullValues& reference, const FullValues& initial) {
  double off = 0, changed = 0;
  for (size_t p = 0; p < reference.size(); ++p) {
    off += (found[p] - reference[p]).square().sum().item<double>();
    changed += (reference[p] - initial[p]).square().sum().item<double>();
  }
  const double share = std::sqrt(off / changed);
  return std::isfinite(share) ? share : std::numeric_limits<double>::infinity();
}

Finding check_method(const CheckedMethod& method, Communicator& comm, Communicator& control,
                     const ReferenceOf& reference) {
  struct Trained {
    std::string_view model;
    Precision precision;
    FullValues values;
  };
  std::vector<Trained> trained;
  std::exception_ptr error;
  try {
    for (const std::string_view model : first_model_names())
      for (const Precision precision : checked_precisions(model))
        trained.push_back(
            {model, precision, trained_share(tiny_spec(method, model, precision, comm.size()), comm)});
  } catch (const std::exception&) {
    error = std::current_exception();
  }
  // Do not begin to combine the parameters unless every rank has them.
  const std::vector<std::string> errors = control.all_gather_strings(error ? "error" : "");
  if (error) std::rethrow_exception(error);
  const bool all_trained =
      std::all_of(errors.begin(), errors.end(), [](const auto& text) { return text.empty(); });
  if (!all_trained) return skipped(method.name, "");

  for (const Trained& one : trained)
    for (const at::Tensor& value : one.values)
      control.all_reduce_sum(value);
  if (comm.rank() > 0) return skipped(method.name, "");
  std::vector<Difference> differences;
  std::map<std::string_view, FullValues> expected;
  for (const Trained& one : trained) {
    const ExperimentSpec spec = tiny_spec(method, one.model, Precision::kFp64, comm.size());
    if (!expected.contains(one.model)) expected[one.model] = reference(spec);
    differences.push_back({one.model, one.precision,
                           relative_difference(one.values, expected[one.model], initial_values(spec))});
  }
  return judge_method(method, differences);
}

}  // namespace sdp
