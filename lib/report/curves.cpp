#include "report/curves.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "report/measures.h"

namespace sdp {
namespace {

enum class XAxis { kSteps, kFlops, kData, kTime };
constexpr XAxis kXAxes[] = {XAxis::kSteps, XAxis::kFlops, XAxis::kData, XAxis::kTime};

/// Subject of the figures: images have accuracies, language models have losses.
struct Subject {
  bool is_of_tokens = false;
  std::string data_set = {};  ///< empty: there is only one
  std::vector<const Group*> groups = {};

  const char* data_name() const { return is_of_tokens ? "tokens" : "epochs"; }
  std::string score_name() const { return is_of_tokens ? "eval_loss" : "accuracy"; }
  std::string score_title() const { return is_of_tokens ? "evaluation loss" : "accuracy"; }
  std::string score_label() const { return is_of_tokens ? "evaluation loss (nats)" : "accuracy (%)"; }
  /// A title, with the data set if there are several.
  std::string titled(std::string title) const {
    return data_set.empty() ? title : fmt::format("{}, {}", title, data_set);
  }
  double score(double accuracy, double loss) const { return is_of_tokens ? loss : 100 * accuracy; }
};

/// A unit in which the largest of some values is at least 1.
struct Scale {
  double unit = 1;
  const char* name = "";
};

template <size_t count>
Scale scale_for(double largest, const Scale (&scales)[count]) {
  Scale chosen = scales[0];
  for (const Scale& scale : scales)
    if (largest >= scale.unit) chosen = scale;
  return chosen;
}

// Seconds up to ten minutes, minutes up to ten hours, then hours.
constexpr Scale kTimes[] = {{1, "s"}, {60, "min"}, {3600, "h"}};
constexpr double kShownOfTime = 10;
constexpr Scale kBytes[] = {{1024, "KiB"}, {1024.0 * 1024, "MiB"}, {1024.0 * 1024 * 1024, "GiB"}};

Scale time_scale(const Subject& subject) {
  double longest = 0;
  for (const Group* group : subject.groups)
    for (const Run& run : group->runs)
      longest = std::max(longest, training_seconds(run, run.step()));
  return scale_for(longest / kShownOfTime, kTimes);
}

double x_of(const Run& run, int64_t step, XAxis axis, double time_unit) {
  const auto steps = static_cast<double>(step);
  switch (axis) {
    case XAxis::kFlops:
      return steps * run.flops_per_step();
    case XAxis::kData:
      return run.is_of_tokens()
                 ? steps * static_cast<double>(run.samples_per_step() * run.spec.data.sequence_length())
                 : steps * run.epochs_per_step();
    case XAxis::kTime:
      return training_seconds(run, step) / time_unit;
    case XAxis::kSteps:
      break;
  }
  return steps;
}

std::string name_of_axis(XAxis axis, const Subject& subject) {
  if (axis == XAxis::kFlops) return "flops";
  if (axis == XAxis::kData) return subject.data_name();
  return axis == XAxis::kTime ? "time" : "steps";
}

std::string label_of_axis(XAxis axis, const Subject& subject, const Scale& time) {
  if (axis == XAxis::kFlops) return "training FLOPs";
  if (axis == XAxis::kData) return subject.data_name();
  return axis == XAxis::kTime ? fmt::format("training time ({})", time.name) : "steps";
}

using Curve = std::vector<CurvePoint>;

/// One averaged series per group. `points(run)` are (step, y).
template <class Points>
std::vector<Series> series_of(const Subject& subject, XAxis axis, const Scale& time, Points points) {
  std::vector<Series> all;
  for (const Group* group : subject.groups) {
    std::vector<Curve> curves;
    for (const Run& run : group->runs) {
      Curve& curve = curves.emplace_back();
      for (const auto& [step, y] : points(run))
        curve.push_back({step, x_of(run, step, axis, time.unit), y});
    }
    all.push_back(averaged(curves));
    all.back().name = group->label;
  }
  return all;
}

using StepValues = std::vector<std::pair<int64_t, double>>;

void add_curves(std::vector<NamedFigure>& figures, const Subject& subject, const std::string& suffix) {
  const Scale time = time_scale(subject);
  const auto losses = [](const Run& run) {
    StepValues values;
    for (const TrainRecord& record : run.train)
      values.emplace_back(record.step, record.loss);
    return values;
  };
  const auto scores = [&](const Run& run) {
    StepValues values;
    for (const EvalRecord& record : run.evals)
      values.emplace_back(record.step, subject.score(record.accuracy, record.loss));
    return values;
  };
  for (const XAxis axis : kXAxes)
    figures.push_back({fmt::format("training_loss_{}{}", name_of_axis(axis, subject), suffix),
                       {.title = subject.titled("Training loss, mean over the workers"),
                        .x_label = label_of_axis(axis, subject, time),
                        .y_label = "training loss (nats)",
                        .series = series_of(subject, axis, time, losses)}});
  for (const XAxis axis : kXAxes) {
    Figure figure{.title = subject.titled(fmt::format("Assembled full model: {}", subject.score_title())),
                  .x_label = label_of_axis(axis, subject, time),
                  .y_label = subject.score_label(),
                  .series = series_of(subject, axis, time, scores)};
    constexpr size_t kMostMarkers = 40;
    for (Series& series : figure.series)
      series.has_markers = series.x.size() <= kMostMarkers;
    figures.push_back({fmt::format("{}_{}{}", subject.score_name(), name_of_axis(axis, subject), suffix),
                       std::move(figure)});
  }
}

/// One point per group: the last evaluation against the peak memory of a process.
NamedFigure memory_figure(const Subject& subject, const std::string& suffix) {
  Figure figure{.title = subject.titled(
                    fmt::format("{} and memory", subject.is_of_tokens ? "Evaluation loss" : "Accuracy")),
                .y_label = subject.score_label()};
  double largest = 0;
  for (const Group* group : subject.groups) {
    std::vector<double> memory, score;
    for (const Run& run : group->runs) {
      memory.push_back(peak_tensor_memory_bytes(run));
      score.push_back(run.evals.empty() ? std::numeric_limits<double>::quiet_NaN()
                                        : subject.score(run.evals.back().accuracy, run.evals.back().loss));
    }
    const Statistic x = statistic(memory), y = statistic(score);
    if (x.count > 0) largest = std::max(largest, x.mean);
    Series series{.name = group->label, .x = {x.mean}, .y = {y.mean}, .has_line = false, .has_markers = true};
    if (y.count > 1) series.y_error = {y.std};
    figure.series.push_back(std::move(series));
  }
  const Scale scale = scale_for(largest, kBytes);
  for (Series& series : figure.series)
    series.x[0] /= scale.unit;
  figure.x_label = fmt::format("peak tensor memory per process ({})", scale.name);
  return {fmt::format("{}_memory{}", subject.score_name(), suffix), std::move(figure)};
}

/// One line per method through its budgets: the last evaluation against the FLOPs until then. Without series
/// if no method has several budgets.
NamedFigure budget_figure(const Subject& subject, const std::string& suffix) {
  Figure figure{.title = subject.titled(fmt::format("Training budget and final {}", subject.score_title())),
                .x_label = "training FLOPs",
                .y_label = subject.score_label(),
                .log_x = true};
  std::vector<std::string> methods;
  for (const Group* group : subject.groups)
    if (std::find(methods.begin(), methods.end(), group->any_budget_label) == methods.end())
      methods.push_back(group->any_budget_label);
  if (methods.size() == subject.groups.size()) return {};
  for (const std::string& method : methods) {
    std::map<double, Statistic> scores;  // by FLOPs
    for (const Group* group : subject.groups) {
      if (group->any_budget_label != method) continue;
      std::vector<double> flops, score;
      for (const Run& run : group->runs) {
        if (run.evals.empty()) continue;
        const EvalRecord& last = run.evals.back();
        flops.push_back(static_cast<double>(last.step) * run.flops_per_step());
        score.push_back(subject.score(last.accuracy, last.loss));
      }
      if (!flops.empty()) scores.emplace(statistic(flops).mean, statistic(score));
    }
    Series series{.name = method, .has_markers = true};
    for (const auto& [flops, score] : scores) {
      series.x.push_back(flops);
      series.y.push_back(score.mean);
      series.y_error.push_back(score.std);
    }
    const auto is_nan = [](double error) { return std::isnan(error); };
    if (std::all_of(series.y_error.begin(), series.y_error.end(), is_nan)) series.y_error.clear();
    figure.series.push_back(std::move(series));
  }
  return {fmt::format("{}_budget{}", subject.score_name(), suffix), std::move(figure)};
}

/// Part of a file name that identifies the data set uniquely.
std::string suffix_of(const std::string& data_set, std::set<std::string>& taken) {
  if (data_set.empty()) return "";
  std::string suffix = "_";
  for (const char c : data_set) {
    const bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    suffix += is_plain || c == '-' ? c : '_';
  }
  const std::string name = suffix;
  for (int number = 2; !taken.insert(suffix).second; ++number)
    suffix = fmt::format("{}_{}", name, number);
  return suffix;
}

}  // namespace

double training_seconds(const Run& run, int64_t step) {
  double ms = 0;
  int64_t before = 0;
  for (const TrainRecord& record : run.train) {
    const auto steps = static_cast<double>(std::min(step, record.step) - before);
    if (std::isfinite(record.step_ms)) ms += steps * record.step_ms;
    if (record.step >= step) break;
    before = record.step;
  }
  return ms / 1000;
}

Series averaged(const std::vector<std::vector<CurvePoint>>& curves) {
  struct Values {
    std::vector<double> x;
    std::vector<double> y;
  };
  std::map<int64_t, Values> by_step;
  for (const std::vector<CurvePoint>& curve : curves)
    for (const CurvePoint& point : curve) {
      by_step[point.step].x.push_back(point.x);
      by_step[point.step].y.push_back(point.y);
    }
  const auto came_to = [&](int64_t step) {
    return static_cast<size_t>(std::count_if(curves.begin(), curves.end(), [&](const auto& curve) {
      return !curve.empty() && curve.back().step >= step;
    }));
  };
  Series series;
  bool has_band = false;
  for (const auto& [step, values] : by_step) {
    if (values.x.size() != came_to(step)) continue;
    const Statistic y = statistic(values.y);
    series.x.push_back(statistic(values.x).mean);
    series.y.push_back(y.mean);
    series.y_error.push_back(y.std);
    has_band |= y.count > 1;
  }
  if (!has_band) series.y_error.clear();
  return series;
}

std::vector<NamedFigure> study_figures(const std::vector<Group>& groups) {
  std::vector<Subject> subjects;
  for (const Group& group : groups) {
    if (subjects.empty() || subjects.back().data_set != group.data_set)
      subjects.push_back({.is_of_tokens = group.runs.front().is_of_tokens(), .data_set = group.data_set});
    subjects.back().groups.push_back(&group);
  }
  if (subjects.size() == 1) subjects.front().data_set.clear();
  std::vector<NamedFigure> figures;
  std::set<std::string> suffixes;
  for (const Subject& subject : subjects) {
    const std::string suffix = suffix_of(subject.data_set, suffixes);
    add_curves(figures, subject, suffix);
    if (NamedFigure budget = budget_figure(subject, suffix); !budget.figure.series.empty())
      figures.push_back(std::move(budget));
    figures.push_back(memory_figure(subject, suffix));
  }
  return figures;
}

}  // namespace sdp
