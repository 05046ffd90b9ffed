#include "cost/make_experiment.h"

#include <fmt/format.h>

#include <algorithm>

#include "cost/layouts.h"
#include "cost/step_limits.h"
#include "spec/error.h"

namespace sdp {
namespace {

/// Throws UsageError that names every group without a parameter.
void check_groups(const ModelLayout& layout, const std::vector<ParameterGroup>& groups) {
  std::vector<int> parameters_of(groups.size());
  for (const ParameterLayout& parameter : layout.parameters)
    if (const int group = group_of(groups, parameter.name); group >= 0)
      ++parameters_of[static_cast<size_t>(group)];
  std::string unused;
  for (size_t g = 0; g < groups.size(); ++g)
    if (parameters_of[g] == 0)
      unused += fmt::format(
          "optimizer.groups[{}].match: '{}' matches no parameter that is left by the groups "
          "before it\n",
          g, groups[g].match);
  if (!unused.empty())
    throw UsageError(fmt::format("{}The parameters of {} have names such as {}, {} and {}.", unused,
                                 layout.name, layout.parameters.front().name,
                                 layout.parameters[layout.parameters.size() / 2].name,
                                 layout.parameters.back().name));
}

/// The spec's model, which is added unless an equal one is there.
const RecordedModel& model_of(const ExperimentSpec& spec, std::vector<RecordedModel>& recorded) {
  const int64_t length = spec.data.sequence_length();
  const auto known = std::find_if(recorded.begin(), recorded.end(), [&](const RecordedModel& other) {
    return other.model == spec.model && other.sequence_length == length;
  });
  if (known != recorded.end()) return *known;
  RecordedModel model{spec.model, length, structure_of(spec.model, length)};
  model.sample_bytes = check_model_size(model.layout, spec);
  add_flops(model.layout, spec.model, length);
  return recorded.emplace_back(std::move(model));
}

}  // namespace

Experiment make_experiment(const ExperimentSpec& spec, int64_t processes,
                           const std::optional<std::filesystem::path>& saved_plan,
                           std::optional<int64_t> processes_per_node, std::vector<RecordedModel>* recorded) {
  SubnetworkSpec subnetwork = spec.subnetwork;
  if (saved_plan) {
    subnetwork.assignment = Assignment::kFile;
    subnetwork.assignment_file = saved_plan->string();
  }
  const SlotMap slot_map = make_slot_map(subnetwork.workers, subnetwork.replicas, processes);
  if (spec.exchange.is_local() && slot_map.slots_per_process() < slot_map.replicas)
    throw UsageError(
        fmt::format("exchange.every_steps: with local steps, all replicas of a worker run on one process, so "
                    "{} workers run "
                    "on at most {} processes, found {}. Start fewer, or make workers of the replicas.",
                    slot_map.workers, slot_map.workers, processes));
  std::vector<RecordedModel> only_this;
  const RecordedModel& model = model_of(spec, recorded ? *recorded : only_this);
  const ModelLayout& layout = model.layout;
  check_step_size(layout, model.sample_bytes, spec);
  check_batch_norms(layout, spec);
  check_groups(layout, spec.optimizer.groups);
  SubnetPlan plan = make_plan(layout, subnetwork, static_cast<uint64_t>(spec.seed));
  ExchangePlan exchanges = make_exchange_plan(plan, slot_map, exchange_options(spec, layout));
  NodeMap nodes = place_on_nodes(exchanges, subnetwork.placement, processes_per_node.value_or(processes));
  return {spec, std::move(plan), std::move(exchanges), std::move(nodes)};
}

ExchangeOptions exchange_options(const ExperimentSpec& spec, const ModelLayout& layout) {
  ExchangeOptions options;
  options.precision = spec.train.precision;
  options.bucket_bytes = static_cast<int64_t>(spec.train.bucket_megabytes * 1e6);
  options.decay_norms_and_biases = spec.optimizer.decay_norms_and_biases();
  for (const ParameterLayout& parameter : layout.parameters)
    options.group_of.push_back(group_of(spec.optimizer.groups, parameter.name));
  options.shard = spec.optimizer.shard;
  options.accumulate_steps = spec.train.accumulate_steps;
  options.reduce_every = spec.train.reduce_every;
  options.release_gradients = spec.train.release_gradients;
  if (spec.train.reduce_dtype)
    options.reduce_type =
        *spec.train.reduce_dtype == WireType::kBf16 ? ElementType::kBf16 : ElementType::kF32;
  return options;
}

}  // namespace sdp
