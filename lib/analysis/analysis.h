#pragma once

// Gradients of every worker's subnetwork compared with the full model's, for the same parameters and batches.

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/gradients.h"
#include "analysis/worker_model.h"
#include "data/device_loader.h"
#include "experiment/experiment_spec.h"
#include "experiment/regime.h"
#include "subnet/plan.h"

namespace sdp {

struct AnalysisOptions {
  int64_t batch_size = 1;  ///< number of samples in one worker's batch
  int64_t batches = 1;     ///< number of batches per worker
  int64_t step = 0;        ///< of the run, after which the values were saved
  int64_t first_step = 0;  ///< position in the training order, in steps of `batch_size` samples per worker
};

/// Result for one regime. Workers and coverage are those of the plan.
struct RegimeAnalysis {
  Regime regime;
  SubnetPlan plan;
  int64_t step = 0;                    ///< AnalysisOptions::step
  std::vector<LayerGradients> layers;  ///< by depth, then by worker
  Spread cosine;  ///< mean over layers of the mean over workers; statistics over the batches
  std::vector<Deviation> deviation;  ///< by unit, means over the batches
};

/// Indices of the parameters that count as layers: the weights, in order of depth.
std::vector<int> layers_of(const ModelLayout& layout);

/// Computes the gradients of one worker after another, in every regime on the same batch. Batch b of worker k
/// is the worker's batch in step first_step + b of training with this batch size, one replica and no
/// accumulation, with the same augmentation and mixing. Gradients have the spec's precision. Besides the
/// data, this needs the full model and a subnetwork, each with its gradient, and per regime two more tensors
/// the size of the full model in fp32 (fp64 in an fp64 run). All plans have the same number of workers.
/// `on_skipped` is called with the fault of each damaged image; progress is counted in batches of all
/// workers.
std::vector<RegimeAnalysis> analyze(const ExperimentSpec& spec, std::vector<SubnetPlan> plans,
                                    const ValuesOf& values, const DeviceDataset& training,
                                    const AnalysisOptions& options, at::Device device,
                                    const std::function<void(const std::string& message)>& on_skipped,
                                    const OnProgress& on_progress);

// An analysis as text, for people and for programs.

/// One row per analysis: cosine similarities over the layers, the largest deviation relative to its bound,
/// and gradient norms. Then the results of the last step in words.
std::string describe(const std::vector<RegimeAnalysis>& analyses);

/// Header: regime,layer,depth,worker,cosine,elements,step,cosine_std,norm,norm_std,full_norm,full_norm_std.
/// One row per analysis, layer and worker that owns part of the layer: means over the batches and sample
/// standard deviations, which are nan for a single batch. The cosine is nan if a gradient is zero. full_norm
/// is the norm of the full model's gradient on the slices that the worker owns.
std::string similarity_csv(const std::vector<RegimeAnalysis>& analyses);

/// Header: regime,unit,branch,begin,end,owners,deviation_squared,bound,ratio,step. One row per analysis and
/// unit. Owners are separated by spaces; ratio is nan if the bound is 0.
std::string deviation_csv(const std::vector<RegimeAnalysis>& analyses);

/// Header: model,regime,step,cosine,cosine_std. One row per analysis: RegimeAnalysis::cosine. The deviation
/// is nan for a single batch.
std::string summary_csv(const std::vector<RegimeAnalysis>& analyses);

// Owner sets of a spec's workers in each regime.

/// Parses comma-separated names of regimes. Throws UsageError, prefixed with `option`, for an unknown or
/// repeated name.
std::vector<Regime> parse_regimes(std::string_view names, std::string_view option);

/// The plan of a regime with the spec's workers and coverage. Owners are those of `saved_plan`, if it is
/// given and has the same construction, whatever its masking. Throws UsageError if the spec reads owners from
/// a file of the other construction.
SubnetPlan plan_of_regime(const ExperimentSpec& spec, Regime regime,
                          const std::optional<std::filesystem::path>& saved_plan);

}  // namespace sdp
