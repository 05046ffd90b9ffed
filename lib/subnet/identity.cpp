#include "subnet/identity.h"

#include "hash/hash.h"
#include "spec/json_fields.h"

namespace sdp {

PlanIdentity identity_of(const SubnetPlan& plan) {
  PlanIdentity identity{.model = plan.layout.name,
                        .workers = plan.workers,
                        .owners_per_unit = plan.owners_per_unit,
                        .coverage = plan.coverage(),
                        .construction = plan.construction,
                        .masking = plan.masking,
                        .units = {}};
  for (int u = 0; u < static_cast<int>(plan.units.size()); ++u) {
    const Unit& unit = plan.units[u];
    identity.units.push_back({.branch = plan.layout.branches[unit.branch].name,
                              .begin = unit.begin,
                              .end = unit.end,
                              .parameters = plan.unit_parameters(u),
                              .flops = plan.unit_flops(u).training(),
                              .owners = unit.owners.members()});
  }
  return identity;
}

std::string hash_of(const PlanIdentity& identity) {
  return xxh3_128(json_of(identity).dump());
}

std::string plan_hash(const SubnetPlan& plan) {
  return hash_of(identity_of(plan));
}

}  // namespace sdp
