#include "hub/export.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "data/device_loader.h"
#include "data/tokens.h"
#include "engine/checks.h"
#include "engine/device.h"
#include "engine/full_model.h"
#include "eval/evaluation.h"
#include "hub/library_files.h"
#include "hub/model_config.h"
#include "io/file.h"
#include "layers/tensors.h"
#include "run/checkpoint_reader.h"
#include "run/checkpoint_tensors.h"
#include "run/progress.h"
#include "run/restore_checkpoint.h"
#include "run/resumed_run.h"
#include "run/run_data.h"
#include "run/run_folder.h"
#include "run/run_text.h"
#include "spec/error.h"
#include "spec/json_fields.h"

namespace sdp {
namespace {

/// The branch scale of the spec; for `auto` the one chosen by the run's last evaluation, or nothing if there
/// was none.
std::optional<double> branch_scale_to_export(const Experiment& experiment,
                                             const std::filesystem::path& run_dir, const Manifest& manifest) {
  if (const std::optional<double> fixed = fixed_branch_scale(experiment)) return fixed;
  const std::optional<EvalRecord> evaluation = find_evaluation(RunFolder{run_dir}.metrics(), manifest.step);
  if (!evaluation) return std::nullopt;
  std::printf(
      "branch scale %g, which the evaluation after step %lld found better (eval.branch_scale: auto)\n",
      evaluation->branch_scale, static_cast<long long>(manifest.step));
  return evaluation->branch_scale;
}

/// Reads training data only if a correction needs them.
void correct(FullModel& model, const Experiment& experiment, std::optional<double> branch_scale,
             const std::filesystem::path& checkpoint, ProgressLine& line) {
  const ExperimentSpec& spec = experiment.spec;
  const int64_t recalibrate_batches = batches_to_recalibrate(experiment);
  if (branch_scale && recalibrate_batches == 0) return model.set_branch_scale(*branch_scale);
  if (recalibrate_batches > 0)
    std::printf("BatchNorm statistics of %lld training batches (eval.recalibrate_batches)\n",
                static_cast<long long>(recalibrate_batches));
  std::fflush(stdout);
  const auto train = open_split(spec, Split::kTrain, line);
  const std::unique_ptr<Communicator> comm =
      connect(Ranks{}, at::kCPU, {.timeout = std::chrono::seconds(spec.train.collective_timeout_s)});
  const DeviceDataset source(*train, spec.data, spec.train.precision, at::kCPU);
  const auto on_skipped = [&](const std::string& message) { line.print_skipped(message); };
  EvalTimes times;
  if (const auto trial = correct({experiment, source, source, *comm, line, on_skipped, checkpoint}, model,
                                 branch_scale, times))
    std::printf("%s\n", describe(*trial, model.branch_scale()).c_str());
}

/// Constants and counters of the library.
void add_library_tensors(TensorFile& file, const Experiment& experiment, int64_t batch_norm_updates) {
  for (const auto& [name, values] :
       library_tensors(experiment.spec.model, experiment.plan.layout, batch_norm_updates))
    file.add(name, DType::kI64, values.sizes().vec(), [values] { return values; });
}

constexpr const char* kOwnKey = "sdp_train";
constexpr const char* kWeightsKey = "weights";

constexpr const char* kTokenizer = "tokenizer.json";
constexpr const char* kTokenizerConfig = "tokenizer_config.json";

/// Does not replace a config.json that `export` did not write, or another file that has no config.json of
/// `export` beside it. One written by `export` names the file it describes, the last one exported into the
/// folder.
void check_config_may_be_written(const std::filesystem::path& out, const ExportOrigin& origin) {
  const auto refuse = [&out](const std::filesystem::path& file) {
    throw UsageError(fmt::format("--out {}: {} was not written by sdp-train. Export into another folder.",
                                 out.string(), file.string()));
  };
  if (std::ifstream file(config_beside(out)); file) {
    const auto json = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object() || !json.contains(kOwnKey)) refuse(config_beside(out));
  } else {
    std::vector<std::filesystem::path> others = origin.imported_files;
    if (origin.tokens.tokenizer) others.insert(others.end(), {kTokenizer, kTokenizerConfig});
    for (const std::filesystem::path& other : others)
      if (const auto path = out.parent_path() / other.filename(); std::filesystem::exists(path)) refuse(path);
  }
}

/// The files that transformers' AutoTokenizer loads.
void write_tokenizer(const std::filesystem::path& out, const TokenOrigin& tokens) {
  if (!tokens.tokenizer) return;
  const std::string content = read_text(*tokens.tokenizer);
  write_file_atomically(out.parent_path() / kTokenizer, content);
  nlohmann::ordered_json config = {{"tokenizer_class", "PreTrainedTokenizerFast"}};
  const auto tokenizer = nlohmann::json::parse(content, nullptr, /*allow_exceptions=*/false);
  if (tokens.end_of_text && tokenizer.is_object() && tokenizer.contains("added_tokens"))
    for (const auto& added : tokenizer["added_tokens"])
      if (added.value("id", int64_t{-1}) == *tokens.end_of_text)
        config["bos_token"] = config["eos_token"] = added.value("content", "");
  write_file_atomically(out.parent_path() / kTokenizerConfig, json_text(config, 2) + "\n");
}

/// config.json and the tokenizer. What was imported replaces the shards' tokenizer: it is the model's.
/// Written before the weights, config.json first: with it, nothing that a full disk leaves refuses the next
/// export.
void write_files_beside(const std::filesystem::path& out, nlohmann::ordered_json config,
                        const ExportOrigin& origin) {
  config[kOwnKey][kWeightsKey] = out.filename().string();
  write_file_atomically(config_beside(out), json_text(config, 2) + "\n");
  write_tokenizer(out, origin.tokens);
  for (const std::filesystem::path& file : origin.imported_files)
    if (const auto path = out.parent_path() / file.filename(); path != config_beside(out))
      write_file_atomically(path, read_text(file));
}

TensorMetadata metadata_of(const Manifest& manifest) {
  return {{"format", "pt"}, {"step", std::to_string(manifest.step)}, {"plan_hash", manifest.plan_hash}};
}

/// What can be done before the work: makes the folder of `out`.
ExportOrigin prepare_export(const ExperimentSpec& spec, const std::filesystem::path& run_dir,
                            const std::filesystem::path& out) {
  const auto refuse = [&out](const std::string& why) {
    throw UsageError(fmt::format("--out {}: {}", out.string(), why));
  };
  std::error_code error;
  if (std::filesystem::is_directory(out, error))
    refuse("is a folder. Name a file in it, such as " + (out / "model.safetensors").string());
  if (out.extension() != ".safetensors")
    refuse("is not named as what is written, safetensors. Name it " + out.stem().string() + ".safetensors");
  if (std::filesystem::exists(out, error)) refuse("exists already. Remove it or name another file.");
  const std::filesystem::path folder = out.has_parent_path() ? out.parent_path() : ".";
  std::filesystem::create_directories(folder, error);
  if (error) refuse("cannot create the folder: " + error.message());
  if (access(folder.c_str(), W_OK) != 0)
    refuse("cannot write into the folder: " + std::string(std::strerror(errno)));
  ExportOrigin origin;
  if (spec.data.is_of_tokens()) origin.tokens = token_origin(spec.data);
  origin.class_names = spec.data.class_names();
  const std::filesystem::path imported = run_dir / kImportedFolder;
  if (std::filesystem::exists(imported, error)) origin.imported_files = files_matching(imported, "*");
  if (std::filesystem::exists(imported / "config.json", error))
    origin.imported_config = read_json_object(imported / "config.json");
  check_config_may_be_written(out, origin);
  return origin;
}

void export_model(FullModel& model, const Experiment& experiment, const Manifest& manifest,
                  const ExportOrigin& origin, const std::filesystem::path& out,
                  const OnProgress& on_progress) {
  // The checkpoint's values were checked while reading; BatchNorm statistics may have been re-estimated
  // since.
  for (const auto& [name, values] : model.buffers())
    if (!is_finite(values))
      throw DataError(
          fmt::format("{} has values that are not finite (NaN or infinity) after BatchNorm "
                      "recalibration. Export with --set eval.recalibrate_batches=0.",
                      name));
  const ModelLayout& layout = experiment.plan.layout;
  const DType type = dtype_of(scalar_type(sum_type(experiment.spec.train.precision)));
  TensorFile file;
  for (int p = 0; p < static_cast<int>(layout.parameters.size()); ++p)
    file.add(layout.parameters[p].name, type, layout.parameters[p].shape,
             [&model, p] { return model.read_one(p); });
  for (const BufferLayout& buffer : layout.buffers)
    file.add(buffer.name, type, buffer.shape, [&model, &buffer] { return model.buffer(buffer.name); });
  add_library_tensors(file, experiment, manifest.batch_norm_updates);
  TensorMetadata metadata = metadata_of(manifest);
  metadata["branch_scale"] = fmt::format("{}", model.branch_scale());
  metadata["recalibrate_batches"] = std::to_string(batches_to_recalibrate(experiment));
  write_files_beside(out, full_model_config(experiment, manifest, origin), origin);
  file.write(out, metadata, on_progress);
}

void export_subnetwork(const CheckpointReader& reader, const Experiment& experiment, int worker,
                       const ExportOrigin& origin, const std::filesystem::path& out,
                       const OnProgress& on_progress) {
  const SubnetPlan& plan = experiment.plan;
  if (plan.keeps_frozen_units())
    throw UsageError(
        "--worker: under backward masking a worker has units that it does not own. Leave --worker out.");
  if (worker < 0 || worker >= plan.workers)
    throw UsageError(fmt::format("--worker {}: expected one of 0 to {}", worker, plan.workers - 1));
  const SubnetworkConfig described = subnetwork_config(experiment, reader.manifest(), origin, worker);
  const auto tensors = saved_subnetwork(experiment, reader, at::kCPU, worker);
  const DType type = dtype_of(scalar_type(sum_type(experiment.spec.train.precision)));
  TensorFile file;
  const auto new_name = [&](const std::string& name) {
    for (const auto& [from, to] : described.layer_names)
      if (name.starts_with(from + ".")) return to + name.substr(from.size());
    return name;
  };
  const auto add = [&](const auto& layout, const std::function<at::Tensor()>& source) {
    const std::vector<BranchPart> parts = plan.parts_of(worker, layout);
    const bool is_absent = parts.empty() || (layout.branch && plan.parts_of(worker, *layout.branch).empty() &&
                                             !described.layer_names.empty());
    if (!is_absent)
      file.add(new_name(layout.name), type,
               shape_of_units(layout.shape, layout.slice, plan, parts.front().units), source);
  };
  for (const ParameterLayout& parameter : plan.layout.parameters)
    add(parameter, [&] { return tensors->parameter(parameter.name); });
  for (const BufferLayout& buffer : plan.layout.buffers)
    add(buffer, [&] { return tensors->buffer(buffer.name); });
  TensorMetadata metadata = metadata_of(reader.manifest());
  metadata["worker"] = std::to_string(worker);
  write_files_beside(out, described.config, origin);
  file.write(out, metadata, on_progress);
}

}  // namespace

void export_run(ExperimentSpec spec, const ExportRequest& request) {
  // Exports the master values, whatever the precision of the run.
  if (spec.train.precision == Precision::kBf16) spec.train.precision = Precision::kFp32;
  const Experiment experiment = read_saved_experiment(CheckpointStore(request.run_dir), request.step, spec);
  const ExportOrigin origin = prepare_export(spec, request.run_dir, request.out);
  use_own_cores();
  ProgressLine line(STDERR_FILENO);
  const CheckpointReader reader = [&] {
    ProgressTask task(line, "verifying the checkpoint");
    return CheckpointReader(request.run_dir, request.step, /*verify_hashes=*/true, task.on_progress());
  }();
  if (request.worker) {
    ProgressTask task(line, "exporting the subnetwork");
    export_subnetwork(reader, experiment, *request.worker, origin, request.out, task.on_progress());
  } else {
    const auto model = saved_full_model(experiment, reader, at::kCPU,
                                        request.average ? ModelValues::kAverage : ModelValues::kCurrent);
    correct(*model, experiment, branch_scale_to_export(experiment, request.run_dir, reader.manifest()),
            reader.folder(), line);
    ProgressTask task(line, "exporting the model");
    export_model(*model, experiment, reader.manifest(), origin, request.out, task.on_progress());
  }
  std::printf("wrote %s\n", request.out.c_str());
}

}  // namespace sdp
