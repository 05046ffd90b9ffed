#pragma once

// A plan as JSON: what identifies it, and all figures of plan.json.

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "subnet/nodes.h"
#include "subnet/plan.h"
#include "subnet/schedule.h"

namespace sdp {

/// The plan's identity: n, p, construction, masking and every unit with its owners. Independent of the
/// number of processes.
nlohmann::ordered_json plan_identity_json(const SubnetPlan& plan);
/// XXH3-128 of the identity, in hexadecimal.
std::string plan_hash(const SubnetPlan& plan);

/// All figures of plan.json: the plan's identity, balance and spectrum, cost per worker (n processes), per
/// process (this schedule's placement) and of data parallelism on the full model (`dense`), what passes
/// inside and between nodes, beside data parallelism's on as many processes, and the plan's warnings.
nlohmann::ordered_json plan_json(const SubnetPlan& plan, const Schedule& schedule, const NodeMap& nodes,
                                 const ExperimentSpec& spec);

}  // namespace sdp
