#pragma once

// What workers have of the depth of the network, in block construction. Subnetworks are whole if every worker
// has an even share of every stage, and no long run of blocks is absent. Dropping whole stages changes what
// the remaining branches read; ResIST (arXiv 2107.00961) guarantees a minimum depth for the same reason.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "subnet/plan.h"
#include "subnet/slot_map.h"

namespace sdp {

/// Where groups (see subnet/assignment.h) are in the depth of the network.
struct GroupDepth {
  /// By group, ascending from 0; in neuron construction, the branch or block that the groups are slices of.
  /// Empty: nothing is asked of the workers' shares.
  std::vector<int> stage = {};
  std::vector<int> block = {};  ///< by group, ascending; empty: gaps of any length are accepted
  int longest_gap = 0;  ///< number of consecutive blocks without any group of a worker that is accepted
  /// [stages, workers]: how many of a stage's groups each worker is to own. Empty: equally many.
  std::vector<std::vector<int>> quotas = {};
};

/// How far an assignment is from whole subnetworks. Kept up to date owner by owner.
class Wholeness {
 public:
  /// `depth` must outlive this object and its copies.
  Wholeness(const GroupDepth& depth, int workers, const Owners& owners);

  void add(int group, int worker) { change(group, worker, 1); }
  void remove(int group, int worker) { change(group, worker, -1); }

  /// Number of groups that the worker has in the group's stage.
  int in_stage_of(int group, int worker) const { return stages_of(worker)[depth_->stage[group]]; }

  /// 0 if the workers' numbers of groups differ by at most one in every stage, or from their quotas not at
  /// all, and no gap is longer than accepted. Otherwise the sum over stages of the squared numbers, or
  /// differences from quotas, less the least possible, and of the blocks by which gaps are too long.
  int64_t shortfall() const { return squares_ + excess_; }

 private:
  void change(int group, int worker, int by);
  const int* stages_of(int worker) const { return &in_stage_[static_cast<size_t>(worker) * stages_]; }
  void change_block(int* groups, int block, int by);
  /// The blocks by which a gap is too long.
  int over(int gap) const { return std::max(0, gap - depth_->longest_gap); }

  const GroupDepth* depth_;
  int stages_;
  int blocks_;
  std::vector<int> in_stage_;  ///< [workers, stages]: number of groups
  std::vector<int> in_block_;  ///< [workers, blocks]: number of groups
  int64_t squares_ = 0;        ///< of in_stage_, less the least possible
  int64_t excess_ = 0;         ///< blocks by which gaps are too long, over all workers
};

/// By branch, ascending from 0. A stage is a run of consecutive branches whose outputs have equally many
/// elements: a stage of ResNet or Swin, or all of a transformer.
std::vector<int> stages(const ModelLayout& layout);

struct WorkerDepth {
  std::vector<int> branches_by_stage;  ///< owned, whole or in part
  int longest_gap_blocks = 0;          ///< longest run of blocks of which the worker owns no branch

  template <class Visitor>
  static void fields(Visitor& field) {
    field("branches_by_stage", &WorkerDepth::branches_by_stage);
    field("longest_gap_blocks", &WorkerDepth::longest_gap_blocks);
  }
  bool operator==(const WorkerDepth&) const = default;
};

WorkerDepth depth_of(const SubnetPlan& plan, int worker);

}  // namespace sdp
