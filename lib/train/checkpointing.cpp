#include "train/checkpointing.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/version.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "checkpoint/digest.h"
#include "spec/error.h"
#include "spec/print.h"
#include "subnet/plan_json.h"
#include "train/version.h"

namespace sdp {
namespace {

constexpr const char* kBuffer = "buffer";

std::string range_name(const StateKey& key, int64_t begin, int64_t end) {
  return fmt::format("{}|{}|{}:{}|{}:{}", key.kind, key.parameter, key.hidden_begin, key.hidden_end, begin,
                     end);
}

std::string buffer_name(const std::string& name, Slot slot) {
  return fmt::format("{}|{}|{}|{}", kBuffer, name, slot.worker, slot.replica);
}

StateKey key_of(const SubnetPlan& plan, const std::string& kind, int parameter, int unit) {
  StateKey key{.kind = kind, .parameter = plan.layout.parameters[parameter].name};
  if (unit != kSharedUnit) {
    key.hidden_begin = plan.units[unit].begin;
    key.hidden_end = plan.units[unit].end;
  }
  return key;
}

/// "a:b" -> a, b
std::pair<int64_t, int64_t> parse_range(std::string_view text, const std::string& name) {
  std::pair<int64_t, int64_t> range;
  const char* end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), end, range.first);
  if (first.ec == std::errc() && first.ptr != end && *first.ptr == ':') {
    const auto second = std::from_chars(first.ptr + 1, end, range.second);
    if (second.ec == std::errc() && second.ptr == end) return range;
  }
  throw DataError("checkpoint tensor " + name + ": expected kind|parameter|begin:end|begin:end");
}

std::vector<std::string_view> split(std::string_view text) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t bar = text.find('|');
    parts.push_back(text.substr(0, bar));
    if (bar == std::string_view::npos) return parts;
    text.remove_prefix(bar + 1);
  }
}

DType dtype_of(at::ScalarType type) {
  return type == at::kDouble ? DType::kF64 : type == at::kFloat ? DType::kF32 : DType::kBF16;
}

at::Tensor as_tensor(const TensorView& view) {
  const at::ScalarType type = view.entry.dtype == DType::kF64   ? at::kDouble
                              : view.entry.dtype == DType::kF32 ? at::kFloat
                                                                : at::kBFloat16;
  // Mapped read-only; callers only copy out of it.
  return at::from_blob(const_cast<std::byte*>(view.data.data()), view.entry.shape, type);
}

/// What one process saves: its part of every parameter's state, and its slots' buffers.
std::map<std::string, at::Tensor> tensors_to_save(const Experiment& experiment, Engine& engine) {
  std::map<std::string, at::Tensor> tensors;
  for (const StateRange& range : engine.owned_state())
    tensors[range_name(key_of(experiment.plan, range.kind, range.parameter, range.unit), range.begin,
                       range.end)] = range.values;
  const ParameterStore& store = engine.store();
  for (size_t s = 0; s < store.slots().size(); ++s)
    for (const auto& [name, buffer] : store.slot(static_cast<int>(s)).buffers())
      tensors[buffer_name(name, store.slots()[s])] = buffer;
  return tensors;
}

ManifestFile write_process_file(const std::filesystem::path& folder, const Experiment& experiment,
                                Engine& engine, const Communicator& comm) {
  const std::map<std::string, at::Tensor> tensors = tensors_to_save(experiment, engine);
  std::vector<TensorEntry> entries;
  for (const auto& [name, tensor] : tensors)
    entries.push_back({name, dtype_of(tensor.scalar_type()), tensor.sizes().vec()});
  sort_for_writing(entries);
  const std::string name = process_file_name(comm.rank(), comm.size());
  SafetensorsWriter writer(folder / name, entries, {{"format", "sdp-train checkpoint"}});
  for (const TensorEntry& entry : entries) {
    const at::Tensor host = tensors.at(entry.name).to(at::kCPU).contiguous();
    writer.write(std::span(static_cast<const std::byte*>(host.data_ptr()), host.nbytes()));
  }
  const FileDigest digest = writer.finish();
  return {name, digest.bytes, digest.xxh3_128};
}

}  // namespace

void save_checkpoint(const std::filesystem::path& run_dir, const Experiment& experiment, Engine& engine,
                     Communicator& comm, int64_t step, int threads) {
  const at::NoGradGuard no_grad;
  const CheckpointStore store(run_dir);
  if (comm.rank() == 0) store.begin(step);
  comm.barrier();
  const ManifestFile mine = write_process_file(store.partial_path(step), experiment, engine, comm);
  const nlohmann::json record = {mine.name, mine.bytes, mine.xxh3_128};
  const std::vector<std::string> records = comm.all_gather_strings(record.dump());
  if (comm.rank() == 0) {
    Manifest manifest;
    manifest.step = step;
    for (const std::string& text : records) {
      const auto file = nlohmann::json::parse(text);
      manifest.files.push_back({file[0], file[1], file[2]});
    }
    manifest.plan_hash = plan_hash(experiment.plan);
    manifest.spec_hash = spec_hash(experiment.spec);
    manifest.workers = experiment.plan.workers;
    manifest.replicas = experiment.schedule.placement.replicas;
    manifest.processes = comm.size();
    manifest.threads = threads;
    manifest.libtorch_version = TORCH_VERSION;
    manifest.program_version = kProgramVersion;
    manifest.state["updates"] = engine.step_count();
    manifest.state["batch_norm_updates"] = step * experiment.spec.train.accumulate_steps;
    store.commit(step, manifest, experiment.spec.checkpoint.keep_last);
  }
  comm.barrier();
}

CheckpointReader::CheckpointReader(const std::filesystem::path& run_dir, std::optional<int64_t> step,
                                   bool verify_hashes) {
  const CheckpointStore store(run_dir);
  if (!step) step = store.latest_step();
  if (!step)
    throw DataError(fmt::format("{}: no checkpoint in this run folder. Train first, or name another folder.",
                                run_dir.string()));
  manifest_ = store.read(*step, verify_hashes);
  folder_ = store.folder(*step);
  for (const ManifestFile& file : manifest_.files) {
    files_.push_back(std::make_unique<SafetensorsFile>(folder_ / file.name));
    index_file(*files_.back());
  }
  for (auto& [key, ranges] : ranges_)
    std::sort(ranges.begin(), ranges.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
}

void CheckpointReader::index_file(const SafetensorsFile& file) {
  for (const TensorView& view : file.entries()) {
    const std::string& name = view.entry.name;
    const std::vector<std::string_view> parts = split(name);
    if (parts.size() != 4) throw DataError(folder_.string() + ": unexpected tensor " + name);
    if (parts[0] == kBuffer) {
      const auto [worker, replica] = parse_range(fmt::format("{}:{}", parts[2], parts[3]), name);
      buffers_[{std::string(parts[1]), Slot{static_cast<int>(worker), static_cast<int>(replica)}}] = &view;
      continue;
    }
    const auto [hidden_begin, hidden_end] = parse_range(parts[2], name);
    const auto [begin, end] = parse_range(parts[3], name);
    if (begin < 0 || end - begin != view.entry.bytes() / element_bytes(view.entry.dtype))
      throw DataError(folder_.string() + ": tensor " + name + " has another size than its name says");
    ranges_[{std::string(parts[0]), std::string(parts[1]), hidden_begin, hidden_end}].push_back(
        {begin, end, &view});
  }
}

void CheckpointReader::read(const StateKey& key, int64_t begin, int64_t end, at::Tensor target) const {
  const auto found = ranges_.find(key);
  int64_t done = begin;
  if (found != ranges_.end()) {
    for (const SavedRange& range : found->second) {
      if (range.begin > done || range.end <= done) continue;
      const int64_t until = std::min(end, range.end);
      if (until <= done) break;
      target.narrow(0, done - begin, until - done)
          .copy_(as_tensor(*range.view).narrow(0, done - range.begin, until - done));
      done = until;
    }
  }
  if (done < end)
    throw DataError(
        fmt::format("{}: elements {} to {} of {} are missing. The checkpoint is of another model or "
                    "damaged.",
                    folder_.string(), done, end, range_name(key, begin, end)));
}

at::Tensor CheckpointReader::buffer(const std::string& name, Slot slot) const {
  const auto found = buffers_.find({name, slot});
  return found == buffers_.end() ? at::Tensor() : as_tensor(*found->second);
}

std::string CheckpointReader::identity() const {
  return fmt::format("step {}, {}", manifest_.step, xxh3_128(manifest_text(manifest_)));
}

namespace {

void check_plan(const CheckpointReader& reader, const SubnetPlan& plan) {
  if (reader.manifest().plan_hash != plan_hash(plan))
    throw DataError(
        "the checkpoint belongs to another plan: the model, the workers or their owner sets are not those it "
        "was made "
        "with. Use it with the run folder's own spec.yaml and plan.json.");
}

/// A parameter in the full model's shape. Block construction: it belongs to one unit.
at::Tensor read_whole(const CheckpointReader& reader, const SubnetPlan& plan, int index, Precision precision,
                      at::Device device) {
  const ParameterLayout& parameter = plan.layout.parameters[index];
  const std::vector<int> units = plan.units_of(parameter);
  if (units.size() != 1) throw std::logic_error(parameter.name + " is divided over units");
  at::Tensor values =
      at::empty({parameter.elements()},
                at::TensorOptions(scalar_type(element_type(parameter, precision))).device(device));
  reader.read(key_of(plan, "value", index, units.front()), 0, values.numel(), values);
  return values.view(parameter.shape);
}

}  // namespace

void restore(const CheckpointReader& reader, const Experiment& experiment, Engine& engine) {
  const at::NoGradGuard no_grad;
  check_plan(reader, experiment.plan);
  for (StateRange& range : engine.required_state())
    reader.read(key_of(experiment.plan, range.kind, range.parameter, range.unit), range.begin, range.end,
                range.values);
  const ParameterStore& store = engine.store();
  for (size_t s = 0; s < store.slots().size(); ++s) {
    for (const auto& [name, buffer] : store.slot(static_cast<int>(s)).buffers()) {
      const at::Tensor saved = reader.buffer(name, store.slots()[s]);
      if (!saved.defined())
        throw DataError("the checkpoint has no buffer " + buffer_name(name, store.slots()[s]));
      at::Tensor(buffer).copy_(saved);
    }
  }
  engine.set_step_count(reader.manifest().state.at("updates"));
}

SavedFullModel::SavedFullModel(const SubnetPlan& plan, const CheckpointReader& reader,
                               const ExperimentSpec& spec, at::Device device)
    : FullModel(plan), reader_(reader), precision_(spec.train.precision), device_(device) {
  check_plan(reader, plan);
  const at::TensorOptions options = at::TensorOptions(scalar_type(sum_type(precision_))).device(device);
  for (const BufferLayout& buffer : plan.layout.buffers) {
    at::Tensor sum = at::zeros(buffer.shape, options);
    int64_t holders = 0;
    for (int worker = 0; worker < plan.workers; ++worker) {
      for (int replica = 0; replica < reader.manifest().replicas; ++replica) {
        const at::Tensor saved = reader.buffer(buffer.name, {.worker = worker, .replica = replica});
        if (!saved.defined()) continue;
        sum.add_(saved.to(options));
        ++holders;
      }
    }
    if (holders == 0) throw DataError("the checkpoint has no buffer " + buffer.name);
    buffers_[buffer.name] = sum.div_(static_cast<double>(holders));
  }
}

at::Tensor SavedFullModel::read_parameter(int index) {
  return read_whole(reader_, plan_, index, precision_, device_);
}

SavedSubnetwork::SavedSubnetwork(const SubnetPlan& plan, const CheckpointReader& reader,
                                 const ExperimentSpec& spec, at::Device device, int worker)
    : plan_(plan), reader_(reader), precision_(spec.train.precision), device_(device), worker_(worker) {
  check_plan(reader, plan);
}

at::Tensor SavedSubnetwork::parameter(const std::string& name) const {
  return read_whole(reader_, plan_, plan_.layout.parameter_index(name), precision_, device_);
}

at::Tensor SavedSubnetwork::buffer(const std::string& name) const {
  const at::Tensor saved = reader_.buffer(name, {.worker = worker_, .replica = 0});
  if (!saved.defined()) throw DataError("the checkpoint has no buffer " + name);
  return saved.to(device_, scalar_type(sum_type(precision_)), /*non_blocking=*/false, /*copy=*/true);
}

}  // namespace sdp
