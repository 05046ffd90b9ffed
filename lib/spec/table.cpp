#include "spec/table.h"

#include <algorithm>
#include <stdexcept>
#include <string_view>

namespace sdp {
namespace {

/// Characters of a UTF-8 text: all bytes but continuation bytes.
size_t width_of(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

bool starts_with_number(std::string_view cell) {
  if (cell.starts_with('-') || cell.starts_with('+')) cell.remove_prefix(1);
  return !cell.empty() && cell[0] >= '0' && cell[0] <= '9';
}

std::string line_of(const std::vector<std::string>& cells, const std::vector<size_t>& widths,
                    const std::vector<bool>& right) {
  std::string line;
  for (size_t i = 0; i < cells.size(); ++i) {
    const std::string padding(widths[i] - width_of(cells[i]), ' ');
    line += (i == 0 ? "" : "  ") + (right[i] ? padding + cells[i] : cells[i] + padding);
  }
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

}  // namespace

void TextTable::add_row(std::vector<std::string> cells) {
  if (cells.size() != header_.size())
    throw std::logic_error("table: a row has a different number of cells from the header");
  for (std::string& cell : cells)  // names of classes may have line breaks
    std::replace_if(
        cell.begin(), cell.end(), [](unsigned char letter) { return letter < ' '; }, '?');
  rows_.push_back(std::move(cells));
}

bool TextTable::is_numeric(size_t column) const {
  return std::all_of(rows_.begin(), rows_.end(), [&](const std::vector<std::string>& row) {
    return row[column].empty() || row[column] == "-" || starts_with_number(row[column]);
  });
}

std::string TextTable::str() const {
  std::vector<size_t> widths;
  std::vector<bool> right;
  std::vector<std::string> rule;
  for (size_t column = 0; column < header_.size(); ++column) {
    size_t width = width_of(header_[column]);
    for (const auto& row : rows_)
      width = std::max(width, width_of(row[column]));
    widths.push_back(width);
    right.push_back(is_numeric(column));
    rule.emplace_back(width, '-');
  }
  std::string text = line_of(header_, widths, right) + line_of(rule, widths, right);
  for (const auto& row : rows_)
    text += line_of(row, widths, right);
  return text;
}

}  // namespace sdp
