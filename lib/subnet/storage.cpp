#include "subnet/storage.h"

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

}  // namespace sdp
