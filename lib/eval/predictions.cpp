#include "eval/predictions.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "eval/passes.h"
#include "io/file.h"
#include "spec/table.h"
#include "spec/units.h"

namespace sdp {
namespace {

std::string name_of(size_t label, const std::vector<std::string>& names) {
  return label < names.size() ? names[label] : std::to_string(label);
}

/// "dog (12.00 %), frog (4.00 %)": the classes that images of `label` are taken for, the most frequent first.
std::string taken_for(const ConfusionMatrix& matrix, size_t label, const std::vector<std::string>& names) {
  constexpr size_t kMost = 3;
  const std::vector<int64_t>& counts = matrix.counts[label];
  std::vector<size_t> others(counts.size());
  std::iota(others.begin(), others.end(), size_t{0});
  std::erase_if(others, [&](size_t other) { return other == label || counts[other] == 0; });
  std::stable_sort(others.begin(), others.end(), [&](size_t a, size_t b) { return counts[a] > counts[b]; });
  others.resize(std::min(others.size(), kMost));
  std::string text;
  for (const size_t other : others)
    text += fmt::format(
        "{}{} ({})", text.empty() ? "" : ", ", name_of(other, names),
        format_percent(static_cast<double>(counts[other]) / static_cast<double>(matrix.images(label))));
  return text.empty() ? "-" : text;
}

/// As a CSV field: in quotes, with quotes inside doubled.
std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text)
    result += c == '"' ? std::string("\"\"") : std::string(1, c);
  return result + "\"";
}

}  // namespace

Predictions predict(const EvalInputs& inputs, FullModel& full_model) {
  const at::NoGradGuard no_grad;
  EvalTimes times;
  const BoundModel bound = bind(inputs, full_model, /*training=*/false, times);
  const EvalBatches batches =
      eval_batches(inputs, samples_to_evaluate(inputs.experiment.spec.eval, inputs.test.size()));
  const std::unique_ptr<DeviceLoader> loader = inputs.test.evaluation(batches);
  std::vector<at::Tensor> logits;
  std::vector<at::Tensor> labels;
  std::vector<int64_t> samples;
  ProgressTask task(inputs.line, "predicting with the full model", "batches");
  for_each_batch(inputs, *loader, passes_of(inputs.comm, batches.count()), bound.mode, task.on_progress(),
                 [&](int64_t, const TensorBatch& batch) {
                   if (batch.samples.empty()) return;
                   logits.push_back(bound.model->forward(batch.input, bound.mode));
                   labels.push_back(batch.labels);
                   samples.insert(samples.end(), batch.samples.begin(), batch.samples.end());
                 });
  return {.logits = at::cat(logits), .labels = at::cat(labels), .samples = at::tensor(samples, at::kLong)};
}

int64_t ConfusionMatrix::images(size_t label) const {
  return std::accumulate(counts[label].begin(), counts[label].end(), int64_t{0});
}

std::optional<double> ConfusionMatrix::accuracy(size_t label) const {
  if (images(label) == 0) return std::nullopt;
  return static_cast<double>(counts[label][label]) / static_cast<double>(images(label));
}

ConfusionMatrix confusion_matrix(const Predictions& predictions) {
  const auto classes = static_cast<size_t>(predictions.logits.size(1));
  const at::Tensor predicted = predictions.logits.argmax(1).cpu().contiguous();
  const at::Tensor labels = predictions.labels.cpu().contiguous();
  ConfusionMatrix matrix{std::vector(classes, std::vector<int64_t>(classes))};
  for (int64_t i = 0; i < labels.numel(); ++i)
    ++matrix.counts[static_cast<size_t>(labels.data_ptr<int64_t>()[i])]
                   [static_cast<size_t>(predicted.data_ptr<int64_t>()[i])];
  return matrix;
}

std::string by_class_text(const ConfusionMatrix& matrix, const std::vector<std::string>& names) {
  TextTable table({"class", "images", "accuracy", "taken for"});
  for (size_t label = 0; label < matrix.counts.size(); ++label) {
    const std::optional<double> accuracy = matrix.accuracy(label);
    table.add_row({name_of(label, names), std::to_string(matrix.images(label)),
                   accuracy ? format_percent(*accuracy) : "-", taken_for(matrix, label, names)});
  }
  return table.str();
}

nlohmann::ordered_json by_class_json(const ConfusionMatrix& matrix) {
  nlohmann::ordered_json json = {{"accuracy_by_class", nlohmann::ordered_json::array()},
                                 {"confusion", matrix.counts}};
  for (size_t label = 0; label < matrix.counts.size(); ++label) {
    const std::optional<double> accuracy = matrix.accuracy(label);
    json["accuracy_by_class"].push_back(accuracy ? nlohmann::ordered_json(*accuracy) : nullptr);
  }
  return json;
}

void write_predictions_csv(const std::filesystem::path& path, const Predictions& predictions,
                           const Dataset& images) {
  const auto [probabilities, predicted] = predictions.logits.cpu().to(at::kDouble).softmax(1).max(1);
  const at::Tensor labels = predictions.labels.cpu();
  std::string csv = "sample,file,label,prediction,probability\n";
  for (int64_t i = 0; i < labels.numel(); ++i) {
    const auto sample = predictions.samples[i].item<int64_t>();
    csv +=
        fmt::format("{},{},{},{},{:.6f}\n", sample, quoted(images.sample_name(sample)),
                    labels[i].item<int64_t>(), predicted[i].item<int64_t>(), probabilities[i].item<double>());
  }
  write_file_atomically(path, csv);
}

}  // namespace sdp
