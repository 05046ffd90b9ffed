#include "subnet/depth.h"

#include <algorithm>

namespace sdp {
namespace {

int rows_of(const std::vector<int>& ascending) {
  return ascending.empty() ? 0 : ascending.back() + 1;
}

}  // namespace

Wholeness::Wholeness(const GroupDepth& depth, int workers, const Owners& owners)
    : depth_(&depth),
      stages_(rows_of(depth.stage)),
      blocks_(rows_of(depth.block)),
      in_stage_(static_cast<size_t>(workers) * stages_, 0),
      in_block_(static_cast<size_t>(workers) * blocks_, 0),
      excess_(int64_t{workers} * over(blocks_)) {
  if (stages_ == 0) return;
  for (const std::vector<int>& quotas : depth.quotas)
    for (const int64_t quota : quotas)
      squares_ += quota * quota;
  std::vector<int64_t> owned(stages_, 0);
  for (size_t group = 0; group < owners.size(); ++group) {
    owned[depth.stage[group]] += static_cast<int64_t>(owners[group].size());
    for (int worker : owners[group])
      add(static_cast<int>(group), worker);
  }
  if (!depth.quotas.empty()) return;
  for (int64_t in_stage : owned) {
    const int64_t low = in_stage / workers;
    const int64_t with_one_more = in_stage % workers;
    squares_ -= (workers - with_one_more) * low * low + with_one_more * (low + 1) * (low + 1);
  }
}

void Wholeness::change(int group, int worker, int by) {
  if (stages_ == 0) return;
  const int stage = depth_->stage[group];
  int& in_stage = in_stage_[static_cast<size_t>(worker) * stages_ + stage];
  const int quota = depth_->quotas.empty() ? 0 : depth_->quotas[stage][worker];
  squares_ += int64_t{2} * by * (in_stage - quota) + 1;  // (k + by)^2 - k^2
  in_stage += by;
  if (blocks_ == 0) return;
  change_block(&in_block_[static_cast<size_t>(worker) * blocks_], depth_->block[group], by);
}

/// Only the gap around the block changes.
void Wholeness::change_block(int* groups, int block, int by) {
  groups[block] += by;
  if (groups[block] != std::max(by, 0)) return;  // the worker has, or had, other groups of the block
  int left = 0;
  while (left < block && groups[block - left - 1] == 0)
    ++left;
  int right = 0;
  while (block + right + 1 < blocks_ && groups[block + right + 1] == 0)
    ++right;
  excess_ += int64_t{by} * (over(left) + over(right) - over(left + 1 + right));
}

std::vector<int> stages(const ModelLayout& layout) {
  std::vector<int> result;
  for (size_t branch = 0; branch < layout.branches.size(); ++branch) {
    const int64_t output = layout.branches[branch].stream.output;
    const bool begins = branch > 0 && output != layout.branches[branch - 1].stream.output;
    result.push_back((branch > 0 ? result.back() : 0) + (begins ? 1 : 0));
  }
  return result;
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
