#include "train/import.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "checkpoint/store.h"
#include "model/library_tensors.h"
#include "model/slices.h"
#include "spec/error.h"
#include "subnet/accounting.h"
#include "train/checkpoint_keys.h"
#include "train/checkpointing.h"
#include "train/model_config.h"

namespace sdp {
namespace {

/// The tensors of the layout in a file of the library that the names come from.
class LibraryFile {
 public:
  LibraryFile(const std::filesystem::path& path, const ModelLayout& layout) : path_(path), file_(path) {
    for (const ParameterLayout& parameter : layout.parameters)
      check(parameter.name, parameter.shape);
    for (const BufferLayout& buffer : layout.buffers)
      check(buffer.name, buffer.shape);
  }

  at::Tensor read(const std::string& name, at::ScalarType type) const {
    return as_tensor(*file_.find(name)).to(type);
  }

  /// What is neither in the model nor made anew by an export.
  std::vector<std::string> unused(const std::map<std::string, at::Tensor>& made_anew) const {
    std::vector<std::string> names;
    for (const TensorView& view : file_.entries())
      if (!used_.contains(view.entry.name) && !made_anew.contains(view.entry.name))
        names.push_back(view.entry.name);
    return names;
  }

  /// torchvision's count, one for all BatchNorms; 0 where the file has none.
  int64_t batch_norm_updates() const {
    for (const TensorView& view : file_.entries())
      if (view.entry.name.ends_with(".num_batches_tracked")) return as_tensor(view).item<int64_t>();
    return 0;
  }

 private:
  void check(const std::string& name, const std::vector<int64_t>& shape) {
    const TensorView* const view = file_.find(name);
    if (!view)
      throw DataError(
          fmt::format("{}: no tensor {}, expected one of shape [{}]. Is it a file of another model?",
                      path_.string(), name, fmt::join(shape, ", ")));
    if (view->entry.shape != shape)
      throw DataError(
          fmt::format("{}: {} has shape [{}], expected [{}]. Set the sizes of `model` to the file's.",
                      path_.string(), name, fmt::join(view->entry.shape, ", "), fmt::join(shape, ", ")));
    if (!at::isFloatingType(scalar_type_of(view->entry.dtype)))
      throw DataError(fmt::format("{}: {} is of type {}, expected a floating-point type", path_.string(),
                                  name, dtype_name(view->entry.dtype)));
    used_.insert(name);
  }

  std::filesystem::path path_;
  SafetensorsFile file_;
  std::set<std::string> used_;
};

/// A tensor to write and where it comes from.
using Sources = std::map<std::string, std::function<at::Tensor()>>;

void add_parameter(Sources& sources, std::vector<TensorEntry>& entries, const Experiment& experiment,
                   const LibraryFile& file, const ParameterLayout& parameter, at::ScalarType type) {
  const SubnetPlan& plan = experiment.plan;
  const std::vector<int> units = plan.units_of(parameter);
  for (size_t i = 0; i < units.size(); ++i) {
    const int64_t elements = plan.elements_of(parameter, units[i]);
    const auto add = [&](const std::string& kind, std::function<at::Tensor()> source) {
      const std::string name = range_name(key_of(plan, kind, parameter.name, units[i]), 0, elements);
      entries.push_back({name, dtype_of(type), {elements}});
      sources[name] = std::move(source);
    };
    add(kValueKind, [&file, &parameter, &plan, units, i, type] {
      return piece_views(file.read(parameter.name, type), parameter.slice, plan, units).at(i).reshape({-1});
    });
    for (const std::string& moment : moment_names(experiment.spec.optimizer))
      add(moment, [elements, type] { return at::zeros({elements}, type); });
  }
}

/// Every slot starts with the file's statistics.
void add_buffer(Sources& sources, std::vector<TensorEntry>& entries, const Experiment& experiment,
                const LibraryFile& file, int index, at::ScalarType type) {
  const SubnetPlan& plan = experiment.plan;
  const BufferLayout& buffer = plan.layout.buffers[index];
  const std::vector<int> units = plan.units_of(buffer);
  for (int worker = 0; worker < plan.workers; ++worker) {
    for (const BranchPart& part : plan.parts_of(worker, buffer)) {
      for (int unit : part.units) {
        const size_t position =
            static_cast<size_t>(std::find(units.begin(), units.end(), unit) - units.begin());
        const int64_t elements =
            piece_views(at::empty(buffer.shape, at::kMeta), buffer.slice, plan, units).at(position).numel();
        for (int replica = 0; replica < experiment.schedule.placement.replicas; ++replica) {
          const std::string name = buffer_name(buffer_key(plan, index, unit), {worker, replica});
          entries.push_back({name, dtype_of(type), {elements}});
          sources[name] = [&file, &buffer, &plan, units, position, type] {
            return piece_views(file.read(buffer.name, type), buffer.slice, plan, units)
                .at(position)
                .reshape({-1});
          };
        }
      }
    }
  }
}

}  // namespace

std::vector<std::string> import_model(const Experiment& experiment, const std::filesystem::path& from,
                                      const std::filesystem::path& run_dir) {
  const ModelLayout& layout = experiment.plan.layout;
  check_library_config(experiment.spec, from);
  const LibraryFile file(from, layout);
  const at::ScalarType type = scalar_type(sum_type(experiment.spec.train.precision));
  Sources sources;
  std::vector<TensorEntry> entries;
  for (const ParameterLayout& parameter : layout.parameters)
    add_parameter(sources, entries, experiment, file, parameter, type);
  for (int b = 0; b < static_cast<int>(layout.buffers.size()); ++b)
    add_buffer(sources, entries, experiment, file, b, type);
  sort_for_writing(entries);

  const CheckpointStore store(run_dir);
  const std::string name = process_file_name(0, 1);
  SafetensorsWriter writer(store.begin(0) / name, entries, {{"format", "sdp-train checkpoint"}});
  for (const TensorEntry& entry : entries) {
    const at::Tensor values = sources.at(entry.name)().contiguous();
    writer.write(std::span(static_cast<const std::byte*>(values.data_ptr()), values.nbytes()));
  }
  const FileDigest digest = writer.finish();
  Manifest manifest = manifest_of(experiment, {.batch_norm_updates = file.batch_norm_updates()});
  manifest.files = {{name, digest.bytes, digest.xxh3_128}};
  store.commit(0, manifest, experiment.spec.checkpoint.keep_last);
  return file.unused(library_tensors(experiment.spec.model, layout, 0));
}

}  // namespace sdp
