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

int64_t elements_of(const SubnetPlan& plan, const StoredPart& part) {
  int64_t elements = 0;
  for (int unit : part.units)
    elements += plan.elements_of(plan.layout.parameters[part.parameter], unit);
  return elements;
}

}  // namespace sdp
