#pragma once

// Gradients of every worker's subnetwork beside the full model's, on the same values and the same batches.

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
  int64_t batch_size = 1;  ///< samples of one worker's batch
  int64_t batches = 1;     ///< of each worker
  int64_t first_step = 0;  ///< of the training order, in steps of `batch_size` samples for each worker
};

/// What was found of one regime. Workers and coverage are those of the plan.
struct RegimeAnalysis {
  Regime regime;
  SubnetPlan plan;
  int64_t step = 0;                    ///< AnalysisOptions::first_step
  std::vector<LayerGradients> layers;  ///< by depth, then by worker
  Spread cosine;                       ///< mean over layers of the mean over workers; over the batches
  std::vector<Deviation> deviation;    ///< by unit, means over the batches
};

/// Indices of the parameters that count as layers: the weights, in order of depth.
std::vector<int> layers_of(const ModelLayout& layout);

/// Computes the gradients of one worker after another, in every regime on the same batch: batch b of worker k
/// is the one that it has in step first_step + b of training with this batch size, one replica and no
/// accumulation, augmented and mixed as there. Gradients are of the spec's precision. Besides the data this
/// needs the full model with its gradient, a subnetwork with its gradient, and for each regime two more of
/// the full model in fp32 (fp64 in an fp64 run). All plans have as many workers. `on_skipped` is told what is
/// wrong with damaged images; progress is told in batches of all workers.
std::vector<RegimeAnalysis> analyze(const ExperimentSpec& spec, std::vector<SubnetPlan> plans,
                                    const ValuesOf& values, const FeedSource& training,
                                    const AnalysisOptions& options, at::Device device,
                                    const std::function<void(const std::string& message)>& on_skipped,
                                    const OnProgress& on_progress);

}  // namespace sdp
