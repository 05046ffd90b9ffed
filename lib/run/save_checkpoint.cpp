#include "run/save_checkpoint.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <torch/version.h>

#include "cost/figures.h"
#include "engine/checks.h"
#include "engine/device.h"
#include "engine/engines.h"
#include "experiment/print.h"
#include "io/file.h"
#include "run/checkpoint_store.h"
#include "run/checkpoint_tensors.h"
#include "run/run_history.h"
#include "spec/error.h"
#include "spec/hash.h"
#include "spec/json_fields.h"

namespace sdp {
namespace {

/// What one process saves: its shard of every parameter's state, and its slots' buffers.
struct StateToSave {
  std::vector<std::string> names;
  std::vector<at::Tensor> tensors;
};

StateToSave state_to_save(const Experiment& experiment, const Engines& engines) {
  StateToSave state;
  const auto add = [&](const std::string& name, const at::Tensor& tensor) {
    state.names.push_back(name);
    state.tensors.push_back(tensor);
  };
  for (const StateRange& range : engines.owned_state())
    add(range_name(key_of(experiment.plan, range), range.begin, range.end), range.values);
  for (const Engines::Place& place : engines.slots())
    for (const BufferSlice& slice : place.buffers())
      add(buffer_name(buffer_key(experiment.plan, slice.buffer, slice.unit), place.slot), slice.values);
  return state;
}

/// Collective.
void check_finite(const StateToSave& state, Communicator& comm) {
  const std::optional<size_t> bad = first_not_finite(state.tensors);
  const std::vector<std::string> names = comm.all_gather_strings(bad ? state.names[*bad] : "");
  for (int rank = 0; rank < comm.size(); ++rank)
    if (const std::string& name = names[static_cast<size_t>(rank)]; !name.empty())
      throw Error(
          ExitCode::kInternal,
          fmt::format("{} is not finite (NaN or infinity) on rank {}: the run has diverged, and nothing "
                      "was saved. Lower optimizer.lr, lengthen the warm-up or set optimizer.clip_norm.",
                      name, rank));
}

TensorFile file_of(const StateToSave& state) {
  TensorFile file;
  for (size_t i = 0; i < state.names.size(); ++i)
    file.add(state.names[i], dtype_of(state.tensors[i].scalar_type()), {state.tensors[i].numel()},
             [tensor = state.tensors[i]] { return tensor; });
  return file;
}

}  // namespace

ManifestFile write_process_file(TensorFile& tensors, const std::filesystem::path& folder, int process,
                                int processes, const OnProgress& on_progress) {
  const std::string name = process_file_name(process, processes);
  const FileDigest digest = tensors.write(folder / name, {{"format", "sdp-train checkpoint"}}, on_progress);
  return {name, digest.bytes, digest.xxh3_128};
}

Manifest manifest_of(const Experiment& experiment, Manifest manifest) {
  manifest.updates = manifest.step - manifest.skipped_steps;
  manifest.batch_norm_updates =
      manifest.origin.batch_norm_updates_after(manifest.updates, experiment.spec.train.accumulate_steps);
  manifest.plan_hash = plan_hash(experiment.plan);
  manifest.workers = experiment.plan.workers;
  manifest.replicas = experiment.exchanges.slot_map.replicas;
  manifest.processes = experiment.exchanges.slot_map.processes;
  manifest.libtorch_version = TORCH_VERSION;
  manifest.program_version = kProgramVersion;
  return manifest;
}

RunDescription describe_run(const Experiment& experiment, const RunHistory& history) {
  return {.spec_yaml = to_yaml(experiment.spec),
          .plan_json = to_json(figures_of(experiment)),
          .run_json = history_text(history)};
}

std::vector<ManifestFile> write_description(const RunDescription& description,
                                            const std::filesystem::path& folder) {
  std::vector<ManifestFile> files;
  const auto write = [&](const char* name, const std::string& text) {
    write_file_atomically(folder / name, text);
    files.push_back({name, static_cast<int64_t>(text.size()), xxh3_128(text)});
  };
  write(kSavedSpec, description.spec_yaml);
  write(kSavedPlan, description.plan_json);
  write(kSavedHistory, description.run_json);
  return files;
}

std::string text_of_last_checkpoint(std::optional<int64_t> step) {
  return step ? fmt::format("The last checkpoint is of step {}; --resume continues from there.", *step)
              : "There is no checkpoint.";
}

void check_state_is_finite(const Experiment& experiment, const Engines& engines, Communicator& comm) {
  const at::NoGradGuard no_grad;
  check_finite(state_to_save(experiment, engines), comm);
}

SavedCheckpoint save_checkpoint(const std::filesystem::path& run_dir, const Experiment& experiment,
                                const Engines& engines, Communicator& comm, const Manifest& run,
                                const std::set<int64_t>& best_steps, const RunDescription& description,
                                const OnProgress& on_progress) {
  const at::NoGradGuard no_grad;
  const StateToSave state = state_to_save(experiment, engines);
  check_finite(state, comm);
  const CheckpointStore store(run_dir);
  if (comm.rank() == 0) store.begin(run.step);
  comm.barrier();
  const std::filesystem::path folder = store.partial_path(run.step);
  TensorFile tensors = file_of(state);
  const ManifestFile mine = write_process_file(tensors, folder, comm.rank(), comm.size(), on_progress);
  const std::vector<std::string> files = comm.all_gather_strings(json_text(json_of(mine)));
  Manifest manifest = manifest_of(experiment, run);
  SavedCheckpoint saved;
  for (const std::string& text : files) {
    manifest.files.push_back(struct_of<ManifestFile>(nlohmann::ordered_json::parse(text)));
    saved.bytes += manifest.files.back().bytes;
  }
  if (comm.rank() == 0) {
    for (ManifestFile& file : write_description(description, folder))
      manifest.files.push_back(std::move(file));
    saved.left = store.commit(run.step, manifest, experiment.spec.checkpoint.keep_last, best_steps);
  }
  comm.barrier();
  return saved;
}

}  // namespace sdp
