#include "hub/import.h"

#include <ATen/ATen.h>

#include <functional>
#include <set>

#include "checkpoint/checkpoint_keys.h"
#include "checkpoint/checkpointing.h"
#include "checkpoint/files/store.h"
#include "checkpoint/tensor_file.h"
#include "hub/library_config.h"
#include "hub/library_files.h"
#include "hub/library_tensors.h"
#include "hub/model_config.h"
#include "io/file.h"
#include "model/layouts.h"
#include "model/slices.h"
#include "model/tensor_source.h"
#include "spec/error.h"

namespace sdp {
namespace {

void add_parameter(TensorFile& out, const Experiment& experiment, const LibraryTensors& from,
                   const ParameterLayout& parameter, at::ScalarType type) {
  const SubnetPlan& plan = experiment.plan;
  const std::vector<int> units = plan.units_of(parameter);
  for (int unit : units) {
    const int64_t elements = plan.elements_of(parameter, unit);
    const auto add = [&](const std::string& kind, std::function<at::Tensor()> source) {
      out.add(range_name(key_of(plan, kind, parameter.name, unit), 0, elements), dtype_of(type), {elements},
              std::move(source));
    };
    add(kValueKind, [&from, &parameter, &plan, units, unit, type, seed = experiment.spec.seed] {
      const at::Tensor whole = from.has(parameter.name)
                                   ? from.read(parameter.name)
                                   : draw_parameter(parameter, static_cast<uint64_t>(seed)).to(type);
      return piece_view(whole, parameter.slice, plan, units, unit).reshape({-1});
    });
    for (const std::string& moment : experiment.spec.optimizer.state_names())
      add(moment, [elements, type] { return at::zeros({elements}, type); });
  }
}

/// Names of the parameters whose shape depends on the number of classes or tokens.
std::set<std::string> head_parameters(const ExperimentSpec& spec) {
  const auto layout_with = [&](int64_t more) {
    ModelSpec model = spec.model;
    model.kind.visit([&](auto& own) {
      if constexpr (requires { own.num_classes; }) own.num_classes += more;
      if constexpr (requires { own.vocab_size; })
        if (own.vocab_size) *own.vocab_size += more;
    });
    return structure_of(model, spec.data.is_of_tokens() ? spec.data.sequence_length() : 1);
  };
  const ModelLayout as_is = layout_with(0);
  const ModelLayout larger = layout_with(1);
  std::set<std::string> head;
  for (size_t i = 0; i < as_is.parameters.size(); ++i)
    if (as_is.parameters[i].shape != larger.parameters[i].shape) head.insert(as_is.parameters[i].name);
  return head;
}

/// Every slot starts with the file's statistics.
void add_buffer(TensorFile& out, const Experiment& experiment, const LibraryTensors& from, int index,
                at::ScalarType type) {
  const SubnetPlan& plan = experiment.plan;
  const BufferLayout& buffer = plan.layout.buffers[index];
  const std::vector<int> units = plan.units_of(buffer);
  const auto piece_of = [&from, &buffer, &plan, units](int unit) {
    return piece_view(from.read(buffer.name), buffer.slice, plan, units, unit).reshape({-1});
  };
  for (int worker = 0; worker < plan.workers; ++worker)
    for (const BranchPart& part : plan.parts_of(worker, buffer))
      for (int unit : part.units)
        for (int replica = 0; replica < experiment.schedule.placement.replicas; ++replica)
          out.add(buffer_name(buffer_key(plan, index, unit), {worker, replica}), dtype_of(type),
                  {piece_of(unit).numel()}, [piece_of, unit] { return piece_of(unit); });
}

/// config.json, the settings of generation, and what transformers' AutoTokenizer reads.
void keep_files_beside(const std::filesystem::path& from, const std::filesystem::path& kept) {
  for (const char* name : {"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json",
                           "special_tokens_map.json", "added_tokens.json", "vocab.json", "merges.txt",
                           "tokenizer.model", "chat_template.jinja"}) {
    const std::filesystem::path file = config_beside(from).replace_filename(name);
    std::error_code ignored;
    if (!std::filesystem::exists(file, ignored)) continue;
    const std::string text = read_text(file);
    std::filesystem::create_directories(kept);
    write_file_atomically(kept / name, text);
  }
}

}  // namespace

std::string import_model(const Experiment& experiment, const std::filesystem::path& from, bool new_head,
                         const RunDescription& description, const std::filesystem::path& run_dir,
                         const OnProgress& on_progress) {
  const ModelLayout& layout = experiment.plan.layout;
  library_config_values(experiment, from, new_head, /*must_fit=*/true);
  const at::ScalarType type = scalar_type(sum_type(experiment.spec.train.precision));
  const LibraryTensors tensors(from, layout, library_format_of(experiment.spec.model), type,
                               library_tensors(experiment.spec.model, layout, 0),
                               head_parameters(experiment.spec), /*reads_head=*/!new_head);
  TensorFile out;
  for (const ParameterLayout& parameter : layout.parameters)
    add_parameter(out, experiment, tensors, parameter, type);
  for (int b = 0; b < static_cast<int>(layout.buffers.size()); ++b)
    add_buffer(out, experiment, tensors, b, type);

  if (library_format_of(experiment.spec.model) && !new_head)
    keep_files_beside(from, run_dir / kImportedFolder);
  const CheckpointStore store(run_dir);
  const std::filesystem::path folder = store.begin(0);
  Manifest manifest =
      manifest_of(experiment, {.origin = {.batch_norm_updates = tensors.batch_norm_updates()}});
  manifest.files = {write_process_file(out, folder, /*process=*/0, /*processes=*/1, on_progress)};
  for (ManifestFile& saved : write_description(description, folder))
    manifest.files.push_back(std::move(saved));
  store.commit(0, manifest, experiment.spec.checkpoint.keep_last);
  return tensors.wrapper();
}

}  // namespace sdp
