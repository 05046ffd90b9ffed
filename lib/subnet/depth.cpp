#include "subnet/depth.h"

#include <algorithm>

namespace sdp {

std::vector<int> stages(const ModelLayout& layout) {
  std::vector<int> result;
  for (size_t branch = 0; branch < layout.branches.size(); ++branch) {
    const int64_t output = layout.branches[branch].stream.output;
    const bool begins = branch > 0 && output != layout.branches[branch - 1].stream.output;
    result.push_back((branch > 0 ? result.back() : 0) + (begins ? 1 : 0));
  }
  return result;
}

int accepted_gap_blocks(const SubnetPlan& plan) {
  return (plan.workers + plan.owners_per_unit - 1) / plan.owners_per_unit + 1;
}

WorkerDepth depth_of(const SubnetPlan& plan, int worker) {
  const std::vector<int> stage = stages(plan.layout);
  WorkerDepth depth;
  depth.branches_by_stage.assign(stage.empty() ? 0 : stage.back() + 1, 0);
  int next = 0;  // block after the last one that the worker has
  const auto end_gap = [&](int block) {
    depth.longest_gap_blocks = std::max(depth.longest_gap_blocks, block - next);
    next = block + 1;
  };
  for (int branch = 0; branch < static_cast<int>(stage.size()); ++branch) {
    if (!plan.owns_any_of(worker, branch)) continue;
    ++depth.branches_by_stage[stage[branch]];
    end_gap(plan.layout.branches[branch].block);
  }
  if (!stage.empty()) end_gap(plan.layout.branches.back().block + 1);
  return depth;
}

}  // namespace sdp
