#pragma once

// Gradients of every worker's subnetwork compared with the full model's, for the same parameters and batches.

#include <functional>
#include <string>
#include <vector>

#include "analysis/deviation.h"
#include "analysis/regime.h"
#include "analysis/similarity.h"
#include "analysis/worker_model.h"
#include "experiment/spec/experiment_spec.h"
#include "feed/feed.h"
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
                                    const ValuesOf& values, const FeedSource& training,
                                    const AnalysisOptions& options, at::Device device,
                                    const std::function<void(const std::string& message)>& on_skipped,
                                    const OnProgress& on_progress);

}  // namespace sdp
