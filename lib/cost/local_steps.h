#pragma once

// Memory and traffic of local steps (exchange.every_steps): every worker of a process has an engine of its
// own, and beside them are the anchors, the outer momentum and the buffers of the exchange.

#include <list>
#include <utility>

#include "cost/accounting.h"
#include "cost/peak.h"
#include "experiment/local_plan.h"

namespace sdp {

/// Of a process. Bytes sent are those of an exchange divided by the steps from one to the next.
Cost local_cost(const ExperimentSpec& spec, const SubnetPlan& plan, const ExchangePlan& exchanges,
                int process);

/// Memory of a process's step, in which its workers train one after another, and of the exchange that may
/// follow.
class LocalStepMemory {
 public:
  /// `captures`: of the plan of all workers; must outlive it.
  LocalStepMemory(const ExperimentSpec& spec, const ExchangePlan& exchanges, StepCaptures& captures,
                  int64_t convolution_workspace_bytes, int process);

  /// `cost`: local_cost of the process.
  StepMaxima maxima(const Cost& cost, int64_t batch_size) const;

 private:
  struct Worker {
    Worker(LocalPlan the_plan, StepCaptures& captures, int64_t convolution_workspace_bytes)
        : plan(std::move(the_plan)),
          memory(plan.exchanges, captures, convolution_workspace_bytes),
          accumulation_bytes(
              cost_of(plan.plan, plan.exchanges, plan.optimizer, /*process=*/0).accumulation_bytes) {}

    LocalPlan plan;
    StepMemory memory;  ///< refers to the plan
    int64_t accumulation_bytes;
  };
  const int64_t buffer_bytes_;  ///< of the exchange
  std::list<Worker> workers_;
};

}  // namespace sdp
