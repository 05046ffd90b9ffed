#include "analysis/regime.h"

#include <fmt/format.h>

#include <algorithm>

#include "capture/layouts.h"
#include "spec/error.h"

namespace sdp {
namespace {

std::string known_names() {
  std::string names;
  for (const Regime regime : all_regimes())
    names += (names.empty() ? "" : ", ") + name_of(regime);
  return names;
}

Regime regime_named(std::string_view name, std::string_view option) {
  for (const Regime regime : all_regimes())
    if (name_of(regime) == name) return regime;
  throw UsageError(fmt::format("{}: found '{}', expected a comma-separated list of regimes: {}", option, name,
                               known_names()));
}

}  // namespace

std::vector<Regime> parse_regimes(std::string_view names, std::string_view option) {
  std::vector<Regime> regimes;
  for (size_t begin = 0; begin <= names.size();) {
    const size_t end = std::min(names.find(',', begin), names.size());
    const Regime regime = regime_named(names.substr(begin, end - begin), option);
    if (std::find(regimes.begin(), regimes.end(), regime) != regimes.end())
      throw UsageError(fmt::format("{}: found {} twice. Name every regime once.", option, name_of(regime)));
    regimes.push_back(regime);
    begin = end + 1;
  }
  return regimes;
}

SubnetPlan plan_of_regime(const ExperimentSpec& spec, Regime regime,
                          const std::optional<std::filesystem::path>& saved_plan) {
  SubnetworkSpec subnetwork = spec.subnetwork;
  const bool is_same_construction = regime.construction == subnetwork.construction;
  if (subnetwork.assignment == Assignment::kFile && !is_same_construction)
    throw UsageError(
        fmt::format("--regimes {}: the spec takes its owner sets from a file (subnetwork.assignment: file), "
                    "which is of "
                    "{} construction. Leave the regime out, or set another subnetwork.assignment.",
                    name_of(regime), name_of(subnetwork.construction)));
  if (saved_plan && is_same_construction) {
    subnetwork.assignment = Assignment::kFile;
    subnetwork.assignment_file = saved_plan->string();
  }
  subnetwork.construction = regime.construction;
  subnetwork.masking = regime.masking;
  return make_plan(layout_of(spec.model, spec.data.sequence_length()), subnetwork,
                   static_cast<uint64_t>(spec.seed));
}

}  // namespace sdp
