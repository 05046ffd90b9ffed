#pragma once

// What is measured of a run, as numbers.

#include <limits>
#include <span>
#include <string_view>

#include "report/run.h"

namespace sdp {

/// NaN: not known (yet). Of the last evaluation: accuracies are shares in 0..1.
struct Measures {
  static constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

  double accuracy = kUnknown;  ///< of the assembled full model
  double accuracy_uncorrected = kUnknown;
  double loss = kUnknown;
  double loss_uncorrected = kUnknown;
  double perplexity = kUnknown;  ///< of language models
  double perplexity_uncorrected = kUnknown;
  // Of single subnetworks.
  double subnetwork_accuracy_mean = kUnknown;
  double subnetwork_accuracy_min = kUnknown;
  double subnetwork_accuracy_max = kUnknown;
  double subnetwork_loss_mean = kUnknown;
  double subnetwork_loss_min = kUnknown;
  double subnetwork_loss_max = kUnknown;
  double steps = kUnknown;
  double epochs = kUnknown;
  double training_flops = kUnknown;  ///< of all workers and steps
  /// The largest sum over kinds of tensors that a process held, and its parts. Of training: lines of the
  /// metrics in whose steps an evaluation fell, which needs memory of its own, are left out where there are
  /// others.
  double peak_tensor_memory_bytes = kUnknown;
  double peak_activations_bytes = kUnknown;
  double peak_weights_bytes = kUnknown;
  double peak_gradients_bytes = kUnknown;
  double peak_optimizer_bytes = kUnknown;
  double peak_buckets_bytes = kUnknown;
  double peak_tensor_memory_per_worker_bytes = kUnknown;  ///< divided by the workers of a process
  /// Of the whole process that had most, evaluations included (device/device.h).
  double peak_process_memory_bytes = kUnknown;
  // Medians over the training lines, without the first, which has the start in it.
  double step_ms = kUnknown;
  double samples_per_s = kUnknown;
  double sent_bytes_per_step = kUnknown;  ///< mean over the processes
  double largest_parameters = kUnknown;   ///< of the worker that has the most
};

Measures measure(const Run& run);

/// The middle value, or the mean of the middle two; NaN values are left out. NaN of none.
double median(std::vector<double> values);

enum class Quantity { kShare, kLoss, kPerplexity, kWhole, kNumber, kCount, kBytes, kMilliseconds };
/// How a measure is compared with a baseline's.
enum class Comparison { kNone, kRatio, kDifference };
/// Tables with less room leave columns out.
enum class Detail { kTerminal, kDocument, kFile };
/// Models whose tables show a measure; the file has it for others too.
enum class Models { kAll, kOfImages, kOfTokens };

struct MeasureInfo {
  double Measures::*value;
  std::string_view key;    ///< with the unit: a column of the CSV
  std::string_view title;  ///< for people; the unit is added by quantity
  Quantity quantity;
  Comparison comparison = Comparison::kNone;
  Detail detail = Detail::kTerminal;
  Models models = Models::kAll;
};

/// All of Measures, in the order of a table's columns.
std::span<const MeasureInfo> measure_infos();

}  // namespace sdp
