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

std::vector<char> scattered_parameters(const SubnetPlan& plan, const std::vector<Slot>& slots) {
  std::vector<char> scattered(plan.layout.parameters.size(), 0);
  std::vector<int> units;  // of the parameter, in the parts before
  int parameter = -1;
  for (const StoredPart& part : stored_parts(plan, slots)) {
    if (std::exchange(parameter, part.parameter) != part.parameter) units.clear();
    if (scattered[parameter] != 0) continue;
    const bool is_stored =
        std::find_first_of(units.begin(), units.end(), part.units.begin(), part.units.end()) != units.end();
    if (is_stored || !is_contiguous(plan.layout.parameters[parameter], part.units.size()))
      scattered[parameter] = 1;
    units.insert(units.end(), part.units.begin(), part.units.end());
  }
  return scattered;
}

bool updates_in_place(const Schedule& schedule, int bucket_index, int process,
                      const std::vector<char>& scattered) {
  const Bucket& bucket = schedule.buckets[bucket_index];
  if (has_master_values(bucket.type, schedule.options.precision)) return false;
  return std::all_of(bucket.segments.begin(), bucket.segments.end(), [&](const Segment& segment) {
    return !segment.is_held_by(process) ||
           std::none_of(segment.pieces.begin(), segment.pieces.end(),
                        [&](const Piece& piece) { return scattered[piece.parameter] != 0; });
  });
}

}  // namespace sdp
