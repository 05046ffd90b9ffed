#include "telemetry/columns.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "telemetry/eval_record.h"
#include "telemetry/records.h"

namespace sdp {
namespace {

using Q = Quantity;
using C = Comparison;
using D = Detail;
using M = Models;

/// The key of a loss has no unit in the metrics; its column has one.
std::string column_key(std::string_view key, const FieldOptions& options, std::string_view suffix = "") {
  return std::string(key) + std::string(suffix) + (options.quantity == Q::kLoss ? "_nats" : "");
}

/// The fields of training lines that have a title, in the order of the line.
class LineColumns {
 public:
  template <class Record>
  void add(const std::string& parent) {
    const auto field = [&]<class Member>(std::string_view key, Member Record::*,
                                         const FieldOptions& options = {}, OnlyIf<Record> = nullptr) {
      const std::string path = parent + std::string(key);
      if constexpr (std::is_function_v<Member> || HasNumber<Member>) {
        if (!options.title.empty())
          columns.push_back({.key = column_key(key, options),
                             .title = options.title,
                             .options = options,
                             .source = Source::kTrainLines,
                             .field = path});
      } else {
        add_record(path + (key == kInline ? "" : "."), static_cast<const Member*>(nullptr));
      }
    };
    Record::fields(field);
  }

  std::vector<ReportColumn> columns;

 private:
  template <class Record>
  void add_record(const std::string& parent, const Record*) {
    add<Record>(parent);
  }
  template <class Record>
  void add_record(const std::string& parent, const ByRank<Record>*) {
    add<Record>(parent);
  }
};

template <auto kMember>
ReportColumn of_evaluation(std::string_view title, C comparison, D detail, M models,
                           std::string_view over_workers = "") {
  static constexpr RecordField kField = record_field<kMember>();
  const std::string suffix = over_workers.empty() ? "" : fmt::format("_{}", over_workers);
  return {.key = column_key(kField.key, kField.options, suffix),
          .title = title,
          .options = {.quantity = kField.options.quantity, .comparison = comparison, .detail = detail},
          .models = models,
          .source = Source::kLastEval,
          .field = std::string(kField.key),
          .over_workers = over_workers};
}

ReportColumn of_run(const std::string& key, std::string_view title, Q quantity, C comparison = C::kNone,
                    D detail = D::kTerminal, M models = M::kAll) {
  return {.key = key,
          .title = title,
          .options = {.quantity = quantity, .comparison = comparison, .detail = detail},
          .models = models};
}

const char* name_of(Q quantity) {
  switch (quantity) {
    case Q::kShare:
      return "share";
    case Q::kLoss:
      return "nats";
    case Q::kPerplexity:
      return "perplexity";
    case Q::kWhole:
      return "whole";
    case Q::kCount:
      return "count";
    case Q::kBytes:
      return "bytes";
    case Q::kMilliseconds:
      return "ms";
    case Q::kSeconds:
      return "s";
    case Q::kNumber:
      break;
  }
  return "number";
}

/// Shares and rates are better when higher; losses, costs and times when lower. Counts say nothing.
const char* better_of(const ReportColumn& column) {
  if (column.options.quantity == Q::kShare || column.key.ends_with("_per_s")) return "higher";
  return column.options.quantity == Q::kWhole || column.options.quantity == Q::kNumber ? nullptr : "lower";
}

template <size_t count>
const char* name_at(const char* const (&names)[count], auto value) {
  return names[static_cast<size_t>(value)];
}

}  // namespace

std::vector<ReportColumn> report_columns() {
  std::vector<ReportColumn> columns = {
      of_evaluation<&EvalRecord::accuracy>("accuracy", C::kDifference, D::kTerminal, M::kOfImages),
      of_evaluation<&EvalRecord::accuracy_uncorrected>("uncorrected", C::kNone, D::kTerminal, M::kOfImages),
      of_evaluation<&EvalRecord::accuracy_ema>("averaged values", C::kNone, D::kDocument, M::kOfImages),
      of_run("training_accuracy", "training accuracy", Q::kShare, C::kNone, D::kDocument, M::kOfImages),
      of_evaluation<&EvalRecord::loss>("loss", C::kDifference, D::kTerminal, M::kOfTokens),
      of_evaluation<&EvalRecord::perplexity>("perplexity", C::kRatio, D::kTerminal, M::kOfTokens),
      of_evaluation<&EvalRecord::loss_uncorrected>("uncorrected loss", C::kNone, D::kTerminal, M::kOfTokens),
      of_evaluation<&EvalRecord::perplexity_uncorrected>("uncorrected perplexity", C::kNone, D::kDocument,
                                                         M::kOfTokens),
      of_evaluation<&EvalRecord::loss_ema>("loss of averaged values", C::kNone, D::kDocument, M::kOfTokens)};
  const auto add_subnetworks = [&]<auto kMember>(const std::array<const char*, 3>& titles, M models) {
    columns.push_back(of_evaluation<kMember>(titles[0], C::kNone, D::kTerminal, models, "mean"));
    columns.push_back(of_evaluation<kMember>(titles[1], C::kNone, D::kDocument, models, "min"));
    columns.push_back(of_evaluation<kMember>(titles[2], C::kNone, D::kDocument, models, "max"));
  };
  add_subnetworks.template operator()<&EvalRecord::subnetwork_accuracy>({"subnetworks", "lowest", "highest"},
                                                                        M::kOfImages);
  add_subnetworks.template operator()<&EvalRecord::subnetwork_loss>(
      {"subnetworks' loss", "lowest loss", "highest loss"}, M::kOfTokens);
  columns.insert(
      columns.end(),
      {of_run("steps", "steps", Q::kWhole), of_run("epochs", "epochs", Q::kNumber, C::kNone, D::kDocument),
       of_run("training_flops", "FLOPs", Q::kCount, C::kRatio),
       of_run("peak_tensor_memory_bytes", "tensor memory", Q::kBytes, C::kRatio),
       of_run("peak_tensor_memory_per_worker_bytes", "per worker", Q::kBytes, C::kNone, D::kDocument),
       of_run("peak_process_memory_bytes", "process memory", Q::kBytes, C::kNone, D::kDocument)});
  for (const MemoryKind kind : {MemoryKind::kActivations, MemoryKind::kWeights, MemoryKind::kGradients,
                                MemoryKind::kOptimizer, MemoryKind::kBuckets}) {
    const MemoryKindInfo& info = kMemoryKinds[static_cast<size_t>(kind)];
    columns.push_back(
        of_run(std::string("peak_") + info.bytes_key, info.name, Q::kBytes, C::kNone, D::kFile));
  }
  LineColumns of_lines;
  of_lines.add<TrainRecord>("");
  columns.insert(columns.end(), of_lines.columns.begin(), of_lines.columns.end());
  columns.push_back(of_run("sent_bytes_per_step", "sent/step", Q::kBytes, C::kRatio));
  columns.push_back(of_run("largest_worker_parameters", "parameters", Q::kCount));
  return columns;
}

std::string report_columns_json() {
  auto list = nlohmann::ordered_json::array();
  for (const ReportColumn& column : report_columns()) {
    const FieldOptions& options = column.options;
    const char* const better = better_of(column);
    list.push_back({{"key", column.key},
                    {"title", column.title},
                    {"quantity", name_of(options.quantity)},
                    {"comparison", name_at({"none", "ratio", "difference"}, options.comparison)},
                    {"better", better ? nlohmann::ordered_json(better) : nullptr},
                    {"detail", name_at({"terminal", "document", "file"}, options.detail)},
                    {"models", name_at({"all", "images", "tokens"}, column.models)},
                    {"source", name_at({"train", "eval", "run"}, column.source)},
                    {"field", column.field},
                    {"over_lines", name_at({"last", "median", "max"}, options.over_lines)},
                    {"over_processes", name_at({"mean", "max", "sum"}, options.over_processes)},
                    {"over_workers", column.over_workers}});
  }
  return list.dump();
}

}  // namespace sdp
