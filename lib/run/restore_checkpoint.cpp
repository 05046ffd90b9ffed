#include "run/restore_checkpoint.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "engine/engines.h"
#include "engine/full_model.h"
#include "experiment/experiment.h"
#include "layers/tensors.h"
#include "run/checkpoint_reader.h"
#include "spec/error.h"

namespace sdp {
namespace {

void check_fits(const CheckpointReader& reader, const Experiment& experiment) {
  const ExperimentSpec& spec = experiment.spec;
  const Manifest& manifest = reader.manifest();
  const auto require = [&](bool holds, const std::string& what) {
    if (!holds)
      throw DataError(
          fmt::format("{}: the checkpoint belongs to another experiment: {}. Use it with the spec.yaml "
                      "and plan.json beside it.",
                      (reader.folder() / kManifestName).string(), what));
  };
  require(manifest.plan_hash == plan_hash(experiment.plan) && manifest.workers == experiment.plan.workers,
          "the model, the workers or their owner sets differ");
  require(manifest.replicas == spec.subnetwork.replicas,
          fmt::format("it has replicas {}, the spec {}", manifest.replicas, spec.subnetwork.replicas));
  require(manifest.batch_norm_updates ==
              manifest.origin.batch_norm_updates_after(manifest.updates, spec.train.accumulate_steps),
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
  const std::vector<at::Tensor> views = slice_views(values, parameter.slice, plan, units);
  for (size_t i = 0; i < units.size(); ++i) {
    const at::Tensor slice = at::empty({views[i].numel()}, options);
    reader.read(plan, {.kind = kind,
                       .parameter = index,
                       .unit = units[i],
                       .begin = 0,
                       .end = slice.numel(),
                       .values = slice});
    views[i].copy_(slice.view(views[i].sizes()));
  }
  return values;
}

at::TensorOptions value_options(const ParameterLayout& parameter, Precision precision, at::Device device) {
  return at::TensorOptions(scalar_type(element_type(parameter, precision))).device(device);
}

at::TensorOptions buffer_options(Precision precision, at::Device device) {
  return at::TensorOptions(scalar_type(sum_type(precision))).device(device);
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
    const std::vector<at::Tensor> views = slice_views(mean, buffer.slice, plan, units);
    for (size_t i = 0; i < units.size(); ++i) {
      const MemberSet& owners = plan.owners(units[i]);
      for (int worker : owners) {
        for (int replica = 0; replica < replicas; ++replica) {
          const at::Tensor saved = reader.buffer(plan, b, units[i], {.worker = worker, .replica = replica});
          views[i].add_(saved.view(views[i].sizes()).to(mean.options()) /
                        static_cast<double>(static_cast<int>(owners.size()) * replicas));
        }
      }
    }
  }
  return means;
}

void restore_buffers(const CheckpointReader& reader, const Experiment& saved, const Experiment& experiment,
                     const Engines& engines) {
  const SubnetPlan& plan = experiment.plan;
  std::vector<at::Tensor> means;
  if (!is_divided_as(saved, experiment))
    means = averaged_buffers(reader, saved.plan,
                             buffer_options(experiment.spec.train.precision, at::Device(at::kCPU)));
  for (const Engines::Place& place : engines.slots()) {
    for (const BufferSlice& slice : place.buffers()) {
      const BufferLayout& buffer = plan.layout.buffers[slice.buffer];
      const at::Tensor values = means.empty()
                                    ? reader.buffer(plan, slice.buffer, slice.unit, place.slot)
                                    : slice_view(means[static_cast<size_t>(slice.buffer)], buffer.slice, plan,
                                                 plan.units_of(buffer), slice.unit);
      slice.values.copy_(values.reshape(slice.values.sizes()));
    }
  }
}

/// Loads the engines' state from wherever the checkpoint has it: it may be of another division, with local
/// steps or without. Worker 0, like all workers, has state of every kind, that of the shared parameters.
void load_state(const CheckpointReader& reader, const Experiment& saved, const Experiment& experiment,
                const Engines& engines) {
  const bool has_same_workers = is_divided_as(saved, experiment);
  const auto is_by_worker = [&](const std::string& kind) { return reader.has(kind_of(kind, 0)); };
  if (is_by_worker(kValueKind) && !(has_same_workers && experiment.spec.exchange.is_local()))
    throw DataError(fmt::format(
        "{}: was saved within a round of local steps, in which every worker has values of its own. To divide "
        "the network otherwise, or to leave out local steps, resume from a checkpoint of a step with an "
        "exchange (exchange.every_steps).",
        reader.folder().string()));
  engines.load_state([&](StateRange range) {
    const bool is_own =
        range.worker != kAllWorkers && experiment.plan.owners(range.unit).contains(range.worker);
    if (range.kind == kOuterMomentumName && !reader.has(kOuterMomentumName)) {
      range.values.zero_();
    } else if (is_own && has_same_workers && is_by_worker(range.kind)) {
      reader.read(experiment.plan, range);
    } else if (range.kind != kValueKind && is_by_worker(range.kind)) {
      reader.read_mean(experiment.plan, range);
    } else {
      range.worker = kAllWorkers;
      reader.read(experiment.plan, range);
    }
  });
}

class SavedFullModel : public FullModel {
 public:
  SavedFullModel(const Experiment& experiment, const CheckpointReader& reader, at::Device device,
                 ModelValues values)
      : FullModel(experiment.plan, values),
        reader_(reader),
        precision_(experiment.spec.train.precision),
        device_(device) {
    const std::vector<at::Tensor> means = averaged_buffers(reader, plan_, buffer_options(precision_, device));
    for (size_t b = 0; b < means.size(); ++b)
      buffers_[plan_.layout.buffers[b].name] = means[b];
  }

 private:
  std::vector<at::Tensor> read_parameters(const std::vector<int>& indices) override {
    std::vector<at::Tensor> wholes;
    for (const int index : indices) {
      const ParameterLayout& parameter = plan_.layout.parameters[index];
      wholes.push_back(read_units(reader_, plan_, index, plan_.units_of(parameter),
                                  value_options(parameter, precision_, device_),
                                  values() == ModelValues::kAverage ? kAverageName : kValueKind));
    }
    return wholes;
  }

  const CheckpointReader& reader_;
  Precision precision_;
  at::Device device_;
};

class SavedSubnetwork : public TensorSource {
 public:
  SavedSubnetwork(const Experiment& experiment, const CheckpointReader& reader, at::Device device, int worker)
      : plan_(experiment.plan),
        reader_(reader),
        precision_(experiment.spec.train.precision),
        device_(device),
        worker_(worker) {}
  int parts(int branch) const override { return static_cast<int>(plan_.parts_of(worker_, branch).size()); }

 private:
  at::Tensor find_parameter(const std::string& name, int part) const override {
    const int index = plan_.layout.parameter_index(name);
    const ParameterLayout& parameter = plan_.layout.parameters[index];
    return read_units(reader_, plan_, index, plan_.parts_of(worker_, parameter).at(part).units,
                      value_options(parameter, precision_, device_));
  }

  at::Tensor find_buffer(const std::string& name, int part) const override {
    for (int b = 0; b < static_cast<int>(plan_.layout.buffers.size()); ++b) {
      const BufferLayout& buffer = plan_.layout.buffers[b];
      if (buffer.name != name) continue;
      const std::vector<int> units = plan_.parts_of(worker_, buffer).at(part).units;
      const at::Tensor values = at::empty(shape_of_units(buffer.shape, buffer.slice, plan_, units),
                                          buffer_options(precision_, device_));
      const std::vector<at::Tensor> views = slice_views(values, buffer.slice, plan_, units);
      for (size_t i = 0; i < units.size(); ++i) {
        const at::Tensor saved = reader_.buffer(plan_, b, units[i], {.worker = worker_, .replica = 0});
        views[i].copy_(saved.view(views[i].sizes()));
      }
      return values;
    }
    throw std::logic_error("the model has no buffer " + name);
  }

  const SubnetPlan& plan_;
  const CheckpointReader& reader_;
  Precision precision_;
  at::Device device_;
  int worker_;
};

}  // namespace

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
  const auto compare = [&](const char* which, const DataIdentity& saved, const DataIdentity& now) {
    const int64_t samples = is_resized ? saved.samples : now.samples;
    if (saved == DataIdentity() || saved == DataIdentity{samples, now.hash}) return;
    warnings.push_back(
        fmt::format("the {} data has changed since the checkpoint was saved: now {} samples with hash {}, "
                    "before {} with {}",
                    which, now.samples, now.hash, saved.samples, saved.hash));
  };
  compare("training", manifest.training_data, training_data);
  compare("test", manifest.test_data, test_data);
  return warnings;
}

bool is_divided_as(const Experiment& saved, const Experiment& experiment) {
  return plan_hash(saved.plan) == plan_hash(experiment.plan) &&
         saved.spec.subnetwork.replicas == experiment.spec.subnetwork.replicas;
}

void restore(const CheckpointReader& reader, const Experiment& saved, const Experiment& experiment,
             const Engines& engines) {
  const at::NoGradGuard no_grad;
  check_fits(reader, saved);
  load_state(reader, saved, experiment, engines);
  restore_buffers(reader, saved, experiment, engines);
  engines.set_step_count(reader.manifest().updates);
}

bool has_average(const Manifest& manifest, const ExperimentSpec& spec) {
  return spec.optimizer.ema_decay > 0 && manifest.updates > 0;
}

std::unique_ptr<FullModel> saved_full_model(const Experiment& experiment, const CheckpointReader& reader,
                                            at::Device device, ModelValues values) {
  check_fits(reader, experiment);
  if (values == ModelValues::kAverage && !has_average(reader.manifest(), experiment.spec))
    throw UsageError(reader.folder().string() +
                     " has no moving average of the values. It is kept with optimizer.ema_decay, from the "
                     "first update on.");
  return std::make_unique<SavedFullModel>(experiment, reader, device, values);
}

std::unique_ptr<TensorSource> saved_subnetwork(const Experiment& experiment, const CheckpointReader& reader,
                                               at::Device device, int worker) {
  check_fits(reader, experiment);
  return std::make_unique<SavedSubnetwork>(experiment, reader, device, worker);
}

}  // namespace sdp
