#include "subnet/identity.h"

#include <fmt/format.h>
#include <xxhash.h>

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
  const std::string text = json_of(identity).dump();
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

std::string plan_hash(const SubnetPlan& plan) {
  return hash_of(identity_of(plan));
}

}  // namespace sdp
