#pragma once

// The assembled full model: every unit's values come from its owners, and BatchNorm statistics are averaged
// over the owners. Tensors are fetched branch by branch, so that a process can hold the whole model
// (eval.mode full) or one branch at a time (eval.mode streamed).

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/engines.h"
#include "layers/model.h"

namespace sdp {

/// Whether a factor on a branch's output is folded into this parameter. In neuron construction, parameters
/// that act on the sum of slices, such as an output bias, are shared by all workers. No worker lacked them,
/// nor those of branches with backward masking, so they are not scaled.
bool takes_branch_scale(const SubnetPlan& plan, const ParameterLayout& parameter);

/// Which values a full model has: those of training, or their moving average (optimizer.ema_decay).
enum class ModelValues { kCurrent, kAverage };

class FullModel : public TensorSource {
 public:
  FullModel(const SubnetPlan& plan, ModelValues values) : plan_(plan), values_(values) {}

  /// 1, or the plan's coverage: the units of every branch fetched from now on are multiplied by the coverage
  /// of the branch, folded into the parameters that the layout marks (ParameterLayout::scales_branch_output).
  void set_branch_scale(double scale) { branch_scale_ = scale; }
  double branch_scale() const { return branch_scale_; }
  void fetch_shared() { fetch(std::nullopt); }
  void fetch_branch(int branch) { fetch(branch); }
  void drop_branch(int branch);
  /// Returns one parameter with the branch scale folded in, without keeping it.
  at::Tensor read_one(int index) { return read_scaled({index}).front(); }

  int parts(int) const override { return 1; }
  /// These are copies: recalibration can write to them without changing any worker's buffers.
  std::map<std::string, at::Tensor>& buffers() { return buffers_; }
  const SubnetPlan& plan() const { return plan_; }
  ModelValues values() const { return values_; }

 protected:
  /// The whole parameters in the full model's shapes, in the types of the forward pass. Collective if other
  /// processes hold values: all processes then read the same parameters in the same order.
  virtual std::vector<at::Tensor> read_parameters(const std::vector<int>& indices) = 0;

  const SubnetPlan& plan_;
  const ModelValues values_;
  std::map<std::string, at::Tensor> buffers_;

 private:
  at::Tensor find_parameter(const std::string& name, int part) const override;
  at::Tensor find_buffer(const std::string& name, int) const override { return buffers_.at(name); }
  void fetch(std::optional<int> branch);
  std::vector<at::Tensor> read_scaled(const std::vector<int>& indices);

  double branch_scale_ = 1;
  std::map<std::string, at::Tensor> parameters_;
};

/// Assembled from the processes of running engines, with local steps between rounds. All functions are
/// collective, including the constructor; the values of a branch that not all processes have are exchanged in
/// one collective.
class LiveFullModel : public FullModel {
 public:
  LiveFullModel(const SubnetPlan& plan, const ExchangePlan& exchanges, const Engines& engines,
                Communicator& comm, ModelValues values = ModelValues::kCurrent);

 private:
  std::vector<at::Tensor> read_parameters(const std::vector<int>& indices) override;
  void average_buffers();

  const ExchangePlan& exchanges_;
  const Engines engines_;
  Communicator& comm_;
};

}  // namespace sdp
