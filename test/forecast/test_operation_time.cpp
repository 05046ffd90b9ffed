// Times against sums written out by hand.

#include "forecast/operation_time.h"

#include <string>
#include <vector>

#include "catch.h"
#include "forecast/step_time.h"
#include "model/layouts.h"
#include "subnet/small_plans.h"

namespace sdp {
namespace {

std::vector<ModelSpec> all_models() {
  std::vector<ModelSpec> models;
  const auto add = [&](ModelSpec spec) {
    resolve_model(spec);
    models.push_back(spec);
  };
  for (const char* name :
       {"mlp", "resnet18", "wide_resnet18", "resnet50", "swin_t", "llama_tiny", "llama_1b", "gpt2"}) {
    add({.kind = ModelKind(name)});
  }
  add({.kind = ResNetSpec{.stem = Stem::kImageNet}});
  add({.kind = SwinSpec{.image_size = 32, .patch_size = 2, .window_size = 4}});
  add({.kind = LlamaSpec{.heads = 8, .kv_heads = 2, .tied_embeddings = true}});
  return models;
}

TEST_CASE("the FLOPs of an operation's slices add up to those of the operation") {
  for (const ModelSpec& spec : all_models())
    for (const BranchLayout& branch : layout_of(spec, 64).branches)
      for (const Operation& operation : branch.operations) {
        if (operation.sliced == SlicedSize::kNone) continue;
        const int64_t first = branch.hidden_width / 3, second = branch.hidden_width - first;
        for (Pass pass : {Pass::kForward, Pass::kBackward, Pass::kFrozenBackward})
          CHECK(flops_of(operation.slice(first, branch.hidden_width)).of(pass) +
                    flops_of(operation.slice(second, branch.hidden_width)).of(pass) ==
                flops_of(operation).of(pass));
      }
}

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

TEST_CASE("an operation takes the time of its launches, and of its FLOPs or its bytes") {
  const Operation linear{.kind = OperationKind::kLinear, .rows = 5, .in = 20, .out = 36};
  const Operation relu{.kind = OperationKind::kRelu, .rows = 5, .in = 20};
  const double flops = 2.0 * 3 * 5 * 20 * 36;  // 3 samples
  const double elements = 3.0 * 5 * (20 + 36) + 20 * 36;
  const OperationTimes computing = estimated_times(made_up(1e6, kNever, 1), Precision::kFp32);
  CHECK(computing(linear, Pass::kForward, 3) == Approx(1 + flops / 1e6));
  CHECK(computing(linear, Pass::kBackward, 3) == Approx(2 + 2 * flops / 1e6));
  CHECK(computing(linear, Pass::kFrozenBackward, 3) == Approx(1 + flops / 1e6));
  CHECK(computing(relu, Pass::kForward, 3) == Approx(1));
  const OperationTimes moving = estimated_times(made_up(kNever, 1e3, 1), Precision::kBf16);
  CHECK(moving(linear, Pass::kForward, 3) == Approx(1 + 2 * elements / 1e3));
  CHECK(moving(relu, Pass::kForward, 3) == Approx(1 + 2 * 2.0 * 3 * 5 * 20 / 1e3));   // read and written
  CHECK(moving(relu, Pass::kBackward, 3) == Approx(1 + 2 * 3.0 * 3 * 5 * 20 / 1e3));  // also the sign
}

TEST_CASE("a small MLP's step, by operation") {
  // Width 20, hidden width 36, images of 3 x 4 x 4, 10 classes; each kernel launch takes 1 s.
  const int64_t samples = 8;
  const OperationTimes times = estimated_times(made_up(1e6, kNever, 1), Precision::kFp32);
  const double stem = 2.0 * 48 * 20, head = 2.0 * 20 * 10, product = 2.0 * 20 * 36;
  const auto seconds = [&](double flops) { return static_cast<double>(samples) * flops / 1e6; };
  // Launches: stem; norm, linear, relu, linear, add of each branch; head, loss.
  const double branch_launches = 1 + 1 + 1 + 1 + 1;
  const SubnetPlan plan = test::plan_of(4, 2, 1);
  for (int worker = 0; worker < plan.workers; ++worker) {
    double owned = 0;
    for (int b = 0; b < 6; ++b)
      owned += plan.owns_any_of(worker, b) ? 1 : 0;
    const ComputeTime time = compute_time(plan, worker, samples, false, times);
    CHECK(time.forward_s ==
          Approx(1 + 1 + 4 + owned * branch_launches + seconds(stem + head + owned * 2 * product)));
    // Stem: its weight's gradient and its bias's. Linear layers: two gradients and the bias's. Norm: three.
    const double backward_launches = 3 + 3 + 1 + 3 + 1;
    CHECK(time.backward_s ==
          Approx(2 + 3 + 3 + owned * backward_launches + seconds(stem + 2 * head + owned * 4 * product)));
    const ComputeTime again = compute_time(plan, worker, samples, true, times);
    CHECK(again.forward_s == time.forward_s);
    CHECK(again.backward_s ==
          Approx(time.backward_s + owned * branch_launches + seconds(owned * 2 * product)));
  }
}

TEST_CASE("under backward masking everything is computed forward, and active and unsaved parts backward") {
  const OperationTimes times = estimated_times(made_up(1e6, kNever, 0), Precision::kFp32);
  for (Construction construction : {Construction::kBlock, Construction::kNeuron}) {
    const SubnetPlan plan = test::plan_of(4, 2, 1, construction, Masking::kBackward);
    const SubnetPlan dense = dense_plan(plan, construction);
    const double forward_s = compute_time(dense, 0, 8, false, times).forward_s;
    for (int worker = 0; worker < plan.workers; ++worker) {
      const ComputeTime time = compute_time(plan, worker, 8, false, times);
      CHECK(time.forward_s == Approx(forward_s));
      CHECK(time.total_s() == Approx(8 * plan.worker_flops(worker) / 1e6));
      CHECK(time.backward_s < compute_time(dense, 0, 8, false, times).backward_s);
    }
  }
}

TEST_CASE("no step is faster than its launches, and more samples take no less time") {
  const double launch_s = 4e-6;
  for (const ModelSpec& spec : all_models()) {
    SubnetworkSpec everything;
    everything.workers = 2;
    const SubnetPlan plan = make_plan(layout_of(spec, 64), everything, 0);
    const DeviceProfile device = device_profile("h100", Precision::kBf16);
    const auto time = [&](int64_t samples) {
      return compute_time(plan, 0, samples, false, estimated_times(device, Precision::kBf16));
    };
    double operations = static_cast<double>(plan.layout.stem_operations.size());
    for (const BranchLayout& branch : plan.layout.branches)
      operations += static_cast<double>(branch.operations.size() + branch.shared_operations.size());
    INFO(plan.layout.name);
    CHECK(time(1).forward_s >= operations * launch_s);
    CHECK(time(1).backward_s >= operations * launch_s);
    for (int64_t samples : {1, 8, 64})
      CHECK(time(2 * samples).total_s() >= time(samples).total_s());
  }
}

TEST_CASE("workers of a process run one after another, and so do micro-batches") {
  const SubnetPlan plan = test::plan_of(4, 2, 1);
  ExperimentSpec spec;
  spec.train.batch_size_per_worker = 8;
  spec.train.accumulate_steps = 3;
  const DeviceProfile device = made_up(1e6, 1e6, 1e-3);
  const OperationTimes times = estimated_times(device, spec.train.precision);
  const Schedule schedule = make_schedule(plan, make_placement(4, 1, 2), schedule_options(spec, plan.layout));
  for (int process : {0, 1}) {
    const Cost cost = cost_of(plan, schedule, spec.optimizer, process, spec.train);
    const StepSeconds step = step_seconds(plan, schedule, spec.train, cost, process, times, device);
    const ComputeTime first = compute_time(plan, 2 * process, 8, false, times);
    const ComputeTime second = compute_time(plan, 2 * process + 1, 8, false, times);
    CHECK(step.compute.forward_s == Approx(3 * (first.forward_s + second.forward_s)));
    CHECK(step.compute.backward_s == Approx(3 * (first.backward_s + second.backward_s)));
    CHECK(step.alongside.forward_s == Approx(first.forward_s));
    CHECK(step.alongside.backward_s == Approx(second.backward_s));
    CHECK(step.update_s > updated_and_copied_bytes(schedule, cost, process) / 1e6);
  }
}

}  // namespace
}  // namespace sdp
