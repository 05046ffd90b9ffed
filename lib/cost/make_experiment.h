#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "experiment/experiment.h"
#include "experiment/experiment_spec.h"
#include "model/model_spec.h"
#include "subnet/exchange_plan.h"
#include "subnet/layout.h"

namespace sdp {

/// What is recorded of a model's steps, which takes most of the time of making an experiment.
struct RecordedModel {
  ModelSpec model;
  int64_t sequence_length = 1;
  ModelLayout layout = {};  ///< with its FLOPs
  double sample_bytes = 0;  ///< check_model_size
};

/// With `saved_plan`, the plan.json of a run, the owners are those of that run; otherwise they are assigned
/// as the spec says. Without `processes_per_node` all processes are on one node. A model that is not among
/// `recorded` is added, so that many experiments record each model once. Throws UsageError if the number of
/// processes does not divide the number of workers, or if there are more processes per node than processes.
Experiment make_experiment(const ExperimentSpec& spec, int64_t processes,
                           const std::optional<std::filesystem::path>& saved_plan = std::nullopt,
                           std::optional<int64_t> processes_per_node = std::nullopt,
                           std::vector<RecordedModel>* recorded = nullptr);

/// The exchange plan options that follow from the spec.
ExchangeOptions exchange_options(const ExperimentSpec& spec, const ModelLayout& layout);

}  // namespace sdp
