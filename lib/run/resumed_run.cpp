#include "run/resumed_run.h"

#include <fmt/format.h>

#include <algorithm>

#include "experiment/load.h"
#include "experiment/run_steps.h"
#include "run/checkpoint_store.h"
#include "spec/error.h"

namespace sdp {

bool finds_checkpoint(const std::filesystem::path& run_dir, Resume resume) {
  if (resume == Resume::kNo) return false;
  const CheckpointStore store(run_dir);
  if (store.latest_step()) return true;
  if (!store.steps().empty())
    throw DataError(
        fmt::format("{}: none of the checkpoints is complete. Restore the missing files, or "
                    "remove the checkpoints and start the run with --resume=if-any.",
                    run_dir.string()));
  if (resume == Resume::kIfAny) return false;
  throw UsageError(
      fmt::format("--resume: there is no checkpoint in the run folder {}. Start the run without --resume, or "
                  "with --resume=if-any, which starts from the beginning if there is none.",
                  run_dir.string()));
}

SavedRun read_saved_run(const CheckpointStore& store, int64_t step) {
  return {.spec = load_saved_spec(store.verified_file(step, kSavedSpec)),
          .history = read_history(store.verified_file(step, kSavedHistory))};
}

Experiment read_saved_experiment(const CheckpointStore& store, int64_t step, const ExperimentSpec& saved,
                                 std::vector<RecordedModel> recorded) {
  return make_experiment(saved, /*processes=*/1, store.verified_file(step, kSavedPlan),
                         /*processes_per_node=*/std::nullopt, &recorded);
}

std::optional<std::filesystem::path> owners_to_keep(const CheckpointStore& store, int64_t step,
                                                    const ExperimentSpec& now) {
  const ExperimentSpec saved = load_saved_spec(store.verified_file(step, kSavedSpec));
  if (!is_same_division(saved.subnetwork, now.subnetwork)) return std::nullopt;
  return store.verified_file(step, kSavedPlan);
}

StepOrigin origin_of_resumed(const Manifest& manifest, const Experiment& saved, const Experiment& now,
                             int64_t dataset_size) {
  const int64_t length = saved.spec.data.sequence_length(), new_length = now.spec.data.sequence_length();
  const double factor = budget_factor(saved.spec.train, saved.plan);
  const double new_factor = budget_factor(now.spec.train, now.plan);
  const bool is_same = samples_per_step(saved.spec) == samples_per_step(now.spec) && length == new_length &&
                       saved.spec.train.accumulate_steps == now.spec.train.accumulate_steps &&
                       factor == new_factor;
  const ScheduleSpec &was = saved.spec.schedule, &is = now.spec.schedule;
  const std::optional<int64_t>&max_steps = saved.spec.train.max_steps, &new_steps = now.spec.train.max_steps;
  StepOrigin origin = manifest.origin;
  const bool keeps_warmup = was.warmup_steps == is.warmup_steps && was.warmup_epochs == is.warmup_epochs &&
                            (origin.step == 0 || max_steps.has_value() == new_steps.has_value());
  if (!keeps_warmup) origin.warmup = 0;
  if (is_same || manifest.step == 0) return origin;
  const int64_t size = manifest.training_data.samples;
  if (keeps_warmup) origin.warmup = warmup_steps(saved.spec, origin, size);
  if (!new_steps)  // then it keeps its share of the run, otherwise its number of steps
    origin.warmup *= new_factor / factor * static_cast<double>(dataset_size * samples_per_step(saved.spec)) /
                     static_cast<double>(size * samples_per_step(now.spec));
  origin.step = manifest.step;
  origin.updates = manifest.updates;
  origin.samples = manifest.origin.samples_after(manifest.step, samples_per_step(saved.spec));
  origin.batch_norm_updates = manifest.batch_norm_updates;
  const int64_t since_origin = origin.samples - manifest.origin.samples;
  origin.epochs += static_cast<double>(since_origin) / static_cast<double>(size) / factor;
  if (length != new_length) {
    const int64_t in_epoch = (origin.samples % size * length + new_length - 1) / new_length;
    origin.samples = origin.samples / size * dataset_size + std::min(in_epoch, dataset_size);
  }
  return origin;
}

}  // namespace sdp
