#include "subnet/spectral.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>
#include <stdexcept>

namespace sdp {
namespace {

/// A symmetric tridiagonal matrix; below[i] stands between diagonal[i] and diagonal[i+1], its last entry is
/// 0.
struct Tridiagonal {
  std::vector<double> diagonal;
  std::vector<double> below;
};

/// Reduces the trailing block of `a` that starts at k+1 by the reflection that clears column k below its
/// first subdiagonal entry, and returns that entry. Lower triangle and diagonal of `a` are kept up to date.
double reflect_column(std::vector<double>& a, size_t size, size_t k) {
  const auto at = [&](size_t row, size_t column) -> double& { return a[row * size + column]; };
  double scale = 0;
  for (size_t row = k + 1; row < size; ++row)
    scale = std::max(scale, std::abs(at(row, k)));
  if (scale == 0) return 0;

  // v = x +- |x| e1, scaled against overflow; H = I - beta v v^T.
  std::vector<double> v(size, 0);
  double squares = 0;
  for (size_t row = k + 1; row < size; ++row) {
    v[row] = at(row, k) / scale;
    squares += v[row] * v[row];
  }
  const double norm = std::copysign(std::sqrt(squares), v[k + 1]);
  const double beta = 1 / (squares + norm * v[k + 1]);
  v[k + 1] += norm;

  // A <- H A H = A - v w^T - w v^T with w = p - (beta/2)(p.v) v, p = beta A v.
  std::vector<double> w(size, 0);
  for (size_t row = k + 1; row < size; ++row) {
    for (size_t column = k + 1; column < row; ++column) {
      w[row] += at(row, column) * v[column];
      w[column] += at(row, column) * v[row];
    }
    w[row] += at(row, row) * v[row];
  }
  double dot = 0;
  for (size_t row = k + 1; row < size; ++row) {
    w[row] *= beta;
    dot += w[row] * v[row];
  }
  for (size_t row = k + 1; row < size; ++row)
    w[row] -= beta / 2 * dot * v[row];
  for (size_t row = k + 1; row < size; ++row)
    for (size_t column = k + 1; column <= row; ++column)
      at(row, column) -= v[row] * w[column] + w[row] * v[column];
  return -norm * scale;
}

Tridiagonal tridiagonalise(std::vector<double> matrix, size_t size) {
  Tridiagonal result{std::vector<double>(size), std::vector<double>(size, 0)};
  for (size_t k = 0; k < size; ++k) {
    result.diagonal[k] = matrix[k * size + k];
    if (k + 2 < size) result.below[k] = reflect_column(matrix, size, k);
    if (k + 2 == size) result.below[k] = matrix[(k + 1) * size + k];
  }
  return result;
}

/// One implicit QL step on rows first..last, which are coupled throughout.
void ql_step(Tridiagonal& t, size_t first, size_t last) {
  auto& [d, e] = t;
  // Wilkinson's shift, from the leading 2 x 2 block.
  double g = (d[first + 1] - d[first]) / (2 * e[first]);
  double r = std::hypot(g, 1.0);
  g = d[last] - d[first] + e[first] / (g + std::copysign(r, g));
  double s = 1;
  double c = 1;
  double p = 0;
  for (size_t i = last; i-- > first;) {
    const double f = s * e[i];
    const double b = c * e[i];
    r = std::hypot(f, g);
    e[i + 1] = r;
    if (r == 0) {  // the matrix has come apart at i+1: take back what is pending and start again
      d[i + 1] -= p;
      e[last] = 0;
      return;
    }
    s = f / r;
    c = g / r;
    g = d[i + 1] - p;
    r = (d[i] - g) * s + 2 * c * b;
    p = s * r;
    d[i + 1] = g + p;
    g = c * r - b;
  }
  d[first] -= p;
  e[first] = g;
  e[last] = 0;
}

void diagonalise(Tridiagonal& t) {
  constexpr int kMostSteps = 60;  // two or three are usual for an eigenvalue
  const size_t size = t.diagonal.size();
  double largest = 0;
  for (size_t i = 0; i < size; ++i)
    largest = std::max({largest, std::abs(t.diagonal[i]), std::abs(t.below[i])});
  // Relative to the whole matrix, not to the neighbours: K is often singular, and its zero eigenvalues need
  // no relative accuracy.
  const double negligible = std::numeric_limits<double>::epsilon() * largest;
  for (size_t first = 0; first < size; ++first) {
    for (int step = 0;; ++step) {
      size_t last = first;
      while (last + 1 < size && std::abs(t.below[last]) > negligible)
        ++last;
      if (last == first) break;
      if (step == kMostSteps) throw std::logic_error("symmetric_eigenvalues: no convergence");
      ql_step(t, first, last);
    }
  }
}

double second_over_first(const std::vector<double>& eigenvalues) {
  if (eigenvalues.size() < 2 || eigenvalues[0] <= 0) return 0;
  return std::max(0.0, eigenvalues[1] / eigenvalues[0]);
}

std::vector<double> degree_normalised(const std::vector<double>& k, int workers) {
  const auto n = static_cast<size_t>(workers);
  std::vector<double> inverse_root(n, 0);  // 0 for a worker without units
  for (size_t row = 0; row < n; ++row) {
    double degree = 0;
    for (size_t column = 0; column < n; ++column)
      degree += k[row * n + column];
    if (degree > 0) inverse_root[row] = 1 / std::sqrt(degree);
  }
  std::vector<double> result(n * n);
  for (size_t row = 0; row < n; ++row)
    for (size_t column = 0; column < n; ++column)
      result[row * n + column] = k[row * n + column] * (inverse_root[row] * inverse_root[column]);
  return result;
}

}  // namespace

double lambda2_normalized_bound(int workers, int owners) {
  return workers < 2 ? 0
                     : static_cast<double>(workers - owners) / (static_cast<double>(owners) * (workers - 1));
}

std::vector<double> co_ownership(const std::vector<OwnerSet>& owners, const std::vector<double>& weights,
                                 int workers) {
  if (owners.size() != weights.size()) throw std::logic_error("co_ownership: one weight for every owner set");
  const auto n = static_cast<size_t>(workers);
  std::vector<double> k(n * n, 0);
  for (size_t u = 0; u < owners.size(); ++u) {
    for (int row : owners[u]) {
      if (row < 0 || row >= workers) throw std::logic_error("co_ownership: owner outside 0..workers-1");
      for (int column : owners[u])
        k[static_cast<size_t>(row) * n + static_cast<size_t>(column)] += weights[u];
    }
  }
  return k;
}

std::vector<double> symmetric_eigenvalues(std::vector<double> matrix, int size) {
  const auto n = static_cast<size_t>(size);
  if (matrix.size() != n * n) throw std::logic_error("symmetric_eigenvalues: the matrix is not [size, size]");
  if (!std::all_of(matrix.begin(), matrix.end(), [](double x) { return std::isfinite(x); }))
    throw std::logic_error("symmetric_eigenvalues: the matrix holds values that are not finite");
  Tridiagonal t = tridiagonalise(std::move(matrix), n);
  diagonalise(t);
  std::sort(t.diagonal.begin(), t.diagonal.end(), std::greater<>());
  return t.diagonal;
}

double lambda2(const std::vector<double>& co_ownership, int workers) {
  return second_over_first(symmetric_eigenvalues(co_ownership, workers));
}

Spectrum spectrum_of(const std::vector<double>& co_ownership, int workers) {
  const std::vector<double> eigenvalues = symmetric_eigenvalues(co_ownership, workers);
  Spectrum result;
  if (workers < 2 || eigenvalues[0] <= 0) return result;
  const auto n = static_cast<size_t>(workers);
  double trace = 0;
  for (size_t k = 0; k < n; ++k)
    trace += co_ownership[k * n + k];
  result.lambda2 = second_over_first(eigenvalues);
  result.spectral_gap = 1 - result.lambda2;
  result.lambda2_bound = std::max(0.0, (trace - eigenvalues[0]) / ((workers - 1) * eigenvalues[0]));
  result.lambda2_normalized = lambda2(degree_normalised(co_ownership, workers), workers);
  return result;
}

Spectrum spectrum_of(const std::vector<OwnerSet>& owners, const std::vector<double>& weights, int workers) {
  return spectrum_of(co_ownership(owners, weights, workers), workers);
}

}  // namespace sdp
