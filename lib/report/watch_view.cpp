#include "report/watch_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string_view>

#include "report/measures.h"
#include "text/table.h"
#include "text/units.h"

namespace sdp {
namespace {

constexpr size_t kSparkCells = 20;

/// Over the last lines only, so that a change of speed shows soon.
std::vector<double> recent_step_ms(const Run& run) {
  constexpr size_t kLines = 10;
  std::vector<double> values;
  for (size_t i = run.train.size() > kLines ? run.train.size() - kLines : 0; i < run.train.size(); ++i)
    values.push_back(run.train[i].step_ms);
  return values;
}

std::string time_left(const Run& run) {
  if (run.is_finished()) return "finished";
  const std::optional<int64_t> total = run.total_steps();
  const double step_ms = median(recent_step_ms(run));
  if (!total || std::isnan(step_ms)) return "-";
  return format_duration(static_cast<double>(std::max<int64_t>(0, *total - run.step())) * step_ms / 1000);
}

std::string score(const Run& run) {
  if (run.evals.empty()) return "-";
  const EvalRecord& last = run.evals.back();
  return run.is_of_tokens() ? fmt::format("{:.4f}", last.loss) : format_percent(last.accuracy);
}

std::vector<std::string> cells_of(const Run& run) {
  const std::optional<int64_t> total = run.total_steps();
  std::vector<double> losses;
  for (const TrainRecord& record : run.train)
    losses.push_back(record.loss);
  const auto memory = [](double bytes) {
    return std::isnan(bytes) ? "-" : format_bytes(std::llround(bytes));
  };
  return {run.spec.name, fmt::format("{}/{}", run.step(), total ? std::to_string(*total) : "?"),
          // Rounded down: 100 % means done.
          total ? fmt::format("{:.0f} %", std::floor(100.0 * static_cast<double>(run.step()) /
                                                     static_cast<double>(*total)))
                : "-",
          losses.empty() ? "-" : fmt::format("{:.4f}", losses.back()), sparkline(losses, kSparkCells),
          score(run), run.train.empty() ? "-" : format_count(run.train.back().samples_per_s), time_left(run),
          memory(peak_tensor_memory_bytes(run)), memory(peak_process_memory_bytes(run))};
}

/// The first columns of a line of UTF-8.
std::string cut(std::string_view line, size_t characters) {
  size_t end = 0;
  for (size_t seen = 0; end < line.size(); ++end) {
    if ((line[end] & 0xC0) != 0x80 && seen++ == characters) break;
  }
  return std::string(line.substr(0, end));
}

std::string cut_lines(const std::string& text, size_t columns) {
  std::string result;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    result += cut(std::string_view(text).substr(begin, end - begin), columns) + "\n";
    begin = end + 1;
  }
  return result;
}

}  // namespace

std::string sparkline(const std::vector<double>& values, size_t cells) {
  constexpr std::array<std::string_view, 8> kBlocks = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  cells = std::min(cells, values.size());
  std::vector<double> means;
  for (size_t cell = 0; cell < cells; ++cell) {
    const size_t begin = cell * values.size() / cells;
    const size_t end = (cell + 1) * values.size() / cells;
    double sum = 0;
    for (size_t i = begin; i < end; ++i)
      sum += values[i];
    means.push_back(sum / static_cast<double>(end - begin));
  }
  double low = std::numeric_limits<double>::max(), high = -low;
  for (const double mean : means)
    if (std::isfinite(mean)) {
      low = std::min(low, mean);
      high = std::max(high, mean);
    }
  std::string line;
  for (const double mean : means) {
    const double share = high > low ? (mean - low) / (high - low) : 0;
    line += std::isfinite(mean) ? kBlocks[static_cast<size_t>(std::lround(7 * share))] : " ";
  }
  return line;
}

std::string watch_view(const FoundRuns& found, size_t columns) {
  const auto finished =
      std::count_if(found.runs.begin(), found.runs.end(), [](const Run& run) { return run.is_finished(); });
  TextTable table({"run", "step", "done", "loss", "trend", "eval", "samples/s", "left", "tensor memory",
                   "process memory"});
  for (const Run& run : found.runs)
    table.add_row(cells_of(run));
  std::string text =
      fmt::format("{} run{}, {} finished\n", found.runs.size(), found.runs.size() == 1 ? "" : "s", finished);
  text += table.str();
  for (const UnreadableRun& run : found.unreadable)
    text += fmt::format("{}: cannot be read: {}\n", run.dir.string(), run.reason);
  for (const CopiedRun& copy : found.copies)
    text += fmt::format("{}: the same run as {}\n", copy.dir.string(), copy.counted.string());
  return cut_lines(text, columns);
}

}  // namespace sdp
