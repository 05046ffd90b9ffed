#include "study/study_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "spec/error.h"

namespace sdp {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

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
  StudyRow row{.label = group.label,
               .regime = group.regime,
               .coverage = group.coverage,
               .seeds = {},
               .unfinished = group.unfinished(),
               .progress = progress_of(group),
               .processes = group.runs.front().plan.processes,
               .device = {},
               .values = {}};
  for (const Run& run : group.runs) {
    row.seeds.push_back(run.spec.seed);
    if (run.end && row.device.empty()) row.device = run.end->device;
  }
  return row;
}

std::vector<Statistic> statistics_of(const MeasureInfo& info,
                                     const std::vector<std::vector<Measures>>& measured) {
  std::vector<Statistic> column;
  for (const std::vector<Measures>& group : measured) {
    std::vector<double> values;
    for (const Measures& measures : group)
      values.push_back(measures.*info.value);
    column.push_back(statistic(values));
  }
  return column;
}

bool is_known(const std::vector<Statistic>& column) {
  return std::any_of(column.begin(), column.end(), [](const Statistic& value) { return value.count > 0; });
}

std::vector<Statistic> compared(const std::vector<Statistic>& column, const Statistic& baseline,
                                Comparison comparison) {
  std::vector<Statistic> result;
  for (const Statistic& value : column) {
    const double mean =
        comparison == Comparison::kRatio ? value.mean / baseline.mean : value.mean - baseline.mean;
    result.push_back({.mean = mean, .std = kUnknown, .count = std::isfinite(mean) ? int64_t{1} : 0});
  }
  return result;
}

size_t find_baseline(const std::vector<Group>& groups, const std::string& baseline) {
  std::vector<size_t> found;
  std::string labels;
  for (size_t i = 0; i < groups.size(); ++i) {
    if (groups[i].label == baseline) return i;
    if (groups[i].label.starts_with(baseline)) found.push_back(i);
    labels += fmt::format("\n  {}", groups[i].label);
  }
  if (found.size() == 1) return found.front();
  throw UsageError(fmt::format("--baseline {}: {} of these begins so; expected one of{}", baseline,
                               found.empty() ? "none" : "more than one", labels));
}

Detail detail_of(const MeasureInfo& info, const std::vector<Group>& groups) {
  const bool is_shown = std::any_of(groups.begin(), groups.end(), [&](const Group& group) {
    return info.models == Models::kAll ||
           group.runs.front().is_of_tokens() == (info.models == Models::kOfTokens);
  });
  return is_shown ? info.detail : Detail::kFile;
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
  std::optional<size_t> baseline_row;
  if (!baseline.empty()) {
    baseline_row = find_baseline(groups, baseline);
    table.baseline = groups[*baseline_row].label;
  }
  std::vector<std::vector<Measures>> measured;
  for (const Group& group : groups) {
    table.rows.push_back(row_of(group));
    std::vector<Measures>& of_group = measured.emplace_back();
    for (const Run& run : group.runs)
      of_group.push_back(measure(run));
  }
  for (const MeasureInfo& info : measure_infos()) {
    const std::vector<Statistic> values = statistics_of(info, measured);
    const Detail detail = detail_of(info, groups);
    add_column(table, {&info, Comparison::kNone, detail}, values);
    if (baseline_row && info.comparison != Comparison::kNone)
      add_column(table, {&info, info.comparison, detail},
                 compared(values, values[*baseline_row], info.comparison));
  }
  return table;
}

}  // namespace sdp
