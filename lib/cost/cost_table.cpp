#include "cost/plan_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "spec/table.h"
#include "spec/units.h"

namespace sdp {
namespace {

constexpr size_t kColumns = 10;
/// The figures of a row by column; none for a figure that is not available.
using Columns = std::array<std::optional<double>, kColumns>;

Columns columns_of(const ProcessFigures& process) {
  std::optional<double> peak, evaluation_peak;
  if (process.peak_bytes) peak = static_cast<double>(process.peak_bytes->total());
  if (process.evaluation_peak_bytes) evaluation_peak = static_cast<double>(*process.evaluation_peak_bytes);
  return {static_cast<double>(process.units.size()),
          static_cast<double>(process.parameters),
          process.flops_per_sample,
          static_cast<double>(process.parameter_bytes),
          static_cast<double>(process.gradient_bytes),
          static_cast<double>(process.optimizer_bytes),
          static_cast<double>(process.activation_bytes),
          static_cast<double>(process.bytes_sent_per_step()),
          peak,
          evaluation_peak};
}

std::string bytes_text(double bytes) {
  return format_bytes(std::llround(bytes));
}

/// A number of units, with a decimal only if it is a mean that is not an integer.
std::string units_text(double units) {
  return fmt::format("{:.{}f}", units, units == std::round(units) ? 0 : 1);
}

using Format = std::string (*)(double);
constexpr std::array<Format, kColumns> kFormats = {units_text, format_count, format_count, bytes_text,
                                                   bytes_text, bytes_text,   bytes_text,   bytes_text,
                                                   bytes_text, bytes_text};

std::vector<std::string> texts_of(const Columns& columns) {
  std::vector<std::string> texts;
  for (size_t column = 0; column < kColumns; ++column)
    texts.push_back(columns[column] ? kFormats[column](*columns[column]) : "");
  return texts;
}

/// Summarizes each column; none for a column in which any row has no figure.
template <class Summary>
Columns summary_of(const std::vector<Columns>& rows, Summary summary) {
  Columns result;
  for (size_t column = 0; column < kColumns; ++column) {
    std::vector<double> values;
    for (const Columns& row : rows)
      if (row[column]) values.push_back(*row[column]);
    if (values.size() == rows.size()) result[column] = summary(values);
  }
  return result;
}

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

}  // namespace

std::string cost_table(const std::string& of, const std::vector<ProcessFigures>& processes,
                       const ProcessFigures* dense) {
  constexpr size_t kMostCharacters = 20;  // for the numbers of a row's processes
  TextTable table({of, "units", "parameters", "FLOPs/sample", "values", "gradients", "optimizer",
                   "saved activations", "sent/step", "peak", "peak in evaluation"});
  const auto add = [&](const std::string& name, std::vector<std::string> texts) {
    texts.insert(texts.begin(), name);
    table.add_row(std::move(texts));
  };
  std::vector<Columns> rows;
  std::vector<std::vector<std::string>> printed;
  for (const ProcessFigures& process : processes)
    printed.push_back(texts_of(rows.emplace_back(columns_of(process))));
  const auto groups = grouped(printed);
  for (const auto& [texts, numbers] : groups)
    add(format_numbers(numbers, kMostCharacters), texts);
  if (groups.size() > 1) {
    add("smallest", texts_of(summary_of(rows, std::ranges::min)));
    add("mean", texts_of(summary_of(rows, mean)));
    add("largest", texts_of(summary_of(rows, std::ranges::max)));
  }
  if (dense) add("DDP", texts_of(columns_of(*dense)));
  return table.str();
}

}  // namespace sdp
