#pragma once

// The local search behind assign_balanced (subnet/assignment.h). It computes with integers only, so that no
// result depends on a machine's rounding or order of summation.

#include <compare>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "subnet/assignment.h"
#include "subnet/depth.h"
#include "subnet/random_bits.h"
#include "subnet/slot_map.h"

namespace sdp {

/// Up to these sizes the search uses the more accurate but more expensive proxy for lambda2.
constexpr int kSmallWorkers = 16;
constexpr int kSmallGroups = 64;

/// Largest loads of a worker that count as even; lower loads do not count as better. In the units of
/// SearchLoads.
struct EvenLoads {
  int64_t flops = 0;
  int64_t bytes = 0;
};

/// The cost that the search minimizes, in lexicographic order. Loads are in the units of SearchLoads.
struct AssignmentCost {
  int64_t shortfall = 0;      ///< see Wholeness
  int64_t uneven_flops = 0;   ///< largest FLOPs of a worker, but at least EvenLoads::flops
  int64_t uneven_bytes = 0;   ///< largest bytes of a worker, but at least EvenLoads::bytes
  int64_t concentration = 0;  ///< proxy for lambda2: how unequal the eigenvalues of co-ownership are
  int64_t largest_bytes = 0;
  int64_t largest_flops = 0;

  // NOLINTNEXTLINE(modernize-use-nullptr): false alarm of clang-tidy 14
  auto operator<=>(const AssignmentCost&) const = default;
};

/// The problem's loads as integers, with a total of 2^52.
struct SearchLoads {
  explicit SearchLoads(const AssignmentProblem& problem);

  int workers;
  GroupDepth depth;
  std::vector<int64_t> flops;
  std::vector<int64_t> bytes;
  int64_t flops_fixed;
  int64_t bytes_fixed;
};

/// An assignment that is changed in place. The loads and random numbers given to it must outlive it and its
/// copies. There are two moves: replace one owner of a group by another worker, and let two groups exchange
/// one owner each. If the depth of the groups is given, an owner is replaced only by a worker with fewer
/// groups of the stage.
class AssignmentSearch {
 public:
  AssignmentSearch(const SearchLoads& loads, const Owners& owners, RandomBits& random);

  /// Late acceptance hill climbing (Burke, Bykov 2017): a move is kept if its cost is not above the current
  /// cost or the cost `history` moves ago. Ends with the best assignment found.
  void run(int64_t moves, int history, const EvenLoads& even);

  /// Makes `times` random moves.
  void perturb(int times);

  AssignmentCost cost(const EvenLoads& even) const;
  Owners owners() const;
  /// The result of co_ownership (subnet/spectral.h) for the owners, [workers, workers], with groups weighted
  /// by 1.
  std::vector<double> co_ownership() const { return {shared_.begin(), shared_.end()}; }

 private:
  /// Exchanges position `in` of the group's worker list (an owner) with position `out` (not an owner).
  struct Replacement {
    int group;
    int in;
    int out;
  };

  int* workers_of(int group) { return &order_[static_cast<size_t>(group) * n_]; }
  const int* workers_of(int group) const { return &order_[static_cast<size_t>(group) * n_]; }
  int& position(int group, int worker) { return position_[static_cast<size_t>(group) * n_ + worker]; }
  bool owns(int worker, int group) const {
    return position_[static_cast<size_t>(group) * n_ + worker] < p_[group];
  }

  // A replacement is made in two steps: first places and loads, then co-ownership, which reads the places.
  void exchange_places(const Replacement& replacement);
  void change_co_ownership(const Replacement& made);
  /// A replacement is its own inverse. Without `co_ownership`, only the first step was made.
  void undo(std::vector<Replacement>& replacements, bool co_ownership = true);
  bool accept(AssignmentCost& current, const AssignmentCost& reference, const EvenLoads& even);
  AssignmentCost cost_of_loads(const EvenLoads& even) const;

  // Moves: each makes the first step of its replacements and adds them to pending_.
  void replace(int group, int worker, int other);
  void propose();
  void propose_exchange();
  int random_group_of(int worker, std::pair<int, int> range);
  int most_loaded_worker() const;
  int64_t concentration() const;

  const SearchLoads* loads_;
  RandomBits* random_;
  int n_;
  int groups_;
  bool small_;                                 // within kSmallWorkers and kSmallGroups
  std::vector<int> p_;                         // by group
  std::vector<int> order_;                     // [groups, n]: all workers; the first p own the group
  std::vector<int> position_;                  // [groups, n]: inverse of order_
  std::vector<std::pair<int, int>> stage_of_;  // by group: the range of its stage's groups
  Wholeness wholeness_;
  std::vector<int64_t> flops_;        // [n]
  std::vector<int64_t> bytes_;        // [n]
  std::vector<int64_t> shared_;       // [n, n]: the unweighted co-ownership matrix
  int64_t squares_ = 0;               // sum of the squares of all entries of shared_
  std::vector<Replacement> pending_;  // of the move being tried, in the order in which they were applied
};

}  // namespace sdp
