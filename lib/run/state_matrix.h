#pragma once

// How a unit's elements of a parameter lie among those of other units, so that state saved by one plan is
// read by another. A divided parameter is a matrix whose columns are ordered by the hidden width of its
// branch (SliceRule: one row per index of the dimensions that are stored before the sliced one, and per
// stacked block). A unit has a range of columns of all rows, in row-major order.

#include <cstdint>
#include <vector>

#include "subnet/layout.h"

namespace sdp {

struct StateMatrix {
  int64_t columns = 1;
  int64_t columns_per_hidden = 0;  ///< 0: no slice rule, one row that every unit has as a whole
};
StateMatrix matrix_of(const ModelLayout& layout, const ParameterLayout& parameter);

/// Elements [begin, end) of the submatrix with these columns, in row-major order.
struct StateSpan {
  int64_t first_column = 0;
  int64_t end_column = 0;
  int64_t begin = 0;
  int64_t end = 0;
};
/// Of the hidden range [hidden_begin, hidden_end); an empty one stands for the whole width.
StateSpan span_of(const StateMatrix& matrix, int64_t hidden_begin, int64_t hidden_end, int64_t begin,
                  int64_t end);

/// A submatrix that two spans have in common. Its first element and the distance of its rows, in elements of
/// each span.
struct StateOverlap {
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t from_offset = 0;
  int64_t from_stride = 0;
  int64_t to_offset = 0;
  int64_t to_stride = 0;

  int64_t elements() const { return rows * columns; }
};
/// What `from` and `to` have in common: at most nine submatrices.
std::vector<StateOverlap> overlaps(const StateSpan& from, const StateSpan& to);

}  // namespace sdp
