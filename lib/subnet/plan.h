#pragma once

// SubnetPlan says which worker owns which unit. It is made from a layout and the `subnetwork` section. Its
// invariants (as many owners per unit as requested, every branch covered by its units) are checked when it is
// made.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "subnet/layout.h"
#include "subnet/slot_map.h"
#include "subnet/subnetwork_spec.h"

namespace sdp {

/// What is assigned: hidden range [begin, end) of a branch.
struct Unit {
  int branch = 0;
  int64_t begin = 0;
  int64_t end = 0;
  MemberSet owners;
};

/// A part of a branch's hidden width that a worker stores in separate tensors: its units one after another.
struct BranchPart {
  bool frozen = false;
  std::vector<int> units;  ///< ascending
};

/// Unit number of the parameters that every worker owns.
constexpr int kSharedUnit = -1;

struct SubnetPlan {
  ModelLayout layout;
  int workers = 1;  ///< n
  Construction construction = Construction::kBlock;
  std::vector<Masking> masking;  ///< by branch
  std::vector<Unit> units;       ///< in order of depth
  /// By branch: factor on its output in a subnetwork (subnetwork.branch_scale). Empty: 1.
  std::vector<double> branch_scales;

  /// p of all units; none if they differ (subnetwork.rules, subnetwork.capacities).
  std::optional<int> owners_per_unit() const;
  /// The smallest and the largest number of owners of a unit. Without a unit, n.
  std::pair<int, int> owners_range() const;
  /// C: the share of workers that own a unit, and its mean over the parameters of all units if it differs.
  double coverage() const;
  /// The same of one branch, as a mean over its hidden width.
  double coverage(int branch) const;
  /// Whether the workers that do not own the unit store it as frozen values.
  bool is_kept_frozen(int unit) const;
  /// Whether any unit is, or would be, kept frozen.
  bool keeps_frozen_units() const;
  /// The masking of most branches.
  Masking main_masking() const;
  Holding holding(int worker, int unit) const;
  const MemberSet& owners(int unit) const;  ///< all workers for kSharedUnit

  /// The units of a branch are those in [first_unit_of(branch), first_unit_of(branch + 1)).
  int first_unit_of(int branch) const { return first_unit_.at(branch); }
  /// Units that a parameter (or buffer) divides into, in order of its branch's hidden width; {kSharedUnit} if
  /// it is shared.
  template <class Layout>
  std::vector<int> units_of(const Layout& tensor) const {
    return is_divided(tensor) ? units_in(*tensor.branch) : std::vector<int>{kSharedUnit};
  }
  /// Elements of the parameter that belong to the unit.
  int64_t elements_of(const ParameterLayout& parameter, int unit) const;
  /// Whether the units of a parameter (or buffer) are those of its branch; otherwise it is shared.
  template <class Layout>
  bool is_divided(const Layout& tensor) const {
    return tensor.branch && (construction == Construction::kBlock || tensor.slice);
  }
  /// Elements of a divided parameter that belong to `width` of its branch's hidden width, in whole units.
  int64_t elements_of_width(const ParameterLayout& parameter, int64_t width) const;
  /// How much of the branch's hidden width the worker owns.
  int64_t owned_width(int worker, int branch) const;
  /// How much of the branch's hidden width the worker has frozen.
  int64_t frozen_width(int worker, int branch) const;
  /// Whether the worker owns any part of the branch.
  bool owns_any_of(int worker, int branch) const;
  /// The worker's parts of the branch: owned units, then frozen units. A part without units is left out.
  std::vector<BranchPart> parts_of(int worker, int branch) const;
  /// The worker's parts of a parameter or buffer: those of its branch, or {kSharedUnit} if it is shared.
  /// Empty if the worker has no unit of it.
  template <class Layout>
  std::vector<BranchPart> parts_of(int worker, const Layout& tensor) const {
    if (!is_divided(tensor)) return {{.frozen = false, .units = {kSharedUnit}}};
    return parts_of(worker, *tensor.branch);
  }
  /// Whether the worker stores any part of the branch. Always true in neuron construction, in which the
  /// unsliced parameters are shared.
  bool has_branch(int worker, int branch) const;
  /// Units that the worker has with this holding.
  std::vector<int> units_with(int worker, Holding holding) const;

  /// The plan in which this worker is the only owner of what it owns, and nothing else is owned: that of its
  /// local steps (exchange.every_steps).
  SubnetPlan of_worker(int worker) const;

  int64_t unit_parameters(int unit) const;
  Flops unit_flops(int unit) const;
  /// Training FLOPs of the worker's subnetwork, per sample.
  double worker_flops(int worker) const;
  /// Training FLOPs of the full model, per sample.
  double dense_flops() const;

 private:
  std::vector<int> units_in(int branch) const;

  bool is_frozen_branch(int branch) const {
    return rule_of(masking.at(branch)).not_owned == Holding::kFrozen;
  }

  MemberSet everyone_;
  std::vector<int> first_unit_;  ///< by branch, followed by the number of units
  friend SubnetPlan make_plan(const ModelLayout&, const SubnetworkSpec&, uint64_t);
};

/// Divides the layout into units and assigns owners. Throws UsageError if the spec does not fit the layout
/// (an assignment file of another model or coverage, more slices than hidden units).
SubnetPlan make_plan(const ModelLayout& layout, const SubnetworkSpec& spec, uint64_t seed);

/// The plan of data parallelism with the same workers: every worker owns every unit. `construction`
/// determines the units.
SubnetPlan dense_plan(const SubnetPlan& plan, Construction construction);

/// Mean over workers of the subnetwork's training FLOPs, and the same divided by those of the full model.
double mean_worker_flops(const SubnetPlan& plan);
double flops_share(const SubnetPlan& plan);

/// Whether workers train subnetworks smaller than the full model: some unit that not all of them own is
/// absent.
bool has_subnetworks(const SubnetPlan& plan);

/// The part of make_plan that sets the owners, as the `subnetwork` section requests or as another plan.json
/// says; all other members of the plan must be set. `owners_of_branch`: p of each branch's units.
void assign_owners(SubnetPlan& plan, const SubnetworkSpec& spec, const std::vector<int>& owners_of_branch,
                   uint64_t seed);

/// Warnings about what the plan's user may not want: one sentence if workers own no unit, and one if groups
/// of workers own no unit in common. Groups are the connected components of the graph that connects two
/// workers if they own a common unit; workers without units do not count as a group. Empty if neither occurs.
std::vector<std::string> plan_warnings(const SubnetPlan& plan);

// The identity of a plan. Runs with the same identity train the same subnetworks, whatever their number of
// processes.

struct UnitFigures {
  std::string branch;
  int64_t begin = 0;  ///< hidden range [begin, end) of the branch
  int64_t end = 0;
  int64_t parameters = 0;
  double flops = 0;                ///< of training, per sample
  std::optional<Masking> masking;  ///< if it is not the plan's
  std::vector<int> owners;

  template <class Visitor>
  static void fields(Visitor& field) {
    field("branch", &UnitFigures::branch);
    field("begin", &UnitFigures::begin);
    field("end", &UnitFigures::end);
    field("parameters", &UnitFigures::parameters);
    field("flops", &UnitFigures::flops);
    field("masking", &UnitFigures::masking);
    field("owners", &UnitFigures::owners);
  }
};

struct PlanIdentity {
  std::string model;
  int workers = 0;
  std::optional<int> owners_per_unit;  ///< none if units differ
  double coverage = 1;
  Construction construction = Construction::kBlock;
  Masking masking = Masking::kForward;  ///< of the units that say nothing else
  std::vector<UnitFigures> units;

  template <class Visitor>
  static void fields(Visitor& field) {
    field("model", &PlanIdentity::model);
    field("workers", &PlanIdentity::workers);
    field("owners_per_unit", &PlanIdentity::owners_per_unit);
    field("coverage", &PlanIdentity::coverage);
    field("construction", &PlanIdentity::construction);
    field("masking", &PlanIdentity::masking);
    field("units", &PlanIdentity::units);
  }
};

/// "4/8"; if units differ, the mean and the range: "0.613 (2/8 to 8/8)".
std::string coverage_text(const SubnetPlan& plan);
/// "forward", "backward", or "mixed".
std::string masking_text(const SubnetPlan& plan);

PlanIdentity identity_of(const SubnetPlan& plan);
/// XXH3-128 of the identity as JSON, in hexadecimal.
std::string hash_of(const PlanIdentity& identity);
std::string plan_hash(const SubnetPlan& plan);

}  // namespace sdp
