#pragma once

// How well an assignment of owners mixes the workers: the eigenvalues of the co-ownership matrix
// K_kl = sum_u w_u [k, l in S_u], normalized so that the largest eigenvalue is 1. lambda2 is the second
// largest eigenvalue and rho = 1 - lambda2 the spectral gap: 1 if every worker owns everything, 0 if the
// workers split into groups that share nothing.
//
// Consequence for gradients, as we read the paper: if all workers own equally many units and a worker's
// gradient g_k is the same for all units, the mean over units of (ghat_u - gbar)^2 is at most lambda2 / n
// times sum_k (g_k - gbar)^2, and some g attain this bound (test/subnet/test_theory.cpp).

#include <vector>

#include "subnet/slot_map.h"

namespace sdp {

struct Spectrum {
  double lambda2 = 0;  ///< second largest eigenvalue of K divided by the largest; 0 for one worker or no unit
  double spectral_gap = 1;   ///< 1 - lambda2
  double lambda2_bound = 0;  ///< lower bound of lambda2 for any K: max(0, (tr K - l1) / ((n-1) l1))
  /// Second largest eigenvalue of D^-1/2 K D^-1/2, where D has the row sums of K; the largest eigenvalue
  /// is 1. With p owners per unit it is at least (n-p) / (p (n-1)), however unequal the workers' loads are;
  /// here n counts only the workers that own a unit.
  double lambda2_normalized = 0;

  template <class Visitor>
  static void fields(Visitor& field) {
    field("lambda2", &Spectrum::lambda2);
    field("spectral_gap", &Spectrum::spectral_gap);
    field("lambda2_bound", &Spectrum::lambda2_bound);
    field("lambda2_normalized", &Spectrum::lambda2_normalized);
  }
};

/// The lower bound of lambda2_normalized: (n-p) / (p (n-1)), or 0 for one worker. n: workers that own a unit.
double lambda2_normalized_bound(int workers, int owners);

/// The matrix K, row-major [workers, workers]. `weights[u]` is w_u of `owners[u]`; a worker without units has
/// a zero row. Throws std::logic_error if the sizes differ or an owner is not in 0..workers-1.
std::vector<double> co_ownership(const Owners& owners, const std::vector<double>& weights, int workers);

/// All eigenvalues of a symmetric row-major [size, size] matrix in descending order, computed by Eigen.
/// Throws std::logic_error if the matrix does not have that size or contains values that are not finite.
std::vector<double> symmetric_eigenvalues(const std::vector<double>& matrix, int size);

/// Second largest eigenvalue of K over its largest.
double lambda2(const std::vector<double>& co_ownership, int workers);

/// The spectrum of the co-ownership matrix of these owner sets and weights.
Spectrum spectrum_of(const Owners& owners, const std::vector<double>& weights, int workers);

}  // namespace sdp
