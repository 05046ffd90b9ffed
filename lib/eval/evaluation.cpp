#include "eval/evaluation.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <type_traits>

#include "device/device.h"
#include "model/loss.h"
#include "model/make_model.h"
#include "model/model_spec.h"
#include "telemetry/progress.h"

namespace sdp {

namespace {

// Batches on which branch scales are compared: more and more until the comparison is decided.
constexpr int64_t kFewestTriedBatches = 8;
constexpr int64_t kMostTriedBatches = 64;

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

}  // namespace

std::optional<double> fixed_branch_scale(const Experiment& experiment) {
  const SubnetPlan& plan = experiment.plan;
  const bool takes_scale =
      has_subnetworks(plan) &&
      std::any_of(plan.layout.parameters.begin(), plan.layout.parameters.end(),
                  [&](const ParameterLayout& parameter) { return takes_branch_scale(plan, parameter); });
  const BranchScale wanted = experiment.spec.eval.branch_scale;
  if (!takes_scale || wanted == BranchScale::kNone) return 1;
  if (wanted == BranchScale::kAuto) return std::nullopt;
  return plan.coverage();
}

int64_t batches_to_recalibrate(const Experiment& experiment) {
  return experiment.plan.layout.buffers.empty() ? 0 : *experiment.spec.eval.recalibrate_batches;
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

Evaluator::Evaluator(const Experiment& experiment, const FeedSource& train, const FeedSource& test,
                     Communicator& comm, ProgressLine& line, OnSkipped on_skipped,
                     std::filesystem::path checkpoint)
    : experiment_(experiment),
      train_(train),
      test_(test),
      comm_(comm),
      line_(line),
      on_skipped_(std::move(on_skipped)),
      checkpoint_(std::move(checkpoint)),
      counts_top5_(!experiment.spec.data.is_of_tokens() && experiment.spec.model.num_classes() > 5) {}

template <class Part>
auto Evaluator::timed(double& total_s, Part part) const {
  // On CUDA, the time includes the work that the part queued.
  const auto add = [&](const Stopwatch& stopwatch) {
    synchronize(comm_.device());
    total_s += stopwatch.seconds();
  };
  const Stopwatch stopwatch;
  if constexpr (std::is_void_v<decltype(part())>) {
    part();
    add(stopwatch);
  } else {
    auto result = part();
    add(stopwatch);
    return result;
  }
}

ForwardMode Evaluator::bind(Model& model, FullModel& full_model, bool training) {
  ForwardMode mode{.training = training};
  timed(times_.assemble_s, [&] {
    full_model.fetch_shared();
    model.bind_shared(full_model);
    if (experiment_.spec.eval.mode == EvalMode::kStreamed) return;
    Work work(line_, "assembling the full model", "branches");
    const auto branches = static_cast<int>(experiment_.plan.layout.branches.size());
    for (int b = 0; b < branches; ++b) {
      leave_if_stopped_here();
      full_model.fetch_branch(b);
      model.bind_branch(b, full_model);
      work.update(b + 1, branches);
    }
  });
  if (experiment_.spec.eval.mode == EvalMode::kFull) return mode;
  mode.before_branch = [&](int branch) {
    full_model.fetch_branch(branch);
    model.bind_branch(branch, full_model);
  };
  mode.after_branch = [&](int branch) {
    model.unbind_branch(branch);
    full_model.drop_branch(branch);
  };
  return mode;
}

void Evaluator::leave_if_stopped_here() const {
  if (comm_.stops_here()) throw EvaluationStopped();
}

void Evaluator::leave_if_stopped_within() const {
  if (comm_.stops_within()) throw EvaluationStopped();
}

/// Takes part in the other processes' branches while this process has no batch.
void Evaluator::walk_branches(const ForwardMode& mode) const {
  for (int b = 0; b < static_cast<int>(experiment_.plan.layout.branches.size()); ++b) {
    if (mode.before_branch) mode.before_branch(b);
    if (mode.after_branch) mode.after_branch(b);
  }
}

TensorBatch Evaluator::next(Feed& feed) const {
  TensorBatch batch = feed.next();
  for (const std::string& message : batch.skipped)
    on_skipped_(message);
  return batch;
}

at::Tensor Evaluator::zero_sums() const {
  return at::zeros({2, 5}, at::TensorOptions(at::kDouble).device(comm_.device()));
}

at::Tensor Evaluator::sums_of(Model& model, const ForwardMode& mode, const TensorBatch& batch,
                              const std::vector<int64_t>& some) const {
  at::Tensor sums = zero_sums();
  if (batch.samples.empty()) {  // all images were damaged
    walk_branches(mode);
    return sums;
  }
  const at::Tensor features = model.features(batch.input, mode).flatten(0, -2);  // [N, W]
  const auto [weight, bias] = model.head();
  const at::Tensor labels = batch.labels.flatten();
  const at::Tensor weights = row_weights(batch, some).to(sums.device());  // [2, N]
  const at::ScalarType type = scalar_type(sum_type(experiment_.spec.train.precision));
  const int64_t rows_at_a_time = logit_rows_at_a_time(weight.size(0), /*device_kernels=*/false);
  for (int64_t row = 0; row < labels.numel(); row += rows_at_a_time) {
    const int64_t rows = std::min(rows_at_a_time, labels.numel() - row);
    const at::Tensor predicted = at::linear(features.narrow(0, row, rows), weight, bias).to(type);  // [R, K]
    const at::Tensor wanted = labels.narrow(0, row, rows);
    const at::Tensor losses = at::cross_entropy_loss(predicted, wanted, /*weight=*/{}, at::Reduction::None);
    const at::Tensor hits = predicted.argmax(1).eq(wanted);
    const auto of_five = [&] {
      const at::Tensor largest = std::get<1>(predicted.topk(std::min<int64_t>(5, predicted.size(1)), 1));
      return largest.eq(wanted.unsqueeze(1)).any(1);
    };
    const at::Tensor values =
        at::stack({losses.to(at::kDouble), hits.to(at::kDouble),
                   counts_top5_ ? of_five().to(at::kDouble) : at::zeros_like(losses, at::kDouble),
                   at::ones({rows}, sums.options()), losses.to(at::kDouble).square()},
                  1);  // [R, 5]
    sums.add_(at::matmul(weights.narrow(1, row, rows), values));
  }
  return sums;
}

void Evaluator::for_each_batch(
    Feed& feed, Passes passes, const ForwardMode& mode, const OnProgress& on_progress,
    const std::function<void(int64_t number, const TensorBatch& batch)>& use) const {
  for (int64_t pass = 0; pass < passes.all; ++pass) {
    if (mode.before_branch) {
      leave_if_stopped_here();
    } else {
      leave_if_stopped_within();
    }
    if (pass < passes.mine) {
      use(pass, next(feed));
    } else {
      walk_branches(mode);
    }
    on_progress(pass + 1, passes.all);
  }
}

EvalBatches Evaluator::batches_of(std::vector<int64_t> samples) const {
  return {.samples = std::move(samples), .batch_size = *experiment_.spec.eval.batch_size};
}

Evaluator::Results Evaluator::run(FullModel& full_model, const std::string& name, const FeedSource& data,
                                  const std::vector<int64_t>& samples, const std::vector<int64_t>& some) {
  const std::unique_ptr<Model> model = make_model(experiment_.spec.model);
  const ForwardMode mode = bind(*model, full_model, /*training=*/false);
  return timed(times_.evaluate_s, [&] {
    EvalBatches batches = batches_of(samples);
    const int64_t all = batches.count();
    batches.first_batch = comm_.rank();
    batches.stride = comm_.size();
    const Passes passes{.mine = batches.count(), .all = (all + comm_.size() - 1) / comm_.size()};
    const std::unique_ptr<Feed> feed = data.evaluation(batches);
    const at::Tensor sums = zero_sums();
    const at::Tensor batch_losses = at::zeros({all}, sums.options());
    Work work(line_, name, "batches");
    for_each_batch(*feed, passes, mode, work.on_progress(), [&](int64_t number, const TensorBatch& batch) {
      const at::Tensor of_batch = sums_of(*model, mode, batch, some);
      sums.add_(of_batch);
      batch_losses[batches.first_batch + number * batches.stride] =
          of_batch[0][0] / of_batch[0][3].clamp_min(1);
    });
    leave_if_stopped_here();
    comm_.all_reduce_sum(sums);
    comm_.all_reduce_sum(batch_losses);
    const at::Tensor host = comm_.to_host(sums);
    return Results{
        .all = mean_of(host[0]), .some = mean_of(host[1]), .batch_losses = comm_.to_host(batch_losses)};
  });
}

Predictions Evaluator::predict(FullModel& full_model) {
  const at::NoGradGuard no_grad;
  const std::unique_ptr<Model> model = make_model(experiment_.spec.model);
  const ForwardMode mode = bind(*model, full_model, /*training=*/false);
  const EvalBatches batches = batches_of(samples_to_evaluate(experiment_.spec.eval, test_.size()));
  const std::unique_ptr<Feed> feed = test_.evaluation(batches);
  std::vector<at::Tensor> logits;
  std::vector<at::Tensor> labels;
  std::vector<int64_t> samples;
  Work work(line_, "predicting with the full model", "batches");
  for_each_batch(*feed, {.mine = batches.count(), .all = batches.count()}, mode, work.on_progress(),
                 [&](int64_t, const TensorBatch& batch) {
                   if (batch.samples.empty()) return;
                   logits.push_back(model->forward(batch.input, mode));
                   labels.push_back(batch.labels);
                   samples.insert(samples.end(), batch.samples.begin(), batch.samples.end());
                 });
  return {.logits = at::cat(logits), .labels = at::cat(labels), .samples = at::tensor(samples, at::kLong)};
}

/// BatchNorm statistics, re-estimated as the plain average over training batches passed through the assembled
/// model. Batch i is the i-th of the training order and is run by process i mod W; the average is over all
/// processes' batches.
void Evaluator::estimate_statistics(FullModel& full_model) {
  const ExperimentSpec& spec = experiment_.spec;
  const at::NoGradGuard no_grad;
  const int64_t batches = *spec.eval.recalibrate_batches;
  const int64_t batch_size = std::min(spec.train.batch_size_per_worker, train_.size());
  const std::unique_ptr<Model> model = make_model(spec.model);
  ForwardMode mode = bind(*model, full_model, /*training=*/true);
  timed(times_.recalibrate_s, [&] {
    const Passes passes{.mine = (batches - comm_.rank() + comm_.size() - 1) / comm_.size(),
                        .all = (batches + comm_.size() - 1) / comm_.size()};
    const std::unique_ptr<Feed> feed =
        train_.training({.geometry = {.workers = comm_.size(),
                                      .replicas = 1,
                                      .accumulate_steps = 1,
                                      .batch_size = batch_size},
                         .slots = {{.worker = comm_.rank(), .replica = 0}},
                         .first_step = 0,
                         .last_step = passes.mine,
                         .seed = static_cast<uint64_t>(spec.seed),
                         .augment = {.steps = *spec.data.augment}});  // unmixed, as the test images are
    Work work(line_, "recalibrating BatchNorm", "batches");
    for_each_batch(*feed, passes, mode, work.on_progress(), [&](int64_t number, const TensorBatch& batch) {
      mode.batch_norm_momentum = 1.0 / static_cast<double>(number + 1);
      model->forward(batch.input, mode);
    });
    leave_if_stopped_here();
    for (auto& [name, buffer] : full_model.buffers()) {
      // A process without a batch still has the averages of training, which must not count.
      buffer.mul_(static_cast<double>(passes.mine) / static_cast<double>(batches));
      comm_.all_reduce_sum(buffer);
    }
  });
}

void Evaluator::recalibrate(FullModel& full_model) {
  if (checkpoint_.empty()) return estimate_statistics(full_model);
  const KeptStatistics kept(checkpoint_, experiment_.spec, train_.identity(), full_model);
  // Several processes might not find the same.
  if (comm_.size() == 1 && kept.load(full_model)) return;
  estimate_statistics(full_model);
  if (comm_.rank() == 0) kept.save(full_model);
}

/// Tries both branch scales, each with its own BatchNorm statistics, on the same batches.
BranchScaleTrial Evaluator::choose_branch_scale(FullModel& full_model) {
  struct Candidate {
    double branch_scale;
    std::map<std::string, at::Tensor> statistics = {};
    Results results = {};
  };
  std::array<Candidate, 2> candidates = {Candidate{1}, Candidate{experiment_.plan.coverage()}};
  for (Candidate& candidate : candidates) {
    correct(full_model, candidate.branch_scale);
    for (const auto& [name, buffer] : full_model.buffers())
      candidate.statistics[name] = buffer.clone();
  }
  const auto use = [&](const Candidate& candidate) {
    full_model.set_branch_scale(candidate.branch_scale);
    full_model.buffers() = candidate.statistics;
  };
  BranchScaleTrial trial;
  for (int64_t batches = kFewestTriedBatches; batches <= kMostTriedBatches; batches *= 2) {
    const std::vector<int64_t> samples =
        evenly_spread(batches * *experiment_.spec.eval.batch_size, train_.size());
    for (Candidate& candidate : candidates) {
      use(candidate);
      candidate.results = run(full_model, "comparing branch scales", train_, samples);
    }
    const auto& [none, survival] = candidates;
    const at::Tensor differences = survival.results.batch_losses - none.results.batch_losses;
    const auto count = static_cast<double>(differences.numel());
    trial = {.samples = static_cast<int64_t>(samples.size()),
             .loss_none = none.results.all.loss,
             .loss_survival = survival.results.all.loss,
             .standard_error = count > 1 ? differences.std().item<double>() / std::sqrt(count) : 0};
    if (trial.is_decided() || trial.samples == train_.size()) break;
  }
  const bool is_survival = trial.is_decided() && trial.loss_survival < trial.loss_none;
  use(candidates[is_survival ? 1 : 0]);
  return trial;
}

std::optional<BranchScaleTrial> Evaluator::correct(FullModel& full_model,
                                                   std::optional<double> branch_scale) {
  const at::NoGradGuard no_grad;
  if (!branch_scale) return choose_branch_scale(full_model);
  full_model.set_branch_scale(*branch_scale);
  if (batches_to_recalibrate(experiment_) > 0) recalibrate(full_model);
  return std::nullopt;
}

EvalRecord Evaluator::evaluate(FullModel& full_model) {
  const at::NoGradGuard no_grad;
  const ExperimentSpec& spec = experiment_.spec;
  const int64_t recalibrated = batches_to_recalibrate(experiment_);
  const std::optional<double> branch_scale = fixed_branch_scale(experiment_);
  const bool corrects = recalibrated > 0 || branch_scale != 1;
  const std::vector<int64_t> samples = samples_to_evaluate(spec.eval, test_.size());
  const auto run_on_test = [&](const std::string& name) {
    return run(full_model, name, test_, samples, samples_per_subnetwork(spec.eval, test_.size()));
  };
  EvalRecord record;
  std::optional<Results> results;
  if (corrects) {
    results = run_on_test("evaluating the full model, uncorrected");
    record.loss_uncorrected = results->all.loss;
    record.accuracy_uncorrected = results->all.accuracy;
    record.branch_scale_trial = correct(full_model, branch_scale);
    record.recalibrated_batches = recalibrated;
    record.branch_scale = full_model.branch_scale();
  }
  // A trial that keeps branch scale 1 without recalibration leaves the model as it was.
  const bool changed = recalibrated > 0 || record.branch_scale != 1;
  if (!results || changed) results = run_on_test("evaluating the full model");
  on_subnetwork_samples_ = results->some;
  record.loss = results->all.loss;
  record.accuracy = results->all.accuracy;
  if (counts_top5_) record.accuracy_top5 = results->all.accuracy_top5;
  record.samples = static_cast<int64_t>(samples.size());
  record.test_samples = test_.size();
  if (spec.data.is_of_tokens()) {
    record.tokens = record.samples * spec.data.sequence_length();
    record.test_tokens = record.test_samples * spec.data.sequence_length();
  } else {
    record.skipped_samples = record.samples - results->all.predictions;
  }
  record.times = times_;
  record.times.eval_s = since_begin_.seconds();
  return record;
}

void Evaluator::add_average(EvalRecord& record, FullModel& average) {
  const at::NoGradGuard no_grad;
  correct(average, record.branch_scale);
  const EvalResult result = run(average, "evaluating the average of the values", test_,
                                samples_to_evaluate(experiment_.spec.eval, test_.size()))
                                .all;
  record.loss_ema = result.loss;
  record.accuracy_ema = result.accuracy;
  record.times = times_;
  record.times.eval_s = since_begin_.seconds();
}

void Evaluator::add_subnetworks(EvalRecord& record, const std::vector<int>& workers,
                                const std::function<Model&(size_t i)>& subnetwork) {
  const at::NoGradGuard no_grad;
  const EvalBatches batches = batches_of(samples_per_subnetwork(experiment_.spec.eval, test_.size()));
  if (!has_subnetworks(experiment_.plan) || batches.samples.empty()) return;
  // Of the mean that is compared; predictions of a sequence are taken as independent.
  const auto variance = [&, by_loss = experiment_.spec.data.is_of_tokens()](const EvalResult& result) {
    return (by_loss ? result.loss_variance : result.accuracy * (1 - result.accuracy)) /
           static_cast<double>(result.predictions);
  };
  // Loss, accuracy and standard error by worker: [3, n].
  const at::Tensor results =
      at::zeros({3, experiment_.plan.workers}, at::TensorOptions(at::kDouble).device(comm_.device()));
  timed(times_.subnetworks_s, [&] {
    const ForwardMode mode{.training = false};
    const int64_t count = batches.count();
    const auto subnetworks = static_cast<int64_t>(workers.size());
    Work work(line_, "evaluating single subnetworks", "batches");
    for (int64_t i = 0; i < subnetworks; ++i) {
      Model& model = subnetwork(static_cast<size_t>(i));
      const std::unique_ptr<Feed> feed = test_.evaluation(batches);
      const at::Tensor sums = zero_sums();
      for_each_batch(
          *feed, {.mine = count, .all = count}, mode,
          [&](int64_t done, int64_t) { work.update(i * count + done, subnetworks * count); },
          [&](int64_t, const TensorBatch& batch) { sums.add_(sums_of(model, mode, batch, {})); });
      const EvalResult result = mean_of(comm_.to_host(sums[0]));
      const int worker = workers[static_cast<size_t>(i)];
      results[0][worker] = result.loss;
      results[1][worker] = result.accuracy;
      results[2][worker] = std::sqrt(variance(result) + variance(on_subnetwork_samples_));
    }
    leave_if_stopped_here();
    comm_.all_reduce_sum(results);
  });
  const at::Tensor host = comm_.to_host(results);
  const double* const losses = host.data_ptr<double>();
  record.subnetwork_loss = {losses, losses + host.size(1)};
  record.subnetwork_accuracy = {losses + host.size(1), losses + 2 * host.size(1)};
  record.subnetwork_standard_error = {losses + 2 * host.size(1), losses + host.numel()};
  record.subnetwork_samples = static_cast<int64_t>(batches.samples.size());
  record.loss_on_subnetwork_samples = on_subnetwork_samples_.loss;
  record.accuracy_on_subnetwork_samples = on_subnetwork_samples_.accuracy;
  record.times = times_;
  record.times.eval_s = since_begin_.seconds();
}

}  // namespace sdp
