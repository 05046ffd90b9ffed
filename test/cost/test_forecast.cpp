// Times and batches against their formulas. Peaks are compared with real steps in test/cli/test_measure.py.

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

#include "catch.h"
#include "cost/accounting.h"
#include "cost/forecast.h"
#include "cost/layouts.h"
#include "cost/make_experiment.h"
#include "cost/other_methods.h"
#include "cost/peak.h"
#include "cost/step_limits.h"
#include "cost/step_time.h"
#include "spec/error.h"
#include "subnet/small_plans.h"

namespace sdp {
namespace {

/// Of test::plan_of.
ExperimentSpec spec_of_batch(int64_t batch) {
  ExperimentSpec spec;
  spec.model = test::mlp_spec();
  spec.train.batch_size_per_worker = batch;
  spec.train.precision = Precision::kFp32;
  return spec;
}

Experiment experiment_of(ExperimentSpec spec, SubnetPlan plan, const SlotMap& slot_map,
                         int64_t processes_per_node) {
  spec.subnetwork.workers = plan.workers;
  spec.subnetwork.replicas = slot_map.replicas;
  spec.subnetwork.coverage.text = coverage_text(plan);
  spec.subnetwork.construction = plan.construction;
  spec.subnetwork.masking = plan.main_masking();
  ExchangePlan exchanges = make_exchange_plan(plan, slot_map, exchange_options(spec, plan.layout));
  NodeMap nodes = place_on_nodes(exchanges, NodePlacement::kInOrder, processes_per_node);
  return {spec, std::move(plan), std::move(exchanges), std::move(nodes)};
}

/// One process per worker.
struct Case : Experiment {
  Case(SubnetPlan the_plan, const ExperimentSpec& the_spec, int64_t processes_per_node)
      : Experiment(experiment_of(the_spec, the_plan, make_slot_map(the_plan.workers, 1, the_plan.workers),
                                 processes_per_node)) {}

  Forecast on(const DeviceProfile& device) const { return forecast_of(*this, costs_of(*this), device); }
  int64_t peak(int process, int64_t batch) const {
    Experiment other = *this;
    other.spec.train.batch_size_per_worker = batch;
    return planned_peak(other, process, /*on_gpu=*/false).total();
  }
  double largest(double (*figure)(const Cost&)) const {
    double result = 0;
    for (int process = 0; process < plan.workers; ++process)
      result = std::max(result, figure(cost_of(*this, process)));
    return result;
  }
};

const StepForecast& method_called(const Forecast& forecast, const std::string& name) {
  for (const StepForecast& method : forecast.others)
    if (method.name == name) return method;
  throw std::logic_error("no " + name);
}

DeviceProfile device_with(double flops, double inside, double between, int64_t memory) {
  return {.name = "test",
          .flops_per_s = flops,
          .memory_bytes_per_s = 1e30,
          .inside_bytes_per_s = inside,
          .between_bytes_per_s = between,
          .memory_bytes = memory,
          .allowance_bytes = 1000};
}

TEST_CASE("the largest batch fits, and no larger one") {
  const Case c(test::plan_of(4, 2, 1), spec_of_batch(8), 4);
  for (int64_t memory : {40'000, 80'000, 1'000'000}) {
    const Forecast forecast = c.on(device_with(1e12, 1e30, 1e30, memory));
    const int process = forecast.plan.peak_process;
    const int64_t batch = forecast.plan.largest_batch;
    INFO(memory << ": batch " << batch);
    if (batch > 0) CHECK(c.peak(process, batch) + 1000 <= memory);
    CHECK(c.peak(process, batch + 1) + 1000 > memory);
    CHECK(forecast.plan.fits == (c.peak(process, 8) + 1000 <= memory));
    for (int other = 0; other < 4; ++other) {
      CHECK(forecast.per_process[static_cast<size_t>(other)].total() == c.peak(other, 8));
      CHECK(c.peak(other, 8) <= c.peak(process, 8));
    }
  }
}

TEST_CASE("with fast links, a step takes the time of its FLOPs") {
  const Case c(test::plan_of(4, 2, 1), spec_of_batch(8), 4);
  const Forecast forecast = c.on(device_with(1e9, 1e30, 1e30, 1'000'000));
  const double flops = 8 * c.largest([](const Cost& cost) { return cost.flops_per_sample; });
  CHECK(forecast.plan.compute_ms == Approx(flops / 1e9 * 1e3));
  CHECK(forecast.plan.step_ms == Approx(flops / 1e9 * 1e3));
  for (const char* name : {"DDP", "ZeRO-3/FSDP"})
    CHECK(method_called(forecast, name).step_ms == Approx(8 * c.plan.dense_flops() / 1e9 * 1e3));
  double twice = 0;  // the forward pass of branches, computed twice
  for (const BranchLayout& branch : c.plan.layout.branches)
    twice += branch.flops.forward;
  CHECK(method_called(forecast, "ZeRO-3/FSDP, checkpointing").step_ms ==
        Approx(8 * (c.plan.dense_flops() + twice) / 1e9 * 1e3));
}

TEST_CASE("with slow links, a step takes the time of its bytes, by link") {
  for (const auto& [per_node, bytes_per_s] : {std::pair{4, 1e3}, {1, 1e2}}) {
    const Case c(test::plan_of(4, 2, 1), spec_of_batch(8), per_node);
    const Forecast forecast = c.on(device_with(1e30, 1e3, 1e2, 1'000'000));
    const double bytes =
        c.largest([](const Cost& cost) { return static_cast<double>(cost.bytes_sent_per_step()); });
    CHECK(forecast.plan.exchange_ms == Approx(bytes / bytes_per_s * 1e3));
    CHECK(forecast.plan.step_ms == Approx(bytes / bytes_per_s * 1e3));
    const StepForecast& fsdp = method_called(forecast, "ZeRO-3/FSDP");
    CHECK(fsdp.step_ms == Approx(static_cast<double>(fsdp.bytes_sent) / bytes_per_s * 1e3));
  }
}

TEST_CASE("FSDP's peak is the sum of its formula's parts and data parallelism's activations") {
  // A batch at which activations are most of data parallelism's peak.
  const Case c(test::plan_of(4, 2, 1), spec_of_batch(4096), 4);
  for (const char* suffix : {"", ", checkpointing"}) {
    const Forecast forecast = c.on(device_with(1e12, 1e30, 1e30, 100'000'000));
    const StepForecast& fsdp = method_called(forecast, "ZeRO-3/FSDP" + std::string(suffix));
    const FsdpBytes bytes = fsdp_bytes(c.plan.layout, c.spec, 4);
    const int64_t parts = 2 * bytes.weights + bytes.optimizer + bytes.gathered_weights +
                          bytes.unit_gradients + bytes.reduce_buffer;
    CHECK(fsdp.peak.activations == method_called(forecast, "DDP" + std::string(suffix)).peak.activations);
    CHECK(fsdp.peak.total() == parts + fsdp.peak.activations);
    // The largest batch leaves less memory free than one sample takes.
    const double sample = static_cast<double>(fsdp.peak.activations) / 4096;
    const double room = 100'000'000 - 1000 - static_cast<double>(parts);
    CHECK(static_cast<double>(fsdp.largest_batch) <= room / sample + 1e-3);
    CHECK(static_cast<double>(fsdp.largest_batch) > room / sample - 1 - 1e-3);
  }
}

TEST_CASE("replicas share FSDP's state with all other processes, and each has a batch") {
  ExperimentSpec spec = spec_of_batch(8);
  const Experiment replicated = experiment_of(spec, test::plan_of(4, 2, 1), make_slot_map(4, 3, 12), 12);
  const Forecast of_it =
      forecast_of(replicated, costs_of(replicated), device_profile("h100", Precision::kFp32));
  CHECK(method_called(of_it, "ZeRO-3/FSDP").peak.optimizer ==
        fsdp_bytes(replicated.plan.layout, spec, 12).optimizer);
  CHECK(of_it.run.global_batch_samples == 8 * 12);
  CHECK(of_it.run.samples_per_s == Approx(8 * 12 / of_it.plan.step_ms * 1e3));
  const double flops_per_s = of_it.run.samples_per_s * mean_worker_flops(replicated.plan);
  CHECK(of_it.run.utilization == Approx(flops_per_s / 12 / of_it.device.peak_flops_per_s));
}

TEST_CASE("data parallelism is charged for rings, which share a node's adapters") {
  // 2 nodes of 2 processes. In an all-reduce, a process sends 2 * 3/4 of the gradients' bytes; the two
  // processes of a node together send this number of bytes to the other node.
  const Case c(test::plan_of(4, 2, 1), spec_of_batch(8), 2);
  const Forecast forecast = c.on(device_with(1e30, 1e3, 1e2, 1'000'000));
  const double bytes = 4.0 * static_cast<double>(c.plan.layout.parameter_count());
  const double sent = 2 * bytes * 3 / 4;
  const StepForecast& ddp = method_called(forecast, "DDP");
  CHECK(static_cast<double>(ddp.bytes_sent) == Approx(sent).epsilon(1e-2));
  CHECK(ddp.exchange_ms == Approx(1e3 * sent / (2 * 1e2)).epsilon(1e-2));
  for (const char* name : {"ZeRO-1", "ZeRO-2"})  // a reduce-scatter and an all-gather: 3/4 each
    CHECK(method_called(forecast, name).exchange_ms == Approx(ddp.exchange_ms).epsilon(1e-2));
  CHECK(method_called(forecast, "ZeRO-3/FSDP").exchange_ms == Approx(1.5 * ddp.exchange_ms).epsilon(2e-2));
  // The engine's exchange: two of the three other processes are on the other node, each reached through the
  // process's own adapter.
  const Case whole(test::plan_of(4, 4, 1), spec_of_batch(8), 2);
  CHECK(whole.on(device_with(1e30, 1e30, 1e2, 1'000'000)).plan.exchange_ms ==
        Approx(1e3 * sent * 2 / 3 / 1e2).epsilon(1e-2));

  const NodeMap& nodes = c.nodes;
  CHECK(ring_s(1200, 1, nodes, device_with(1, 1e3, 1e2, 0)) == Approx(6));   // 1200 / (2 x 100)
  CHECK(ring_s(1200, 1, nodes, device_with(1, 1e2, 1e2, 0)) == Approx(12));  // inside is the slower link
  const Case in_one(test::plan_of(4, 2, 1), spec_of_batch(8), 4);
  CHECK(ring_s(1200, 1, in_one.nodes, device_with(1, 1e3, 1, 0)) == Approx(1.2));
  const Case apart(test::plan_of(4, 2, 1), spec_of_batch(8), 1);
  CHECK(ring_s(1200, 1, apart.nodes, device_with(1, 1, 1e2, 0)) == Approx(12));
}

TEST_CASE("the time that an exchange makes a step wait, and the computation that hides it") {
  StepSeconds step{.compute = {.forward_s = 4, .backward_s = 8},
                   .alongside = {.forward_s = 1, .backward_s = 2},
                   .exchange_forward_s = 3,
                   .exchange_backward_s = 1.5,
                   .exchange_after_s = 0.25,
                   .update_s = 0.5};
  CHECK(step.waiting_s() == 2.25);
  CHECK(step.step_s() == 12 + 2.25 + 0.5);
  step.exchange_forward_s = 0.5;
  CHECK(step.waiting_s() == 0.25);
}

TEST_CASE("traffic of micro-batches, and a link's latency, waited for once per message and bucket") {
  constexpr double kLatencyS = 0.25;
  for (const int64_t micro_batches : {1, 3}) {
    ExperimentSpec spec = spec_of_batch(8);
    spec.train.accumulate_steps = micro_batches;
    const Case c(test::plan_of(4, 2, 1), spec, 4);
    DeviceProfile device = device_with(1e30, 1e3, 1e2, 1'000'000);
    const Forecast without = c.on(device);
    device.latency_s = kLatencyS;
    const Forecast with = c.on(device);
    const FsdpBytes bytes = fsdp_bytes(c.plan.layout, c.spec, 4);
    const auto sent = [&](const char* name) { return method_called(without, name).bytes_sent; };
    CHECK(sent("ZeRO-3/FSDP") == micro_batches * (2 * bytes.gather_sent + bytes.reduce_sent));
    CHECK(sent("ZeRO-3/FSDP, checkpointing") == sent("ZeRO-3/FSDP"));
    // With one reduction per step, half of the bytes sent are gradients and half are new values.
    CHECK(static_cast<double>(sent("ZeRO-2")) ==
          Approx(static_cast<double>(sent("ZeRO-1") * (micro_batches + 1)) / 2).epsilon(0.01));
    CHECK(sent(micro_batches > 1 ? "ZeRO-2, reduced per step" : "ZeRO-2") == sent("ZeRO-1"));
    const auto added_s = [&](const StepForecast& a, const StepForecast& b) {
      return (a.exchange_ms - b.exchange_ms) / 1e3;
    };
    const auto buckets = static_cast<double>(c.exchanges.buckets.size());
    CHECK(added_s(with.plan, without.plan) == Approx(2 * buckets * kLatencyS));
    // A ring of four processes: a reduce-scatter and an all-gather of three steps each.
    const auto added_to = [&](const char* name) {
      return added_s(method_called(with, name), method_called(without, name));
    };
    const double dense_buckets = std::round(added_to("DDP") / (6 * kLatencyS));
    CHECK(dense_buckets >= 1);
    CHECK(added_to("DDP") == Approx(6 * dense_buckets * kLatencyS));
    CHECK(added_to("ZeRO-1") == Approx(added_to("DDP")));
    CHECK(added_to("ZeRO-2") ==
          Approx(static_cast<double>(micro_batches + 1) * 3 * dense_buckets * kLatencyS));
  }
}

TEST_CASE("properties of the known devices") {
  for (const std::string& name : known_devices()) {
    const DeviceProfile fp32 = device_profile(name, Precision::kFp32);
    CHECK(device_profile(name, Precision::kBf16).flops_per_s >= 2 * fp32.flops_per_s);
    CHECK(fp32.rates == RatesFrom::kDataSheet);
    CHECK(fp32.tensor_bytes() == fp32.memory_bytes - fp32.allowance_bytes - fp32.library_workspace_bytes);
  }
  // LibTorch's size for compute capabilities 9.0 and 8.0, in two threads.
  CHECK(device_profile("h200", Precision::kBf16).library_workspace_bytes == 2 * 32 * 1024 * 1024);
  CHECK(device_profile("a100", Precision::kBf16).library_workspace_bytes == 2 * (8 * 1024 + 128) * 1024);
  CHECK_THROWS_AS(device_profile("h1000", Precision::kFp32), UsageError);
}

TEST_CASE("GPUs are identified by the driver's names of the modules") {
  CHECK(data_sheet_flops_per_s("NVIDIA H100 80GB HBM3", Precision::kBf16) == 989e12);
  for (const char* other : {"", "NVIDIA H100 PCIe", "NVIDIA H100 NVL", "NVIDIA GB200", "NVIDIA L4",
                            "NVIDIA A100-SXM4-40GB MIG 1g.10gb"})
    CHECK_FALSE(data_sheet_flops_per_s(other, Precision::kBf16));
}

// Times against sums written out by hand.

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
