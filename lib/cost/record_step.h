#pragma once

// Records a worker's step without an engine.

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "cost/recorder.h"
#include "cost/step_captures.h"
#include "layers/tensors.h"
#include "subnet/plan.h"

namespace sdp {

/// Makes a tensor of this shape and type.
using MakeTensor = std::function<at::Tensor(at::IntArrayRef shape, at::ScalarType type)>;

/// Tensors of a worker's subnetwork for a step without an engine. `trains`: those that it owns require a
/// gradient.
class WorkerTensors : public TensorSource {
 public:
  WorkerTensors(const SubnetPlan& plan, int worker, Precision precision, const MakeTensor& make,
                bool trains = true);
  int parts(int branch) const override { return static_cast<int>(plan_.parts_of(worker_, branch).size()); }
  /// Parameters of which the worker owns a part, and that part.
  const std::vector<std::pair<int, at::Tensor>>& owned() const { return owned_; }

 private:
  at::Tensor find_parameter(const std::string& name, int part) const override;
  at::Tensor find_buffer(const std::string& name, int part) const override;

  const SubnetPlan& plan_;
  const int worker_;
  std::map<std::pair<std::string, int>, at::Tensor> tensors_;  ///< by name and part
  std::vector<std::pair<int, at::Tensor>> owned_;
};

/// Records the worker's step on a batch of this size. Layer groups as in StepCapture. Branches in `left_out`
/// are skipped, as if the worker did not have them.
std::vector<RecordedLayerGroup> record_step(const StepShape& step, const SubnetPlan& plan, int worker,
                                            int64_t batch_size, const std::vector<int>& left_out = {});

/// Records a pass of an evaluation over the assembled model, which `whole` (dense_plan) describes; in
/// `training` mode, BatchNorm's recalibration. Only forward passes. `counts_batch`: the batch is recorded.
std::vector<RecordedLayerGroup> record_evaluation(const StepShape& step, const SubnetPlan& whole,
                                                  int64_t batch_size, bool training, bool counts_batch);

}  // namespace sdp
