#pragma once

// The section `subnetwork` of a spec.

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

#include "spec/visit.h"

namespace sdp {

enum class Construction { kBlock, kNeuron };
enum class Masking { kForward, kBackward };
enum class UnitKind { kBlock, kBranch };
enum class Assignment { kBalanced, kEqualUnits, kWindow, kRandom, kFile };
enum class NodePlacement { kInOrder, kPack };

SDP_ENUM_NAMES(Construction, {Construction::kBlock, "block"}, {Construction::kNeuron, "neuron"})
SDP_ENUM_NAMES(Masking, {Masking::kForward, "forward"}, {Masking::kBackward, "backward"})
SDP_ENUM_NAMES(UnitKind, {UnitKind::kBlock, "block"}, {UnitKind::kBranch, "branch"})
SDP_ENUM_NAMES(Assignment, {Assignment::kBalanced, "balanced"}, {Assignment::kEqualUnits, "equal_units"},
               {Assignment::kWindow, "window"}, {Assignment::kRandom, "random"}, {Assignment::kFile, "file"})
SDP_ENUM_NAMES(NodePlacement, {NodePlacement::kInOrder, "in_order"}, {NodePlacement::kPack, "pack"})

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

struct SubnetworkSpec {
  int64_t workers = 1;
  int64_t replicas = 1;
  Coverage coverage;
  Construction construction = Construction::kBlock;
  Masking masking = Masking::kForward;
  UnitKind unit = UnitKind::kBlock;
  std::optional<int64_t> slices_per_branch;
  Assignment assignment = Assignment::kBalanced;
  std::string assignment_file;
  NodePlacement placement = NodePlacement::kInOrder;

  bool operator==(const SubnetworkSpec&) const = default;

  /// Whether every worker owns every unit. Throws UsageError like owners_of.
  bool is_dense() const { return owners_of(coverage, workers) == workers; }
  /// Whether workers store the units that they do not own as frozen values, and therefore the full model.
  bool keeps_frozen_units() const { return rule_of(masking).not_owned == Holding::kFrozen; }

  template <class Visitor>
  static void fields(Visitor& field) {
    field("workers", &SubnetworkSpec::workers, "n, the number of subnetworks; n times R is at most 16384",
          OnResume::kRestOfRun, InReport::kCompared, in_range(1, 1024));
    field("replicas", &SubnetworkSpec::replicas, "R, the number of data-parallel replicas of each worker",
          OnResume::kRestOfRun, InReport::kCompared, in_range(1, 16384));
    field("coverage", &SubnetworkSpec::coverage,
          "C = p/n, the share of workers that own a unit, for example 4/8 or 0.5", OnResume::kRestOfRun,
          InReport::kInRegime);
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
    field("placement", &SubnetworkSpec::placement,
          "which processes share a node if there are several nodes: consecutive workers (in_order), or "
          "workers that own the same units, which minimizes the traffic between nodes (pack); results are "
          "the same",
          OnResume::kFree, InReport::kCompared,
          advise_when<SubnetworkSpec>(
              [](const SubnetworkSpec& s) { return s.placement != NodePlacement::kInOrder && s.is_dense(); },
              "has no effect: with coverage 1 all workers own the same units"));
  }
};

}  // namespace sdp
