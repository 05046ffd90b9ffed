// Times against sums written out by hand.

#include "cost/make_experiment.h"
#include "cost/step_time.h"

#include <algorithm>
#include <string_view>

#include "catch.h"
#include "cost/layouts.h"
#include "cost/step_limits.h"
#include "subnet/small_plans.h"

namespace sdp {
namespace {

DeviceProfile made_up(double flops_per_s, double memory_bytes_per_s, double launch_s) {
  return {.name = "made up",
          .flops_per_s = flops_per_s,
          .launch_s = launch_s,
          .memory_bytes_per_s = memory_bytes_per_s,
          .inside_bytes_per_s = 1,
          .between_bytes_per_s = 1,
          .memory_bytes = 1 << 30};
}

constexpr double kNever = 1e300;

TEST_CASE("a product occupies whole tiles and multiprocessors") {
  DeviceProfile device = made_up(1e6, kNever, 0);
  CHECK(product_s(device, 100, 30, 50) == Approx(2.0 * 100 * 30 * 50 / 1e6));
  device.tile_side = 128;
  CHECK(product_s(device, 100, 30, 150) == Approx(2.0 * 128 * 30 * 256 / 1e6));  // 1 x 2 tiles
  device.tiles_at_once = 8;                                                      // of which 2 are in use
  CHECK(product_s(device, 100, 30, 150) == Approx(4 * 2.0 * 128 * 30 * 256 / 1e6));
  CHECK(product_s(device, 100, 4096, 150) == Approx(2.0 * 128 * 4096 * 256 / 1e6));  // k divided by 4
  CHECK(product_s(device, 100, 30, 150, 4) == Approx(4 * 2.0 * 128 * 30 * 256 / 1e6));
}

TEST_CASE("a call takes the time of its launch, and of its FLOPs or its bytes") {
  // [3 B, 20] x [20, 36] in bf16, for 5 samples
  const CapturedCall product{.op = "aten::mm",
                             .products = {{.m = {0, 3}, .k = {20}, .n = {36}, .count = {1}}},
                             .bytes = {2.0 * 20 * 36, 2.0 * (3 * 20 + 3 * 36)}};
  const double flops = 2.0 * 3 * 5 * 20 * 36;
  const double bytes = 2.0 * (3 * 5 * 20 + 20 * 36 + 3 * 5 * 36);
  CHECK(call_s(made_up(1e6, kNever, 1), product, 5) == Approx(1 + flops / 1e6));
  CHECK(call_s(made_up(kNever, 1e3, 1), product, 5) == Approx(1 + bytes / 1e3));
  CHECK(call_s(made_up(1e6, 1e3, 1), product, 5) == Approx(1 + std::max(flops / 1e6, bytes / 1e3)));
}

TEST_CASE("without launches and copies, a step takes the time of its FLOPs") {
  const DeviceProfile device = made_up(1e6, kNever, 0);
  for (const Masking masking : {Masking::kForward, Masking::kBackward})
    for (const Construction construction : {Construction::kBlock, Construction::kNeuron}) {
      const SubnetPlan plan = test::plan_of(4, 2, 1, construction, masking);
      const SubnetPlan dense = dense_plan(plan, construction);
      StepCaptures captures(StepShape{.model = test::mlp_spec()}, plan);
      StepCaptures dense_captures(captures.step(), dense);
      ComputeTimes of_plan(captures, device), of_dense(dense_captures, device);
      CHECK(of_dense.of(0, 8).total_s() == Approx(8 * plan.dense_flops() / 1e6));
      for (int worker = 0; worker < plan.workers; ++worker) {
        const ComputeTime time = of_plan.of(worker, 8);
        CHECK(time.total_s() == Approx(8 * plan.worker_flops(worker) / 1e6));
        CHECK(time.backward_s < of_dense.of(0, 8).backward_s);
        if (masking == Masking::kBackward) CHECK(time.forward_s == Approx(of_dense.of(0, 8).forward_s));
      }
    }
}

TEST_CASE("activation checkpointing computes the branches' forward pass twice") {
  const DeviceProfile device = made_up(1e6, kNever, 0);
  const SubnetPlan plan = test::plan_of(1, 1, 1);
  StepCaptures plain(StepShape{.model = test::mlp_spec()}, plan);
  StepCaptures checkpointing(StepShape{.model = test::mlp_spec(), .checkpoint_activations = true}, plan);
  double branches = 0;
  for (const BranchLayout& branch : plan.layout.branches)
    branches += branch.flops.forward;
  const ComputeTime once = ComputeTimes(plain, device).of(0, 8);
  const ComputeTime twice = ComputeTimes(checkpointing, device).of(0, 8);
  CHECK(twice.forward_s == Approx(once.forward_s));
  CHECK(twice.backward_s == Approx(once.backward_s + 8 * branches / 1e6));
}

TEST_CASE("workers of a process run one after another, and so do micro-batches") {
  const SubnetPlan plan = test::plan_of(4, 2, 1);
  ExperimentSpec spec;
  spec.model = test::mlp_spec();
  spec.train.batch_size_per_worker = 8;
  spec.train.accumulate_steps = 3;
  const DeviceProfile device = made_up(1e6, 1e6, 1e-3);
  StepCaptures captures(step_shape(spec, /*on_gpu=*/false), plan);
  ComputeTimes times(captures, device);
  const ExchangePlan exchanges =
      make_exchange_plan(plan, make_slot_map(4, 1, 2), exchange_options(spec, plan.layout));
  for (int process : {0, 1}) {
    const Cost cost = cost_of(plan, exchanges, spec.optimizer, process);
    const StepSeconds step = times.step(exchanges, cost, process, 8);
    const ComputeTime first = times.of(2 * process, 8);
    const ComputeTime second = times.of(2 * process + 1, 8);
    CHECK(step.compute.forward_s == Approx(3 * (first.forward_s + second.forward_s)));
    CHECK(step.compute.backward_s == Approx(3 * (first.backward_s + second.backward_s)));
    CHECK(step.alongside.forward_s == Approx(first.forward_s));
    CHECK(step.alongside.backward_s == Approx(second.backward_s));
    CHECK(step.update_s > static_cast<double>(updated_and_copied_bytes(exchanges, cost)) / 1e6);
  }
}

}  // namespace
}  // namespace sdp
