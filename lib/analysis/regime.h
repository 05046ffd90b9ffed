#pragma once

// Owner sets of a spec's workers in each regime.

#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

#include "experiment/spec/experiment_spec.h"
#include "experiment/spec/regime.h"
#include "subnet/plan.h"

namespace sdp {

/// Parses comma-separated names of regimes. Throws UsageError, prefixed with `option`, for an unknown or
/// repeated name.
std::vector<Regime> parse_regimes(std::string_view names, std::string_view option);

/// The plan of a regime with the spec's workers and coverage. Owners are those of `saved_plan`, if it is
/// given and has the same construction, whatever its masking. Throws UsageError if the spec reads owners from
/// a file of the other construction.
SubnetPlan plan_of_regime(const ExperimentSpec& spec, Regime regime,
                          const std::optional<std::filesystem::path>& saved_plan);

}  // namespace sdp
