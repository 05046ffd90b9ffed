#pragma once

// The assembled full model: every unit's values from its owners, BatchNorm statistics averaged over the
// owners. Tensors are fetched branch by branch, so that a process can hold all of it (eval.mode full) or one
// branch at a time (streamed).

#include <map>
#include <string>

#include "engine/engine.h"
#include "model/model.h"

namespace sdp {

/// Whether a factor on a branch's output is folded into this parameter. What acts on the sum of slices, an
/// output bias say, is shared in neuron construction: it was never missing.
bool takes_branch_scale(const SubnetPlan& plan, const ParameterLayout& parameter);

class FullModel : public TensorSource {
 public:
  explicit FullModel(const SubnetPlan& plan) : plan_(plan) {}

  /// Factor on the units of every branch fetched from now on, folded into the parameters the layout names.
  void set_branch_scale(double scale) { branch_scale_ = scale; }
  double branch_scale() const { return branch_scale_; }
  void fetch_shared();
  void fetch_branch(int branch);
  void drop_branch(int branch);
  /// One parameter with the branch scale folded in, not kept.
  at::Tensor read_one(int index);

  int parts(int) const override { return 1; }
  /// They belong to this object: recalibration writes into them and disturbs no worker.
  std::map<std::string, at::Tensor>& buffers() { return buffers_; }
  const SubnetPlan& plan() const { return plan_; }

 protected:
  /// The whole parameter in the full model's shape, in the type of the forward pass. Collective where values
  /// are on other processes: all of them fetch the same parameters in the same order.
  virtual at::Tensor read_parameter(int index) = 0;

  const SubnetPlan& plan_;
  std::map<std::string, at::Tensor> buffers_;

 private:
  at::Tensor find_parameter(const std::string& name, int part) const override;
  at::Tensor find_buffer(const std::string& name, int part) const override;
  void fetch(std::optional<int> branch);

  double branch_scale_ = 1;
  std::map<std::string, at::Tensor> parameters_;
};

/// Assembled from the processes of a running engine. Everything is collective, the constructor too.
class LiveFullModel : public FullModel {
 public:
  LiveFullModel(const SubnetPlan& plan, const Schedule& schedule, const Engine& engine, Communicator& comm);

 private:
  at::Tensor read_parameter(int index) override;
  void average_buffers();

  const Schedule& schedule_;
  const ParameterStore& store_;
  Communicator& comm_;
};

}  // namespace sdp
