#include "report/measures.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "telemetry/field_value.h"

namespace sdp {
namespace {

using Q = Quantity;
using C = Comparison;
using D = Detail;
using M = Models;

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

double known_or_nan(int64_t bytes) {
  return bytes > 0 ? static_cast<double>(bytes) : kUnknown;
}

double over_lines(std::vector<double> values, OverLines how) {
  if (values.empty()) return kUnknown;
  switch (how) {
    case OverLines::kMedian:
      if (values.size() > 1) values.erase(values.begin());
      return median(std::move(values));
    case OverLines::kMax:
      return *std::max_element(values.begin(), values.end());
    case OverLines::kLast:
      break;
  }
  return values.back();
}

/// The key of a loss has no unit in the metrics; its column has one.
std::string column_key(RecordField info, std::string_view suffix = "") {
  return std::string(info.key) + std::string(suffix) + (info.options.quantity == Q::kLoss ? "_nats" : "");
}

/// Columns of the training lines, in the order of the line, combined over processes and lines as the record's
/// list says.
class LineColumns {
 public:
  /// `part_of`: the record's position in a line.
  template <class Record, class PartOf>
  void add(PartOf part_of) {
    const auto field = [&]<class Member>(std::string_view key, Member Record::*member,
                                         const FieldOptions& options = {}, OnlyIf<Record> = nullptr) {
      const auto member_of = [=](const TrainRecord& line) -> decltype(auto) {
        return std::invoke(member, part_of(line));
      };
      if constexpr (std::is_function_v<Member> || HasNumber<Member>)
        add(key, options, [=](const TrainRecord& line) { return number_of(member_of(line)); });
      else
        add_record(member_of, static_cast<const Member*>(nullptr));
    };
    Record::fields(field);
  }

  std::vector<Measure> columns;

 private:
  template <class PartOf, class Record>
  void add_record(PartOf part_of, const Record*) {
    add<Record>(part_of);
  }
  template <class PartOf, class Record>
  void add_record(PartOf ranks_of, const ByRank<Record>*) {
    const auto field = [&]<class Member>(std::string_view key, Member Record::*member,
                                         const FieldOptions& options = {}, OnlyIf<Record> = nullptr) {
      add(key, options, [=, how = options.over_processes](const TrainRecord& line) {
        return number_of_ranks(ranks_of(line), member, how);
      });
    };
    Record::fields(field);
  }

  template <class NumberOf>
  void add(std::string_view key, const FieldOptions& options, NumberOf number_of_line) {
    if (options.title.empty()) return;
    const auto value = [=, how = options.over_lines](const Run& run) {
      std::vector<double> values;
      for (const TrainRecord& line : run.train)
        values.push_back(number_of_line(line));
      return over_lines(std::move(values), how);
    };
    columns.push_back({column_key({key, options}), options.title, options.quantity, value, options.comparison,
                       options.detail});
  }
};

/// A member of the last evaluation.
template <auto kMember>
Measure of_evaluation(std::string_view title, C comparison, D detail, M models) {
  static constexpr RecordField kField = record_field<kMember>();
  const auto value = [](const Run& run) {
    return run.evals.empty() ? kUnknown : number_of(run.evals.back().*kMember);
  };
  return {column_key(kField), title, kField.options.quantity, value, comparison, detail, models};
}

/// For a language model.
template <auto kMember>
Measure perplexity_of_evaluation(std::string_view title, C comparison, D detail) {
  static constexpr RecordField kField = record_field<kMember>();
  const auto value = [](const Run& run) {
    const bool is_known = !run.evals.empty() && run.is_of_tokens();
    return is_known ? number_of((run.evals.back().*kMember)()) : kUnknown;
  };
  return {column_key(kField), title, kField.options.quantity, value, comparison, detail, M::kOfTokens};
}

double lowest(const std::vector<double>& values) {
  return values.empty() ? kUnknown : *std::min_element(values.begin(), values.end());
}
double highest(const std::vector<double>& values) {
  return values.empty() ? kUnknown : *std::max_element(values.begin(), values.end());
}

/// A list over subnetworks of the last evaluation, as one number.
template <auto kMember, double (*combined)(const std::vector<double>&)>
Measure of_subnetworks(std::string_view suffix, std::string_view title, D detail, M models) {
  static constexpr RecordField kField = record_field<kMember>();
  const auto value = [](const Run& run) {
    return run.evals.empty() ? kUnknown : combined(run.evals.back().*kMember);
  };
  return {column_key(kField, suffix), title, kField.options.quantity, value, C::kNone, detail, models};
}

/// One kind of memory, from the process with the most tensor memory.
template <MemoryKind kKind>
Measure of_peak_memory() {
  constexpr MemoryKindInfo kInfo = kMemoryKinds[static_cast<size_t>(kKind)];
  const auto value = [](const Run& run) {
    const MemoryByKind peak = peak_memory(run);
    return peak.total() > 0 ? number_of(peak[kKind]) : kUnknown;
  };
  return {std::string("peak_") + kInfo.bytes_key, kInfo.name, Q::kBytes, value, C::kNone, D::kFile, M::kAll};
}

/// From the last training line. An evaluation has an accuracy too; this is another value.
double training_accuracy(const Run& run) {
  return run.train.empty() ? kUnknown : number_of(run.train.back().accuracy);
}

double steps(const Run& run) {
  return static_cast<double>(run.step());
}

double epochs(const Run& run) {
  return run.epochs_per_step() > 0 ? steps(run) * run.epochs_per_step() : kUnknown;
}

/// Over all workers and steps.
double training_flops(const Run& run) {
  return steps(run) * run.flops_per_step();
}

double tensor_memory_per_worker_bytes(const Run& run) {
  const double slots = static_cast<double>(run.plan.workers * run.spec.subnetwork.replicas) /
                       static_cast<double>(run.plan.processes);
  return peak_tensor_memory_bytes(run) / slots;
}

/// Mean over the processes.
double sent_bytes_per_step(const Run& run) {
  std::vector<double> values;
  for (const TrainRecord& record : run.train)
    values.push_back(number_of_ranks(record.exchange, &ExchangeRecord::reduce_bytes, OverProcesses::kMean) +
                     number_of_ranks(record.exchange, &ExchangeRecord::publish_bytes, OverProcesses::kMean));
  return over_lines(std::move(values), OverLines::kMedian);
}

/// Of the worker with the most parameters.
double largest_worker_parameters(const Run& run) {
  double largest = kUnknown;
  for (const ProcessFigures& worker : run.plan.per_worker)
    largest = std::fmax(largest, static_cast<double>(worker.parameters));
  return largest;
}

std::vector<Measure> make_measures() {
  std::vector<Measure> columns = {
      of_evaluation<&EvalRecord::accuracy>("accuracy", C::kDifference, D::kTerminal, M::kOfImages),
      of_evaluation<&EvalRecord::accuracy_uncorrected>("uncorrected", C::kNone, D::kTerminal, M::kOfImages),
      {"training_accuracy", "training accuracy", Q::kShare, training_accuracy, C::kNone, D::kDocument,
       M::kOfImages},
      of_evaluation<&EvalRecord::loss>("loss", C::kDifference, D::kTerminal, M::kOfTokens),
      perplexity_of_evaluation<&EvalRecord::perplexity>("perplexity", C::kRatio, D::kTerminal),
      of_evaluation<&EvalRecord::loss_uncorrected>("uncorrected loss", C::kNone, D::kTerminal, M::kOfTokens),
      perplexity_of_evaluation<&EvalRecord::perplexity_uncorrected>("uncorrected perplexity", C::kNone,
                                                                    D::kDocument),
      of_subnetworks<&EvalRecord::subnetwork_accuracy, mean_of>("_mean", "subnetworks", D::kTerminal,
                                                                M::kOfImages),
      of_subnetworks<&EvalRecord::subnetwork_accuracy, lowest>("_min", "lowest", D::kDocument, M::kOfImages),
      of_subnetworks<&EvalRecord::subnetwork_accuracy, highest>("_max", "highest", D::kDocument,
                                                                M::kOfImages),
      of_subnetworks<&EvalRecord::subnetwork_loss, mean_of>("_mean", "subnetworks' loss", D::kTerminal,
                                                            M::kOfTokens),
      of_subnetworks<&EvalRecord::subnetwork_loss, lowest>("_min", "lowest loss", D::kDocument, M::kOfTokens),
      of_subnetworks<&EvalRecord::subnetwork_loss, highest>("_max", "highest loss", D::kDocument,
                                                            M::kOfTokens),
      {"steps", "steps", Q::kWhole, steps},
      {"epochs", "epochs", Q::kNumber, epochs, C::kNone, D::kDocument},
      {"training_flops", "FLOPs", Q::kCount, training_flops, C::kRatio},
      {"peak_tensor_memory_bytes", "tensor memory", Q::kBytes, peak_tensor_memory_bytes, C::kRatio},
      {"peak_tensor_memory_per_worker_bytes", "per worker", Q::kBytes, tensor_memory_per_worker_bytes,
       C::kNone, D::kDocument},
      {"peak_process_memory_bytes", "process memory", Q::kBytes, peak_process_memory_bytes, C::kNone,
       D::kDocument},
      of_peak_memory<MemoryKind::kActivations>(),
      of_peak_memory<MemoryKind::kWeights>(),
      of_peak_memory<MemoryKind::kGradients>(),
      of_peak_memory<MemoryKind::kOptimizer>(),
      of_peak_memory<MemoryKind::kBuckets>(),
  };
  LineColumns of_lines;
  of_lines.add<TrainRecord>([](const TrainRecord& line) -> const TrainRecord& { return line; });
  columns.insert(columns.end(), of_lines.columns.begin(), of_lines.columns.end());
  columns.push_back({"sent_bytes_per_step", "sent/step", Q::kBytes, sent_bytes_per_step, C::kRatio});
  columns.push_back({"largest_worker_parameters", "parameters", Q::kCount, largest_worker_parameters});
  return columns;
}

/// Whether the assembled model was evaluated between the previous line and this one.
bool has_evaluation(const Run& run, size_t line) {
  const int64_t begin = line == 0 ? 0 : run.train[line - 1].step;
  return std::any_of(run.evals.begin(), run.evals.end(), [&](const EvalRecord& record) {
    return record.step >= begin && record.step < run.train[line].step;
  });
}

}  // namespace

double median(std::vector<double> values) {
  std::erase_if(values, [](double value) { return std::isnan(value); });
  if (values.empty()) return kUnknown;
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

MemoryByKind peak_memory(const Run& run) {
  MemoryByKind with_evaluation, without;
  for (size_t line = 0; line < run.train.size(); ++line) {
    MemoryByKind& largest = has_evaluation(run, line) ? with_evaluation : without;
    for (const MemoryByKind& of_rank : run.train[line].memory.ranks)
      if (of_rank.total() > largest.total()) largest = of_rank;
  }
  return without.total() > 0 ? without : with_evaluation;
}

double peak_tensor_memory_bytes(const Run& run) {
  return known_or_nan(peak_memory(run).total());
}

double peak_process_memory_bytes(const Run& run) {
  int64_t bytes = 0;
  for (const TrainRecord& record : run.train)
    bytes = std::max(bytes, record.processes.peak_process_memory_bytes);
  return known_or_nan(bytes);
}

std::span<const Measure> measures() {
  static const std::vector<Measure> kMeasures = make_measures();
  return kMeasures;
}

}  // namespace sdp
