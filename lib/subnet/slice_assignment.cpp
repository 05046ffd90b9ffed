#include "subnet/assignment.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "subnet/assignment_starts.h"

namespace sdp {
namespace {

/// Number of element visits to spend on choosing permutations, over all families.
constexpr double kEffort = 3e7;
constexpr int kMostCandidates = 200;
constexpr int kFewestCandidates = 4;
/// Weight of uneven FLOPs relative to uneven co-ownership. It is large because FLOPs determine the step time.
constexpr double kFlopsWeight = 10;

/// FLOPs and co-ownership of the workers so far.
class Loads {
 public:
  Loads(int workers, double fixed)
      : workers_(workers), flops_(workers, fixed), shared_(static_cast<size_t>(workers) * workers, 0) {}

  void add(const std::vector<int>& set, double flops) {
    for (int k : set) {
      flops_[k] += flops;
      for (int l : set)
        shared_[k * workers_ + l] += 1;
    }
  }
  /// Adds a round of sets, one for each of `flops`: all cyclic shifts of `base`, by 0, 1, .., with the
  /// workers permuted by `permutation`.
  void add_shifts(const std::vector<int>& base, const std::vector<int>& permutation, const double* flops) {
    std::vector<int> together(workers_, 0);  // by difference of two workers: number of shifts with both
    for (int k : base) {
      for (int l : base)
        ++together[(k - l + workers_) % workers_];
    }
    for (int k = 0; k < workers_; ++k) {
      double* row = &shared_[static_cast<size_t>(permutation[k]) * workers_];
      for (int l = 0; l < workers_; ++l)
        row[permutation[l]] += together[(k - l + workers_) % workers_];
    }
    for (int shift = 0; shift < workers_; ++shift)
      for (int worker : base)
        flops_[permutation[(worker + shift) % workers_]] += flops[shift];
  }
  double flops(int worker) const { return flops_[worker]; }
  double shared(int k, int l) const { return shared_[k * workers_ + l]; }

  /// 0 if all workers have equal loads and all pairs of workers share equally much.
  double unevenness() const {
    std::vector<double> pairs;
    for (int k = 0; k < workers_; ++k)
      for (int l = k + 1; l < workers_; ++l)
        pairs.push_back(shared(k, l));
    return kFlopsWeight * relative_variance(flops_) + relative_variance(pairs);
  }

 private:
  static double relative_variance(const std::vector<double>& values) {
    if (values.empty()) return 0;
    const double mean =
        std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
    double squares = 0;
    for (double value : values)
      squares += (value - mean) * (value - mean);
    return mean > 0 ? squares / (static_cast<double>(values.size()) * mean * mean) : 0;
  }

  int workers_;
  std::vector<double> flops_;
  std::vector<double> shared_;
};

class SliceAssignment {
 public:
  SliceAssignment(const AssignmentProblem& problem, const std::vector<int>& family, bool equal_numbers)
      : problem_(problem),
        family_(family),
        equal_numbers_(equal_numbers),
        random_(problem.seed),
        loads_(problem.workers, problem.flops_fixed),
        owners_(problem.flops.size()) {
    const int n = problem.workers;
    const int p = problem.owners;
    // Search for the smaller of the base set and its complement: it is as evenly spread and cheaper to find.
    const auto shifts = cyclic_shifts(spread_base_set(n, std::min(p, n - p), random_), n);
    design_ = p <= n - p ? shifts : complements(shifts, n);
    const double visits = static_cast<double>(owners_.size()) * p * p + static_cast<double>(n) * n;
    candidates_ =
        static_cast<int>(std::clamp(kEffort / visits, double{kFewestCandidates}, double{kMostCandidates}));
  }

  Owners run() {
    std::vector<size_t> left_over;
    for (size_t begin = 0; begin < owners_.size();) {
      size_t end = begin;
      while (end < owners_.size() && family_[end] == family_[begin])
        ++end;
      const size_t n = design_.size();
      for (; begin + n <= end; begin += n)
        place_round(begin);
      for (; begin < end; ++begin)
        left_over.push_back(begin);
    }
    // Equal numbers over all slices require that families are processed one after another.
    if (!equal_numbers_)
      std::stable_sort(left_over.begin(), left_over.end(),
                       [&](size_t a, size_t b) { return problem_.flops[a] > problem_.flops[b]; });
    for (size_t group : left_over)
      place_alone(group);
    return owners_;
  }

 private:
  std::vector<int> permuted(const std::vector<int>& set, const std::vector<int>& permutation) const {
    std::vector<int> result;
    for (int worker : set)
      result.push_back(permutation[worker]);
    std::sort(result.begin(), result.end());
    return result;
  }

  std::vector<int> random_permutation() {
    std::vector<int> permutation(problem_.workers);
    std::iota(permutation.begin(), permutation.end(), 0);
    for (int i = problem_.workers - 1; i > 0; --i)
      std::swap(permutation[i], permutation[random_.below(i + 1)]);
    return permutation;
  }

  /// Assigns n slices from `begin` on.
  void place_round(size_t begin) {
    std::vector<int> best;
    Loads best_loads = loads_;
    for (int c = 0; c < candidates_; ++c) {
      const std::vector<int> permutation = random_permutation();
      Loads loads = loads_;
      loads.add_shifts(design_.front(), permutation, &problem_.flops[begin]);
      if (!best.empty() && loads.unevenness() >= best_loads.unevenness()) continue;
      best = permutation;
      best_loads = loads;
    }
    for (size_t i = 0; i < design_.size(); ++i)
      owners_[begin + i] = permuted(design_[i], best);
    loads_ = best_loads;
  }

  /// Assigns one slice to the workers with the lowest FLOPs. Among workers with equal FLOPs it chooses the
  /// one that shares the least with the workers chosen before. With `equal_numbers_` it first compares the
  /// numbers of slices of the family and then of all families, so that neither number differs by more than
  /// one between workers.
  void place_alone(size_t group) {
    std::vector<int>& of_family = left_over_of_[family_[group]];
    of_family.resize(problem_.workers);
    const auto load = [&](int worker) {
      return equal_numbers_
                 ? std::tuple{of_family[worker], loads_.shared(worker, worker), loads_.flops(worker)}
                 : std::tuple{0, 0.0, loads_.flops(worker)};
    };
    std::vector<int> left(problem_.workers);
    std::iota(left.begin(), left.end(), 0);
    std::stable_sort(left.begin(), left.end(), [&](int k, int l) { return load(k) < load(l); });
    std::vector<double> shared(problem_.workers, 0);  // with the chosen workers
    std::vector<int> chosen;
    while (static_cast<int>(chosen.size()) < problem_.owners) {
      const auto same_load = std::find_if(left.begin(), left.end(),
                                          [&](int worker) { return load(worker) != load(left.front()); });
      const auto best =
          std::min_element(left.begin(), same_load, [&](int k, int l) { return shared[k] < shared[l]; });
      chosen.push_back(*best);
      left.erase(best);
      for (int worker = 0; worker < problem_.workers; ++worker)
        shared[worker] += loads_.shared(chosen.back(), worker);
    }
    for (int worker : chosen)
      ++of_family[worker];
    std::sort(chosen.begin(), chosen.end());
    loads_.add(chosen, problem_.flops[group]);
    owners_[group] = chosen;
  }

  const AssignmentProblem& problem_;
  const std::vector<int>& family_;
  bool equal_numbers_;
  RandomBits random_;
  Loads loads_;
  Owners owners_;
  Owners design_;
  int candidates_ = 0;
  std::map<int, std::vector<int>> left_over_of_;  ///< by family: number of left-over slices of each worker
};

}  // namespace

Owners assign_balanced_slices(const AssignmentProblem& problem, const std::vector<int>& family,
                              bool equal_numbers) {
  if (family.size() != problem.flops.size())
    throw std::logic_error("assign_balanced_slices: expected one family per group");
  if (problem.owners == problem.workers || problem.flops.empty()) return assign_window(problem);
  return SliceAssignment(problem, family, equal_numbers).run();
}

}  // namespace sdp
