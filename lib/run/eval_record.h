#pragma once

// The line of metrics.jsonl on an evaluation.

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "spec/visit.h"

namespace sdp {

/// Times of an evaluation and its parts, measured by rank 0.
struct EvalTimes {
  double eval_s = 0;  ///< total
  /// Gathering the assembled model's parameters; with eval.mode streamed, without the branches.
  double assemble_s = 0;
  double recalibrate_s = 0;  ///< BatchNorm recalibration
  double evaluate_s = 0;     ///< the assembled model on the test set, with and without corrections
  double subnetworks_s = 0;  ///< single subnetworks on the test set

  template <class Visitor>
  static constexpr void fields(Visitor& field) {
    field("eval_s", &EvalTimes::eval_s, kShown);
    field("assemble_s", &EvalTimes::assemble_s);
    field("recalibrate_s", &EvalTimes::recalibrate_s);
    field("evaluate_s", &EvalTimes::evaluate_s);
    field("subnetworks_s", &EvalTimes::subnetworks_s);
  }
};
static_assert(lists_every_member<EvalTimes>());

/// Losses of the assembled model on training samples with both branch scales (eval.branch_scale: auto).
/// Survival is used if its loss is lower by more than the standard error of the difference.
struct BranchScaleTrial {
  int64_t samples = 0;
  double loss_none = 0;       ///< branch scale 1
  double loss_survival = 0;   ///< branch scale equal to the coverage
  double standard_error = 0;  ///< of the difference, from the differences of single batches

  bool is_decided() const { return std::abs(loss_survival - loss_none) > standard_error; }

  template <class Visitor>
  static constexpr void fields(Visitor& field) {
    field("samples", &BranchScaleTrial::samples);
    field("loss_none", &BranchScaleTrial::loss_none);
    field("loss_survival", &BranchScaleTrial::loss_survival);
    field("standard_error", &BranchScaleTrial::standard_error, kOrDefault);
  }
};
static_assert(lists_every_member<BranchScaleTrial>());

/// exp of the loss, which is a mean cross-entropy in nats.
inline double perplexity_of(double loss) {
  return std::exp(loss);
}

/// The assembled full model on samples of the test set, or of the training set without augmentation.
struct EvalRecord {
  static constexpr std::string_view kKind = "eval";

  int64_t step = 0;
  double loss = 0;
  double accuracy = 0;  ///< share in 0..1
  /// Share whose label is among the five largest logits; unset for tokens and for up to five classes.
  std::optional<double> accuracy_top5 = {};
  int64_t samples = 0;       ///< samples evaluated (eval.max_samples), including skipped ones
  int64_t test_samples = 0;  ///< size of the whole set
  bool on_training_data = false;
  int64_t tokens = 0;       ///< predicted tokens in `samples`; 0 for images, whose lines have neither count
  int64_t test_tokens = 0;  ///< in the whole set
  /// Damaged images that were left out (data.on_error: skip); not in the line if 0.
  int64_t skipped_samples = 0;
  /// Without BatchNorm recalibration and branch scale; unset: no correction was applied.
  std::optional<double> loss_uncorrected = {};
  std::optional<double> accuracy_uncorrected = {};
  /// With the moving average of the values (optimizer.ema_decay), with the same corrections.
  std::optional<double> loss_ema = {};
  std::optional<double> accuracy_ema = {};
  // The corrections. Like the trial, not in the line if there are none.
  /// Number of training batches for the BatchNorm statistics; 0: statistics from training.
  int64_t recalibrated_batches = 0;
  double branch_scale = 1;
  std::optional<BranchScaleTrial> branch_scale_trial = {};
  /// Single subnetworks, by worker. Empty if not measured; then the line has neither these nor the keys
  /// below.
  std::vector<double> subnetwork_loss = {};
  std::vector<double> subnetwork_accuracy = {};
  /// Of the difference to the assembled model on the same samples: of losses for tokens, else of accuracies.
  std::vector<double> subnetwork_standard_error = {};
  int64_t subnetwork_samples = 0;         ///< number of samples on which each subnetwork was evaluated
  double loss_on_subnetwork_samples = 0;  ///< the assembled model's loss on the same samples
  double accuracy_on_subnetwork_samples = 0;
  EvalTimes times = {};
  std::optional<std::string> measure = {};  ///< of a run's own evaluations (eval/best.h)

  /// Whether the model is a language model; its lines also have perplexities.
  bool is_of_tokens() const { return tokens > 0; }
  bool is_on_training_data() const { return on_training_data; }
  bool has_skipped() const { return skipped_samples > 0; }
  bool is_corrected() const { return loss_uncorrected.has_value(); }
  bool has_subnetworks() const { return !subnetwork_loss.empty(); }
  double perplexity() const { return perplexity_of(loss); }
  std::optional<double> perplexity_uncorrected() const {
    return loss_uncorrected ? std::optional(perplexity_of(*loss_uncorrected)) : std::nullopt;
  }

  template <class Visitor>
  static constexpr void fields(Visitor& field) {
    constexpr auto kOfTokens = &EvalRecord::is_of_tokens;
    constexpr auto kCorrected = &EvalRecord::is_corrected;
    constexpr auto kSubnetworks = &EvalRecord::has_subnetworks;
    field("step", &EvalRecord::step, kRequired);
    field("loss", &EvalRecord::loss, kShown);
    field("perplexity", &EvalRecord::perplexity, kShown, kOfTokens);
    field("accuracy", &EvalRecord::accuracy, kShown);
    field("accuracy_top5", &EvalRecord::accuracy_top5, kShown);
    field("samples", &EvalRecord::samples);
    field("test_samples", &EvalRecord::test_samples);
    field("on_training_data", &EvalRecord::on_training_data, &EvalRecord::is_on_training_data);
    field("tokens", &EvalRecord::tokens, kOfTokens);
    field("test_tokens", &EvalRecord::test_tokens, kOfTokens);
    field("skipped_samples", &EvalRecord::skipped_samples, &EvalRecord::has_skipped);
    field("loss_uncorrected", &EvalRecord::loss_uncorrected, kShown);
    field("perplexity_uncorrected", &EvalRecord::perplexity_uncorrected, kShown, kOfTokens);
    field("accuracy_uncorrected", &EvalRecord::accuracy_uncorrected, kShown);
    field("loss_ema", &EvalRecord::loss_ema, kShown);
    field("accuracy_ema", &EvalRecord::accuracy_ema, kShown);
    field("recalibrated_batches", &EvalRecord::recalibrated_batches, kCorrected);
    field("branch_scale", &EvalRecord::branch_scale, kOrDefault, kCorrected);
    field("branch_scale_trial", &EvalRecord::branch_scale_trial);
    field("subnetwork_loss", &EvalRecord::subnetwork_loss, kShown, kSubnetworks);
    field("subnetwork_accuracy", &EvalRecord::subnetwork_accuracy, kShown, kSubnetworks);
    field("subnetwork_standard_error", &EvalRecord::subnetwork_standard_error, kSubnetworks);
    field("subnetwork_samples", &EvalRecord::subnetwork_samples, kSubnetworks);
    field("loss_on_subnetwork_samples", &EvalRecord::loss_on_subnetwork_samples, kSubnetworks);
    field("accuracy_on_subnetwork_samples", &EvalRecord::accuracy_on_subnetwork_samples, kSubnetworks);
    field(kInline, &EvalRecord::times);
    field("measure", &EvalRecord::measure);
  }
};
static_assert(lists_every_member<EvalRecord>());

}  // namespace sdp
