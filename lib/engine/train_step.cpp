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

TrainStep::TrainStep(const Experiment& experiment, const Engines& engines, Communicator& comm,
                     const StepOrigin& origin)
    : experiment_(experiment),
      geometry_(batch_geometry(experiment.spec, origin)),
      engines_(engines),
      slots_(engines.slots()),
      comm_(comm),
      device_(comm.device()),
      skips_nonfinite_(experiment.spec.train.on_nonfinite == OnNonfinite::kSkip),
      generator_(make_generator(device_)),
      clock_(device_) {
  for (const Engines::Place& place : slots_) {
    models_.push_back(
        make_subnetwork(experiment.spec.model, experiment.plan, place.slot.worker, place.tensors()));
    if (!skips_nonfinite_) continue;
    for (const BufferSlice& slice : place.buffers()) {
      statistics_.push_back(slice.values);
      statistics_before_.push_back(at::empty_like(slice.values));
    }
    first_statistic_.push_back(std::ssize(statistics_));
  }
  if (experiment.spec.train.cuda_graph && comm.size() == 1)  // not in a measurement of one of many
    graph_.emplace(*engines.all().front(), [this](const std::vector<TensorBatch>& batches) {
      size_t next = 0;
      return passes(/*step=*/0, [&] { return batches[next++]; }, /*marks=*/false);
    });
}

/// Generator for a pass's dropout, seeded by the pass and not by the process that runs it. std::nullopt if
/// the model draws no random numbers.
std::optional<at::Generator> TrainStep::noise(int64_t step, int64_t micro_batch, const Slot& slot) {
  if (!experiment_.spec.model.draws_random_numbers()) return std::nullopt;
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
  const Engines::Place& place = slots_[slot];
  Engine& engine = *place.engine;
  mark(StepPart::kForward);
  engine.await_values(-1);
  const at::Tensor features =
      models_[slot]->features(batch.input, {.training = true,
                                            .generator = noise(step, micro_batch, place.slot),
                                            .checkpoint_branches = train.checkpoint_activations,
                                            .branch_scales = experiment_.plan.branch_scales,
                                            .before_branch = [&](int b) { engine.await_values(b); }});
  const auto [loss, correct] =
      training_loss(features, models_[slot]->head(), batch.targets(), train.label_smoothing);
  mark(StepPart::kBackward);
  engine.begin_backward(place.local_slot, /*last=*/is_reduced && place.is_last_of_engine());
  loss.backward();
  engine.end_backward();
  result.losses.select(0, static_cast<int64_t>(slot))
      .add_(loss.detach(), /*alpha=*/1 / static_cast<double>(train.accumulate_steps));
  if (correct.defined()) {
    result.correct += correct;
    result.counted += batch.labels.numel();
  }
  mark(std::nullopt);
}

PassResult TrainStep::passes(int64_t step, const std::function<TensorBatch()>& next_batch, bool marks,
                             const AfterLastPass& after) {
  PassResult result{.losses = at::zeros({static_cast<int64_t>(models_.size())},
                                        at::TensorOptions(at::kDouble).device(device_)),
                    .correct = at::zeros({}, at::TensorOptions(at::kLong).device(device_))};
  const int64_t micro_batches = experiment_.spec.train.accumulate_steps;
  for (int64_t micro_batch = 0; micro_batch < micro_batches; ++micro_batch)
    for (size_t slot = 0; slot < models_.size(); ++slot) {
      pass(step, micro_batch, slot, next_batch(), marks, result);
      if (after && micro_batch + 1 == micro_batches) after(slot, result);
    }
  return result;
}

PassResult TrainStep::graphed_passes(const std::function<TensorBatch()>& next_batch) {
  std::vector<TensorBatch> batches;
  const auto passes_of_step = static_cast<size_t>(experiment_.spec.train.accumulate_steps) * models_.size();
  while (batches.size() < passes_of_step)
    batches.push_back(next_batch());
  clock_.enter(StepPart::kForward);
  engines_.await_all_values();
  PassResult result = graph_->run(batches);
  clock_.enter(std::nullopt);
  return result;
}

void TrainStep::restore_statistics(size_t first, size_t end) {
  const auto of_slots = [&](const std::vector<at::Tensor>& all) {
    return std::vector(all.begin() + first_statistic_[first], all.begin() + first_statistic_[end]);
  };
  copy_all(of_slots(statistics_), of_slots(statistics_before_));
}

void TrainStep::update(Engine& engine, double lr) {
  clock_.enter(StepPart::kOptimizer);
  engine.step(lr);
  clock_.enter(std::nullopt);
  engine.gather_values();
}

void TrainStep::update_worker(size_t last_slot, double lr, const at::Tensor& losses, StepResult& result) {
  Engine& engine = *slots_[last_slot].engine;
  const size_t slots = engine.store().slots().size();
  const size_t first_slot = last_slot + 1 - slots;
  engine.reduce(/*measures_norm=*/result.gradient_norm.defined());
  if (skips_nonfinite_) {
    const at::Tensor of_worker =
        losses.narrow(0, static_cast<int64_t>(first_slot), static_cast<int64_t>(slots));
    if (!at::isfinite(of_worker).all().logical_and_(engine.gradients_are_finite()).item<bool>()) {
      engine.discard_gradients();
      engine.set_step_count(engine.step_count() + 1);  // as that of other workers
      restore_statistics(first_slot, last_slot + 1);
      result.skipped_workers.push_back(slots_[last_slot].slot.worker);
      return;
    }
  }
  if (result.gradient_norm.defined())
    result.gradient_norm += engine.gradient_norm() / static_cast<double>(engines_.all().size());
  update(engine, lr);
  engine.await_all_values();  // nothing is exchanged: only copies are freed
}

StepResult TrainStep::run(int64_t step, double lr, const std::function<TensorBatch()>& next_batch,
                          bool measures_gradient_norm) {
  copy_all(statistics_before_, statistics_);
  measures_gradient_norm |= experiment_.spec.optimizer.clip_norm > 0;
  StepResult result;
  if (OuterExchange* const outer = engines_.outer()) {
    // Each worker trains alone.
    outer->begin_round();
    if (measures_gradient_norm)
      result.gradient_norm = at::zeros({1}, at::TensorOptions(at::kDouble).device(device_));
    const PassResult of_passes =
        passes(step, next_batch, /*marks=*/true, [&](size_t slot, const PassResult& so_far) {
          if (slots_[slot].is_last_of_engine()) update_worker(slot, lr, so_far.losses, result);
        });
    static_cast<PassResult&>(result) = of_passes;
    return result;
  }

  // 1. Forward and backward of every local subnetwork, each on its own micro-batches. The all-gather of the
  // previous step's parameters overlaps the first forward pass; the reduce-scatter of gradients overlaps the
  // last backward pass.
  static_cast<PassResult&>(result) =
      graph_ ? graphed_passes(next_batch) : passes(step, next_batch, /*marks=*/true);

  // 2. Finish averaging every gradient over the workers that own it.
  Engine& engine = *engines_.all().front();
  engine.reduce(measures_gradient_norm);
  if (skips_nonfinite_) {
    if (const auto found = find_nonfinite(comm_, result.losses, engine.gradients_are_finite())) {
      engine.discard_gradients();
      restore_statistics(0, slots_.size());
      result.nonfinite = found;
      return result;
    }
  }
  if (measures_gradient_norm) result.gradient_norm = engine.gradient_norm();

  // 3. Update this process's shard, and begin the all-gather of the updated parameters.
  update(engine, lr);
  return result;
}

}  // namespace sdp
