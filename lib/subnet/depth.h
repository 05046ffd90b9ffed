#pragma once

// What a worker has of the depth of the network, in block construction: a share of every stage, and no long
// run of absent blocks.

#include <vector>

#include "subnet/plan.h"

namespace sdp {

/// By branch, ascending from 0. A stage is a run of consecutive branches whose outputs have equally many
/// elements: a stage of ResNet or Swin, or all of a transformer.
std::vector<int> stages(const ModelLayout& layout);

/// Longest run of blocks that may be absent from a worker's subnetwork if owner sets are searched for:
/// ceil(n/p) + 1.
int accepted_gap_blocks(const SubnetPlan& plan);

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
