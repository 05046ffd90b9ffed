#include "train/evaluation.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "model/layouts.h"

namespace sdp {

double branch_scale_of(const Experiment& experiment) {
  const SubnetPlan& plan = experiment.plan;
  const bool is_scaled =
      plan.masking == Masking::kForward &&
      std::any_of(plan.layout.parameters.begin(), plan.layout.parameters.end(),
                  [&](const ParameterLayout& parameter) { return takes_branch_scale(plan, parameter); });
  return experiment.spec.eval.branch_scale == BranchScale::kSurvival && is_scaled ? plan.coverage() : 1;
}

Evaluator::Evaluator(const Experiment& experiment, const FeedSource& train, const FeedSource& test,
                     Communicator& comm, OnSkipped on_skipped)
    : experiment_(experiment), train_(train), test_(test), comm_(comm), on_skipped_(std::move(on_skipped)) {}

ForwardMode Evaluator::bind(Model& model, FullModel& full_model, bool training) const {
  ForwardMode mode{.training = training};
  full_model.fetch_shared();
  model.bind_shared(full_model);
  if (experiment_.spec.eval.mode == EvalMode::kFull) {
    for (int b = 0; b < static_cast<int>(experiment_.plan.layout.branches.size()); ++b) {
      full_model.fetch_branch(b);
      model.bind_branch(b, full_model);
    }
    return mode;
  }
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

/// Keeps step with the other processes' branches where this one has no batch.
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
  return at::zeros({4}, at::TensorOptions(at::kDouble).device(comm_.device()));
}

at::Tensor Evaluator::sums_of(Model& model, const ForwardMode& mode, const TensorBatch& batch) const {
  at::Tensor sums = zero_sums();
  sums[3] = static_cast<double>(batch.skipped.size());
  if (batch.samples.empty()) {  // all of them damaged
    walk_branches(mode);
    return sums;
  }
  const at::Tensor features = model.features(batch.input, mode).flatten(0, -2);  // [N, W]
  const auto [weight, bias] = model.head();
  const at::Tensor labels = batch.labels.flatten();
  const at::ScalarType type = scalar_type(sum_type(experiment_.spec.train.precision));
  const int64_t rows_at_a_time = logit_rows_at_a_time(weight.size(0));
  for (int64_t row = 0; row < labels.numel(); row += rows_at_a_time) {
    const int64_t rows = std::min(rows_at_a_time, labels.numel() - row);
    const at::Tensor predicted = at::linear(features.narrow(0, row, rows), weight, bias).to(type);  // [R, K]
    const at::Tensor wanted = labels.narrow(0, row, rows);
    const at::Tensor losses = at::cross_entropy_loss(predicted, wanted, /*weight=*/{}, at::Reduction::None);
    const at::Tensor hits = predicted.argmax(1).eq(wanted);
    sums.narrow(0, 0, 3).add_(at::stack({losses.sum(at::kDouble), hits.sum(at::kDouble),
                                         at::full({}, static_cast<double>(rows), sums.options())}));
  }
  return sums;
}

EvalResult Evaluator::run(FullModel& full_model) {
  const std::unique_ptr<Model> model = make_model(experiment_.spec.model);
  const ForwardMode mode = bind(*model, full_model, /*training=*/false);
  const int64_t batch_size = *experiment_.spec.eval.batch_size;
  const int64_t batches = EvalBatches{.batch_size = batch_size}.count(test_.size());
  const std::unique_ptr<Feed> feed =
      test_.evaluation({.batch_size = batch_size, .first_batch = comm_.rank(), .stride = comm_.size()});
  at::Tensor sums = zero_sums();
  // Every process makes the same number of passes, as streamed branches are collective.
  for (int64_t round = 0; round * comm_.size() < batches; ++round) {
    if (round * comm_.size() + comm_.rank() < batches) {
      sums.add_(sums_of(*model, mode, next(*feed)));
    } else {
      walk_branches(mode);
    }
  }
  comm_.all_reduce_sum(sums);
  return mean_of(sums);
}

EvalResult Evaluator::mean_of(const at::Tensor& sums) {
  const at::Tensor host = sums.cpu();
  const double predictions = host[2].item<double>();
  return {.loss = host[0].item<double>() / predictions,
          .accuracy = host[1].item<double>() / predictions,
          .skipped = static_cast<int64_t>(host[3].item<double>())};
}

Predictions Evaluator::predict(FullModel& full_model) {
  const at::NoGradGuard no_grad;
  const std::unique_ptr<Model> model = make_model(experiment_.spec.model);
  const ForwardMode mode = bind(*model, full_model, /*training=*/false);
  const EvalBatches all{.batch_size = *experiment_.spec.eval.batch_size};
  const std::unique_ptr<Feed> feed = test_.evaluation(all);
  std::vector<at::Tensor> logits;
  std::vector<at::Tensor> labels;
  for (int64_t number = 0; number < all.count(test_.size()); ++number) {
    const TensorBatch batch = next(*feed);
    if (batch.samples.empty()) continue;
    logits.push_back(model->forward(batch.input, mode));
    labels.push_back(batch.labels);
  }
  return {.logits = at::cat(logits), .labels = at::cat(labels)};
}

/// BatchNorm statistics re-estimated as the plain average over training batches passed through the assembled
/// model. Batch i is the i-th of the training order and goes to process i mod W; the average is over all of
/// them.
void Evaluator::recalibrate(FullModel& full_model) {
  const ExperimentSpec& spec = experiment_.spec;
  const at::NoGradGuard no_grad;
  const int64_t batches = *spec.eval.recalibrate_batches;
  const int64_t batch_size = std::min(spec.train.batch_size_per_worker, train_.size());
  const std::unique_ptr<Model> model = make_model(spec.model);
  ForwardMode mode = bind(*model, full_model, /*training=*/true);

  const int64_t mine = (batches - comm_.rank() + comm_.size() - 1) / comm_.size();
  const std::unique_ptr<Feed> feed = train_.training(
      {.geometry = {.workers = comm_.size(), .replicas = 1, .accumulate_steps = 1, .batch_size = batch_size},
       .slots = {{.worker = comm_.rank(), .replica = 0}},
       .first_step = 0,
       .last_step = mine,
       .seed = static_cast<uint64_t>(spec.seed),
       .augment = {.steps = *spec.data.augment}});  // unmixed, as the test images are
  for (int64_t round = 0; round * comm_.size() < batches; ++round) {
    if (round >= mine) {
      walk_branches(mode);
      continue;
    }
    mode.batch_norm_momentum = 1.0 / static_cast<double>(round + 1);
    model->forward(next(*feed).input, mode);
  }
  for (auto& [name, buffer] : full_model.buffers()) {
    // A process without a batch still has the averages of training, which must not count.
    buffer.mul_(static_cast<double>(mine) / static_cast<double>(batches));
    comm_.all_reduce_sum(buffer);
  }
}

EvalRecord Evaluator::evaluate(FullModel& full_model) {
  const at::NoGradGuard no_grad;
  const bool recalibrates = *experiment_.spec.eval.recalibrate_batches > 0 && !full_model.buffers().empty();
  const double branch_scale = branch_scale_of(experiment_);
  EvalResult result = run(full_model);
  EvalRecord record;
  if (recalibrates || branch_scale != 1) {
    record.loss_uncorrected = result.loss;
    record.accuracy_uncorrected = result.accuracy;
    full_model.set_branch_scale(branch_scale);
    if (recalibrates) recalibrate(full_model);
    result = run(full_model);
  }
  record.loss = result.loss;
  record.accuracy = result.accuracy;
  record.skipped_samples = result.skipped;
  return record;
}

EvalResult Evaluator::evaluate_subnetwork(Model& model) {
  const at::NoGradGuard no_grad;
  const ForwardMode mode{.training = false};
  const EvalBatches all{.batch_size = *experiment_.spec.eval.batch_size};
  const std::unique_ptr<Feed> feed = test_.evaluation(all);
  at::Tensor sums = zero_sums();
  for (int64_t number = 0; number < all.count(test_.size()); ++number)
    sums.add_(sums_of(model, mode, next(*feed)));
  return mean_of(sums);
}

}  // namespace sdp
