#pragma once

// How well a set of owner sets mixes the workers: the eigenvalues of the co-ownership matrix
// K_kl = sum_u w_u [k, l in S_u], normalised to top eigenvalue 1. lambda2 is the second largest of them and
// rho = 1 - lambda2 the spectral gap: 1 when every worker holds everything, 0 when the workers fall apart
// into groups that share nothing.
//
// What it says of gradients, as we read the paper: where all workers own as many units, and a worker's
// gradients g_k are the same for all units, the mean over units of (ghat_u - gbar)^2 is at most lambda2 / n
// times sum_k (g_k - gbar)^2, and some g attain it (test/subnet/test_theory.cpp).

#include <vector>

#include "subnet/owner_set.h"

namespace sdp {

struct Spectrum {
  double lambda2 = 0;        ///< second largest eigenvalue of K over the largest; 0 for one worker or no unit
  double spectral_gap = 1;   ///< 1 - lambda2
  double lambda2_bound = 0;  ///< lambda2 >= max(0, (tr K - l1) / ((n-1) l1)), for any K
  /// Second largest eigenvalue of D^-1/2 K D^-1/2, D = row sums of K, whose largest is 1. With p owners for
  /// every unit it is at least (n-p) / (p (n-1)), however unequal the workers' loads are, where n counts the
  /// workers that own a unit.
  double lambda2_normalized = 0;

  template <class Visitor>
  static void fields(Visitor& field) {
    field("lambda2", &Spectrum::lambda2);
    field("spectral_gap", &Spectrum::spectral_gap);
    field("lambda2_bound", &Spectrum::lambda2_bound);
    field("lambda2_normalized", &Spectrum::lambda2_normalized);
  }
};

/// (n-p) / (p (n-1)), 0 for one worker: what lambda2_normalized is at least. n: workers that own a unit.
double lambda2_normalized_bound(int workers, int owners);

/// K, row-major [workers, workers]. `weights[u]` is w_u of `owners[u]`; a worker without units has a zero
/// row. Throws std::logic_error when the sizes differ or an owner is not in 0..workers-1.
std::vector<double> co_ownership(const std::vector<OwnerSet>& owners, const std::vector<double>& weights,
                                 int workers);

/// All eigenvalues of a symmetric row-major [size, size] matrix in descending order, by Eigen. Throws
/// std::logic_error when the matrix is not of that size or holds values that are not finite.
std::vector<double> symmetric_eigenvalues(const std::vector<double>& matrix, int size);

/// Second largest eigenvalue of K over its largest.
double lambda2(const std::vector<double>& co_ownership, int workers);

/// At most lambda2, up to rounding: what 64 steps of Lanczos' method find, in time in proportion to n^2
/// instead of n^3. Ritz values are at most the eigenvalues (Cauchy interlacing), and the largest eigenvalue
/// at most max_i (K x)_i / x_i for any x > 0 (Collatz 1942).
double lambda2_from_below(const std::vector<double>& co_ownership, int workers);

Spectrum spectrum_of(const std::vector<double>& co_ownership, int workers);

/// The same, from owner sets and weights.
Spectrum spectrum_of(const std::vector<OwnerSet>& owners, const std::vector<double>& weights, int workers);

}  // namespace sdp
