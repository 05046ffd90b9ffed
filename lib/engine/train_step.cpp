#include "engine/train_step.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "data/random.h"
#include "engine/device.h"
#include "layers/loss.h"
#include "model/make_model.h"

namespace sdp {
namespace {

void copy_all(const std::vector<at::Tensor>& to, const std::vector<at::Tensor>& from) {
  const at::NoGradGuard no_grad;
  if (!to.empty()) at::_foreach_copy_(to, from);
}

}  // namespace

std::optional<NonfiniteStep> find_nonfinite(Communicator& comm, const at::Tensor& losses,
                                            const at::Tensor& gradients_are_finite) {
  const int64_t slots = losses.numel();
  const at::Tensor mine = at::zeros({slots + 1}, losses.options());  // 1: not finite
  mine.narrow(0, 0, slots).copy_(at::isfinite(losses).logical_not());
  mine.narrow(0, slots, 1).copy_(gradients_are_finite.logical_not());
  const at::Tensor all = at::empty({comm.size() * (slots + 1)}, losses.options());
  comm.all_gather(all, mine);
  const at::Tensor host = all.cpu();
  const double* flag = host.const_data_ptr<double>();
  NonfiniteStep found;
  for (int rank = 0; rank < comm.size(); ++rank) {
    for (int64_t slot = 0; slot < slots; ++slot)
      if (*flag++ != 0) found.slots.push_back(static_cast<size_t>(rank * slots + slot));
    if (*flag++ != 0) found.gradient_ranks.push_back(rank);
  }
  if (found.slots.empty() && found.gradient_ranks.empty()) return std::nullopt;
  return found;
}

BatchGeometry batch_geometry(const ExperimentSpec& spec, const StepOrigin& origin) {
  return {.workers = spec.subnetwork.workers,
          .replicas = spec.subnetwork.replicas,
          .accumulate_steps = spec.train.accumulate_steps,
          .batch_size = spec.train.batch_size_per_worker,
          .first_position = origin.samples_after(0, samples_per_step(spec))};
}

TrainStep::TrainStep(const Experiment& experiment, Engine& engine, Communicator& comm,
                     const StepOrigin& origin)
    : experiment_(experiment),
      geometry_(batch_geometry(experiment.spec, origin)),
      engine_(engine),
      comm_(comm),
      device_(comm.device()),
      skips_nonfinite_(experiment.spec.train.on_nonfinite == OnNonfinite::kSkip),
      generator_(make_generator(device_)),
      clock_(device_) {
  const ParameterStore& store = engine.store();
  for (int s = 0; s < static_cast<int>(store.slots().size()); ++s) {
    models_.push_back(make_subnetwork(experiment.spec.model, experiment.plan,
                                      store.slots()[static_cast<size_t>(s)].worker, store.slot(s)));
    if (!skips_nonfinite_) continue;
    for (const BufferSlice& slice : store.buffer_slices(s)) {
      statistics_.push_back(slice.values);
      statistics_before_.push_back(at::empty_like(slice.values));
    }
  }
  if (experiment.spec.train.cuda_graph && comm.size() == 1)  // not in a measurement of one of many
    graph_.emplace(engine, [this](const std::vector<TensorBatch>& batches) {
      size_t next = 0;
      return passes(/*step=*/0, [&] { return batches[next++]; }, /*marks=*/false);
    });
}

/// Generator for a pass's dropout, seeded by the pass and not by the process that runs it. std::nullopt if
/// nothing is dropped.
std::optional<at::Generator> TrainStep::noise(int64_t step, int64_t micro_batch, size_t local_slot) {
  const ModelSpec& model = experiment_.spec.model;
  if (model.dropout == 0 && model.stochastic_depth == 0) return std::nullopt;
  const Slot slot = engine_.store().slots()[local_slot];
  const int64_t pass = geometry_.position(step, slot.worker, slot.replica, micro_batch, 0);
  CounterRandom seeds(static_cast<uint64_t>(experiment_.spec.seed), RandomPurpose::kDropout,
                      static_cast<uint64_t>(pass));
  generator_.set_current_seed(seeds.next());
  return generator_;
}

void TrainStep::pass(int64_t step, int64_t micro_batch, size_t slot, const TensorBatch& batch, bool marks,
                     PassResult& result) {
  const TrainSpec& train = experiment_.spec.train;
  const bool is_reduced =
      micro_batch + 1 == train.accumulate_steps || train.reduce_every == ReduceEvery::kMicroBatch;
  const auto mark = [&](std::optional<StepPart> part) {
    if (marks) clock_.enter(part);
  };
  mark(StepPart::kForward);
  engine_.await_values(-1);
  const at::Tensor features =
      models_[slot]->features(batch.input, {.training = true,
                                            .generator = noise(step, micro_batch, slot),
                                            .checkpoint_branches = train.checkpoint_activations,
                                            .before_branch = [&](int b) { engine_.await_values(b); }});
  const auto [loss, correct] =
      training_loss(features, models_[slot]->head(), batch.targets(), train.label_smoothing);
  mark(StepPart::kBackward);
  engine_.begin_backward(static_cast<int>(slot), /*last=*/is_reduced && slot + 1 == models_.size());
  loss.backward();
  engine_.end_backward();
  result.losses[static_cast<int64_t>(slot)] += loss.detach() / static_cast<double>(train.accumulate_steps);
  if (correct.defined()) {
    result.correct += correct;
    result.counted += batch.labels.numel();
  }
  mark(std::nullopt);
}

PassResult TrainStep::passes(int64_t step, const std::function<TensorBatch()>& next_batch, bool marks) {
  PassResult result{.losses = at::zeros({static_cast<int64_t>(models_.size())},
                                        at::TensorOptions(at::kDouble).device(device_)),
                    .correct = at::zeros({}, at::TensorOptions(at::kLong).device(device_))};
  for (int64_t micro_batch = 0; micro_batch < experiment_.spec.train.accumulate_steps; ++micro_batch)
    for (size_t slot = 0; slot < models_.size(); ++slot)
      pass(step, micro_batch, slot, next_batch(), marks, result);
  return result;
}

PassResult TrainStep::graphed_passes(const std::function<TensorBatch()>& next_batch) {
  std::vector<TensorBatch> batches;
  const auto passes_of_step = static_cast<size_t>(experiment_.spec.train.accumulate_steps) * models_.size();
  while (batches.size() < passes_of_step)
    batches.push_back(next_batch());
  clock_.enter(StepPart::kForward);
  engine_.await_all_values();
  PassResult result = graph_->run(batches);
  clock_.enter(std::nullopt);
  return result;
}

StepResult TrainStep::run(int64_t step, double lr, const std::function<TensorBatch()>& next_batch,
                          bool measures_gradient_norm) {
  copy_all(statistics_before_, statistics_);

  // 1. Forward and backward of every local subnetwork, each on its own micro-batches. The all-gather of the
  // previous step's parameters overlaps the first forward pass; the reduce-scatter of gradients overlaps the
  // last backward pass.
  StepResult result{graph_ ? graphed_passes(next_batch) : passes(step, next_batch, /*marks=*/true)};

  // 2. Finish averaging every gradient over the workers that own it.
  engine_.reduce(measures_gradient_norm);

  if (skips_nonfinite_) {
    if (const auto found = find_nonfinite(comm_, result.losses, engine_.gradients_are_finite())) {
      engine_.discard_gradients();
      copy_all(statistics_, statistics_before_);
      result.nonfinite = found;
      return result;
    }
  }

  if (measures_gradient_norm || experiment_.spec.optimizer.clip_norm > 0)
    result.gradient_norm = engine_.gradient_norm();

  // 3. Update this process's shard.
  clock_.enter(StepPart::kOptimizer);
  engine_.step(lr);
  clock_.enter(std::nullopt);

  // 4. Begin the all-gather of the updated parameters.
  engine_.gather_values();
  return result;
}

}  // namespace sdp
