#pragma once

// What a spec's workers own in each regime.

#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

#include "experiment/spec/experiment_spec.h"
#include "experiment/spec/regime.h"
#include "subnet/plan.h"

namespace sdp {

/// Out of names with commas between them. UsageError, with `option` in front, for a name that is none or
/// stands there twice.
std::vector<Regime> parse_regimes(std::string_view names, std::string_view option);

/// The plan of a regime with the spec's workers and coverage. With `saved_plan`, owners are those of that
/// file where it is of the same construction, whatever its masking. UsageError where the spec takes owners
/// from a file of the other construction.
SubnetPlan plan_of_regime(const ExperimentSpec& spec, Regime regime,
                          const std::optional<std::filesystem::path>& saved_plan);

}  // namespace sdp
