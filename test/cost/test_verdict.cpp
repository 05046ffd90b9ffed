// The verdict in typical situations, each given by the figures of its methods, and against a search over all
// settings that it may advise, each of which is forecast by itself.

#include <algorithm>
#include <map>

#include "catch.h"
#include "cost/forecast.h"
#include "cost/make_experiment.h"
#include "cost/other_methods.h"
#include "experiment/load.h"
#include "model/model_spec.h"
#include "optim/registry.h"

namespace sdp {
namespace {

struct Situation {
  double plan_gigabytes, ddp_gigabytes, fsdp_gigabytes;
  double plan_ms = 60, ddp_ms = 100, fsdp_ms = 120;
  double checkpointing_gigabytes = 0;  ///< of the plan; 0: not listed
  double coverage = 0.5;

  Verdict on(double gigabytes) const {
    const auto method = [&](const std::string& name, double of_coverage, double size, double ms) {
      StepForecast forecast;
      forecast.name = name;
      forecast.coverage = forecast.flops_share = of_coverage;
      forecast.step_ms = ms;
      forecast.peak.weights = static_cast<int64_t>(size * 1e9);
      forecast.fits = size <= gigabytes;
      return forecast;
    };
    std::vector<StepForecast> methods = {method("this plan", coverage, plan_gigabytes, plan_ms),
                                         method("DDP", 1, ddp_gigabytes, ddp_ms),
                                         method("FSDP", 1, fsdp_gigabytes, fsdp_ms)};
    methods[1].regime_file = "ddp.yaml";
    methods[2].in_this_program = false;
    if (checkpointing_gigabytes > 0)
      methods.push_back(method("this plan, checkpointing", coverage, checkpointing_gigabytes, 1.3 * plan_ms));
    return verdict_of(methods);
  }
};

TEST_CASE("what is recommended, what is the fastest, and what to change") {
  struct Expected {
    Situation situation;
    double gigabytes;
    const char *recommended, *recommended_here, *fastest, *change;
  };
  const Situation usual{10, 20, 15};
  Situation fast = usual, faster_fsdp = usual, with_checkpointing = usual, small_fsdp{10, 20, 5},
            full{20, 20, 15};
  fast.plan_ms = faster_fsdp.plan_ms = 40;
  faster_fsdp.fsdp_ms = 70;
  with_checkpointing.checkpointing_gigabytes = 7;
  small_fsdp.checkpointing_gigabytes = 7.4;
  full.coverage = 1;
  full.plan_ms = 101;  // alike in time: the first is recommended
  Situation slow_full = full;
  slow_full.plan_ms = 110;
  for (const Expected& c :
       {Expected{usual, 80, "DDP", "DDP", "DDP", ""}, Expected{fast, 80, "DDP", "DDP", "this plan", ""},
        Expected{faster_fsdp, 80, "FSDP", "DDP", "FSDP", ""},
        Expected{usual, 16, "FSDP", "this plan", "this plan", ""},
        Expected{small_fsdp, 6, "FSDP", "", "FSDP", ""},
        Expected{usual, 12, "this plan", "this plan", "this plan", ""},
        Expected{with_checkpointing, 9, "this plan, checkpointing", "this plan, checkpointing",
                 "this plan, checkpointing", "this plan, checkpointing"},
        Expected{usual, 3, "", "", "", ""}, Expected{full, 80, "this plan", "this plan", "DDP", ""},
        Expected{slow_full, 80, "DDP", "DDP", "DDP", ""}}) {
    const Verdict verdict = c.situation.on(c.gigabytes);
    INFO(c.gigabytes << ", " << c.recommended << ", " << c.fastest);
    CHECK(verdict.recommended == c.recommended);
    CHECK(verdict.recommended_here == c.recommended_here);
    CHECK(verdict.change == c.change);
    CHECK(verdict.fastest == c.fastest);
  }
  CHECK(usual.on(80).fit == std::vector<std::string>{"this plan", "DDP", "FSDP"});
  CHECK(usual.on(80).memory_share == 0.5);
  CHECK(usual.on(80).time_at_equal_flops == 1.2);
  CHECK(fast.on(80).fastest_over_recommended == Approx(0.8));
  CHECK(faster_fsdp.on(80).fastest_here == "this plan");
}

constexpr int64_t kAllowance = 1000;

DeviceProfile device_of(int64_t room) {
  return {.name = "test",
          .flops_per_s = 1e9,
          .memory_bytes_per_s = 1e9,
          .inside_bytes_per_s = 1e7,
          .between_bytes_per_s = 1e7,
          .memory_bytes = room + kAllowance,
          .allowance_bytes = kAllowance};
}

Experiment experiment_of(const ExperimentSpec& spec) {
  static std::vector<RecordedModel> recorded;
  return make_experiment(spec, spec.subnetwork.workers, std::nullopt, std::nullopt, &recorded);
}

StepForecast alone(const ExperimentSpec& spec) {
  const Experiment experiment = experiment_of(spec);
  return forecast_plan(experiment, costs_of(experiment), device_of(1'000'000'000));
}

/// key=value, as in --set.
using Settings = std::vector<std::string>;

ExperimentSpec spec_of(const Settings& settings) {
  const std::string text =
      "name: small\ndata: {path: .}\n"
      "model: {name: mlp, width: 20, depth: 6, hidden_width: 36, image_size: 4}\n"
      "subnetwork: {workers: 4, coverage: 2/4, assignment: random}\n"  // costs no search
      "train: {batch_size_per_worker: 16, precision: fp32}\n";
  return parse_spec(text, "small.yaml", settings, NamedFiles::kNotNeeded).spec;
}

/// A plan with settings that a verdict may advise.
struct Tried {
  int64_t owners = 1;
  bool is_baseline = false;
  int64_t peak = 0;
  double ms = 0;
};

std::vector<Tried> try_all(const ExperimentSpec& present) {
  std::vector<Tried> tried;
  const int64_t samples = present.train.batch_size_per_worker * present.train.accumulate_steps;
  const auto add = [&](int64_t owners, bool is_baseline, const ExperimentSpec& base) {
    for (const bool checkpoints : {false, true})
      for (const ReduceEvery reduce_every : {ReduceEvery::kStep, ReduceEvery::kMicroBatch})
        for (int64_t batch = 1; batch <= present.train.batch_size_per_worker; ++batch) {
          if (samples % batch != 0 || (reduce_every != base.train.reduce_every && batch == samples)) continue;
          if (is_baseline && !base.train.release_gradients && reduce_every != ReduceEvery::kStep) continue;
          ExperimentSpec spec = base;
          spec.train.checkpoint_activations = checkpoints;
          spec.train.reduce_every = reduce_every;
          spec.train.batch_size_per_worker = batch;
          spec.train.accumulate_steps = samples / batch;
          const StepForecast forecast = alone(spec);
          tried.push_back({owners, is_baseline, forecast.peak.total(), forecast.step_ms});
        }
  };
  const int64_t workers = present.subnetwork.workers;
  for (int64_t owners = owners_of(present.subnetwork.coverage, workers); owners > 0; --owners) {
    ExperimentSpec spec = present;
    spec.subnetwork.coverage.text = std::to_string(owners) + "/" + std::to_string(workers);
    add(owners, false, spec);
  }
  ExperimentSpec dense = present;
  dense.subnetwork.coverage.text = "1";
  dense.subnetwork.construction = Construction::kBlock;
  for (const auto& [shard, release] : {std::pair{false, false}, {true, false}, {true, true}}) {
    dense.optimizer.shard = shard;
    dense.train.release_gradients = release;
    add(workers, true, dense);
  }
  return tried;
}

/// Plans that are forecast by themselves, by the settings in which they differ from the present one.
using Typed = std::map<Settings, StepForecast>;

void check_against_search(const Settings& present, const std::vector<Tried>& all, int64_t room,
                          Typed& typed) {
  const Experiment experiment = experiment_of(spec_of(present));
  INFO("room " << room << ", coverage " << experiment.spec.subnetwork.coverage.text);
  const Forecast forecast = forecast_of(experiment, costs_of(experiment), device_of(room));
  const Verdict verdict = forecast.verdict();
  std::map<std::string, StepForecast> by_name;
  for (const StepForecast& method : forecast.methods()) {
    CHECK_FALSE(by_name.contains(method.name));
    by_name[method.name] = method;
    // What every method of this program takes is what the plan with its settings takes.
    if (!method.in_this_program) continue;
    INFO(method.name);
    if (!typed.contains(method.settings)) {
      Settings settings = present;
      settings.insert(settings.end(), method.settings.begin(), method.settings.end());
      typed[method.settings] = alone(spec_of(settings));
    }
    const StepForecast& by_itself = typed.at(method.settings);
    CHECK(static_cast<double>(method.peak.total()) ==
          Approx(static_cast<double>(by_itself.peak.total())).epsilon(1e-12));
    CHECK(method.bytes_sent == by_itself.bytes_sent);
    if (method.regime_file.empty()) CHECK(method.step_ms == Approx(by_itself.step_ms));
  }
  int64_t best_owners = 0;
  bool full_fits = false;
  for (const Tried& one : all) {
    if (one.peak > room) continue;
    if (one.is_baseline) full_fits = true;
    if (!one.is_baseline) best_owners = std::max(best_owners, one.owners);
  }
  if (full_fits) CHECK(by_name[verdict.recommended_here].coverage == 1);
  if (!full_fits && best_owners == 0) CHECK(verdict.recommended_here.empty());
  if (forecast.plan.fits || best_owners == 0) {
    CHECK(verdict.change.empty());
    return;
  }
  const StepForecast& advised = by_name.at(verdict.change);
  CHECK(advised.coverage == Approx(static_cast<double>(best_owners) / experiment.plan.workers));
  double shortest_ms = 1e300;
  for (const Tried& one : all)
    if (!one.is_baseline && one.owners == best_owners && one.peak <= room)
      shortest_ms = std::min(shortest_ms, one.ms);
  CHECK(advised.peak.total() <= room);
  CHECK(advised.step_ms <= 1.06 * shortest_ms);
}

TEST_CASE("what a verdict advises against a search over all that it may advise") {
  const Settings usual;
  const Settings neuron = {"subnetwork.construction=neuron", "subnetwork.coverage=3/4",
                           "train.batch_size_per_worker=6", "train.accumulate_steps=2"};
  const Settings recomputing = {"subnetwork.coverage=1", "train.checkpoint_activations=true",
                                "train.reduce_every=micro_batch", "train.batch_size_per_worker=8",
                                "train.accumulate_steps=2"};
  for (const Settings& present : {usual, neuron, recomputing}) {
    const std::vector<Tried> all = try_all(spec_of(present));
    Typed typed;
    const int64_t here = alone(spec_of(present)).peak.total();
    std::map<int64_t, int64_t> least;  // by owners
    for (const Tried& one : all)
      if (!one.is_baseline) {
        const auto [known, is_new] = least.try_emplace(one.owners, one.peak);
        known->second = std::min(known->second, one.peak);
      }
    const int64_t own = least.rbegin()->second, lowest = least.begin()->second;
    for (const int64_t room : {here, here - 1, (here + own) / 2, own, own - 1, lowest, lowest - 1})
      check_against_search(present, all, room, typed);
  }
}

// ZeRO-3's and Megatron-LM's published formulas, and sizes counted by hand. Tensor parallelism of all models
// is compared with PyTorch in test/cli/test_plan.py.

ExperimentSpec training(Precision precision, std::string_view optimizer, double momentum = 0.9) {
  ExperimentSpec spec;
  spec.train.precision = precision;
  spec.optimizer.rule = UpdateRule(optimizer);
  if (spec.optimizer.rule.is<SgdSpec>()) spec.optimizer.rule = SgdSpec{.momentum = momentum};
  return spec;
}

int64_t state(const FsdpBytes& bytes) {
  return 2 * bytes.weights + bytes.optimizer;
}

// LLaMA 1B of 32,000 tokens, counted by hand.
constexpr int64_t kWidth = 2048, kHidden = 5120, kBlocks = 18;
constexpr int64_t kBlock = 4 * kWidth * kWidth + 3 * kWidth * kHidden + 2 * kWidth;
constexpr int64_t psi(int64_t vocabulary) {
  return 2 * vocabulary * kWidth + kBlocks * kBlock + kWidth;
}
constexpr int64_t kNorms = (2 * kBlocks + 1) * kWidth;

ModelLayout llama_1b(int64_t vocabulary, bool tied = false) {
  ModelSpec spec = model_named("llama_1b");
  spec.kind.as<LlamaSpec>().vocab_size = vocabulary;
  spec.kind.as<LlamaSpec>().tied_embeddings = tied;
  return structure_of(spec, /*sequence_length=*/1024);
}

TEST_CASE("FSDP's state is (2 + 2 + K) Psi / N bytes") {
  const ExperimentSpec mixed = training(Precision::kBf16, "adamw");
  const ModelLayout even = llama_1b(32000);
  REQUIRE(even.parameter_count() == psi(32000));
  for (int n : {1, 8, 64})
    CHECK(state(fsdp_bytes(even, mixed, n)) == (2 + 2 + 12) * psi(32000) / n);
  const ModelLayout odd = llama_1b(50257);  // 50257 = 785 x 64 + 17: 786 rows per process
  for (int n : {8, 64}) {
    const double formula = 16.0 * static_cast<double>(psi(50257)) / n;
    const auto counted = static_cast<double>(state(fsdp_bytes(odd, mixed, n)));
    INFO(n << " processes: " << counted / formula);
    CHECK(counted >= formula);
    CHECK(counted <= formula + 16 * 2 * kWidth);  // one more row of embedding and head
  }
  const auto bytes_each = [&](Precision precision, std::string_view optimizer, double momentum) {
    return static_cast<double>(state(fsdp_bytes(even, training(precision, optimizer, momentum), 8))) * 8 /
           static_cast<double>(psi(32000));
  };
  CHECK(bytes_each(Precision::kFp32, "adamw", 0.9) == 4 + 4 + 8);
  CHECK(bytes_each(Precision::kFp32, "sgd", 0.9) == 4 + 4 + 4);
  CHECK(bytes_each(Precision::kFp32, "sgd", 0) == 4 + 4);
  CHECK(bytes_each(Precision::kFp64, "sgd", 0.9) == 8 + 8 + 8);
}

TEST_CASE("FSDP gathers parameters twice and reduces gradients once") {
  ExperimentSpec spec = training(Precision::kBf16, "adamw");
  const ModelLayout layout = llama_1b(32000);
  for (int n : {8, 64}) {
    const int64_t all = (2 * (psi(32000) - kNorms) + 4 * kNorms) / n * (n - 1);  // norms are fp32
    spec.train.reduce_dtype.reset();
    CHECK(fsdp_bytes(layout, spec, n).gather_sent == all);
    CHECK(fsdp_bytes(layout, spec, n).reduce_sent == all);
    spec.train.reduce_dtype = WireType::kFp32;
    CHECK(fsdp_bytes(layout, spec, n).gather_sent == all);
    CHECK(fsdp_bytes(layout, spec, n).reduce_sent == 4 * psi(32000) / n * (n - 1));
  }
  CHECK(fsdp_bytes(layout, spec, 1).gather_sent == 0);
}

TEST_CASE("values of two units and gradients of one are complete at a time") {
  const ExperimentSpec spec = training(Precision::kFp32, "sgd");
  const int64_t embedding = int64_t{32000} * kWidth;
  const FsdpBytes untied = fsdp_bytes(llama_1b(32000), spec, 8);
  CHECK(untied.gathered_weights == 4 * (kBlock + embedding + kWidth));  // last block; norm and head
  CHECK(untied.unit_gradients == 4 * (embedding + kWidth));
  CHECK(untied.reduce_buffer == untied.unit_gradients);
  const FsdpBytes tied = fsdp_bytes(llama_1b(32000, /*tied=*/true), spec, 8);
  CHECK(tied.gathered_weights == 4 * (embedding + 2 * kBlock));
  CHECK(tied.unit_gradients == 4 * (embedding + kBlock));
  CHECK(tied.reduce_buffer == 4 * embedding);

  // ResNet-18: a block's projection is gathered with the block.
  const FsdpBytes resnet = fsdp_bytes(structure_of(model_named("resnet18")), spec, 8);
  const int64_t last = 2 * (9 * 512 * 512 + 2 * 512);
  const int64_t before = 9 * 256 * 512 + 9 * 512 * 512 + 256 * 512 + 3 * 2 * 512;
  CHECK(resnet.gathered_weights == 4 * (before + last));
  CHECK(resnet.unit_gradients == 4 * last);
}

}  // namespace
}  // namespace sdp
