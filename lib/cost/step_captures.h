#pragma once

// Captures of training steps that are not computed. The model's own forward pass, its loss and its backward
// pass run on tensors that have shapes and no values (cost/recorder.h), so that what a step allocates is
// written once: in the model. Tests compare captures with the allocations of real steps.

#include <map>
#include <vector>

#include "cost/step_capture.h"
#include "model/model_spec.h"
#include "subnet/layout.h"
#include "subnet/plan.h"

namespace sdp {

struct StepShape {
  ModelSpec model;
  int64_t sequence_length = 1;  ///< of a language model
  Precision precision = Precision::kFp32;
  bool checkpoint_activations = false;
  /// A device computes it, with the kernels of ops/.
  bool device_kernels = false;
};

/// The steps of a plan's workers. A layer group's capture depends on the parts that the worker has of
/// its branch, and on whether the next branch that the worker has is trained: a ResNet saves the result of a
/// block as the input of that branch, or only as the bits that its own gradient needs. A step is captured for
/// the first worker with a new combination, and its layer groups are used for the others. The plan must
/// outlive this object.
class StepCaptures {
 public:
  StepCaptures(StepShape step, const SubnetPlan& plan);

  const StepShape& step() const { return step_; }
  const SubnetPlan& plan() const { return plan_; }
  StepCapture of(int worker);

 private:
  /// What a worker has of a branch.
  struct BranchState {
    bool is_bound = false;
    int64_t owned_width = 0, frozen_width = 0;
    auto operator<=>(const BranchState&) const = default;
  };
  struct LayerGroupKey {
    size_t layer_group = 0;  ///< the first one of its kind
    BranchState own;
    size_t next_branch = 0;  ///< 0 for a branch of a kind
    bool trains_next = false;
    auto operator<=>(const LayerGroupKey&) const = default;
  };
  std::vector<LayerGroupKey> keys_of(int worker) const;
  int first_parameter_of(size_t layer_group) const;
  /// Adds the layer groups that are not known yet.
  void record(int worker, const std::vector<LayerGroupKey>& keys);

  const StepShape step_;
  const SubnetPlan& plan_;
  const std::vector<int> first_of_kind_;    ///< by branch
  const std::vector<int> first_parameter_;  ///< by branch
  std::map<LayerGroupKey, std::shared_ptr<const LayerGroupCapture>> layer_groups_;
};

/// By branch: the first branch that computes the same (BranchLayout::kind), which may be itself; -1 for a
/// branch that is like no other.
std::vector<int> first_of_kind(const ModelLayout& layout);

}  // namespace sdp
