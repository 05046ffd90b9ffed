#include "report/study_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "spec/error.h"

namespace sdp {
namespace {

constexpr double kNotMeasured = std::numeric_limits<double>::quiet_NaN();

std::string progress_of(const Group& group) {
  const size_t unfinished = group.unfinished();
  if (unfinished == 0) return "";
  if (group.runs.size() > 1) return fmt::format("{} of {} unfinished", unfinished, group.runs.size());
  const Run& run = group.runs.front();
  const std::optional<int64_t> total = run.total_steps();
  return total ? fmt::format("unfinished: step {} of {}", run.step(), *total)
               : fmt::format("unfinished: step {}", run.step());
}

StudyRow row_of(const Group& group) {
  StudyRow row{.data_set = group.data_set,
               .is_of_tokens = group.runs.front().is_of_tokens(),
               .label = group.label,
               .regime = group.regime,
               .coverage = group.coverage,
               .seeds = {},
               .unfinished = group.unfinished(),
               .progress = progress_of(group),
               .processes = group.runs.front().plan.processes,
               .device = {},
               .imported = {},
               .changes = group.changes,
               .values = {}};
  if (const auto& imported = group.runs.front().history.imported) row.imported = imported->xxh3_128;
  for (const Run& run : group.runs) {
    row.seeds.push_back(run.spec.seed);
    if (run.end && row.device.empty()) row.device = run.end->device;
  }
  return row;
}

std::vector<Statistic> statistics_of(const Measure& measure, const std::vector<Group>& groups) {
  std::vector<Statistic> column;
  for (const Group& group : groups) {
    std::vector<double> values;
    for (const Run& run : group.runs)
      values.push_back(measure.value(run));
    column.push_back(statistic(values));
  }
  return column;
}

bool is_known(const std::vector<Statistic>& column) {
  return std::any_of(column.begin(), column.end(), [](const Statistic& value) { return value.count > 0; });
}

/// For each row, the index of its baseline.
using Baselines = std::vector<std::optional<size_t>>;

std::vector<Statistic> compared(const std::vector<Statistic>& column, const Baselines& baselines,
                                Comparison comparison) {
  std::vector<Statistic> result;
  for (size_t row = 0; row < column.size(); ++row) {
    double mean = kNotMeasured;
    if (baselines[row]) {
      const double of_baseline = column[*baselines[row]].mean;
      mean =
          comparison == Comparison::kRatio ? column[row].mean / of_baseline : column[row].mean - of_baseline;
    }
    result.push_back({.mean = mean, .std = kNotMeasured, .count = std::isfinite(mean) ? int64_t{1} : 0});
  }
  return result;
}

[[noreturn]] void refuse_baseline(const std::vector<Group>& groups, const std::string& baseline,
                                  const char* found) {
  std::string labels;
  for (const Group& group : groups)
    labels += fmt::format("\n  {}", group.label);
  throw UsageError(
      fmt::format("--baseline {}: {} of these groups has a label that begins with it; expected one of{}",
                  baseline, found, labels));
}

bool have_same_budget(const Group& a, const Group& b) {
  const TrainSpec& left = a.runs.front().spec.train;
  const TrainSpec& right = b.runs.front().spec.train;
  return left.max_steps == right.max_steps && (left.max_steps || left.epochs == right.epochs);
}

/// The group that a row is compared with, of its data set.
std::optional<size_t> find_baseline(const std::vector<Group>& groups, const Group& row,
                                    const std::string& baseline) {
  std::vector<size_t> of_any_budget, found;
  for (size_t i = 0; i < groups.size(); ++i) {
    if (groups[i].data_set != row.data_set) continue;
    if (groups[i].label == baseline) return i;
    if (groups[i].any_budget_label == baseline) of_any_budget.push_back(i);
    if (groups[i].label.starts_with(baseline)) found.push_back(i);
  }
  for (const size_t i : of_any_budget)
    if (have_same_budget(groups[i], row)) return i;
  if (!of_any_budget.empty()) return std::nullopt;
  if (found.size() > 1) refuse_baseline(groups, baseline, "more than one");
  return found.empty() ? std::nullopt : std::optional(found.front());
}

Baselines find_baselines(const std::vector<Group>& groups, const std::string& baseline) {
  Baselines baselines(groups.size());
  if (baseline.empty()) return baselines;
  bool has_any = false;
  for (size_t i = 0; i < groups.size(); ++i) {
    baselines[i] = find_baseline(groups, groups[i], baseline);
    has_any |= baselines[i].has_value();
  }
  if (!has_any) refuse_baseline(groups, baseline, "none");
  return baselines;
}

void add_column(StudyTable& table, StudyColumn column, const std::vector<Statistic>& values) {
  if (!is_known(values)) return;
  table.columns.push_back(column);
  for (size_t row = 0; row < values.size(); ++row)
    table.rows[row].values.push_back(values[row]);
}

}  // namespace

StudyTable make_table(const std::vector<Group>& groups, const std::string& baseline) {
  StudyTable table;
  const Baselines baselines = find_baselines(groups, baseline);
  for (size_t i = 0; i < groups.size(); ++i) {
    table.rows.push_back(row_of(groups[i]));
    if (baselines[i] == i) table.baselines.push_back(groups[i].label);
  }
  for (const Measure& measure : measures()) {
    const std::vector<Statistic> values = statistics_of(measure, groups);
    add_column(table, {&measure, Comparison::kNone}, values);
    if (!baseline.empty() && measure.comparison != Comparison::kNone)
      add_column(table, {&measure, measure.comparison}, compared(values, baselines, measure.comparison));
  }
  return table;
}

}  // namespace sdp
