#include "experiment/local_plan.h"

namespace sdp {

LocalPlan local_plan(const OptimizerSpec& optimizer, const SubnetPlan& plan, const ExchangePlan& exchanges,
                     int worker) {
  LocalPlan local{.plan = plan.of_worker(worker), .exchanges = {}, .optimizer = optimizer};
  local.exchanges = make_exchange_plan(
      local.plan, {.replicas = exchanges.slot_map.replicas, .first_worker = worker}, exchanges.options);
  local.optimizer.ema_decay = 0;  // the exchange averages the values that it sets
  return local;
}

ExchangePlan outer_exchanges(const SubnetPlan& plan, const ExchangePlan& exchanges) {
  const bool is_fp64 = sum_type(exchanges.options.precision) == ElementType::kF64;
  return make_exchange_plan(plan, exchanges.slot_map,
                            {.precision = is_fp64 ? Precision::kFp64 : Precision::kFp32,
                             .bucket_bytes = exchanges.options.bucket_bytes});
}

}  // namespace sdp
