#include "analysis/analysis.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>

#include "cost/layouts.h"
#include "layers/tensors.h"
#include "spec/error.h"

namespace sdp {
namespace {

/// A unit's part of a parameter's gradient of the full model's shape, flat.
at::Tensor slice_of(const WorkerModel& dense_model, const SubnetPlan& plan, int parameter, int unit) {
  const ParameterLayout& layout = plan.layout.parameters[parameter];
  return slice_view(dense_model.gradient(parameter), layout.slice, plan, plan.units_of(layout), unit)
      .reshape({-1});
}

/// Units of the parameter that the worker owns.
std::vector<int> owned_units(const SubnetPlan& plan, int worker, const ParameterLayout& parameter) {
  for (const BranchPart& part : plan.parts_of(worker, parameter))
    if (!part.frozen) return part.units;
  return {};
}

/// Of one layer and worker, by batch.
struct LayerBatches {
  std::vector<double> cosines;
  std::vector<double> norms;
  std::vector<double> full_norms;
};

/// Sums for one regime, accumulated over workers and batches.
class RegimeSums {
 public:
  explicit RegimeSums(SubnetPlan plan)
      : plan_(std::move(plan)),
        layers_(layers_of(plan_.layout)),
        gradients_(layers_.size(), std::vector<LayerBatches>(plan_.workers)),
        deviations_(plan_.units.size()) {}

  const SubnetPlan& plan() const { return plan_; }

  void begin_batch() {
    sums_.clear();
    for (const Unit& unit : plan_.units)
      sums_.emplace_back(unit.owners, plan_.workers);
  }

  void add(int worker, const WorkerModel& subnetwork, const WorkerModel& dense_model) {
    add_layers(worker, subnetwork, dense_model);
    for (int unit = 0; unit < static_cast<int>(plan_.units.size()); ++unit)
      add_unit(worker, unit, subnetwork, dense_model);
  }

  void end_batch() {
    ++batches_;
    cosines_.push_back(cosine_of_batch());
    for (size_t u = 0; u < sums_.size(); ++u) {
      const Deviation of_batch = sums_[u].result();
      deviations_[u].squared += of_batch.squared;
      deviations_[u].bound += of_batch.bound;
    }
  }

  RegimeAnalysis result(int64_t step) &&;

 private:
  void add_layers(int worker, const WorkerModel& subnetwork, const WorkerModel& dense_model);
  void add_unit(int worker, int unit, const WorkerModel& subnetwork, const WorkerModel& dense_model);
  double cosine_of_batch() const;

  SubnetPlan plan_;
  std::vector<int> layers_;
  std::vector<std::vector<LayerBatches>> gradients_;  ///< by depth and worker
  std::vector<double> cosines_;                       ///< by batch
  std::vector<Deviation> deviations_;                 ///< by unit, summed over batches
  std::vector<DeviationSum> sums_;                    ///< by unit, of the current batch
  int64_t batches_ = 0;
};

void RegimeSums::add_layers(int worker, const WorkerModel& subnetwork, const WorkerModel& dense_model) {
  for (size_t depth = 0; depth < layers_.size(); ++depth) {
    std::vector<at::Tensor> own;
    std::vector<at::Tensor> full;
    for (const int unit : owned_units(plan_, worker, plan_.layout.parameters[layers_[depth]])) {
      own.push_back(subnetwork.slice_gradient(layers_[depth], unit));
      full.push_back(slice_of(dense_model, plan_, layers_[depth], unit));
    }
    if (own.empty()) continue;
    const at::Tensor of_subnetwork = at::cat(own), of_dense_model = at::cat(full);
    LayerBatches& batches = gradients_[depth][worker];
    batches.cosines.push_back(cosine_between(of_subnetwork, of_dense_model));
    batches.norms.push_back(norm_of(of_subnetwork));
    batches.full_norms.push_back(norm_of(of_dense_model));
  }
}

void RegimeSums::add_unit(int worker, int unit, const WorkerModel& subnetwork,
                          const WorkerModel& dense_model) {
  const bool owns = plan_.holding(worker, unit) == Holding::kOwned;
  std::vector<at::Tensor> own;
  std::vector<at::Tensor> full;
  for (int p = 0; p < static_cast<int>(plan_.layout.parameters.size()); ++p) {
    const std::vector<int> units = plan_.units_of(plan_.layout.parameters[p]);
    if (!std::binary_search(units.begin(), units.end(), unit)) continue;
    full.push_back(slice_of(dense_model, plan_, p, unit));
    if (owns) own.push_back(subnetwork.slice_gradient(p, unit));
  }
  sums_[unit].add(at::cat(full), owns ? at::cat(own) : at::Tensor());
}

/// Cosine of the last batch: mean over layers of the mean over workers.
double RegimeSums::cosine_of_batch() const {
  std::vector<double> of_layers;
  for (const std::vector<LayerBatches>& layer : gradients_) {
    std::vector<double> of_workers;
    for (const LayerBatches& worker : layer)
      if (!worker.cosines.empty()) of_workers.push_back(worker.cosines.back());
    of_layers.push_back(spread_of(of_workers).mean);
  }
  return spread_of(of_layers).mean;
}

RegimeAnalysis RegimeSums::result(int64_t step) && {
  RegimeAnalysis analysis;
  analysis.step = step;
  analysis.regime = {plan_.construction, plan_.main_masking()};
  for (size_t depth = 0; depth < layers_.size(); ++depth) {
    const ParameterLayout& layer = plan_.layout.parameters[layers_[depth]];
    for (int worker = 0; worker < plan_.workers; ++worker) {
      int64_t elements = 0;
      for (const int unit : owned_units(plan_, worker, layer))
        elements += plan_.elements_of(layer, unit);
      if (elements == 0) continue;
      const LayerBatches& batches = gradients_[depth][worker];
      analysis.layers.push_back({.depth = static_cast<int>(depth),
                                 .worker = worker,
                                 .cosine = spread_of(batches.cosines),
                                 .norm = spread_of(batches.norms),
                                 .full_norm = spread_of(batches.full_norms),
                                 .elements = elements});
    }
  }
  analysis.cosine = spread_of(cosines_);
  for (const Deviation& sum : deviations_)
    analysis.deviation.push_back({.squared = sum.squared / static_cast<double>(batches_),
                                  .bound = sum.bound / static_cast<double>(batches_)});
  analysis.plan = std::move(plan_);
  return analysis;
}

TrainingBatches batches_of(const ExperimentSpec& spec, int workers, const AnalysisOptions& options) {
  TrainingBatches batches{.geometry = {.workers = workers,
                                       .replicas = 1,
                                       .accumulate_steps = 1,
                                       .batch_size = options.batch_size},
                          .slots = {},
                          .first_step = options.first_step,
                          .last_step = options.first_step + options.batches,
                          .seed = static_cast<uint64_t>(spec.seed),
                          .augment = {.steps = *spec.data.augment,
                                      .mixup_alpha = spec.data.mixup_alpha,
                                      .cutmix_alpha = spec.data.cutmix_alpha}};
  for (int worker = 0; worker < workers; ++worker)
    batches.slots.push_back({.worker = worker, .replica = 0});
  return batches;
}

Regime regime_named(std::string_view name, std::string_view option) {
  std::vector<std::string> known;
  for (const Regime regime : all_regimes())
    if (known.emplace_back(name_of(regime)) == name) return regime;
  throw UsageError(fmt::format("{}: found '{}', expected a comma-separated list of regimes: {}", option, name,
                               fmt::join(known, ", ")));
}

}  // namespace

std::vector<int> layers_of(const ModelLayout& layout) {
  std::vector<int> layers;
  for (size_t p = 0; p < layout.parameters.size(); ++p)
    if (layout.parameters[p].role == ParameterRole::kWeight) layers.push_back(static_cast<int>(p));
  return layers;
}

std::vector<RegimeAnalysis> analyze(const ExperimentSpec& spec, std::vector<SubnetPlan> plans,
                                    const ValuesOf& values, const DeviceDataset& training,
                                    const AnalysisOptions& options, at::Device device,
                                    const std::function<void(const std::string& message)>& on_skipped,
                                    const OnProgress& on_progress) {
  const int workers = plans.front().workers;
  // One worker that owns everything; its tensors have the full model's shapes.
  const SubnetPlan one_worker = make_plan(plans.front().layout, SubnetworkSpec{}, /*seed=*/0);
  WorkerModel dense_model(spec, one_worker, /*worker=*/0, device, values);
  std::vector<RegimeSums> regimes;
  for (SubnetPlan& plan : plans)
    regimes.emplace_back(std::move(plan));
  const std::unique_ptr<DeviceLoader> loader = training.training(batches_of(spec, workers, options));
  for (int64_t number = 0; number < options.batches; ++number) {
    for (RegimeSums& regime : regimes)
      regime.begin_batch();
    for (int worker = 0; worker < workers; ++worker) {
      const TensorBatch batch = loader->next();
      for (const std::string& message : batch.skipped)
        on_skipped(message);
      dense_model.compute_gradients(batch);
      for (RegimeSums& regime : regimes) {
        WorkerModel subnetwork(spec, regime.plan(), worker, device,
                               [&](int parameter) { return dense_model.value(parameter); });
        subnetwork.compute_gradients(batch);
        regime.add(worker, subnetwork, dense_model);
      }
      on_progress(number * workers + worker + 1, options.batches * workers);
    }
    for (RegimeSums& regime : regimes)
      regime.end_batch();
  }
  std::vector<RegimeAnalysis> analyses;
  for (RegimeSums& regime : regimes)
    analyses.push_back(std::move(regime).result(options.step));
  return analyses;
}

std::vector<Regime> parse_regimes(std::string_view names, std::string_view option) {
  std::vector<Regime> regimes;
  for (size_t begin = 0; begin <= names.size();) {
    const size_t end = std::min(names.find(',', begin), names.size());
    const Regime regime = regime_named(names.substr(begin, end - begin), option);
    if (std::find(regimes.begin(), regimes.end(), regime) != regimes.end())
      throw UsageError(fmt::format("{}: found {} twice. Name every regime once.", option, name_of(regime)));
    regimes.push_back(regime);
    begin = end + 1;
  }
  return regimes;
}

SubnetPlan plan_of_regime(const ExperimentSpec& spec, Regime regime,
                          const std::optional<std::filesystem::path>& saved_plan) {
  SubnetworkSpec subnetwork = spec.subnetwork;
  const bool is_same_construction = regime.construction == subnetwork.construction;
  if (subnetwork.assignment == Assignment::kFile && !is_same_construction)
    throw UsageError(
        fmt::format("--regimes {}: the spec takes its owner sets from a file (subnetwork.assignment: file), "
                    "which is of "
                    "{} construction. Leave the regime out, or set another subnetwork.assignment.",
                    name_of(regime), name_of(subnetwork.construction)));
  if (!spec.model.has_slices() && !is_same_construction)
    throw UsageError(fmt::format(
        "--regimes {}: the branches of a network in Python have no slices. Leave it out.", name_of(regime)));
  if (saved_plan && is_same_construction) {
    subnetwork.assignment = Assignment::kFile;
    subnetwork.assignment_file = saved_plan->string();
  }
  if (regime != regime_of(subnetwork))
    for (SubnetworkRule& rule : subnetwork.rules)
      rule.masking.reset();
  subnetwork.construction = regime.construction;
  subnetwork.masking = regime.masking;
  return make_plan(layout_of(spec.model, spec.data.sequence_length()), subnetwork,
                   static_cast<uint64_t>(spec.seed));
}

}  // namespace sdp
