#include "train/evaluation.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "data/loader.h"
#include "train/batch.h"

namespace sdp {

namespace {

constexpr int64_t kRowsAtATime = 512;

}  // namespace

double branch_scale_of(const Experiment& experiment) {
  const SubnetPlan& plan = experiment.plan;
  const bool is_scaled =
      plan.masking == Masking::kForward &&
      std::any_of(plan.layout.parameters.begin(), plan.layout.parameters.end(),
                  [&](const ParameterLayout& parameter) { return takes_branch_scale(plan, parameter); });
  return experiment.spec.eval.branch_scale == BranchScale::kSurvival && is_scaled ? plan.coverage() : 1;
}

Evaluator::Evaluator(const Experiment& experiment, const Dataset& train, const Dataset& test,
                     Communicator& comm)
    : experiment_(experiment), train_(train), test_(test), comm_(comm) {}

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

TensorBatch Evaluator::test_batch(int64_t begin) const {
  const int64_t end = std::min(begin + *experiment_.spec.eval.batch_size, test_.size());
  return to_tensors(test_.eval_batch(begin, end), experiment_.spec.train.precision, comm_.device());
}

at::Tensor Evaluator::summed_loss_and_hits(Model& model, const ForwardMode& mode, int64_t begin) const {
  const TensorBatch batch = test_batch(begin);
  const at::Tensor logits = model.forward(batch.input, mode).flatten(0, -2);
  const at::Tensor labels = batch.labels.flatten();
  at::Tensor sums = at::zeros({3}, at::TensorOptions(at::kDouble).device(comm_.device()));
  const at::ScalarType type = scalar_type(sum_type(experiment_.spec.train.precision));
  // Few rows at a time: a language model's are as wide as its vocabulary.
  for (int64_t row = 0; row < labels.numel(); row += kRowsAtATime) {
    const int64_t rows = std::min(kRowsAtATime, labels.numel() - row);
    const at::Tensor predicted = logits.narrow(0, row, rows).to(type);
    const at::Tensor wanted = labels.narrow(0, row, rows);
    const at::Tensor losses = at::cross_entropy_loss(predicted, wanted, /*weight=*/{}, at::Reduction::None);
    const at::Tensor hits = predicted.argmax(1).eq(wanted);
    sums.add_(at::stack({losses.sum(at::kDouble), hits.sum(at::kDouble),
                         at::full({}, static_cast<double>(rows), sums.options())}));
  }
  return sums;
}

EvalResult Evaluator::run(FullModel& full_model) {
  const std::unique_ptr<Model> model = make_model(experiment_.spec.model);
  const ForwardMode mode = bind(*model, full_model, /*training=*/false);
  const int64_t batch_size = *experiment_.spec.eval.batch_size;
  const int64_t batches = (test_.size() + batch_size - 1) / batch_size;
  at::Tensor sums = at::zeros({3}, at::TensorOptions(at::kDouble).device(comm_.device()));
  // Every process makes the same number of passes, as streamed branches are collective.
  for (int64_t round = 0; round * comm_.size() < batches; ++round) {
    const int64_t batch = round * comm_.size() + comm_.rank();
    if (batch < batches) {
      sums.add_(summed_loss_and_hits(*model, mode, batch * batch_size));
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
  return {host[0].item<double>() / predictions, host[1].item<double>() / predictions};
}

at::Tensor Evaluator::logits(FullModel& full_model) {
  const at::NoGradGuard no_grad;
  const std::unique_ptr<Model> model = make_model(experiment_.spec.model);
  const ForwardMode mode = bind(*model, full_model, /*training=*/false);
  std::vector<at::Tensor> parts;
  for (int64_t begin = 0; begin < test_.size(); begin += *experiment_.spec.eval.batch_size)
    parts.push_back(model->forward(test_batch(begin).input, mode));
  return at::cat(parts);
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
  LoaderOptions options{
      .geometry = {.workers = comm_.size(), .replicas = 1, .accumulate_steps = 1, .batch_size = batch_size},
      .slots = {{.worker = comm_.rank(), .replica = 0}},
      .first_step = 0,
      .last_step = mine,
      .seed = static_cast<uint64_t>(spec.seed),
      .augment = {.steps = *spec.data.augment},  // unmixed, as the test images are
      .threads = spec.data.loader_threads,
      .prefetch_batches = spec.data.prefetch_batches};
  BatchLoader loader(train_, options);
  for (int64_t round = 0; round * comm_.size() < batches; ++round) {
    if (round >= mine) {
      walk_branches(mode);
      continue;
    }
    mode.batch_norm_momentum = 1.0 / static_cast<double>(round + 1);
    const TensorBatch batch = to_tensors(loader.next(), spec.train.precision, comm_.device());
    model->forward(batch.input, mode);
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
  return record;
}

EvalResult Evaluator::evaluate_subnetwork(Model& model) {
  const at::NoGradGuard no_grad;
  const ForwardMode mode{.training = false};
  at::Tensor sums = at::zeros({3}, at::TensorOptions(at::kDouble).device(comm_.device()));
  for (int64_t begin = 0; begin < test_.size(); begin += *experiment_.spec.eval.batch_size)
    sums.add_(summed_loss_and_hits(model, mode, begin));
  return mean_of(sums);
}

}  // namespace sdp
