#pragma once

// Predictions for single images: a table by class, and a file with a line per image.

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "eval/evaluation.h"

namespace sdp {

class Dataset;

/// Predictions for the evaluated samples in file order, without damaged ones.
struct Predictions {
  at::Tensor logits;   ///< [N, num_classes] in the compute type
  at::Tensor labels;   ///< [N] int64
  at::Tensor samples;  ///< [N] int64, indices in the test set
};

/// Uses the corrections that the full model has. For a single process.
Predictions predict(const EvalInputs& inputs, FullModel& full_model);

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
