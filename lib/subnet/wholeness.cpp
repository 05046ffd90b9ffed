#include "subnet/wholeness.h"

#include <algorithm>
#include <numeric>

namespace sdp {
namespace {

int rows_of(const std::vector<int>& ascending) {
  return ascending.empty() ? 0 : ascending.back() + 1;
}

}  // namespace

Wholeness::Wholeness(const GroupDepth& depth, int workers, const std::vector<OwnerSet>& owners)
    : depth_(&depth),
      workers_(workers),
      blocks_(rows_of(depth.block)),
      in_stage_(index(rows_of(depth.stage), 0), 0),
      in_block_(index(blocks_, 0), 0) {
  if (depth.stage.empty()) return;
  for (int worker = 0; worker < workers; ++worker)
    excess_ += excess_of(worker);
  for (size_t group = 0; group < owners.size(); ++group)
    for (int worker : owners[group])
      add(static_cast<int>(group), worker);
  for (int stage = 0; stage < rows_of(depth.stage); ++stage) {
    const auto row = in_stage_.begin() + static_cast<std::ptrdiff_t>(index(stage, 0));
    const int64_t owned = std::accumulate(row, row + workers, int64_t{0});
    const int64_t low = owned / workers;
    const int64_t with_one_more = owned % workers;
    squares_ -= (workers - with_one_more) * low * low + with_one_more * (low + 1) * (low + 1);
  }
}

void Wholeness::change(int group, int worker, int by) {
  if (depth_->stage.empty()) return;
  int& in_stage = in_stage_[index(depth_->stage[group], worker)];
  squares_ += int64_t{2} * by * in_stage + 1;  // (k + by)^2 - k^2
  in_stage += by;
  int& in_block = in_block_[index(depth_->block[group], worker)];
  const bool decides = in_block + std::min(by, 0) == 0;  // whether the worker has anything of the block
  if (decides) excess_ -= excess_of(worker);
  in_block += by;
  if (decides) excess_ += excess_of(worker);
}

/// The blocks by which the worker's gaps are too long.
int Wholeness::excess_of(int worker) const {
  if (blocks_ <= depth_->longest_gap) return 0;
  int excess = 0;
  int gap = 0;
  for (int block = 0; block < blocks_; ++block) {
    gap = in_block_[index(block, worker)] > 0 ? 0 : gap + 1;
    if (gap > depth_->longest_gap) ++excess;
  }
  return excess;
}

}  // namespace sdp
