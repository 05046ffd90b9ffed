#include "subnet/storage.h"

#include <algorithm>
#include <utility>

namespace sdp {

std::set<StoredPart> stored_parts(const SubnetPlan& plan, const std::vector<Slot>& slots) {
  std::set<StoredPart> stored;
  for (const Slot& slot : slots)
    for (int p = 0; p < static_cast<int>(plan.layout.parameters.size()); ++p)
      for (BranchPart& part : plan.parts_of(slot.worker, plan.layout.parameters[p]))
        stored.insert({.parameter = p, .units = std::move(part.units)});
  return stored;
}

bool is_contiguous(const ParameterLayout& parameter, size_t units) {
  return units == 1 || !parameter.slice || (parameter.slice->dim == 0 && parameter.slice->blocks == 1);
}

std::set<std::vector<int>> stored_units(const SubnetPlan& plan, int branch, const std::vector<Slot>& slots) {
  std::set<std::vector<int>> stored;
  for (const Slot& slot : slots)
    for (BranchPart& part : plan.parts_of(slot.worker, branch))
      stored.insert(std::move(part.units));
  return stored;
}

std::vector<char> scattered_parameters(const SubnetPlan& plan, const std::vector<Slot>& slots) {
  struct Stored {
    bool twice = false;
    size_t most_units = 1;  ///< in one tensor
  };
  std::vector<Stored> by_branch;
  for (int b = 0; b < static_cast<int>(plan.layout.branches.size()); ++b) {
    Stored& stored = by_branch.emplace_back();
    const std::set<std::vector<int>> parts = stored_units(plan, b, slots);
    std::set<int> seen;
    for (const std::vector<int>& units : parts) {
      for (const int unit : units)
        stored.twice |= parts.size() > 1 && !seen.insert(unit).second;
      stored.most_units = std::max(stored.most_units, units.size());
    }
  }
  std::vector<char> scattered;
  for (const ParameterLayout& parameter : plan.layout.parameters) {
    const Stored stored = plan.is_divided(parameter) ? by_branch[*parameter.branch] : Stored();
    scattered.push_back(stored.twice || !is_contiguous(parameter, stored.most_units) ? 1 : 0);
  }
  return scattered;
}

bool updates_in_place(const ExchangePlan& exchanges, int bucket_index, int process,
                      const std::vector<char>& scattered) {
  const Bucket& bucket = exchanges.buckets[bucket_index];
  if (has_master_values(bucket.type, exchanges.options.precision)) return false;
  return std::all_of(bucket.segments.begin(), bucket.segments.end(), [&](const Segment& segment) {
    return !segment.is_held_by(process) ||
           std::none_of(segment.slices.begin(), segment.slices.end(),
                        [&](const Slice& slice) { return scattered[slice.parameter] != 0; });
  });
}

}  // namespace sdp
