#pragma once

#include <string>
#include <vector>

namespace sdp {

/// A table of plain text: columns two spaces apart, a line under the header. A column is right-aligned when
/// all its cells start with a number or are empty or "-", otherwise left-aligned. Cells are UTF-8.
class TextTable {
 public:
  explicit TextTable(std::vector<std::string> header) : header_(std::move(header)) {}

  /// Throws std::logic_error unless there is one cell for each column.
  void add_row(std::vector<std::string> cells);
  /// Lines that each end with '\n', without trailing spaces.
  std::string str() const;

 private:
  bool is_numeric(size_t column) const;

  std::vector<std::string> header_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace sdp
