#include "checkpoint/checkpointing.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <torch/version.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "checkpoint/files/digest.h"
#include "device/version.h"
#include "engine/finite.h"
#include "experiment/spec/print.h"
#include "hash/xxh3.h"
#include "io/atomic_file.h"
#include "model/slices.h"
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
void check_finite(const StateToSave& state, const std::filesystem::path& run_dir, Communicator& comm) {
  const std::optional<size_t> bad = first_not_finite(state.tensors);
  const std::vector<std::string> names = comm.all_gather_strings(bad ? state.names[*bad] : "");
  for (int rank = 0; rank < comm.size(); ++rank)
    if (const std::string& name = names[static_cast<size_t>(rank)]; !name.empty())
      throw Error(
          ExitCode::kInternal,
          fmt::format("{} is not finite (NaN or infinity) on rank {}: the run has diverged, and nothing "
                      "was saved. Lower optimizer.lr, lengthen the warm-up or set optimizer.clip_norm. {}",
                      name, rank, text_of_last_checkpoint(run_dir)));
}

TensorFile file_of(const StateToSave& state) {
  TensorFile file;
  for (size_t i = 0; i < state.names.size(); ++i)
    file.add(state.names[i], dtype_of(state.tensors[i].scalar_type()), {state.tensors[i].numel()},
             [tensor = state.tensors[i]] { return tensor; });
  return file;
}

/// One update per micro-batch of every step, plus the count of an imported model.
int64_t batch_norm_updates(const Manifest& manifest, const ExperimentSpec& spec) {
  return manifest.imported_batch_norm_updates + manifest.updates * spec.train.accumulate_steps;
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
  manifest.imported_batch_norm_updates = progress.imported_batch_norm_updates;
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
                                    const DataIdentity& test_data) {
  if (manifest.training_data.samples > 0 && manifest.training_data.samples != training_data.samples)
    throw DataError(
        fmt::format("data.path: the training data has {} samples, but had {} when the checkpoint of step {} "
                    "was saved; the order of samples depends on it. Restore the data, or start "
                    "a run under another name.",
                    training_data.samples, manifest.training_data.samples, manifest.step));
  std::vector<std::string> warnings;
  const auto compare = [&](const char* which, const ManifestData& saved, const DataIdentity& now) {
    if (saved == ManifestData() || saved == ManifestData{now.samples, now.hash}) return;
    warnings.push_back(
        fmt::format("the {} data has changed since the checkpoint was saved: now {} samples with hash {}, "
                    "before {} with {}",
                    which, now.samples, now.hash, saved.samples, saved.hash));
  };
  compare("training", manifest.training_data, training_data);
  compare("test", manifest.test_data, test_data);
  return warnings;
}

std::string text_of_last_checkpoint(const std::filesystem::path& run_dir) {
  const std::optional<int64_t> step = CheckpointStore(run_dir).latest_step();
  return step ? fmt::format("The last checkpoint is of step {}.", *step) : "There is no checkpoint.";
}

void check_state_is_finite(const std::filesystem::path& run_dir, const Experiment& experiment, Engine& engine,
                           Communicator& comm) {
  const at::NoGradGuard no_grad;
  check_finite(state_to_save(experiment, engine), run_dir, comm);
}

SavedCheckpoint save_checkpoint(const std::filesystem::path& run_dir, const Experiment& experiment,
                                Engine& engine, Communicator& comm, const RunProgress& progress,
                                const RunDescription& description, int threads,
                                const OnProgress& on_progress) {
  const at::NoGradGuard no_grad;
  const StateToSave state = state_to_save(experiment, engine);
  check_finite(state, run_dir, comm);
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
        store.commit(progress.step, manifest, experiment.spec.checkpoint.keep_last, progress.best_step);
  }
  comm.barrier();
  return saved;
}

CheckpointReader::CheckpointReader(const std::filesystem::path& run_dir, std::optional<int64_t> step,
                                   bool verify_hashes, const OnProgress& on_progress) {
  const CheckpointStore store(run_dir);
  if (!step) step = store.latest_step();
  if (!step)
    throw DataError(fmt::format("{}: no checkpoint in this run folder. Train first, or give another folder.",
                                run_dir.string()));
  manifest_ = store.read(*step, verify_hashes, on_progress);
  folder_ = store.folder(*step);
  for (int64_t process = 0; process < manifest_.processes; ++process) {
    const std::filesystem::path path = folder_ / manifest_.files[static_cast<size_t>(process)].name;
    files_.push_back(std::make_unique<SafetensorsFile>(path));
    index_file(*files_.back(), path);
  }
  for (auto& [key, ranges] : ranges_)
    std::sort(ranges.begin(), ranges.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
}

void CheckpointReader::index_file(const SafetensorsFile& file, const std::filesystem::path& path) {
  for (const TensorView& view : file.entries()) {
    const std::string& name = view.entry.name;
    const auto& [key, begin, end] = parse_name(name);
    if (key.kind == kBufferKind) {
      buffers_[{key, Slot{static_cast<int>(begin), static_cast<int>(end)}}] = &view;
      continue;
    }
    if (begin < 0 || end - begin != view.entry.bytes() / element_bytes(view.entry.dtype))
      throw DataError(path.string() + ": tensor " + name + " does not have the size that its name states");
    ranges_[key].push_back({begin, end, &view});
  }
}

void CheckpointReader::read(const StateKey& key, int64_t begin, int64_t end, const at::Tensor& target) const {
  const auto found = ranges_.find(key);
  int64_t done = begin;
  if (found != ranges_.end()) {
    for (const SavedRange& range : found->second) {
      if (range.begin > done || range.end <= done) continue;
      const int64_t until = std::min(end, range.end);
      if (until <= done) break;
      const at::Tensor saved = as_tensor(*range.view).narrow(0, done - range.begin, until - done);
      require_finite(saved, range.view->entry.name);
      target.narrow(0, done - begin, until - done).copy_(saved);
      done = until;
    }
  }
  if (done < end)
    throw DataError(
        fmt::format("{}: elements {} to {} of {} are missing. The checkpoint belongs to another model or is "
                    "damaged.",
                    folder_.string(), done, end, range_name(key, begin, end)));
}

at::Tensor CheckpointReader::buffer(const SubnetPlan& plan, int buffer, int unit, Slot slot) const {
  const auto found = buffers_.find({buffer_key(plan, buffer, unit), slot});
  if (found == buffers_.end()) return {};
  const at::Tensor saved = as_tensor(*found->second);
  require_finite(saved, found->second->entry.name);
  return saved;
}

void CheckpointReader::require_finite(const at::Tensor& values, const std::string& name) const {
  if (!is_finite(values))
    throw DataError(
        fmt::format("{}: tensor {} has values that are not finite (NaN or infinity). Use an "
                    "earlier checkpoint.",
                    folder_.string(), name));
}

std::string CheckpointReader::identity() const {
  return fmt::format("step {}, {}", manifest_.step, xxh3_128(manifest_text(manifest_)));
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
at::Tensor read_units(const CheckpointReader& reader, const SubnetPlan& plan,
                      const ParameterLayout& parameter, const std::vector<int>& units,
                      const at::TensorOptions& options, const char* kind = kValueKind) {
  const at::Tensor values = at::empty(shape_of_units(parameter.shape, parameter.slice, plan, units), options);
  const std::vector<at::Tensor> views = piece_views(values, parameter.slice, plan, units);
  for (size_t i = 0; i < units.size(); ++i) {
    const at::Tensor piece = at::empty({views[i].numel()}, options);
    reader.read(key_of(plan, kind, parameter.name, units[i]), 0, piece.numel(), piece);
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

}  // namespace

void restore(const CheckpointReader& reader, const Experiment& experiment, Engine& engine) {
  const at::NoGradGuard no_grad;
  const SubnetPlan& plan = experiment.plan;
  check_fits(reader, plan, experiment.spec);
  engine.load_state([&](const StateRange& range) {
    reader.read(key_of(plan, range), range.begin, range.end, range.values);
  });
  const ParameterStore& store = engine.store();
  for (size_t s = 0; s < store.slots().size(); ++s) {
    for (const BufferPiece& piece : store.buffer_pieces(static_cast<int>(s))) {
      const at::Tensor saved = reader.buffer(plan, piece.buffer, piece.unit, store.slots()[s]);
      if (!saved.defined())
        fail_without_buffer(buffer_name(buffer_key(plan, piece.buffer, piece.unit), store.slots()[s]));
      piece.values.copy_(saved.view(piece.values.sizes()));
    }
  }
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
  const int replicas = static_cast<int>(reader.manifest().replicas);
  for (int b = 0; b < static_cast<int>(plan.layout.buffers.size()); ++b) {
    const BufferLayout& buffer = plan.layout.buffers[b];
    const at::Tensor mean = at::zeros(buffer.shape, buffer_options(precision_, device));
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
    buffers_[buffer.name] = mean;
  }
}

at::Tensor SavedFullModel::read_parameter(int index) {
  const ParameterLayout& parameter = plan_.layout.parameters[index];
  return read_units(reader_, plan_, parameter, plan_.units_of(parameter),
                    value_options(parameter, precision_, device_),
                    values() == ModelValues::kAverage ? kAverageName : kValueKind);
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
  const ParameterLayout& parameter = plan_.layout.parameters[plan_.layout.parameter_index(name)];
  return read_units(reader_, plan_, parameter, plan_.parts_of(worker_, parameter).at(part).units,
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
