#include "subnet/spectral.h"

#include <Eigen/Eigenvalues>
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <stdexcept>

namespace sdp {
namespace {

using Solver = Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd>;

/// The eigenvalues of a solver that has run, in descending order.
std::vector<double> eigenvalues_of(const Solver& solver) {
  if (solver.info() != Eigen::Success) throw std::logic_error("symmetric_eigenvalues: no convergence");
  const auto& ascending = solver.eigenvalues();
  return {std::make_reverse_iterator(ascending.end()), std::make_reverse_iterator(ascending.begin())};
}

double second_over_first(const std::vector<double>& eigenvalues) {
  if (eigenvalues.size() < 2 || eigenvalues[0] <= 0) return 0;
  return std::max(0.0, eigenvalues[1] / eigenvalues[0]);
}

/// Whether the weights are integers whose sums are exact in any order of summation.
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
void add_in_order(std::vector<double>& k, size_t n, const Owners& owners,
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

/// Number of bits set in both. A plan of 1,024 workers counts 10^9 bits, so use the processor's instruction
/// if it has one.
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

/// Like add_in_order, for weights with exact sums, of which plans have few distinct values: adds each weight
/// times the number of units that two workers have in common, counted 64 units at a time.
void add_counted(std::vector<double>& k, size_t n, const Owners& owners, const std::vector<double>& weights) {
  constexpr size_t kBits = 64;
  std::map<double, std::vector<size_t>> units_of_weight;
  for (size_t u = 0; u < owners.size(); ++u)
    units_of_weight[weights[u]].push_back(u);
  for (const auto& [weight, units] : units_of_weight) {
    const size_t words = (units.size() + kBits - 1) / kBits;
    std::vector<uint64_t> owned(n * words, 0);  // [n, words]: one bit per unit
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

std::vector<double> degree_normalized(const std::vector<double>& k, int workers) {
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

std::vector<double> co_ownership(const Owners& owners, const std::vector<double>& weights, int workers) {
  if (owners.size() != weights.size())
    throw std::logic_error("co_ownership: expected one weight per owner set");
  for (const std::vector<int>& set : owners)
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

std::vector<double> symmetric_eigenvalues(const std::vector<double>& matrix, int size) {
  const auto n = static_cast<size_t>(size);
  if (matrix.size() != n * n) throw std::logic_error("symmetric_eigenvalues: the matrix is not [size, size]");
  if (!std::all_of(matrix.begin(), matrix.end(), [](double x) { return std::isfinite(x); }))
    throw std::logic_error("symmetric_eigenvalues: the matrix contains values that are not finite");
  if (size == 0) return {};
  const Eigen::Map<const Eigen::MatrixXd> map(matrix.data(), size, size);
  const Solver solver(map, Eigen::EigenvaluesOnly);
  if (solver.info() == Eigen::Success) return eigenvalues_of(solver);
  // Among hundreds of eigenvalues that are 0 but for rounding, as of many workers and few units, the solver
  // may not converge. It does if they are away from 0.
  const double shift = map.cwiseAbs().maxCoeff();
  const Eigen::MatrixXd shifted = map + shift * Eigen::MatrixXd::Identity(size, size);
  std::vector<double> result = eigenvalues_of(Solver(shifted, Eigen::EigenvaluesOnly));
  for (double& eigenvalue : result)
    eigenvalue -= shift;
  return result;
}

double lambda2(const std::vector<double>& co_ownership, int workers) {
  return second_over_first(symmetric_eigenvalues(co_ownership, workers));
}

Spectrum spectrum_of(const Owners& owners, const std::vector<double>& weights, int workers) {
  const std::vector<double> matrix = co_ownership(owners, weights, workers);
  const std::vector<double> eigenvalues = symmetric_eigenvalues(matrix, workers);
  Spectrum result;
  if (workers < 2 || eigenvalues[0] <= 0) return result;
  const auto n = static_cast<size_t>(workers);
  double trace = 0;
  for (size_t k = 0; k < n; ++k)
    trace += matrix[k * n + k];
  result.lambda2 = second_over_first(eigenvalues);
  result.spectral_gap = 1 - result.lambda2;
  result.lambda2_bound = std::max(0.0, (trace - eigenvalues[0]) / ((workers - 1) * eigenvalues[0]));
  result.lambda2_normalized = lambda2(degree_normalized(matrix, workers), workers);
  return result;
}

}  // namespace sdp
