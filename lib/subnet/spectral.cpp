#include "subnet/spectral.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "subnet/random_bits.h"

namespace sdp {
namespace {

/// A symmetric tridiagonal matrix; below[i] stands between diagonal[i] and diagonal[i+1], its last entry is
/// 0.
struct Tridiagonal {
  std::vector<double> diagonal;
  std::vector<double> below;
};

/// Householder reduction to a tridiagonal matrix. Both triangles of the matrix are kept up to date, so that
/// all loops go along rows. A reflection is applied to a row when the next one needs it: the matrix is read
/// and written once per reflection.
class Reduction {
 public:
  Reduction(std::vector<double> matrix, size_t size)
      : a_(std::move(matrix)), size_(size), v_(size, 0), w_(size, 0), next_v_(size), next_w_(size) {}

  Tridiagonal run() {
    Tridiagonal result{std::vector<double>(size_), std::vector<double>(size_, 0)};
    for (size_t k = 0; k < size_; ++k) {
      reflect_row(k, k);
      result.diagonal[k] = row(k)[k];
      if (k + 2 < size_) result.below[k] = clear_column(k);
      if (k + 2 == size_) result.below[k] = row(k)[k + 1];
    }
    return result;
  }

 private:
  double* row(size_t index) { return &a_[index * size_]; }

  /// Applies the last reflection to the row, from `begin` on.
  void reflect_row(size_t index, size_t begin) {
    double* a = row(index);
    const double v = v_[index];
    const double w = w_[index];
    for (size_t column = begin; column < size_; ++column)
      a[column] -= v * w_[column] + w * v_[column];
  }

  /// Finds the reflection of the trailing block from k + 1 on that clears column k below its first
  /// subdiagonal entry, which is returned.
  double clear_column(size_t k) {
    const double* x = row(k);  // column k: the matrix is symmetric
    double scale = 0;
    for (size_t i = k + 1; i < size_; ++i)
      scale = std::max(scale, std::abs(x[i]));
    std::fill(next_v_.begin(), next_v_.end(), 0.0);
    std::fill(next_w_.begin(), next_w_.end(), 0.0);
    double entry = 0;
    double beta = 0;
    if (scale > 0) {
      // v = x +- |x| e1, scaled against overflow; H = I - beta v v^T.
      double squares = 0;
      for (size_t i = k + 1; i < size_; ++i) {
        next_v_[i] = x[i] / scale;
        squares += next_v_[i] * next_v_[i];
      }
      const double norm = std::copysign(std::sqrt(squares), next_v_[k + 1]);
      beta = 1 / (squares + norm * next_v_[k + 1]);
      next_v_[k + 1] += norm;
      entry = -norm * scale;
    }
    // A <- H A H = A - v w^T - w v^T with w = p - (beta/2)(p.v) v, p = beta A v.
    for (size_t i = k + 1; i < size_; ++i) {
      reflect_row(i, k + 1);
      const double* a = row(i);
      const double v = next_v_[i];
      for (size_t column = k + 1; column < size_; ++column)
        next_w_[column] += a[column] * v;
    }
    double dot = 0;
    for (size_t i = k + 1; i < size_; ++i) {
      next_w_[i] *= beta;
      dot += next_w_[i] * next_v_[i];
    }
    for (size_t i = k + 1; i < size_; ++i)
      next_w_[i] -= beta / 2 * dot * next_v_[i];
    std::swap(v_, next_v_);
    std::swap(w_, next_w_);
    return entry;
  }

  std::vector<double> a_;  // [size, size]
  size_t size_;
  std::vector<double> v_;  // of the last reflection, which rows that were not looked at since do not have yet
  std::vector<double> w_;
  std::vector<double> next_v_;
  std::vector<double> next_w_;
};

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

/// Whether the weights are whole numbers whose sums are exact, in whatever order they are added.
bool has_exact_sums(const std::vector<double>& weights) {
  constexpr double kExact = 0x1p53;
  double sum = 0;
  for (double weight : weights) {
    if (!(weight >= 0 && weight < kExact && weight == std::floor(weight))) return false;
    sum += weight;
  }
  return sum < kExact;
}

/// Adds K's lower triangle, unit by unit.
void add_in_order(std::vector<double>& k, size_t n, const std::vector<OwnerSet>& owners,
                  const std::vector<double>& weights) {
  for (size_t u = 0; u < owners.size(); ++u) {
    for (int row : owners[u]) {
      double* of_row = &k[static_cast<size_t>(row) * n];
      for (int column : owners[u]) {
        if (column > row) break;
        of_row[column] += weights[u];
      }
    }
  }
}

/// Bits that both have. A plan of 1,024 workers counts 10^9 of them: with the processor's instruction where
/// it has one.
#if defined(__x86_64__)
[[gnu::target_clones("popcnt", "default")]]
#endif
int64_t
count_common_bits(const uint64_t* a, const uint64_t* b, size_t words) {
  int64_t common = 0;
  for (size_t word = 0; word < words; ++word)
    common += std::popcount(a[word] & b[word]);
  return common;
}

/// The same for weights with exact sums, of which plans have few different ones: each times the number of
/// units that two workers have in common, counted 64 units at a time.
void add_counted(std::vector<double>& k, size_t n, const std::vector<OwnerSet>& owners,
                 const std::vector<double>& weights) {
  constexpr size_t kBits = 64;
  std::map<double, std::vector<size_t>> units_of_weight;
  for (size_t u = 0; u < owners.size(); ++u)
    units_of_weight[weights[u]].push_back(u);
  for (const auto& [weight, units] : units_of_weight) {
    const size_t words = (units.size() + kBits - 1) / kBits;
    std::vector<uint64_t> owned(n * words, 0);  // [n, words]: a bit for each unit
    for (size_t i = 0; i < units.size(); ++i)
      for (int worker : owners[units[i]])
        owned[static_cast<size_t>(worker) * words + i / kBits] |= uint64_t{1} << (i % kBits);
    for (size_t row = 0; row < n; ++row) {
      for (size_t column = 0; column <= row; ++column) {
        const int64_t common = count_common_bits(&owned[row * words], &owned[column * words], words);
        k[row * n + column] += weight * static_cast<double>(common);
      }
    }
  }
}

using Vector = std::vector<double>;

double dot(const Vector& a, const Vector& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

/// K x of a symmetric K.
Vector product(const std::vector<double>& k, const Vector& x) {
  Vector result(x.size(), 0);
  for (size_t row = 0; row < x.size(); ++row) {
    const double* of_row = &k[row * x.size()];
    for (size_t column = 0; column < x.size(); ++column)
      result[column] += of_row[column] * x[row];
  }
  return result;
}

/// Of a K without negative entries: at least its largest eigenvalue.
double largest_from_above(const std::vector<double>& k, size_t size) {
  constexpr int kSteps = 12;
  Vector x(size, 1);
  double bound = 0;
  for (int step = 0; step < kSteps; ++step) {
    Vector next = product(k, x);
    bound = 0;
    for (size_t i = 0; i < size; ++i)
      if (x[i] > 0) bound = std::max(bound, next[i] / x[i]);
    const double largest = *std::max_element(next.begin(), next.end());
    if (largest <= 0) return 0;
    for (double& entry : next)
      entry /= largest;
    x = std::move(next);
  }
  return bound;
}

/// Second largest Ritz value of K, of a space of at most `steps` dimensions.
double second_ritz_value(const std::vector<double>& k, size_t size, size_t steps) {
  RandomBits random(0);
  std::vector<Vector> basis;
  Tridiagonal t;
  Vector next(size);
  for (double& entry : next)
    entry = 1 + random.below(1 << 20) * 0x1p-20;
  while (basis.size() < steps) {
    const double norm = std::sqrt(dot(next, next));
    constexpr double kExhausted = 1e-9;  // of the largest entry of T: the space is closed
    if (!basis.empty()) {
      const double scale = *std::max_element(t.diagonal.begin(), t.diagonal.end());
      if (norm <= kExhausted * scale) break;
      t.below.push_back(norm);
    }
    for (double& entry : next)
      entry /= norm;
    basis.push_back(next);
    next = product(k, basis.back());
    t.diagonal.push_back(dot(next, basis.back()));
    for (int again = 0; again < 2; ++again) {  // once more for what rounding left
      for (const Vector& vector : basis) {
        const double along = dot(next, vector);
        for (size_t i = 0; i < size; ++i)
          next[i] -= along * vector[i];
      }
    }
  }
  if (basis.size() < 2) return 0;
  t.below.push_back(0);
  diagonalise(t);
  std::nth_element(t.diagonal.begin(), t.diagonal.begin() + 1, t.diagonal.end(), std::greater<>());
  return t.diagonal[1];
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
  for (const OwnerSet& set : owners)
    for (int owner : set)
      if (owner < 0 || owner >= workers) throw std::logic_error("co_ownership: owner outside 0..workers-1");
  const auto n = static_cast<size_t>(workers);
  std::vector<double> k(n * n, 0);
  has_exact_sums(weights) ? add_counted(k, n, owners, weights) : add_in_order(k, n, owners, weights);
  for (size_t row = 0; row < n; ++row)
    for (size_t column = 0; column < row; ++column)
      k[column * n + row] = k[row * n + column];
  return k;
}

std::vector<double> symmetric_eigenvalues(std::vector<double> matrix, int size) {
  const auto n = static_cast<size_t>(size);
  if (matrix.size() != n * n) throw std::logic_error("symmetric_eigenvalues: the matrix is not [size, size]");
  if (!std::all_of(matrix.begin(), matrix.end(), [](double x) { return std::isfinite(x); }))
    throw std::logic_error("symmetric_eigenvalues: the matrix holds values that are not finite");
  Tridiagonal t = Reduction(std::move(matrix), n).run();
  diagonalise(t);
  std::sort(t.diagonal.begin(), t.diagonal.end(), std::greater<>());
  return t.diagonal;
}

double lambda2(const std::vector<double>& co_ownership, int workers) {
  return second_over_first(symmetric_eigenvalues(co_ownership, workers));
}

double lambda2_from_below(const std::vector<double>& co_ownership, int workers) {
  constexpr size_t kSteps = 64;
  const auto n = static_cast<size_t>(workers);
  const double largest = largest_from_above(co_ownership, n);
  if (workers < 2 || largest <= 0) return 0;
  return std::max(0.0, second_ritz_value(co_ownership, n, std::min(n, kSteps)) / largest);
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
