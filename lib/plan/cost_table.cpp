#include "plan/cost_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "text/table.h"
#include "text/units.h"

namespace sdp {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kColumns = 9;
using Figures = std::array<std::optional<double>, kColumns>;

Figures figures_of(const Json& cost) {
  const auto of = [&](const char* key) { return cost[key].get<double>(); };
  std::optional<double> peak;
  if (cost.contains("peak_bytes")) peak = cost["peak_bytes"]["total"].get<double>();
  return {static_cast<double>(cost["units"].size()),
          of("parameters"),
          of("flops_per_sample"),
          of("parameter_bytes"),
          of("gradient_bytes"),
          of("optimizer_bytes"),
          of("activation_bytes"),
          of("bytes_sent_per_step"),
          peak};
}

std::string bytes_text(double bytes) {
  return format_bytes(std::llround(bytes));
}

/// Whole, unless it is a mean.
std::string units_text(double units) {
  return fmt::format("{:.{}f}", units, units == std::round(units) ? 0 : 1);
}

using Format = std::string (*)(double);
constexpr std::array<Format, kColumns> kFormats = {units_text, format_count, format_count,
                                                   bytes_text, bytes_text,   bytes_text,
                                                   bytes_text, bytes_text,   bytes_text};

std::vector<std::string> texts_of(const Figures& figures) {
  std::vector<std::string> texts;
  for (size_t column = 0; column < kColumns; ++column)
    texts.push_back(figures[column] ? kFormats[column](*figures[column]) : "");
  return texts;
}

/// Rows whose printed figures are equal, in order of their first number.
struct Group {
  std::vector<std::string> texts;
  std::vector<int> numbers;
};

std::vector<Group> groups_of(const std::vector<Figures>& rows) {
  std::vector<Group> groups;
  for (int number = 0; number < static_cast<int>(rows.size()); ++number) {
    std::vector<std::string> texts = texts_of(rows[number]);
    const auto same =
        std::find_if(groups.begin(), groups.end(), [&](const Group& group) { return group.texts == texts; });
    if (same != groups.end())
      same->numbers.push_back(number);
    else
      groups.push_back({std::move(texts), {number}});
  }
  return groups;
}

/// Column by column; nothing where a row has nothing.
template <class Summary>
Figures summary_of(const std::vector<Figures>& rows, Summary summary) {
  Figures result;
  for (size_t column = 0; column < kColumns; ++column) {
    std::vector<double> values;
    for (const Figures& row : rows)
      if (row[column]) values.push_back(*row[column]);
    if (values.size() == rows.size()) result[column] = summary(values);
  }
  return result;
}

double smallest(const std::vector<double>& values) {
  return *std::min_element(values.begin(), values.end());
}
double largest(const std::vector<double>& values) {
  return *std::max_element(values.begin(), values.end());
}
double mean(const std::vector<double>& values) {
  double sum = 0;
  for (double value : values)
    sum += value;
  return sum / static_cast<double>(values.size());
}

}  // namespace

std::string cost_table(const std::string& of, const Json& costs, const Json* dense) {
  constexpr size_t kMostCharacters = 20;  // of a row's numbers
  TextTable table({of, "units", "parameters", "FLOPs/sample", "values", "gradients", "optimizer",
                   "saved activations", "sent/step", "peak"});
  const auto add = [&](const std::string& name, std::vector<std::string> texts) {
    texts.insert(texts.begin(), name);
    table.add_row(std::move(texts));
  };
  std::vector<Figures> rows;
  for (const Json& cost : costs)
    rows.push_back(figures_of(cost));
  const std::vector<Group> groups = groups_of(rows);
  for (const Group& group : groups)
    add(format_numbers(group.numbers, kMostCharacters), group.texts);
  if (groups.size() > 1) {
    add("smallest", texts_of(summary_of(rows, smallest)));
    add("mean", texts_of(summary_of(rows, mean)));
    add("largest", texts_of(summary_of(rows, largest)));
  }
  if (dense) add("DDP", texts_of(figures_of(*dense)));
  return table.str();
}

}  // namespace sdp
