#include "report/table_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "text/table.h"
#include "text/units.h"

namespace sdp {
namespace {

using Cells = std::vector<std::string>;

// A deviation below this share of the mean does not show in three digits.
constexpr double kVisibleShare = 0.005;

bool has_std(const Statistic& value) {
  return value.count > 1 && std::isfinite(value.std);
}

/// Fixed decimals for a quantity without a unit prefix.
std::string fixed(const Statistic& value, double factor, int decimals) {
  std::string text = fmt::format("{:.{}f}", factor * value.mean, decimals);
  return has_std(value) ? fmt::format("{} ± {:.{}f}", text, factor * value.std, decimals) : text;
}

template <class Format>
std::string with_unit(const Statistic& value, Format format) {
  const bool is_visible = has_std(value) && value.std > kVisibleShare * std::abs(value.mean);
  return is_visible ? fmt::format("{} ± {}", format(value.mean), format(value.std)) : format(value.mean);
}

std::string value_text(const Statistic& value, Quantity quantity) {
  switch (quantity) {
    case Quantity::kShare:
      return fixed(value, 100, 2);
    case Quantity::kLoss:
      return fixed(value, 1, 4);
    case Quantity::kPerplexity:
      return fixed(value, 1, 2);
    case Quantity::kWhole:
      return with_unit(value, [](double number) { return fmt::format("{:.0f}", number); });
    case Quantity::kNumber:
    case Quantity::kSeconds:
      return with_unit(value, [](double number) { return fmt::format("{:.3g}", number); });
    case Quantity::kMilliseconds:
      return fixed(value, 1, value.mean < 9.995 ? 2 : 1);
    case Quantity::kBytes:
      return with_unit(value, [](double bytes) { return format_bytes(std::llround(bytes)); });
    case Quantity::kCount:
      break;
  }
  return with_unit(value, format_count);
}

std::string cell_text(const StudyColumn& column, const Statistic& value) {
  if (value.count == 0) return "-";
  if (column.comparison == Comparison::kRatio) return fmt::format("{:.3f}", value.mean);
  if (column.comparison == Comparison::kDifference)
    return column.measure->quantity == Quantity::kShare ? fmt::format("{:+.2f}", 100 * value.mean)
                                                        : fmt::format("{:+.4f}", value.mean);
  return value_text(value, column.measure->quantity);
}

std::string header_text(const StudyColumn& column) {
  const std::string_view title = column.measure->title;
  const bool is_share = column.measure->quantity == Quantity::kShare;
  if (column.comparison == Comparison::kRatio) return fmt::format("{} ratio", title);
  if (column.comparison == Comparison::kDifference)
    return fmt::format("{} difference{}", title, is_share ? " (points)" : "");
  if (column.measure->quantity == Quantity::kMilliseconds) return fmt::format("{} (ms)", title);
  return fmt::format("{}{}", title, is_share ? " (%)" : "");
}

/// Data sets in the order of their rows.
std::vector<std::string> data_sets_of(const StudyTable& table) {
  std::vector<std::string> data_sets;
  for (const StudyRow& row : table.rows)
    if (data_sets.empty() || data_sets.back() != row.data_set) data_sets.push_back(row.data_set);
  return data_sets;
}

/// The table of one data set as text, down to a level of detail. The first column is the label.
struct Grid {
  std::string data_set;  ///< empty: there is only one
  Cells header;
  std::vector<Cells> rows;
};

/// Indices of the grid's rows and columns in the table.
struct Part {
  std::vector<size_t> rows;
  std::vector<size_t> columns;
};

bool is_shown(const StudyTable& table, size_t column, const std::vector<size_t>& rows, Detail detail) {
  const Measure& measure = *table.columns[column].measure;
  return measure.detail <= detail && std::any_of(rows.begin(), rows.end(), [&](size_t row) {
           const bool is_for_model = measure.models == Models::kAll ||
                                     table.rows[row].is_of_tokens == (measure.models == Models::kOfTokens);
           return is_for_model && table.rows[row].values[column].count > 0;
         });
}

Part part_of(const StudyTable& table, const std::string& data_set, Detail detail) {
  Part part;
  for (size_t row = 0; row < table.rows.size(); ++row)
    if (table.rows[row].data_set == data_set) part.rows.push_back(row);
  for (size_t column = 0; column < table.columns.size(); ++column)
    if (is_shown(table, column, part.rows, detail)) part.columns.push_back(column);
  return part;
}

std::string label_text(const StudyRow& row) {
  const char* const mark = row.changes.empty() ? "" : " *";
  return row.progress.empty() ? row.label + mark : fmt::format("{}{} ({})", row.label, mark, row.progress);
}

std::vector<Grid> grids_of(const StudyTable& table, Detail detail) {
  const std::vector<std::string> data_sets = data_sets_of(table);
  std::vector<Grid> grids;
  for (const std::string& data_set : data_sets) {
    const Part part = part_of(table, data_set, detail);
    Grid& grid = grids.emplace_back();
    if (data_sets.size() > 1) grid.data_set = data_set;
    grid.header = {"configuration", "C", "runs"};
    for (const size_t column : part.columns)
      grid.header.push_back(header_text(table.columns[column]));
    for (const size_t row : part.rows) {
      const StudyRow& of_table = table.rows[row];
      Cells& cells = grid.rows.emplace_back(
          Cells{label_text(of_table), of_table.coverage, std::to_string(of_table.seeds.size())});
      for (const size_t column : part.columns)
        cells.push_back(cell_text(table.columns[column], of_table.values[column]));
    }
  }
  return grids;
}

/// The notes for marked rows, one line per row.
Cells footnotes_of(const StudyTable& table) {
  Cells notes;
  for (const StudyRow& row : table.rows)
    if (!row.changes.empty())
      notes.push_back(
          fmt::format("* {}: changed during training: {}", row.label, fmt::join(row.changes, "; ")));
  return notes;
}

std::string latex_escaped(std::string_view text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (text.substr(i).starts_with("±")) {
      result += "$\\pm$";
      i += std::string_view("±").size() - 1;
    } else if (std::string_view("&%$#_{}").find(c) != std::string_view::npos) {
      result += fmt::format("\\{}", c);
    } else if (c == '\\') {
      result += "\\textbackslash{}";
    } else if (c == '~') {
      result += "\\textasciitilde{}";
    } else if (c == '^') {
      result += "\\textasciicircum{}";
    } else {
      result += c;
    }
  }
  return result;
}

std::string latex_row(const Cells& cells) {
  Cells escaped;
  for (const std::string& cell : cells)
    escaped.push_back(latex_escaped(cell));
  return fmt::format("{} \\\\\n", fmt::join(escaped, " & "));
}

std::string markdown_escaped(std::string_view text) {
  std::string escaped;
  for (const char c : text)
    escaped += c == '|' || c == '_' || c == '*' || c == '<' ? fmt::format("\\{}", c) : std::string(1, c);
  return escaped;
}

std::string markdown_row(const Cells& cells) {
  std::string line = "|";
  for (const std::string& cell : cells)
    line += fmt::format(" {} |", markdown_escaped(cell));
  return line + "\n";
}

std::string csv_text(const std::string& text) {
  if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text)
    quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

/// The shortest text that reads back as the same double.
std::string csv_number(double value) {
  return std::isfinite(value) ? fmt::format("{}", value) : "";
}

std::string csv_key(const StudyColumn& column) {
  if (column.comparison == Comparison::kRatio) return fmt::format("{}_over_baseline", column.measure->key);
  if (column.comparison == Comparison::kDifference)
    return fmt::format("{}_minus_baseline", column.measure->key);
  return std::string(column.measure->key);
}

}  // namespace

std::string to_text(const StudyTable& table) {
  std::string all;
  for (const Grid& grid : grids_of(table, Detail::kTerminal)) {
    if (!grid.data_set.empty()) all += fmt::format("{}data set {}\n", all.empty() ? "" : "\n", grid.data_set);
    TextTable text(grid.header);
    for (const Cells& row : grid.rows)
      text.add_row(row);
    all += text.str();
  }
  for (const std::string& note : footnotes_of(table))
    all += note + "\n";
  return all;
}

std::string to_markdown(const StudyTable& table) {
  std::string text;
  for (const Grid& grid : grids_of(table, Detail::kDocument)) {
    if (!grid.data_set.empty())
      text += fmt::format("{}Data set {}:\n\n", text.empty() ? "" : "\n", markdown_escaped(grid.data_set));
    Cells rule(grid.header.size(), "---:");
    rule[0] = ":---";
    text += markdown_row(grid.header) + fmt::format("| {} |\n", fmt::join(rule, " | "));
    for (const Cells& row : grid.rows)
      text += markdown_row(row);
  }
  for (const std::string& note : footnotes_of(table))
    text += fmt::format("\n{}\n", markdown_escaped(note));
  return text;
}

std::string to_latex(const StudyTable& table) {
  std::string text = "% needs \\usepackage{booktabs}\n";
  for (const Grid& grid : grids_of(table, Detail::kDocument)) {
    if (!grid.data_set.empty()) text += fmt::format("% data set {}\n", grid.data_set);
    text += fmt::format("\\begin{{tabular}}{{l{}}}\n\\toprule\n", std::string(grid.header.size() - 1, 'r'));
    text += latex_row(grid.header) + "\\midrule\n";
    for (const Cells& row : grid.rows)
      text += latex_row(row);
    text += "\\bottomrule\n\\end{tabular}\n";
  }
  for (const std::string& note : footnotes_of(table))
    text += fmt::format("\\par{{\\footnotesize {}}}\n", latex_escaped(note));
  return text;
}

std::string to_csv(const StudyTable& table) {
  Cells header = {"label", "data_set",  "regime", "coverage", "runs",   "unfinished_runs",
                  "seeds", "processes", "device", "imported", "changes"};
  for (const StudyColumn& column : table.columns) {
    header.push_back(csv_key(column));
    if (column.comparison == Comparison::kNone) header.push_back(csv_key(column) + "_std");
  }
  std::string text = fmt::format("{}\n", fmt::join(header, ","));
  for (const StudyRow& row : table.rows) {
    Cells cells = {csv_text(row.label),
                   csv_text(row.data_set),
                   csv_text(row.regime),
                   row.coverage,
                   std::to_string(row.seeds.size()),
                   std::to_string(row.unfinished),
                   fmt::format("{}", fmt::join(row.seeds, " ")),
                   std::to_string(row.processes),
                   csv_text(row.device),
                   row.imported,
                   csv_text(fmt::format("{}", fmt::join(row.changes, "; ")))};
    for (size_t i = 0; i < table.columns.size(); ++i) {
      cells.push_back(csv_number(row.values[i].mean));
      if (table.columns[i].comparison == Comparison::kNone) cells.push_back(csv_number(row.values[i].std));
    }
    text += fmt::format("{}\n", fmt::join(cells, ","));
  }
  return text;
}

}  // namespace sdp
