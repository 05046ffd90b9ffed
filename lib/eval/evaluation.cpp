#include "eval/evaluation.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>

#include "eval/passes.h"
#include "layers/loss.h"
#include "model/make_model.h"
#include "model/model_spec.h"

namespace sdp {
namespace {

bool counts_top5(const ExperimentSpec& spec) {
  return !spec.data.is_of_tokens() && spec.model.num_classes() > 5;
}

/// Converts sums over predictions on the host, [5] fp64: loss, correct predictions, labels among the five
/// largest logits, number of predictions, square of the loss.
EvalResult mean_of(const at::Tensor& host) {
  const double predictions = host[3].item<double>();
  const double loss = host[0].item<double>() / predictions;
  return {.loss = loss,
          .accuracy = host[1].item<double>() / predictions,
          .accuracy_top5 = host[2].item<double>() / predictions,
          .predictions = std::llround(predictions),
          .loss_variance = std::max(0.0, host[4].item<double>() / predictions - loss * loss)};
}

/// [2, rows] fp64: row 0 is ones; row 1 is 1 for predictions of samples in `some` (ascending), else 0.
at::Tensor row_weights(const TensorBatch& batch, const std::vector<int64_t>& some) {
  std::vector<double> is_in_some;
  for (const int64_t sample : batch.samples)
    is_in_some.push_back(std::binary_search(some.begin(), some.end(), sample) ? 1 : 0);
  const int64_t rows = batch.labels.numel();
  const at::Tensor weights = at::ones({2, rows}, at::kDouble);
  weights[1].copy_(
      at::tensor(is_in_some, at::kDouble).repeat_interleave(rows / static_cast<int64_t>(is_in_some.size())));
  return weights;
}

int branch_count(const EvalInputs& inputs) {
  return static_cast<int>(inputs.experiment.plan.layout.branches.size());
}

/// Takes part in the other processes' branches while this process has no batch.
void walk_branches(const EvalInputs& inputs, const ForwardMode& mode) {
  for (int b = 0; b < branch_count(inputs); ++b) {
    if (mode.before_branch) mode.before_branch(b);
    if (mode.after_branch) mode.after_branch(b);
  }
}

at::Tensor zero_sums(const EvalInputs& inputs) {
  return at::zeros({2, 5}, at::TensorOptions(at::kDouble).device(inputs.comm.device()));
}

/// Sums over the batch's predictions, [2, 5] fp64 as mean_of takes them: over all samples and over the
/// samples in `some` (ascending).
at::Tensor sums_of(const EvalInputs& inputs, Model& model, const ForwardMode& mode, const TensorBatch& batch,
                   const std::vector<int64_t>& some) {
  if (batch.samples.empty()) {  // all images were damaged
    walk_branches(inputs, mode);
    return zero_sums(inputs);
  }
  const at::Tensor features = model.features(batch.input, mode);
  return prediction_sums(features, model.head(), batch.labels,
                         row_weights(batch, some).to(inputs.comm.device()),
                         counts_top5(inputs.experiment.spec));
}

/// Runs the model, which all processes have, on these batches.
EvalResult run_alone(const EvalInputs& inputs, Model& model, const EvalBatches& batches,
                     const OnProgress& on_progress) {
  const ForwardMode mode{.training = false, .branch_scales = inputs.experiment.plan.branch_scales};
  const std::unique_ptr<DeviceLoader> loader = inputs.test.evaluation(batches);
  const at::Tensor sums = zero_sums(inputs);
  for_each_batch(
      inputs, *loader, {.mine = batches.count(), .all = batches.count()}, mode, on_progress,
      [&](int64_t, const TensorBatch& batch) { sums.add_(sums_of(inputs, model, mode, batch, {})); });
  return mean_of(inputs.comm.to_host(sums[0]));
}

EvalRecord evaluate_full_model(const EvalInputs& inputs, FullModel& full_model,
                               EvalResult& on_subnetwork_samples) {
  const ExperimentSpec& spec = inputs.experiment.spec;
  const int64_t recalibrated = batches_to_recalibrate(inputs.experiment);
  const std::optional<double> branch_scale = fixed_branch_scale(inputs.experiment);
  const bool corrects = recalibrated > 0 || branch_scale != 1;
  const std::vector<int64_t> samples = samples_to_evaluate(spec.eval, inputs.test.size());
  EvalRecord record;
  const auto run_on_test = [&](const std::string& name) {
    return run_full_model(inputs, full_model, name, inputs.test, samples, record.times,
                          samples_per_subnetwork(spec.eval, inputs.test.size()));
  };
  std::optional<EvalResults> results;
  if (corrects) {
    results = run_on_test("evaluating the full model, uncorrected");
    record.loss_uncorrected = results->all.loss;
    record.accuracy_uncorrected = results->all.accuracy;
    record.branch_scale_trial = correct(inputs, full_model, branch_scale, record.times);
    record.recalibrated_batches = recalibrated;
    record.branch_scale = full_model.branch_scale();
  }
  // A trial that keeps branch scale 1 without recalibration leaves the model as it was.
  const bool changed = recalibrated > 0 || record.branch_scale != 1;
  if (!results || changed) results = run_on_test("evaluating the full model");
  on_subnetwork_samples = results->some;
  record.loss = results->all.loss;
  record.accuracy = results->all.accuracy;
  if (counts_top5(spec)) record.accuracy_top5 = results->all.accuracy_top5;
  record.samples = static_cast<int64_t>(samples.size());
  record.test_samples = inputs.test.size();
  if (spec.data.is_of_tokens()) {
    record.tokens = record.samples * spec.data.sequence_length();
    record.test_tokens = record.test_samples * spec.data.sequence_length();
  } else {
    record.skipped_samples = record.samples - results->all.predictions;
  }
  return record;
}

void add_average(const EvalInputs& inputs, EvalRecord& record, FullModel& average) {
  correct(inputs, average, record.branch_scale, record.times);
  const EvalResult result =
      run_full_model(inputs, average, "evaluating the average of the values", inputs.test,
                     samples_to_evaluate(inputs.experiment.spec.eval, inputs.test.size()), record.times)
          .all;
  record.loss_ema = result.loss;
  record.accuracy_ema = result.accuracy;
}

/// `full`: the assembled model's result on the samples of the subnetworks.
void add_subnetworks(const EvalInputs& inputs, EvalRecord& record, const EvaluatedModels& models,
                     const EvalResult& full) {
  const Experiment& experiment = inputs.experiment;
  const EvalBatches batches =
      eval_batches(inputs, samples_per_subnetwork(experiment.spec.eval, inputs.test.size()));
  if (!has_subnetworks(experiment.plan) || batches.samples.empty()) return;
  // Of the mean that is compared; predictions of a sequence are taken as independent.
  const auto variance = [&, by_loss = experiment.spec.data.is_of_tokens()](const EvalResult& result) {
    return (by_loss ? result.loss_variance : result.accuracy * (1 - result.accuracy)) /
           static_cast<double>(result.predictions);
  };
  // Loss, accuracy and standard error by worker: [3, n].
  const at::Tensor results =
      at::zeros({3, experiment.plan.workers}, at::TensorOptions(at::kDouble).device(inputs.comm.device()));
  timed(record.times.subnetworks_s, inputs.comm.device(), [&] {
    const int64_t count = batches.count();
    const auto subnetworks = static_cast<int64_t>(models.workers.size());
    ProgressTask task(inputs.line, "evaluating single subnetworks", "batches");
    for (int64_t i = 0; i < subnetworks; ++i) {
      const EvalResult result =
          run_alone(inputs, models.subnetwork(static_cast<size_t>(i)), batches,
                    [&](int64_t done, int64_t) { task.update(i * count + done, subnetworks * count); });
      const int worker = models.workers[static_cast<size_t>(i)];
      results[0][worker] = result.loss;
      results[1][worker] = result.accuracy;
      results[2][worker] = std::sqrt(variance(result) + variance(full));
    }
    leave_if_stopped(inputs.comm);
    inputs.comm.all_reduce_sum(results);
  });
  const at::Tensor host = inputs.comm.to_host(results);
  const double* const losses = host.data_ptr<double>();
  record.subnetwork_loss = {losses, losses + host.size(1)};
  record.subnetwork_accuracy = {losses + host.size(1), losses + 2 * host.size(1)};
  record.subnetwork_standard_error = {losses + 2 * host.size(1), losses + host.numel()};
  record.subnetwork_samples = static_cast<int64_t>(batches.samples.size());
  record.loss_on_subnetwork_samples = full.loss;
  record.accuracy_on_subnetwork_samples = full.accuracy;
}

}  // namespace

void leave_if_stopped(Communicator& comm) {
  if (comm.stops_here()) throw EvaluationStopped();
}

BoundModel bind(const EvalInputs& inputs, FullModel& full_model, bool training, EvalTimes& times) {
  const bool streams = inputs.experiment.spec.eval.mode == EvalMode::kStreamed;
  BoundModel bound{.model = make_model(inputs.experiment.spec.model), .mode = {.training = training}};
  Model& model = *bound.model;
  timed(times.assemble_s, inputs.comm.device(), [&] {
    full_model.fetch_shared();
    model.bind_shared(full_model);
    if (streams) return;
    ProgressTask task(inputs.line, "assembling the full model", "branches");
    for (int b = 0; b < branch_count(inputs); ++b) {
      leave_if_stopped(inputs.comm);
      full_model.fetch_branch(b);
      model.bind_branch(b, full_model);
      task.update(b + 1, branch_count(inputs));
    }
  });
  if (!streams) return bound;
  bound.mode.before_branch = [&model, &full_model](int branch) {
    full_model.fetch_branch(branch);
    model.bind_branch(branch, full_model);
  };
  bound.mode.after_branch = [&model, &full_model](int branch) {
    model.unbind_branch(branch);
    full_model.drop_branch(branch);
  };
  return bound;
}

Passes passes_of(const Communicator& comm, int64_t batches) {
  return {.mine = (batches - comm.rank() + comm.size() - 1) / comm.size(),
          .all = (batches + comm.size() - 1) / comm.size()};
}

void for_each_batch(const EvalInputs& inputs, DeviceLoader& loader, Passes passes, const ForwardMode& mode,
                    const OnProgress& on_progress,
                    const std::function<void(int64_t number, const TensorBatch& batch)>& use) {
  for (int64_t pass = 0; pass < passes.all; ++pass) {
    if (mode.before_branch) {
      leave_if_stopped(inputs.comm);
    } else if (inputs.comm.stops_within()) {
      throw EvaluationStopped();
    }
    if (pass < passes.mine) {
      const TensorBatch batch = loader.next();
      for (const std::string& message : batch.skipped)
        inputs.on_skipped(message);
      use(pass, batch);
    } else {
      walk_branches(inputs, mode);
    }
    on_progress(pass + 1, passes.all);
  }
}

EvalResults run_full_model(const EvalInputs& inputs, FullModel& full_model, const std::string& name,
                           const DeviceDataset& data, const std::vector<int64_t>& samples, EvalTimes& times,
                           const std::vector<int64_t>& some) {
  const BoundModel bound = bind(inputs, full_model, /*training=*/false, times);
  Communicator& comm = inputs.comm;
  EvalResults results;
  timed(times.evaluate_s, comm.device(), [&] {
    EvalBatches batches = eval_batches(inputs, samples);
    const int64_t all = batches.count();
    batches.first_batch = comm.rank();
    batches.stride = comm.size();
    const std::unique_ptr<DeviceLoader> loader = data.evaluation(batches);
    const at::Tensor sums = zero_sums(inputs);
    const at::Tensor batch_losses = at::zeros({all}, sums.options());
    ProgressTask task(inputs.line, name, "batches");
    for_each_batch(inputs, *loader, passes_of(comm, all), bound.mode, task.on_progress(),
                   [&](int64_t number, const TensorBatch& batch) {
                     const at::Tensor of_batch = sums_of(inputs, *bound.model, bound.mode, batch, some);
                     sums.add_(of_batch);
                     batch_losses[batches.first_batch + number * batches.stride] =
                         of_batch[0][0] / of_batch[0][3].clamp_min(1);
                   });
    leave_if_stopped(comm);
    comm.all_reduce_sum(sums);
    comm.all_reduce_sum(batch_losses);
    const at::Tensor host = comm.to_host(sums);
    results = {.all = mean_of(host[0]), .some = mean_of(host[1]), .batch_losses = comm.to_host(batch_losses)};
  });
  return results;
}

std::vector<int64_t> samples_to_evaluate(const EvalSpec& spec, int64_t test_size) {
  return evenly_spread(spec.max_samples.value_or(test_size), test_size);
}

std::vector<int64_t> samples_per_subnetwork(const EvalSpec& spec, int64_t test_size) {
  const std::vector<int64_t> all = samples_to_evaluate(spec, test_size);
  const auto size = static_cast<int64_t>(all.size());
  std::vector<int64_t> chosen = evenly_spread(spec.max_samples_per_subnetwork.value_or(size), size);
  for (int64_t& number : chosen)
    number = all[static_cast<size_t>(number)];
  return chosen;
}

EvalRecord evaluate(const EvalInputs& inputs, const EvaluatedModels& models) {
  const at::NoGradGuard no_grad;
  const Stopwatch stopwatch;
  EvalResult on_subnetwork_samples;
  EvalRecord record = evaluate_full_model(inputs, models.full, on_subnetwork_samples);
  if (models.make_average) add_average(inputs, record, *models.make_average());
  if (models.subnetwork) add_subnetworks(inputs, record, models, on_subnetwork_samples);
  record.times.eval_s = stopwatch.seconds();
  return record;
}

}  // namespace sdp
