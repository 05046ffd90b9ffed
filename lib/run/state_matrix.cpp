#include "run/state_matrix.h"

#include <algorithm>

namespace sdp {
namespace {

/// Rows and columns of the matrix, in which a span is at most three of these: the rest of its first row,
/// whole rows, and the beginning of its last row.
struct Rectangle {
  int64_t first_row = 0;
  int64_t end_row = 0;
  int64_t first_column = 0;
  int64_t end_column = 0;
};

std::vector<Rectangle> rectangles_of(const StateSpan& span) {
  const int64_t width = span.end_column - span.first_column;
  const int64_t first_row = span.begin / width, last_row = span.end / width;
  const int64_t first = span.first_column + span.begin % width, last = span.first_column + span.end % width;
  if (first_row == last_row) return {{first_row, first_row + 1, first, last}};
  return {{first_row, first_row + 1, first, span.end_column},
          {first_row + 1, last_row, span.first_column, span.end_column},
          {last_row, last_row + 1, span.first_column, last}};
}

Rectangle intersection(const Rectangle& a, const Rectangle& b) {
  return {std::max(a.first_row, b.first_row), std::min(a.end_row, b.end_row),
          std::max(a.first_column, b.first_column), std::min(a.end_column, b.end_column)};
}

int64_t offset_in(const StateSpan& span, const Rectangle& part) {
  const int64_t width = span.end_column - span.first_column;
  return part.first_row * width + part.first_column - span.first_column - span.begin;
}

}  // namespace

StateMatrix matrix_of(const ModelLayout& layout, const ParameterLayout& parameter) {
  if (!parameter.branch || !parameter.slice) return {.columns = parameter.elements()};
  const SliceRule& rule = *parameter.slice;
  int64_t rows = rule.blocks;
  for (const int64_t dim : storage_order(parameter.shape.size())) {
    if (dim == rule.dim) break;
    rows *= parameter.shape[static_cast<size_t>(dim)];
  }
  const int64_t columns = parameter.elements() / rows;
  const int64_t hidden = layout.branches[static_cast<size_t>(*parameter.branch)].hidden_width;
  return {.columns = columns, .columns_per_hidden = columns / hidden};
}

StateSpan span_of(const StateMatrix& matrix, int64_t hidden_begin, int64_t hidden_end, int64_t begin,
                  int64_t end) {
  if (matrix.columns_per_hidden == 0 || hidden_begin == hidden_end) return {0, matrix.columns, begin, end};
  return {hidden_begin * matrix.columns_per_hidden, hidden_end * matrix.columns_per_hidden, begin, end};
}

std::vector<StateOverlap> overlaps(const StateSpan& from, const StateSpan& to) {
  std::vector<StateOverlap> found;
  if (from.first_column >= to.end_column || to.first_column >= from.end_column) return found;
  for (const Rectangle& a : rectangles_of(from)) {
    for (const Rectangle& b : rectangles_of(to)) {
      const Rectangle both = intersection(a, b);
      if (both.first_row >= both.end_row || both.first_column >= both.end_column) continue;
      found.push_back({.rows = both.end_row - both.first_row,
                       .columns = both.end_column - both.first_column,
                       .from_offset = offset_in(from, both),
                       .from_stride = from.end_column - from.first_column,
                       .to_offset = offset_in(to, both),
                       .to_stride = to.end_column - to.first_column});
    }
  }
  return found;
}

}  // namespace sdp
