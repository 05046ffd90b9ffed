#include "checkpoint/checkpointing.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <torch/version.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "checkpoint/files/digest.h"
#include "device/device.h"
#include "engine/checks.h"
#include "experiment/spec/print.h"
#include "hash/hash.h"
#include "io/file.h"
#include "model/tensors.h"
#include "plan/figures.h"
#include "spec/error.h"
#include "text/json_text.h"

namespace sdp {
namespace {

/// What one process saves: its shard of every parameter's state, and its slots' buffers.
struct StateToSave {
  std::vector<std::string> names;
  std::vector<at::Tensor> tensors;
};

StateToSave state_to_save(const Experiment& experiment, Engine& engine) {
  StateToSave state;
  const auto add = [&](const std::string& name, const at::Tensor& tensor) {
    state.names.push_back(name);
    state.tensors.push_back(tensor);
  };
  for (const StateRange& range : engine.owned_state())
    add(range_name(key_of(experiment.plan, range), range.begin, range.end), range.values);
  const ParameterStore& store = engine.store();
  for (size_t s = 0; s < store.slots().size(); ++s)
    for (const BufferPiece& piece : store.buffer_pieces(static_cast<int>(s)))
      add(buffer_name(buffer_key(experiment.plan, piece.buffer, piece.unit), store.slots()[s]), piece.values);
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

/// One update per micro-batch of every step, plus the count of the origin.
int64_t batch_norm_updates(const Manifest& manifest, const ExperimentSpec& spec) {
  const StepOrigin& origin = manifest.origin;
  return origin.batch_norm_updates + (manifest.updates - origin.updates) * spec.train.accumulate_steps;
}

}  // namespace

ManifestFile write_process_file(TensorFile& tensors, const std::filesystem::path& folder, int process,
                                int processes, const OnProgress& on_progress) {
  const std::string name = process_file_name(process, processes);
  const FileDigest digest = tensors.write(folder / name, {{"format", "sdp-train checkpoint"}}, on_progress);
  return {name, digest.bytes, digest.xxh3_128};
}

Manifest manifest_of(const Experiment& experiment, const RunProgress& progress) {
  Manifest manifest;
  manifest.step = progress.step;
  manifest.skipped_steps = progress.skipped_steps;
  manifest.updates = progress.step - progress.skipped_steps;
  manifest.origin = progress.origin;
  manifest.batch_norm_updates = batch_norm_updates(manifest, experiment.spec);
  manifest.metrics_lines = progress.metrics_lines;
  manifest.training_data = {progress.training_data.samples, progress.training_data.hash};
  manifest.test_data = {progress.test_data.samples, progress.test_data.hash};
  manifest.plan_hash = plan_hash(experiment.plan);
  manifest.workers = experiment.plan.workers;
  manifest.replicas = experiment.schedule.placement.replicas;
  manifest.processes = experiment.schedule.placement.processes;
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

std::vector<std::string> check_data(const Manifest& manifest, const DataIdentity& training_data,
                                    const DataIdentity& test_data, bool is_resized) {
  if (!is_resized && manifest.training_data.samples > 0 &&
      manifest.training_data.samples != training_data.samples)
    throw DataError(
        fmt::format("data.path: the training data has {} samples, but had {} when the checkpoint of step {} "
                    "was saved; the order of samples depends on it. Restore the data, or start "
                    "a run under another name.",
                    training_data.samples, manifest.training_data.samples, manifest.step));
  std::vector<std::string> warnings;
  const auto compare = [&](const char* which, const ManifestData& saved, const DataIdentity& now) {
    const int64_t samples = is_resized ? saved.samples : now.samples;
    if (saved == ManifestData() || saved == ManifestData{samples, now.hash}) return;
    warnings.push_back(
        fmt::format("the {} data has changed since the checkpoint was saved: now {} samples with hash {}, "
                    "before {} with {}",
                    which, now.samples, now.hash, saved.samples, saved.hash));
  };
  compare("training", manifest.training_data, training_data);
  compare("test", manifest.test_data, test_data);
  return warnings;
}

std::string text_of_last_checkpoint(std::optional<int64_t> step) {
  return step ? fmt::format("The last checkpoint is of step {}; --resume continues from there.", *step)
              : "There is no checkpoint.";
}

void check_state_is_finite(const Experiment& experiment, Engine& engine, Communicator& comm) {
  const at::NoGradGuard no_grad;
  check_finite(state_to_save(experiment, engine), comm);
}

SavedCheckpoint save_checkpoint(const std::filesystem::path& run_dir, const Experiment& experiment,
                                Engine& engine, Communicator& comm, const RunProgress& progress,
                                const RunDescription& description, int threads,
                                const OnProgress& on_progress) {
  const at::NoGradGuard no_grad;
  const StateToSave state = state_to_save(experiment, engine);
  check_finite(state, comm);
  const CheckpointStore store(run_dir);
  if (comm.rank() == 0) store.begin(progress.step);
  comm.barrier();
  const std::filesystem::path folder = store.partial_path(progress.step);
  TensorFile tensors = file_of(state);
  const ManifestFile mine = write_process_file(tensors, folder, comm.rank(), comm.size(), on_progress);
  const nlohmann::json record = {mine.name, mine.bytes, mine.xxh3_128};
  const std::vector<std::string> records = comm.all_gather_strings(json_text(record));
  Manifest manifest = manifest_of(experiment, progress);
  manifest.threads = threads;
  SavedCheckpoint saved;
  for (const std::string& text : records) {
    const auto file = nlohmann::json::parse(text);
    manifest.files.push_back({file[0], file[1], file[2]});
    saved.bytes += manifest.files.back().bytes;
  }
  if (comm.rank() == 0) {
    for (ManifestFile& file : write_description(description, folder))
      manifest.files.push_back(std::move(file));
    saved.left =
        store.commit(progress.step, manifest, experiment.spec.checkpoint.keep_last, progress.best_steps);
  }
  comm.barrier();
  return saved;
}

namespace {

void check_fits(const CheckpointReader& reader, const SubnetPlan& plan, const ExperimentSpec& spec) {
  const Manifest& manifest = reader.manifest();
  const auto require = [&](bool holds, const std::string& what) {
    if (!holds)
      throw DataError(
          fmt::format("{}: the checkpoint belongs to another experiment: {}. Use it with the spec.yaml "
                      "and plan.json beside it.",
                      (reader.folder() / kManifestName).string(), what));
  };
  require(manifest.plan_hash == plan_hash(plan) && manifest.workers == plan.workers,
          "the model, the workers or their owner sets differ");
  require(manifest.replicas == spec.subnetwork.replicas,
          fmt::format("it has replicas {}, the spec {}", manifest.replicas, spec.subnetwork.replicas));
  require(manifest.batch_norm_updates == batch_norm_updates(manifest, spec),
          fmt::format("batch_norm_updates is {} after {} updates of {} micro-batches",
                      manifest.batch_norm_updates, manifest.updates, spec.train.accumulate_steps));
}

/// The checkpoint's values of these units of a parameter, in the shape of a tensor that holds them.
at::Tensor read_units(const CheckpointReader& reader, const SubnetPlan& plan, int index,
                      const std::vector<int>& units, const at::TensorOptions& options,
                      const char* kind = kValueKind) {
  const ParameterLayout& parameter = plan.layout.parameters[index];
  const at::Tensor values = at::empty(shape_of_units(parameter.shape, parameter.slice, plan, units), options,
                                      storage_format(parameter.shape.size()));
  const std::vector<at::Tensor> views = piece_views(values, parameter.slice, plan, units);
  for (size_t i = 0; i < units.size(); ++i) {
    const at::Tensor piece = at::empty({views[i].numel()}, options);
    reader.read(plan, {.kind = kind,
                       .parameter = index,
                       .unit = units[i],
                       .begin = 0,
                       .end = piece.numel(),
                       .values = piece});
    views[i].copy_(piece.view(views[i].sizes()));
  }
  return values;
}

at::TensorOptions value_options(const ParameterLayout& parameter, Precision precision, at::Device device) {
  return at::TensorOptions(scalar_type(element_type(parameter, precision))).device(device);
}

at::TensorOptions buffer_options(Precision precision, at::Device device) {
  return at::TensorOptions(scalar_type(sum_type(precision))).device(device);
}

[[noreturn]] void fail_without_buffer(const std::string& name) {
  throw DataError("the checkpoint has no buffer " + name);
}

/// BatchNorm statistics of the full model: the average over the slots of the owners. By buffer.
std::vector<at::Tensor> averaged_buffers(const CheckpointReader& reader, const SubnetPlan& plan,
                                         const at::TensorOptions& options) {
  const int replicas = static_cast<int>(reader.manifest().replicas);
  std::vector<at::Tensor> means;
  for (int b = 0; b < static_cast<int>(plan.layout.buffers.size()); ++b) {
    const BufferLayout& buffer = plan.layout.buffers[b];
    const at::Tensor& mean = means.emplace_back(at::zeros(buffer.shape, options));
    const std::vector<int> units = plan.units_of(buffer);
    const std::vector<at::Tensor> views = piece_views(mean, buffer.slice, plan, units);
    for (size_t i = 0; i < units.size(); ++i) {
      const MemberSet& owners = plan.owners(units[i]);
      for (int worker : owners) {
        for (int replica = 0; replica < replicas; ++replica) {
          const at::Tensor saved = reader.buffer(plan, b, units[i], {.worker = worker, .replica = replica});
          if (!saved.defined()) fail_without_buffer(buffer.name);
          views[i].add_(saved.view(views[i].sizes()).to(mean.options()) /
                        static_cast<double>(static_cast<int>(owners.size()) * replicas));
        }
      }
    }
  }
  return means;
}

void restore_buffers(const CheckpointReader& reader, const SavedDivision& saved, const Experiment& experiment,
                     const ParameterStore& store) {
  const SubnetPlan& plan = experiment.plan;
  std::vector<at::Tensor> means;
  if (!is_divided_as(saved, experiment))
    means = averaged_buffers(reader, saved.plan,
                             buffer_options(experiment.spec.train.precision, at::Device(at::kCPU)));
  for (size_t s = 0; s < store.slots().size(); ++s) {
    for (const BufferPiece& piece : store.buffer_pieces(static_cast<int>(s))) {
      const BufferLayout& buffer = plan.layout.buffers[piece.buffer];
      const at::Tensor values = means.empty()
                                    ? reader.buffer(plan, piece.buffer, piece.unit, store.slots()[s])
                                    : piece_view(means[static_cast<size_t>(piece.buffer)], buffer.slice, plan,
                                                 plan.units_of(buffer), piece.unit);
      if (!values.defined())
        fail_without_buffer(buffer_name(buffer_key(plan, piece.buffer, piece.unit), store.slots()[s]));
      piece.values.copy_(values.reshape(piece.values.sizes()));
    }
  }
}

}  // namespace

bool is_divided_as(const SavedDivision& saved, const Experiment& experiment) {
  return plan_hash(saved.plan) == plan_hash(experiment.plan) &&
         saved.spec.subnetwork.replicas == experiment.spec.subnetwork.replicas;
}

void restore(const CheckpointReader& reader, const SavedDivision& saved, const Experiment& experiment,
             Engine& engine) {
  const at::NoGradGuard no_grad;
  check_fits(reader, saved.plan, saved.spec);
  engine.load_state([&](const StateRange& range) { reader.read(experiment.plan, range); });
  restore_buffers(reader, saved, experiment, engine.store());
  engine.set_step_count(reader.manifest().updates);
}

SavedFullModel::SavedFullModel(const SubnetPlan& plan, const CheckpointReader& reader,
                               const ExperimentSpec& spec, at::Device device, ModelValues values)
    : FullModel(plan, values), reader_(reader), precision_(spec.train.precision), device_(device) {
  check_fits(reader, plan, spec);
  if (values == ModelValues::kAverage && !has_average(reader.manifest(), spec))
    throw UsageError(reader.folder().string() +
                     " has no moving average of the values. It is kept with optimizer.ema_decay, from the "
                     "first update on.");
  const std::vector<at::Tensor> means = averaged_buffers(reader, plan, buffer_options(precision_, device));
  for (size_t b = 0; b < means.size(); ++b)
    buffers_[plan.layout.buffers[b].name] = means[b];
}

std::vector<at::Tensor> SavedFullModel::read_parameters(const std::vector<int>& indices) {
  std::vector<at::Tensor> wholes;
  for (const int index : indices) {
    const ParameterLayout& parameter = plan_.layout.parameters[index];
    wholes.push_back(read_units(reader_, plan_, index, plan_.units_of(parameter),
                                value_options(parameter, precision_, device_),
                                values() == ModelValues::kAverage ? kAverageName : kValueKind));
  }
  return wholes;
}

bool has_average(const Manifest& manifest, const ExperimentSpec& spec) {
  return spec.optimizer.ema_decay > 0 && manifest.updates > 0;
}

SavedSubnetwork::SavedSubnetwork(const SubnetPlan& plan, const CheckpointReader& reader,
                                 const ExperimentSpec& spec, at::Device device, int worker)
    : plan_(plan), reader_(reader), precision_(spec.train.precision), device_(device), worker_(worker) {
  check_fits(reader, plan, spec);
}

at::Tensor SavedSubnetwork::find_parameter(const std::string& name, int part) const {
  const int index = plan_.layout.parameter_index(name);
  const ParameterLayout& parameter = plan_.layout.parameters[index];
  return read_units(reader_, plan_, index, plan_.parts_of(worker_, parameter).at(part).units,
                    value_options(parameter, precision_, device_));
}

at::Tensor SavedSubnetwork::find_buffer(const std::string& name, int part) const {
  for (int b = 0; b < static_cast<int>(plan_.layout.buffers.size()); ++b) {
    const BufferLayout& buffer = plan_.layout.buffers[b];
    if (buffer.name != name) continue;
    const std::vector<int> units = plan_.parts_of(worker_, buffer).at(part).units;
    const at::Tensor values = at::empty(shape_of_units(buffer.shape, buffer.slice, plan_, units),
                                        buffer_options(precision_, device_));
    const std::vector<at::Tensor> views = piece_views(values, buffer.slice, plan_, units);
    for (size_t i = 0; i < units.size(); ++i) {
      const at::Tensor saved = reader_.buffer(plan_, b, units[i], {.worker = worker_, .replica = 0});
      if (!saved.defined()) fail_without_buffer(name);
      views[i].copy_(saved.view(views[i].sizes()));
    }
    return values;
  }
  throw std::logic_error("the model has no buffer " + name);
}

}  // namespace sdp
