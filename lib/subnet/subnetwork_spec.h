#pragma once

// The section `subnetwork` of a spec.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "spec/visit.h"

namespace sdp {

enum class Construction { kBlock, kNeuron };
enum class Masking { kForward, kBackward };
enum class UnitKind { kBlock, kBranch };
enum class Assignment { kBalanced, kEqualUnits, kWindow, kRandom, kFile };
enum class NodePlacement { kInOrder, kPack };
enum class TrainingScale { kNone, kInverse };

SDP_ENUM_NAMES(Construction, {Construction::kBlock, "block"}, {Construction::kNeuron, "neuron"})
SDP_ENUM_NAMES(Masking, {Masking::kForward, "forward"}, {Masking::kBackward, "backward"})
SDP_ENUM_NAMES(UnitKind, {UnitKind::kBlock, "block"}, {UnitKind::kBranch, "branch"})
SDP_ENUM_NAMES(Assignment, {Assignment::kBalanced, "balanced"}, {Assignment::kEqualUnits, "equal_units"},
               {Assignment::kWindow, "window"}, {Assignment::kRandom, "random"}, {Assignment::kFile, "file"})
SDP_ENUM_NAMES(NodePlacement, {NodePlacement::kInOrder, "in_order"}, {NodePlacement::kPack, "pack"})
SDP_ENUM_NAMES(TrainingScale, {TrainingScale::kNone, "none"}, {TrainingScale::kInverse, "inverse"})

/// How a worker has a unit: owned (values, gradients, a part of the optimizer state), frozen (values only) or
/// absent.
enum class Holding { kOwned, kFrozen, kAbsent };

/// Everything that the masking determines.
struct MaskingRule {
  Holding not_owned;              ///< how a worker has the units that it does not own
  std::string_view name_suffix;   ///< in names of regimes: bsdp, bbsdp
  std::string_view label_suffix;  ///< in names of methods: B-SDP, B_b-SDP
};

constexpr MaskingRule rule_of(Masking masking) {
  switch (masking) {
    case Masking::kForward:
      return {Holding::kAbsent, "sdp", "-SDP"};
    case Masking::kBackward:
      return {Holding::kFrozen, "bsdp", "_b-SDP"};
  }
  throw std::logic_error("a masking without a rule");
}

/// Branches whose coverage or masking differs from the section's.
struct SubnetworkRule {
  static constexpr Treatment treatment = {OnResume::kRestOfRun, InReport::kCompared};
  /// Instead of a pattern: branches whose output has another number of elements than their input.
  static constexpr const char* kStrided = "strided";

  std::string match;
  std::optional<Coverage> coverage = {};
  std::optional<Masking> masking = {};

  bool operator==(const SubnetworkRule&) const = default;

  template <class Visitor>
  static void fields(Visitor& field) {
    field("match", &SubnetworkRule::match,
          "pattern of branch names, such as 'layer1.*' or '*.self_attn' (fnmatch); strided: branches that "
          "change the resolution",
          kRequired);
    field("coverage", &SubnetworkRule::coverage,
          "C = p/n of these branches; unset: subnetwork.coverage or capacities");
    field("masking", &SubnetworkRule::masking, "masking of these branches; unset: subnetwork.masking");
  }
};

struct SubnetworkSpec {
  int64_t workers = 1;
  int64_t replicas = 1;
  Coverage coverage;
  std::vector<Coverage> capacities = {};
  Construction construction = Construction::kBlock;
  Masking masking = Masking::kForward;
  UnitKind unit = UnitKind::kBlock;
  std::optional<int64_t> slices_per_branch;
  std::vector<SubnetworkRule> rules = {};
  Assignment assignment = Assignment::kBalanced;
  std::string assignment_file;
  TrainingScale branch_scale = TrainingScale::kNone;
  NodePlacement placement = NodePlacement::kInOrder;

  bool operator==(const SubnetworkSpec&) const = default;

  /// Whether every worker owns every unit. Throws UsageError like owners_of.
  bool is_dense() const {
    return section_is_dense() &&
           std::ranges::all_of(rules, [&](const SubnetworkRule& rule) { return is_dense(rule); });
  }
  /// Whether a worker may lack units: those that it does not own, under forward masking.
  bool may_lack_units() const {
    const auto lacks = [](Masking of_branch) { return rule_of(of_branch).not_owned == Holding::kAbsent; };
    return (lacks(masking) && !section_is_dense()) ||
           std::ranges::any_of(rules, [&](const SubnetworkRule& rule) {
             return lacks(rule.masking.value_or(masking)) && !is_dense(rule);
           });
  }

  template <class Visitor>
  static void fields(Visitor& field) {
    field("workers", &SubnetworkSpec::workers, "n, the number of subnetworks; n times R is at most 16384",
          OnResume::kRestOfRun, InReport::kCompared, in_range(1, 1024));
    field("replicas", &SubnetworkSpec::replicas, "R, the number of data-parallel replicas of each worker",
          OnResume::kRestOfRun, InReport::kCompared, in_range(1, 16384));
    field("coverage", &SubnetworkSpec::coverage,
          "C = p/n, the share of workers that own a unit, for example 4/8 or 0.5", OnResume::kRestOfRun,
          InReport::kInRegime);
    field("capacities", &SubnetworkSpec::capacities,
          "construction neuron, instead of coverage: by worker, the share of each branch's slices that it "
          "owns, such as [1, 1, 1/2, 1/2]",
          OnResume::kRestOfRun, InReport::kCompared);
    field("construction", &SubnetworkSpec::construction,
          "a unit is a whole residual branch (block) or a slice of its hidden width (neuron)",
          OnResume::kRestOfRun, InReport::kInRegime);
    field("masking", &SubnetworkSpec::masking,
          "units that a worker does not own are absent (forward) or present and frozen (backward)",
          OnResume::kRestOfRun, InReport::kInRegime);
    field("unit", &SubnetworkSpec::unit,
          "whether the branches of a block have the same owners (block), in construction neuron slice by "
          "slice, "
          "or owners of their own (branch)",
          OnResume::kRestOfRun, InReport::kFollowsRegime);
    field("slices_per_branch", &SubnetworkSpec::slices_per_branch,
          "construction neuron: number of slices of a branch's hidden width, in attention at most the number "
          "of heads; unset: n",
          OnResume::kRestOfRun, InReport::kFollowsRegime, in_range(1, 1 << 20), "slices",
          advise_when<SubnetworkSpec>(
              [](const SubnetworkSpec& s) { return s.construction == Construction::kBlock; },
              "has no effect: only construction neuron divides branches into slices"));
    field("rules", &SubnetworkSpec::rules,
          "branches with a coverage or masking of their own; the first rule whose pattern matches a branch "
          "applies",
          OnResume::kRestOfRun, InReport::kCompared);
    field("assignment", &SubnetworkSpec::assignment,
          "how owners are chosen. balanced: an even share of every stage (construction block), then even "
          "FLOPs, "
          "even memory and mixing; equal_units: the same with an equal number of units in all instead of in "
          "every stage; window: workers i to i+p-1 own unit i; random: drawn for each unit; file: "
          "read from assignment_file",
          OnResume::kRestOfRun, InReport::kCompared,
          advise_when<SubnetworkSpec>(
              [](const SubnetworkSpec& s) { return s.assignment != Assignment::kBalanced && s.is_dense(); },
              "has no effect: with coverage 1 every worker owns every unit"));
    field("assignment_file", &SubnetworkSpec::assignment_file, "assignment file: a plan.json with owner sets",
          OnResume::kRestOfRun, InReport::kCompared);
    field("branch_scale", &SubnetworkSpec::branch_scale,
          "factor on a branch's output in a subnetwork: none, or inverse (1/C of the branch, as inverted "
          "dropout "
          "has it); the assembled model then has none",
          OnResume::kRestOfRun, InReport::kCompared,
          advise_when<SubnetworkSpec>(
              [](const SubnetworkSpec& s) {
                return s.branch_scale != TrainingScale::kNone && !s.may_lack_units();
              },
              "has no effect: with coverage 1 or backward masking no worker lacks a branch"));
    field("placement", &SubnetworkSpec::placement,
          "which processes share a node if there are several nodes: consecutive workers (in_order), or "
          "workers that own the same units, which minimizes the traffic between nodes (pack); results are "
          "the same",
          OnResume::kFree, InReport::kCompared,
          advise_when<SubnetworkSpec>(
              [](const SubnetworkSpec& s) { return s.placement != NodePlacement::kInOrder && s.is_dense(); },
              "has no effect: with coverage 1 all workers own the same units"));
  }

 private:
  bool is_of_all(const Coverage& some) const { return owners_of(some, workers) == workers; }
  bool is_dense(const SubnetworkRule& rule) const {
    return rule.coverage ? is_of_all(*rule.coverage) : section_is_dense();
  }
  bool section_is_dense() const {
    return is_of_all(coverage) &&
           std::ranges::all_of(capacities, [](const Coverage& capacity) { return value_of(capacity) == 1; });
  }
};

}  // namespace sdp
