#pragma once

// Evaluation on samples of the test set: the assembled full model, with the corrections the spec asks for,
// and single subnetworks. The assembled model's samples are divided over the processes.

#include <filesystem>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "data/dataset.h"
#include "engine/full_model.h"
#include "experiment/experiment.h"
#include "experiment/spec/experiment_spec.h"
#include "feed/feed.h"
#include "io/on_progress.h"
#include "telemetry/metrics.h"
#include "telemetry/progress.h"
#include "telemetry/stopwatch.h"

namespace sdp {

struct EvalResult {
  double loss = 0;           ///< mean cross-entropy over the images, or over all predicted tokens
  double accuracy = 0;       ///< share in 0..1
  double accuracy_top5 = 0;  ///< share whose label is among the five largest logits
  int64_t predictions = 0;   ///< number of predicted images or tokens, without damaged images
  double loss_variance = 0;  ///< of a single prediction
};

/// Predictions for the evaluated samples in file order, without damaged ones.
struct Predictions {
  at::Tensor logits;   ///< [N, num_classes] in the compute type
  at::Tensor labels;   ///< [N] int64
  at::Tensor samples;  ///< [N] int64, indices in the test set
};

/// Called with the fault of every damaged image that the evaluation leaves out.
using OnSkipped = std::function<void(const std::string& message)>;

/// Factor on every branch's output in the assembled model, as configured; std::nullopt if it is to be chosen
/// by a trial (auto). survival: each branch was present in a share C of the subnetworks that trained the
/// other parameters, so scaling by C gives its expected output, as in stochastic depth (Huang et al. 2016).
/// The factor is 1 under backward masking, where no branch was ever missing, and for models without a
/// parameter that takes a factor (takes_branch_scale).
std::optional<double> fixed_branch_scale(const Experiment& experiment);

/// Number of training batches for re-estimating BatchNorm statistics; 0 for a model without BatchNorm.
int64_t batches_to_recalibrate(const Experiment& experiment);

/// Thrown on all processes if one is asked to stop during an evaluation. Each process leaves the evaluation
/// between two batches, all of them before the same collective.
struct EvaluationStopped {};

/// One evaluation. Collective functions may throw EvaluationStopped.
class Evaluator {
 public:
  /// The sources, and the line on which progress is shown, must outlive the object. `train` is read only for
  /// BatchNorm recalibration. `checkpoint`: folder of the checkpoint with the model's values, for
  /// KeptStatistics; empty if there is none.
  Evaluator(const Experiment& experiment, const FeedSource& train, const FeedSource& test, Communicator& comm,
            ProgressLine& line, OnSkipped on_skipped, std::filesystem::path checkpoint);

  /// Collective. Returns the result with corrections and, if there are any, also without. Afterwards the full
  /// model has the corrected BatchNorm statistics and branch scale.
  EvalRecord evaluate(FullModel& full_model);
  /// Collective. Adds the results of the moving average of the values, with the branch scale of `record` and
  /// BatchNorm statistics of its own.
  void add_average(EvalRecord& record, FullModel& average);
  /// Collective. Adds the results of single subnetworks to the record, if there are any and the spec asks for
  /// them. `workers`: the workers whose subnetworks this process evaluates; each worker occurs once over all
  /// processes. `subnetwork` returns the i-th of them; it is used only until the next call.
  void add_subnetworks(EvalRecord& record, const std::vector<int>& workers,
                       const std::function<Model&(size_t i)>& subnetwork);
  /// Collective. Sets the full model's branch scale to the given one or, without one, to the better of the
  /// two on training samples, and re-estimates BatchNorm statistics as configured. Returns the losses of the
  /// trial, if there was one.
  std::optional<BranchScaleTrial> correct(FullModel& full_model, std::optional<double> branch_scale);
  /// Uses the corrections that the full model has. For a single process.
  Predictions predict(FullModel& full_model);

 private:
  /// This process's number of passes among those that all processes make together.
  struct Passes {
    int64_t mine;  ///< passes with a batch
    int64_t all;   ///< passes of every process, since streamed branches are collective
  };

  /// Binds the full model, as a whole or (streamed) branch by branch, and returns a function that runs it.
  ForwardMode bind(Model& model, FullModel& full_model, bool training);
  /// Runs the full model as it is on samples of `data`. `some`: a subset whose result is returned too.
  struct Results {
    EvalResult all;
    EvalResult some;
    at::Tensor batch_losses;  ///< [batches] fp64, on the host: mean loss of each batch of `all`
  };
  Results run(FullModel& full_model, const std::string& name, const FeedSource& data,
              const std::vector<int64_t>& samples, const std::vector<int64_t>& some = {});
  void recalibrate(FullModel& full_model);
  void estimate_statistics(FullModel& full_model);
  BranchScaleTrial choose_branch_scale(FullModel& full_model);
  /// Loops over the batches of an evaluation or recalibration, calling use(number, batch) with each.
  void for_each_batch(Feed& feed, Passes passes, const ForwardMode& mode, const OnProgress& on_progress,
                      const std::function<void(int64_t number, const TensorBatch& batch)>& use) const;
  void walk_branches(const ForwardMode& mode) const;
  /// Check for a stop request: before collectives (Communicator::stops_here), and in sections without any.
  void leave_if_stopped_here() const;
  void leave_if_stopped_within() const;
  EvalBatches batches_of(std::vector<int64_t> samples) const;
  /// Returns the next batch and reports its damaged samples.
  TensorBatch next(Feed& feed) const;
  /// Calls `part`, waits for the device and adds the elapsed time to `total_s`.
  template <class Part>
  auto timed(double& total_s, Part part) const;
  /// Sums over the batch's predictions, [2, 5] fp64 as mean_of takes them: over all samples and over the
  /// samples in `some` (ascending).
  at::Tensor sums_of(Model& model, const ForwardMode& mode, const TensorBatch& batch,
                     const std::vector<int64_t>& some) const;
  at::Tensor zero_sums() const;

  const Experiment& experiment_;
  const FeedSource& train_;
  const FeedSource& test_;
  Communicator& comm_;
  ProgressLine& line_;
  OnSkipped on_skipped_;
  std::filesystem::path checkpoint_;
  bool counts_top5_;
  Stopwatch since_begin_;
  EvalTimes times_;
  EvalResult on_subnetwork_samples_;  ///< of the assembled model
};

/// Re-estimated BatchNorm statistics of a checkpoint, kept in its folder. Estimating them takes most of the
/// time of an evaluation after a short run, and the run, `eval` and `export` need the same ones.
class KeptStatistics {
 public:
  /// Statistics for the model's branch scale, estimated as `spec` says, in safetensors. The file's name has a
  /// hash of all that they depend on besides the checkpoint's values: model, data, batches and precision.
  KeptStatistics(const std::filesystem::path& checkpoint, const ExperimentSpec& spec,
                 const DataIdentity& training_data, const FullModel& model);

  /// Whether the model now has the kept statistics; false if there are none, or none that can be read.
  bool load(FullModel& model) const;
  /// Failures are ignored: the folder may be read-only.
  void save(FullModel& model) const;

 private:
  std::filesystem::path path_;
};

// Predictions for single images: a table by class, and a file with a line per image.

/// counts[label][prediction]: number of images of class `label` that are taken for class `prediction`.
struct ConfusionMatrix {
  std::vector<std::vector<int64_t>> counts;

  int64_t images(size_t label) const;
  /// Share of the class's images that are recognized, 0..1; none for a class without images.
  std::optional<double> accuracy(size_t label) const;
};
ConfusionMatrix confusion_matrix(const Predictions& predictions);

/// A line per class: images, accuracy, and the classes that it is most often taken for.
/// `names`: of the classes; empty: they are called by number.
std::string by_class_text(const ConfusionMatrix& matrix, const std::vector<std::string>& names);
/// {"accuracy_by_class": [..], "confusion": [[..], ..]}, with null for a class without images.
nlohmann::ordered_json by_class_json(const ConfusionMatrix& matrix);

/// Writes CSV: sample, file (empty for images that are not files), label, prediction, and the softmax
/// probability of the prediction. Throws DataError if the file cannot be written.
void write_predictions_csv(const std::filesystem::path& path, const Predictions& predictions,
                           const Dataset& images);

}  // namespace sdp
