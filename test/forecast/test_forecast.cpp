// Times and batches by their formulas. What peaks are compared with is the real step:
// test/cli/test_measure.py.

#include "forecast/forecast.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "catch.h"
#include "forecast/fsdp.h"
#include "forecast/peak.h"
#include "spec/error.h"
#include "subnet/accounting.h"
#include "subnet/small_plans.h"

namespace sdp {
namespace {

ExperimentSpec spec_of_batch(int64_t batch) {
  ExperimentSpec spec;
  spec.train.batch_size_per_worker = batch;
  spec.train.precision = Precision::kFp32;
  return spec;
}

struct Case {
  SubnetPlan plan;
  ExperimentSpec spec;
  Schedule schedule;
  NodeMap nodes;

  Case(SubnetPlan the_plan, const ExperimentSpec& the_spec, int64_t processes_per_node)
      : plan(std::move(the_plan)),
        spec(the_spec),
        schedule(make_schedule(plan, make_placement(plan.workers, 1, plan.workers), schedule_options(spec))),
        nodes(place_on_nodes(schedule, NodePlacement::kInOrder, processes_per_node)) {}

  Forecast on(const DeviceProfile& device) const { return forecast_of(plan, schedule, nodes, spec, device); }
  int64_t peak(int process, int64_t batch) const {
    TrainSpec train = spec.train;
    train.batch_size_per_worker = batch;
    const Cost cost = cost_of(plan, schedule, spec.optimizer, process, train);
    return StepMemory(plan, schedule, train).peak(cost, process).total();
  }
  double largest(double (*figure)(const Cost&)) const {
    double result = 0;
    for (int process = 0; process < plan.workers; ++process)
      result = std::max(result, figure(cost_of(plan, schedule, spec.optimizer, process, spec.train)));
    return result;
  }
};

const StepForecast& way_of(const Forecast& forecast, const std::string& name) {
  for (const StepForecast& way : forecast.others)
    if (way.name == name) return way;
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

TEST_CASE("a step on fast links takes its FLOPs' time") {
  const Case c(test::plan_of(4, 2, 1), spec_of_batch(8), 4);
  const Forecast forecast = c.on(device_with(1e9, 1e30, 1e30, 1'000'000));
  const double flops = 8 * c.largest([](const Cost& cost) { return cost.flops_per_sample; });
  CHECK(forecast.plan.compute_ms == Approx(flops / 1e9 * 1e3));
  CHECK(forecast.plan.step_ms == Approx(flops / 1e9 * 1e3));
  for (const char* name : {"DDP", "ZeRO-3/FSDP"})
    CHECK(way_of(forecast, name).step_ms == Approx(8 * c.plan.dense_flops() / 1e9 * 1e3));
  CHECK(way_of(forecast, "ZeRO-3/FSDP, checkpointing").step_ms ==
        Approx(4.0 / 3 * 8 * c.plan.dense_flops() / 1e9 * 1e3));
}

TEST_CASE("a step on slow links takes its bytes' time, by link") {
  for (const auto& [per_node, bytes_per_s] : {std::pair{4, 1e3}, {1, 1e2}}) {
    const Case c(test::plan_of(4, 2, 1), spec_of_batch(8), per_node);
    const Forecast forecast = c.on(device_with(1e30, 1e3, 1e2, 1'000'000));
    const double bytes =
        c.largest([](const Cost& cost) { return static_cast<double>(cost.bytes_sent_per_step()); });
    CHECK(forecast.plan.exchange_ms == Approx(bytes / bytes_per_s * 1e3));
    CHECK(forecast.plan.step_ms == Approx(bytes / bytes_per_s * 1e3));
    const StepForecast& fsdp = way_of(forecast, "ZeRO-3/FSDP");
    CHECK(fsdp.step_ms == Approx(static_cast<double>(fsdp.bytes_sent) / bytes_per_s * 1e3));
  }
}

TEST_CASE("splitting state, releasing gradients and computing again each lower the peak") {
  const Case c(test::plan_of(4, 2, 1), spec_of_batch(64), 4);
  const Forecast forecast = c.on(device_profile("h100", Precision::kFp32));
  const auto peak_of_way = [&](const std::string& name) { return way_of(forecast, name).peak.total(); };
  CHECK(peak_of_way("ZeRO-1") < peak_of_way("DDP"));
  CHECK(peak_of_way("ZeRO-2") <= peak_of_way("ZeRO-1"));
  CHECK(peak_of_way("DDP, checkpointing") < peak_of_way("DDP"));
  CHECK(peak_of_way("ZeRO-3/FSDP, checkpointing") < peak_of_way("ZeRO-3/FSDP"));
  CHECK(forecast.plan.peak.total() < peak_of_way("DDP"));
}

TEST_CASE("FSDP sends half as much again as data parallelism, in each micro-batch") {
  ModelSpec model;
  model.name = ModelName::kLlama134m;
  resolve_model(model);
  for (int64_t micro_batches : {1, 4}) {
    SubnetworkSpec everything;
    everything.workers = 8;
    ExperimentSpec spec = spec_of_batch(64);
    spec.train.accumulate_steps = micro_batches;
    const Case c(make_plan(layout_of(model, 64), everything, 0), spec, 4);
    const Forecast forecast = c.on(device_profile("h100", Precision::kFp32));
    const auto sent = [&](const char* way) { return static_cast<double>(way_of(forecast, way).bytes_sent); };
    CHECK(sent("ZeRO-3/FSDP") / sent("DDP") ==
          Approx(1.5 * static_cast<double>(micro_batches)).epsilon(1e-4));
    CHECK(sent("ZeRO-3/FSDP, checkpointing") == sent("ZeRO-3/FSDP"));
    CHECK(forecast.model_parallel.global_batch_size == 8 * 64 * micro_batches);
    CHECK(forecast.model_parallel.tensor_processes == 8);
  }
}

TEST_CASE("FSDP's peak is its formula's parts and data parallelism's activations") {
  // A batch at which activations are most of data parallelism's peak.
  const Case c(test::plan_of(4, 2, 1), spec_of_batch(4096), 4);
  for (const char* suffix : {"", ", checkpointing"}) {
    const Forecast forecast = c.on(device_with(1e12, 1e30, 1e30, 100'000'000));
    const StepForecast& fsdp = way_of(forecast, "ZeRO-3/FSDP" + std::string(suffix));
    const FsdpBytes bytes = fsdp_bytes(c.plan.layout, c.spec, 4);
    const int64_t parts = bytes.weights + bytes.gradients + bytes.optimizer + bytes.gathered_weights +
                          bytes.unit_gradients + bytes.reduce_buffer;
    CHECK(fsdp.peak.activations == way_of(forecast, "DDP" + std::string(suffix)).peak.activations);
    CHECK(fsdp.peak.total() == parts + fsdp.peak.activations);
    // The largest batch: all of the memory but for less than a sample.
    const double sample = static_cast<double>(fsdp.peak.activations) / 4096;
    const double room = 100'000'000 - 1000 - static_cast<double>(parts);
    CHECK(static_cast<double>(fsdp.largest_batch) <= room / sample + 1e-3);
    CHECK(static_cast<double>(fsdp.largest_batch) > room / sample - 1 - 1e-3);
  }
}

TEST_CASE("replicas share FSDP's state with all other processes") {
  ExperimentSpec spec = spec_of_batch(8);
  const SubnetPlan plan = test::plan_of(4, 2, 1);
  const Schedule schedule = make_schedule(plan, make_placement(4, 3, 12), schedule_options(spec));
  const NodeMap nodes = place_on_nodes(schedule, NodePlacement::kInOrder, 12);
  const Forecast forecast =
      forecast_of(plan, schedule, nodes, spec, device_profile("h100", Precision::kFp32));
  CHECK(way_of(forecast, "ZeRO-3/FSDP").peak.optimizer == fsdp_bytes(plan.layout, spec, 12).optimizer);
  CHECK(forecast.model_parallel.global_batch_size == 8 * 12);
}

TEST_CASE("devices") {
  for (const std::string& name : known_devices()) {
    const DeviceProfile fp32 = device_profile(name, Precision::kFp32);
    const DeviceProfile bf16 = device_profile(name, Precision::kBf16);
    CHECK(bf16.flops_per_s > 5 * fp32.flops_per_s);
    CHECK(fp32.memory_bytes >= 80'000'000'000);
  }
  CHECK(device_profile("a100", Precision::kBf16).flops_per_s == Approx(0.4 * 312e12));
  CHECK_THROWS_AS(device_profile("h1000", Precision::kFp32), UsageError);
}

}  // namespace
}  // namespace sdp
