#include "experiment/local_plan.h"

namespace sdp {

LocalPlan local_plan(const Experiment& experiment, int worker) {
  SubnetPlan plan = experiment.plan.of_worker(worker);
  const SlotMap alone{.replicas = experiment.exchanges.slot_map.replicas, .first_worker = worker};
  ExchangePlan exchanges = make_exchange_plan(plan, alone, experiment.exchanges.options);
  OptimizerSpec optimizer = experiment.spec.optimizer;
  optimizer.ema_decay = 0;  // the exchange averages the values that it sets
  return {std::move(plan), std::move(exchanges), std::move(optimizer)};
}

ExchangePlan outer_exchanges(const Experiment& experiment) {
  const ExchangeOptions& inner = experiment.exchanges.options;
  const bool is_fp64 = sum_type(inner.precision) == ElementType::kF64;
  return make_exchange_plan(experiment.plan, experiment.exchanges.slot_map,
                            {.precision = is_fp64 ? Precision::kFp64 : Precision::kFp32,
                             .bucket_bytes = inner.bucket_bytes});
}

}  // namespace sdp
