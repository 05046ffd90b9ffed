#include "train/trainer.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include <nlohmann/json.hpp>

#include "data/random.h"
#include "train/checkpointing.h"
#include "train/device.h"
#include "train/loss.h"
#include "train/run_text.h"

namespace sdp {
namespace {

BatchGeometry geometry_of(const ExperimentSpec& spec) {
  return {.workers = spec.subnetwork.workers,
          .replicas = spec.subnetwork.replicas,
          .accumulate_steps = spec.train.accumulate_steps,
          .batch_size = spec.train.batch_size_per_worker};
}

at::Tensor zero_losses(size_t slots, at::Device device) {
  return at::zeros({static_cast<int64_t>(slots)}, at::TensorOptions(at::kDouble).device(device));
}

}  // namespace

Trainer::Trainer(const Experiment& experiment, Communicator& comm, RunFolder folder, Logger log, bool resume,
                 int threads)
    : experiment_(experiment),
      comm_(comm),
      folder_(std::move(folder)),
      log_(std::move(log)),
      threads_(threads),
      train_data_(open_dataset(experiment.spec.data, experiment.spec.model, Split::kTrain)),
      test_data_(open_dataset(experiment.spec.data, experiment.spec.model, Split::kTest)),
      train_source_(*train_data_, experiment.spec.data, experiment.spec.train.precision, comm.device()),
      test_source_(*test_data_, experiment.spec.data, experiment.spec.train.precision, comm.device()),
      steps_(run_steps(experiment, train_data_->size())),
      engine_(experiment.plan, experiment.schedule, experiment.spec.optimizer, comm),
      generator_(make_generator(comm.device())) {
  start_fresh_or_resume(resume);
  const ParameterStore& store = engine_.store();
  for (size_t s = 0; s < store.slots().size(); ++s)
    models_.push_back(make_subnetwork(experiment.spec.model, experiment.plan, store.slots()[s].worker,
                                      store.slot(static_cast<int>(s))));
  if (first_step_ < steps_.length.total_steps) feed_ = train_source_.training(batches_of_process());
  if (comm.rank() == 0) {
    log_.info(describe_length(experiment, steps_));
    for (const Dataset* data : {train_data_.get(), test_data_.get()})
      if (const std::string note = data->note(); !note.empty()) log_.warn(note);
    if (steps_.length.warmup_steps >= steps_.length.total_steps)
      log_.warn(fmt::format(
          "the warm-up of {} steps is as long as the run of {}: the peak learning rate is not reached",
          steps_.length.warmup_steps, steps_.length.total_steps));
    metrics_ = std::make_unique<JsonLines>(folder_.metrics());
    if (experiment.spec.output.trace) trace_ = std::make_unique<JsonLines>(folder_.trace());
    progress_ = std::make_unique<Progress>(STDOUT_FILENO, experiment.spec.train.log_every_steps);
  }
}

Trainer::~Trainer() = default;

void Trainer::start_fresh_or_resume(bool resume) {
  const bool has_checkpoint = resume && CheckpointStore(folder_.dir).latest_step().has_value();
  std::optional<CheckpointReader> reader;
  if (has_checkpoint) reader.emplace(folder_.dir, std::nullopt, /*verify_hashes=*/comm_.rank() == 0);
  check_same_everywhere(comm_, "The checkpoint to start from", reader ? reader->identity() : "none");
  if (reader) {
    restore(*reader, experiment_, engine_);
    first_step_ = reader->manifest().step;
    first_batch_norm_updates_ = reader->manifest().state.at("batch_norm_updates");
    if (comm_.rank() == 0) {
      if (first_step_ < steps_.length.total_steps)
        log_.info(fmt::format("resuming at step {} of {}", first_step_, steps_.length.total_steps));
      const Manifest& manifest = reader->manifest();
      const bool differs = manifest.processes != comm_.size() || manifest.threads != threads_;
      if (first_step_ > 0 && differs)
        log_.warn(
            fmt::format("the checkpoint was made by {} processes of {} threads, this run has {} of {}: "
                        "results agree up to rounding, not bit for bit",
                        manifest.processes, manifest.threads, comm_.size(), threads_));
    }
  } else {
    engine_.initialize(static_cast<uint64_t>(experiment_.spec.seed));
  }
  if (comm_.rank() == 0) {
    cut_back(folder_.metrics(), has_checkpoint ? first_step_ : -1);
    cut_back(folder_.trace(), has_checkpoint ? first_step_ : -1);
  }
}

TrainingBatches Trainer::batches_of_process() const {
  const ExperimentSpec& spec = experiment_.spec;
  TrainingBatches batches{.geometry = geometry_of(spec),
                          .slots = {},
                          .first_step = first_step_,
                          .last_step = steps_.length.total_steps,
                          .seed = static_cast<uint64_t>(spec.seed),
                          .augment = {.steps = *spec.data.augment,
                                      .mixup_alpha = spec.data.mixup_alpha,
                                      .cutmix_alpha = spec.data.cutmix_alpha}};
  for (const Slot& slot : engine_.store().slots())
    batches.slots.push_back({slot.worker, slot.replica});
  return batches;
}

TensorBatch Trainer::next_batch() {
  TensorBatch batch = feed_->next();
  for (const std::string& message : batch.skipped)
    report_skipped(message);
  interval_.skipped += static_cast<int64_t>(batch.skipped.size());
  return batch;
}

void Trainer::report_skipped(const std::string& message) {
  if (reported_.insert(message).second) log_.warn(fmt::format("skipped: {}", message));
}

double Trainer::lr_of(int64_t step) const {
  return learning_rate(experiment_.spec.schedule, experiment_.spec.optimizer.lr, steps_.length, step);
}

/// Source of a pass's dropout, a function of what the pass is and not of where it runs. None where nothing is
/// dropped.
std::optional<at::Generator> Trainer::noise(int64_t step, int64_t micro_batch, size_t local_slot) {
  const ModelSpec& model = experiment_.spec.model;
  if (model.dropout == 0 && model.stochastic_depth == 0) return std::nullopt;
  const Slot slot = engine_.store().slots()[local_slot];
  const BatchGeometry geometry = geometry_of(experiment_.spec);
  const int64_t pass = geometry.position(step, slot.worker, slot.replica, micro_batch, 0);
  CounterRandom seeds(static_cast<uint64_t>(experiment_.spec.seed), RandomPurpose::kDropout,
                      static_cast<uint64_t>(pass));
  generator_.set_current_seed(seeds.next());
  return generator_;
}

void Trainer::train_step(int64_t step) {
  const ExperimentSpec& spec = experiment_.spec;
  at::Tensor losses = zero_losses(models_.size(), comm_.device());
  std::vector<int64_t> samples;

  // 1. Forward and backward of every local subnetwork, each on mini-batches of its own.
  for (int64_t micro_batch = 0; micro_batch < spec.train.accumulate_steps; ++micro_batch) {
    for (size_t slot = 0; slot < models_.size(); ++slot) {
      const TensorBatch batch = next_batch();
      const at::Tensor logits = models_[slot]->forward(
          batch.input, {.training = true, .generator = noise(step, micro_batch, slot)});
      const at::Tensor loss = classification_loss(logits, batch, spec.train);
      loss.backward();
      losses[static_cast<int64_t>(slot)] += loss.detach() / static_cast<double>(spec.train.accumulate_steps);
      engine_.absorb(static_cast<int>(slot));
      samples.insert(samples.end(), batch.samples.begin(), batch.samples.end());
    }
  }

  // 2. Average every gradient over the workers that own it.
  engine_.reduce();

  // 3. Update this process's share.
  engine_.step(lr_of(step));

  // 4. Give the new values to all others that have them.
  engine_.publish();

  // 5. Account.
  interval_.losses += losses;
  interval_.steps += 1;
  if (spec.output.trace) trace_step(step, losses, samples);
}

/// What all processes tell each other: losses of all slots in order of worker and replica, whether any
/// process was asked to stop, the largest peak memory and wait for data, and how many images were skipped.
Trainer::Gathered Trainer::gather(const at::Tensor& losses) {
  const double stop = signals_.requested() ? 1 : 0;
  const double memory = static_cast<double>(peak_memory_bytes(comm_.device()));
  const double wait_ms = feed_->wait_ms() - interval_.wait_ms;
  const double skipped = static_cast<double>(interval_.skipped);
  const at::Tensor mine = at::cat({losses, at::tensor({stop, memory, wait_ms, skipped}, losses.options())});
  at::Tensor all = at::empty({comm_.size() * mine.numel()}, mine.options());
  comm_.all_gather(all, mine);
  const at::Tensor host = all.cpu().view({comm_.size(), mine.numel()});
  Gathered gathered;
  for (int process = 0; process < comm_.size(); ++process) {
    const double* values = host[process].data_ptr<double>();
    gathered.losses.insert(gathered.losses.end(), values, values + losses.numel());
    const double* others = values + losses.numel();
    gathered.stop = gathered.stop || others[0] > 0;
    gathered.peak_memory_bytes = std::max(gathered.peak_memory_bytes, static_cast<int64_t>(others[1]));
    gathered.wait_ms = std::max(gathered.wait_ms, others[2]);
    gathered.skipped += static_cast<int64_t>(others[3]);
  }
  return gathered;
}

/// `samples`: of this process's batches, by micro-batch, then by slot.
void Trainer::trace_step(int64_t step, const at::Tensor& losses, const std::vector<int64_t>& samples) {
  const std::vector<double> all_losses = gather(losses).losses;
  const at::Tensor mine = at::tensor(samples, at::kLong).to(comm_.device());
  at::Tensor all = at::empty({comm_.size() * mine.numel()}, mine.options());
  comm_.all_gather(all, mine);
  if (!trace_) return;
  const BatchGeometry geometry = geometry_of(experiment_.spec);
  const int64_t slots = static_cast<int64_t>(models_.size());
  // [process, micro-batch, slot, sample] -> [worker and replica, micro-batch and sample]
  const at::Tensor by_slot = all.cpu()
                                 .view({comm_.size(), geometry.accumulate_steps, slots, geometry.batch_size})
                                 .transpose(1, 2)
                                 .reshape({comm_.size() * slots, -1});
  for (int64_t i = 0; i < by_slot.size(0); ++i) {
    const int64_t* first = by_slot[i].data_ptr<int64_t>();
    trace_->append(TraceRecord{.step = step + 1,
                               .worker = i / geometry.replicas,
                               .replica = i % geometry.replicas,
                               .loss = all_losses[static_cast<size_t>(i)],
                               .samples = {first, first + by_slot.size(1)}});
  }
}

bool Trainer::log_interval(int64_t done) {
  const Gathered gathered = gather(interval_.losses);
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - interval_.began).count();
  const double steps = static_cast<double>(interval_.steps);
  double loss = 0;
  for (double sum : gathered.losses)
    loss += sum / steps / static_cast<double>(gathered.losses.size());
  if (!std::isfinite(loss)) stop_because_not_finite(done);
  const double step_ms = seconds * 1e3 / steps;
  const int64_t bytes_sent = comm_.traffic().all_to_all_bytes;
  const double samples_per_s = static_cast<double>(interval_.steps * steps_.samples_per_step) / seconds;
  if (metrics_) {
    metrics_->append(TrainRecord{.step = done,
                                 .epoch = static_cast<double>(done) / steps_.steps_per_epoch,
                                 .loss = loss,
                                 .lr = lr_of(done - 1),
                                 .samples_per_s = samples_per_s,
                                 .step_ms = step_ms,
                                 .data_wait_ms = gathered.wait_ms / steps,
                                 .skipped_samples = gathered.skipped,
                                 .peak_memory_bytes = gathered.peak_memory_bytes,
                                 .bytes_sent = (bytes_sent - interval_.bytes_sent) / interval_.steps});
    show_progress(done, loss, samples_per_s, gathered.peak_memory_bytes);
    // The first interval waits for the first batch.
    if (done - first_step_ > interval_.steps) warn_of_slow_data(step_ms, gathered.wait_ms / steps);
  }
  interval_ = {.losses = at::zeros_like(interval_.losses),
               .steps = 0,
               .bytes_sent = bytes_sent,
               .wait_ms = feed_->wait_ms(),
               .skipped = 0,
               .began = std::chrono::steady_clock::now()};
  return gathered.stop;
}

void Trainer::warn_of_slow_data(double step_ms, double wait_ms) {
  constexpr double kMostWaiting = 0.2;
  if (warned_of_slow_data_ || wait_ms < kMostWaiting * step_ms) return;
  warned_of_slow_data_ = true;
  progress_->clear();
  log_.warn(fmt::format(
      "the data is the bottleneck: of a step's {:.1f} ms, {:.1f} ms are waited for batches. Raise "
      "data.loader_threads ({}), or data.prefetch_batches ({}) if only some steps wait.",
      step_ms, wait_ms, experiment_.spec.data.loader_threads, experiment_.spec.data.prefetch_batches));
}

void Trainer::show_progress(int64_t done, double loss, double samples_per_s, int64_t memory_bytes) {
  progress_->update({.step = done,
                     .total_steps = steps_.length.total_steps,
                     .epoch = static_cast<double>(done) / steps_.steps_per_epoch,
                     .total_epochs = steps_.epochs,
                     .loss = loss,
                     .samples_per_s = samples_per_s,
                     .seconds_left = std::nullopt,
                     .memory_bytes = memory_bytes});
}

/// Every process has the same losses and throws. Nothing is saved: the last checkpoint stays the last good
/// one.
void Trainer::stop_because_not_finite(int64_t done) const {
  const std::optional<int64_t> saved = CheckpointStore(folder_.dir).latest_step();
  throw Error(
      ExitCode::kInternal,
      fmt::format("the loss is not finite at step {}. Lower optimizer.lr, lengthen the warm-up or set "
                  "optimizer.clip_norm. The last checkpoint is {}.",
                  done, saved ? fmt::format("of step {}", *saved) : "none"));
}

Evaluator Trainer::make_evaluator() {
  return {experiment_, train_source_, test_source_, comm_,
          [this](const std::string& message) { report_skipped(message); }};
}

/// Accuracy of every worker's own subnetwork (replica 0), each measured by the process that runs it.
std::vector<double> Trainer::subnetwork_accuracies() {
  Evaluator evaluator = make_evaluator();
  at::Tensor accuracies = zero_losses(static_cast<size_t>(experiment_.plan.workers), comm_.device());
  for (size_t s = 0; s < models_.size(); ++s) {
    const Slot slot = engine_.store().slots()[s];
    if (slot.replica == 0) accuracies[slot.worker] = evaluator.evaluate_subnetwork(*models_[s]).accuracy;
  }
  comm_.all_reduce_sum(accuracies);
  const at::Tensor host = accuracies.cpu();
  return {host.data_ptr<double>(), host.data_ptr<double>() + host.numel()};
}

void Trainer::evaluate(int64_t done, bool final) {
  Evaluator evaluator = make_evaluator();
  LiveFullModel full_model(experiment_.plan, experiment_.schedule, engine_, comm_);
  EvalRecord record = evaluator.evaluate(full_model);
  record.step = done;
  if (final && has_subnetworks(experiment_.plan)) record.subnetwork_accuracy = subnetwork_accuracies();
  if (!metrics_) return;
  metrics_->append(record);
  if (final) {
    progress_->finish();
  } else {
    progress_->clear();
  }
  log_.info(describe(record));
}

void Trainer::save(int64_t done) {
  const int64_t passes = (done - first_step_) * experiment_.spec.train.accumulate_steps;
  save_checkpoint(folder_.dir, experiment_, engine_, comm_, {done, first_batch_norm_updates_ + passes},
                  threads_);
}

ExitCode Trainer::run() {
  const int64_t total = steps_.length.total_steps;
  if (experiment_.spec.checkpoint.at_start && first_step_ == 0) save(0);
  interval_ = {.losses = zero_losses(models_.size(), comm_.device()),
               .steps = 0,
               .bytes_sent = comm_.traffic().all_to_all_bytes,
               .wait_ms = 0,
               .skipped = 0,
               .began = std::chrono::steady_clock::now()};
  if (first_step_ >= total && comm_.rank() == 0)
    log_.info(fmt::format("nothing to do: the checkpoint is at step {}, the run ends at step {}", first_step_,
                          total));
  for (int64_t step = first_step_; step < total; ++step) {
    train_step(step);
    const int64_t done = step + 1;
    const bool last = done == total;
    bool stop = false;
    const bool saves = last || is_due(steps_.checkpoint_every_steps, done);
    // A checkpoint always follows a line of the metrics, and so a look at the losses.
    if (saves || is_due(static_cast<double>(experiment_.spec.train.log_every_steps), done))
      stop = log_interval(done);
    const auto pause_began = std::chrono::steady_clock::now();
    // Evaluated before it is saved: what a checkpoint follows is in the metrics that --resume keeps.
    if (last || is_due(steps_.eval_every_steps, done)) evaluate(done, last);
    if (saves || stop) save(done);
    // Evaluation and saving do not count as training time.
    interval_.began += std::chrono::steady_clock::now() - pause_began;
    if (stop && !last) {
      if (comm_.rank() == 0)
        log_.info(fmt::format("stopped by a signal after step {}; --resume continues from there", done));
      return ExitCode::kPreempted;
    }
  }
  return ExitCode::kOk;
}

}  // namespace sdp
