#include "train/import.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <functional>
#include <map>
#include <set>

#include "checkpoint/store.h"
#include "engine/finite.h"
#include "model/library_tensors.h"
#include "model/slices.h"
#include "spec/error.h"
#include "subnet/accounting.h"
#include "train/checkpoint_keys.h"
#include "train/checkpointing.h"
#include "train/model_config.h"
#include "train/tensor_file.h"

namespace sdp {
namespace {

/// The tensors of the layout in a file of the library that the names come from.
class LibraryFile {
 public:
  /// `type`: of the checkpoint.
  LibraryFile(const std::filesystem::path& path, const ModelLayout& layout, at::ScalarType type)
      : path_(path), file_(path), type_(type) {
    for (const ParameterLayout& parameter : layout.parameters)
      check(parameter.name, parameter.shape);
    for (const BufferLayout& buffer : layout.buffers)
      check(buffer.name, buffer.shape);
  }

  at::Tensor read(const std::string& name) const { return as_tensor(*file_.find(name)).to(type_); }

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
    for (const TensorView& view : file_.entries()) {
      const TensorEntry& entry = view.entry;
      if (!entry.name.ends_with(".num_batches_tracked")) continue;
      const bool is_one = entry.dtype == DType::kI64 && entry.bytes() == element_bytes(DType::kI64);
      if (!is_one)
        throw DataError(fmt::format("{}: {} is of type {} and shape [{}], expected one number of type I64",
                                    path_.string(), entry.name, dtype_name(entry.dtype),
                                    fmt::join(entry.shape, ", ")));
      const auto count = as_tensor(view).item<int64_t>();
      if (count < 0)
        throw DataError(fmt::format("{}: {} is {}, expected a count", path_.string(), entry.name, count));
      return count;
    }
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
    if (!is_finite(read(name)))
      throw DataError(fmt::format("{}: {} has values that are not finite (NaN or infinity) as {}",
                                  path_.string(), name, dtype_name(dtype_of(type_))));
    used_.insert(name);
  }

  std::filesystem::path path_;
  SafetensorsFile file_;
  at::ScalarType type_;
  std::set<std::string> used_;
};

void add_parameter(TensorFile& out, const Experiment& experiment, const LibraryFile& from,
                   const ParameterLayout& parameter, at::ScalarType type) {
  const SubnetPlan& plan = experiment.plan;
  const std::vector<int> units = plan.units_of(parameter);
  for (int unit : units) {
    const int64_t elements = plan.elements_of(parameter, unit);
    const auto add = [&](const std::string& kind, std::function<at::Tensor()> source) {
      out.add(range_name(key_of(plan, kind, parameter.name, unit), 0, elements), dtype_of(type), {elements},
              std::move(source));
    };
    add(kValueKind, [&from, &parameter, &plan, units, unit] {
      return piece_view(from.read(parameter.name), parameter.slice, plan, units, unit).reshape({-1});
    });
    for (const std::string& moment : moment_names(experiment.spec.optimizer))
      add(moment, [elements, type] { return at::zeros({elements}, type); });
  }
}

/// Every slot starts with the file's statistics.
void add_buffer(TensorFile& out, const Experiment& experiment, const LibraryFile& from, int index,
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

}  // namespace

std::vector<std::string> import_model(const Experiment& experiment, const std::filesystem::path& from,
                                      const RunDescription& description, const std::filesystem::path& run_dir,
                                      const OnProgress& on_progress) {
  const ModelLayout& layout = experiment.plan.layout;
  check_library_config(experiment.spec, from);
  const at::ScalarType type = scalar_type(sum_type(experiment.spec.train.precision));
  const LibraryFile file(from, layout, type);
  TensorFile out;
  for (const ParameterLayout& parameter : layout.parameters)
    add_parameter(out, experiment, file, parameter, type);
  for (int b = 0; b < static_cast<int>(layout.buffers.size()); ++b)
    add_buffer(out, experiment, file, b, type);

  const CheckpointStore store(run_dir);
  const std::filesystem::path folder = store.begin(0);
  Manifest manifest = manifest_of(experiment, {.imported_batch_norm_updates = file.batch_norm_updates()});
  manifest.files = {write_process_file(out, folder, /*process=*/0, /*processes=*/1, on_progress)};
  for (ManifestFile& saved : write_description(description, folder))
    manifest.files.push_back(std::move(saved));
  store.commit(0, manifest, experiment.spec.checkpoint.keep_last);
  return file.unused(library_tensors(experiment.spec.model, layout, 0));
}

}  // namespace sdp
