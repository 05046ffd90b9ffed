#pragma once

// The local search behind assign_balanced (subnet/assignment.h). Integers throughout: no result depends on
// how a machine rounds or in which order it adds.

#include <compare>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "subnet/assignment.h"
#include "subnet/owner_set.h"
#include "subnet/random_bits.h"

namespace sdp {

/// Up to here the search affords the costlier, sharper stand-in for lambda2.
constexpr int kSmallWorkers = 16;
constexpr int kSmallGroups = 64;

/// Largest loads of a worker that count as even; lower ones are no better. In the units of SearchLoads.
struct EvenLoads {
  int64_t flops = 0;
  int64_t bytes = 0;
};

/// What the search lowers, in lexicographic order. Loads are in the units of SearchLoads.
struct AssignmentCost {
  int64_t uneven_flops = 0;   ///< largest FLOPs of a worker, at least what counts as even
  int64_t uneven_bytes = 0;   ///< likewise
  int64_t concentration = 0;  ///< stands in for lambda2: how unequal the eigenvalues of co-ownership are
  int64_t largest_bytes = 0;
  int64_t largest_flops = 0;

  // NOLINTNEXTLINE(modernize-use-nullptr): false alarm of clang-tidy 14
  auto operator<=>(const AssignmentCost&) const = default;
};

/// The problem's loads as integers: all of them times one power of two, their total below 2^53. Loads that
/// are integers themselves stay in exact proportion.
struct SearchLoads {
  explicit SearchLoads(const AssignmentProblem& problem);

  int workers;
  int owners;
  bool equal_groups;
  std::vector<int64_t> flops;
  std::vector<int64_t> bytes;
  int64_t flops_fixed;
  int64_t bytes_fixed;
};

/// One assignment that is changed in place; the loads and random numbers given to it must outlive it and its
/// copies. Moves: give one owner's place in a group to another worker, let two groups exchange one owner
/// each, exchange two groups' whole owner sets. With `equal_groups` a place is given only to a worker with
/// fewer groups, so that numbers of groups that differ by one at most stay so; the other moves change none.
class AssignmentSearch {
 public:
  AssignmentSearch(const SearchLoads& loads, const std::vector<OwnerSet>& owners, RandomBits& random);

  /// Late acceptance hill climbing (Burke, Bykov 2017): a move stays if its cost is not above the current one
  /// or the one `history` moves ago. Ends at the best assignment met.
  void run(int64_t moves, int history, const EvenLoads& even);

  /// Makes so many random moves.
  void shake(int times);

  AssignmentCost cost(const EvenLoads& even = {}) const;
  std::vector<OwnerSet> owners() const;
  /// [workers, workers], groups weighted by 1: what co_ownership (subnet/spectral.h) makes of the owners.
  std::vector<double> co_ownership() const { return {shared_.begin(), shared_.end()}; }

 private:
  /// Position `in` of the group's worker list (an owner) changes places with position `out` (not an owner).
  struct Replacement {
    int group;
    int in;
    int out;
    /// Part of an exchange of two groups' whole sets, which leaves co-ownership as it was.
    bool of_whole_sets;
  };

  int* workers_of(int group) { return &order_[static_cast<size_t>(group) * n_]; }
  const int* workers_of(int group) const { return &order_[static_cast<size_t>(group) * n_]; }
  int& position(int group, int worker) { return position_[static_cast<size_t>(group) * n_ + worker]; }
  bool owns(int worker, int group) const { return position_[static_cast<size_t>(group) * n_ + worker] < p_; }
  int64_t groups_of(int worker) const { return shared_[static_cast<size_t>(worker) * n_ + worker]; }

  // A replacement is made in two steps: places and loads first, then co-ownership, which reads the places.
  void exchange_places(const Replacement& replacement);
  void change_co_ownership(const Replacement& made);
  /// `made`: one move's, which has one replacement of single owners in a group at most.
  void change_co_ownership(const std::vector<Replacement>& made);
  void undo_places(std::vector<Replacement>& replacements);
  void undo(std::vector<Replacement>& replacements);
  bool accept(AssignmentCost& current, const AssignmentCost& reference, const EvenLoads& even);
  AssignmentCost cost_of_loads(const EvenLoads& even) const;

  // Moves: the first step of their replacements is made, and they are put into pending_.
  void replace(int group, int worker, int other, bool of_whole_sets = false);
  void propose();
  void propose_replacement();
  void propose_exchange();
  void propose_set_exchange();
  int random_group_of(int worker);
  int most_loaded_worker() const;
  int64_t concentration() const;

  const SearchLoads* loads_;
  RandomBits* random_;
  int n_;
  int p_;
  int groups_;
  bool small_;                        // within kSmallWorkers and kSmallGroups
  std::vector<int> order_;            // [groups, n]: all workers, the first p own the group
  std::vector<int> position_;         // [groups, n]: inverse of order_
  std::vector<int64_t> flops_;        // [n]
  std::vector<int64_t> bytes_;        // [n]
  std::vector<int64_t> shared_;       // [n, n]: the unweighted co-ownership matrix
  int64_t squares_ = 0;               // of all entries of shared_
  std::vector<Replacement> pending_;  // of the move under trial, in the order they were applied
};

}  // namespace sdp
