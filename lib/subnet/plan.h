#pragma once

// SubnetPlan: which worker holds which unit. Made from a layout and the `subnetwork` section; its invariants
// (exactly p owners a unit, every branch covered by its units) are checked when it is made.

#include <optional>
#include <string>
#include <vector>

#include "subnet/layout.h"
#include "subnet/member_set.h"
#include "subnet/subnetwork_spec.h"

namespace sdp {

/// The smallest piece that is assigned: hidden range [begin, end) of a branch.
struct Unit {
  int branch = 0;
  int64_t begin = 0;
  int64_t end = 0;
  MemberSet owners;
};

/// What a worker has of a branch's hidden width, as tensors of its own: the units one after another.
struct BranchPart {
  bool frozen = false;
  std::vector<int> units;  ///< ascending
};

/// Unit number of the parameters that every worker owns.
constexpr int kSharedUnit = -1;

struct SubnetPlan {
  ModelLayout layout;
  int workers = 1;          ///< n
  int owners_per_unit = 1;  ///< p
  Construction construction = Construction::kBlock;
  Masking masking = Masking::kForward;
  std::vector<Unit> units;  ///< in order of depth

  double coverage() const { return static_cast<double>(owners_per_unit) / workers; }
  /// Workers hold what they do not own, frozen, and so all the full model.
  bool keeps_frozen_units() const { return rule_of(masking).not_owned == Holding::kFrozen; }
  Holding holding(int worker, int unit) const;
  const MemberSet& owners(int unit) const;  ///< all workers for kSharedUnit

  /// The units of a branch are first_unit_of(branch) up to, not including, first_unit_of(branch + 1).
  int first_unit_of(int branch) const { return first_unit_.at(branch); }
  /// Units a parameter (or buffer) divides into, in order of its branch's hidden width; {kSharedUnit} for a
  /// shared one.
  std::vector<int> units_of(const ParameterLayout& parameter) const;
  std::vector<int> units_of(const BufferLayout& buffer) const;
  /// Elements of the parameter that belong to the unit.
  int64_t elements_of(const ParameterLayout& parameter, int unit) const;
  /// Whether the parameter's units are those of its branch; otherwise it is shared.
  bool is_divided(const ParameterLayout& parameter) const {
    return is_divided(parameter.branch, parameter.slice);
  }
  /// Elements of a divided parameter that belong to so much of its branch's hidden width, whole units.
  int64_t elements_of_width(const ParameterLayout& parameter, int64_t width) const;
  /// How much of the branch's hidden width the worker owns.
  int64_t owned_width(int worker, int branch) const;
  /// How much of it the worker holds frozen.
  int64_t frozen_width(int worker, int branch) const;
  /// Whether the worker owns any part of the branch.
  bool owns_any_of(int worker, int branch) const;
  /// Owned slices, then frozen ones; a part without units is left out.
  std::vector<BranchPart> parts_of(int worker, int branch) const;
  /// The units of a parameter or buffer that the worker has, grouped as it holds them: {kSharedUnit}, or
  /// those of its branch. Empty where the worker has none.
  std::vector<BranchPart> parts_of(int worker, const ParameterLayout& parameter) const;
  std::vector<BranchPart> parts_of(int worker, const BufferLayout& buffer) const;
  /// Whether anything of the branch is on the worker: in neuron construction always, as what is not sliced is
  /// shared.
  bool has_branch(int worker, int branch) const;
  /// Units of which the worker has this holding.
  std::vector<int> units_with(int worker, Holding holding) const;

  int64_t unit_parameters(int unit) const;
  Flops unit_flops(int unit) const;
  /// Training FLOPs of one sample on the worker's subnetwork.
  double worker_flops(int worker) const;
  /// The same for the full model.
  double dense_flops() const;
  /// What the branch saves for the backward pass on this worker, a sample; with checkpointing, its input.
  ActivationSize branch_saved(int worker, int branch, bool checkpoint_activations = false) const;
  /// Workspace of its backward pass, a sample.
  ActivationSize branch_workspace(int worker, int branch) const;
  /// What the worker's subnetwork saves for the backward pass, a sample.
  ActivationSize worker_saved(int worker, bool checkpoint_activations = false) const;

 private:
  /// Whether something with this branch and slice rule is divided over units; otherwise it is shared.
  bool is_divided(const std::optional<int>& branch, const std::optional<SliceRule>& slice) const;
  std::vector<int> units_of(const std::optional<int>& branch, const std::optional<SliceRule>& slice) const;
  std::vector<BranchPart> parts_of(int worker, const std::optional<int>& branch,
                                   const std::optional<SliceRule>& slice) const;

  MemberSet everyone_;
  std::vector<int> first_unit_;  ///< by branch, and the number of units
  friend SubnetPlan make_plan(const ModelLayout&, const SubnetworkSpec&, uint64_t);
};

/// Entries of a plan: units times workers times replicas. Plans take up to about 100 bytes for each.
inline constexpr int64_t kMostPlanEntries = int64_t{1} << 25;

/// Divides the layout into units and assigns owners. Throws UsageError where the spec asks for what the
/// layout cannot give (an assignment file of another model or coverage, more slices than hidden units).
SubnetPlan make_plan(const ModelLayout& layout, const SubnetworkSpec& spec, uint64_t seed);

/// The plan with every unit owned by every worker of an n-worker data-parallel run. What the units are says
/// `construction`.
SubnetPlan dense_plan(const SubnetPlan& plan, Construction construction);

/// Mean over workers of the subnetwork's training FLOPs, over the full model's.
double flops_share(const SubnetPlan& plan);

/// Whether workers train models of their own, smaller than the full one: forward masking below full coverage.
bool has_subnetworks(const SubnetPlan& plan);

}  // namespace sdp
