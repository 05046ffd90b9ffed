// Gradients that are exchanged while the backward pass continues.

#include <algorithm>
#include <random>

#include "catch.h"
#include "comm/thread_ranks.h"
#include "engine_cases.h"

namespace sdp {
namespace {

/// The values after two steps in which each rank's gradients arrive in a different order and some do not
/// arrive at all. A gradient is a constant of the parameter, the worker and the step, or missing.
std::vector<at::Tensor> values_after_wild_steps(const Case& c, uint64_t order_seed) {
  ExperimentSpec spec = spec_of(c);
  spec.train.bucket_megabytes = 0.002;
  const Planned experiment(spec, c.processes, 9);
  expect(experiment.exchanges.buckets.size() > 8, "too few buckets");
  std::vector<at::Tensor> values;
  run_engine(experiment, [&](Engine& engine, Communicator& comm) {
    std::mt19937_64 random(order_seed * 100 + static_cast<uint64_t>(comm.rank()));
    for (int step = 0; step < 2; ++step) {
      const int slots = static_cast<int>(engine.store().slots().size());
      for (int s = 0; s < slots; ++s) {
        const Slot slot = engine.store().slots()[s];
        std::vector<int> order = engine.store().owned_parameters(s);
        std::shuffle(order.begin(), order.end(), random);
        // Autograd runs the most recently created node first.
        at::Tensor sum = at::zeros({}, at::TensorOptions(at::kDouble).device(comm.device()));
        for (int parameter : order) {
          const uint64_t kind = std::hash<int>{}(31 * parameter + 7 * slot.worker + step) % 5;
          if (kind == 0) continue;  // no gradient
          sum = sum + engine.store().leaf(s, parameter).sum() * static_cast<double>(kind);
        }
        engine.begin_backward(s, s + 1 == slots);
        sum.backward();
        engine.end_backward();
      }
      finish_step(engine, 0.1);
    }
    for (const StateRange& range : engine.owned_state())
      if (comm.rank() == 0 && range.kind == "value") values.push_back(range.values.clone());
  });
  // Exchanged at once, and late.
  const size_t half = values.size() / 2;
  for (size_t i = 0; i < half; ++i)
    CHECK(at::equal(values[i], values[half + i]));
  return values;
}

TEST_CASE("the order in which gradients arrive, and whether they arrive, affects only time") {
  for (Case c : {Case{.precision = Precision::kFp64, .model = "mlp"},
                 Case{.processes = 2, .precision = Precision::kFp64, .model = "mlp"},
                 Case{.precision = Precision::kFp64,
                 .optimizer = "adamw",
                 .model = "llama_tiny",
                 .construction = Construction::kNeuron,
                 .masking = Masking::kBackward}}) {
    c.release_gradients = false;
    const std::vector<at::Tensor> expected = values_after_wild_steps(c, 0);
    CHECK(!expected.empty());
    c.release_gradients = true;
    for (uint64_t order = 1; order <= 4; ++order) {
      const std::vector<at::Tensor> values = values_after_wild_steps(c, order);
      REQUIRE(values.size() == expected.size());
      for (size_t i = 0; i < values.size(); ++i)
        CHECK(at::equal(values[i], expected[i]));
    }
  }
}

TEST_CASE("gradients that are sent as bf16 are summed in fp32") {
  const Case two{.workers = 2, .coverage = "1", .reduce_dtype = WireType::kBf16, .model = "mlp"};
  const Planned c(plain_sgd(two), /*processes=*/2);
  run_engine(c, [&](Engine& engine, Communicator& comm) {
    const Cost planned = cost_of(c.plan, c.exchanges, c.spec.optimizer, comm.rank());
    const Cost other = cost_of(c.plan, c.exchanges, c.spec.optimizer, 1 - comm.rank());
    expect_equal(2 * planned.reduce_bytes_per_step, other.gather_bytes_per_step, "half the bytes");
    const at::Tensor leaf = zero_leaf(engine, c);
    step_with_gradient(engine, leaf, 1 + 1.0 / 1024, /*lr=*/1);  // 1 in bf16
    expect_equal(comm.traffic().all_to_all_bytes, planned.bytes_sent_per_step(), "bytes sent");
    // The rank's own contribution is exact; the other's is rounded.
    expect(at::allclose(leaf, at::full_like(leaf, -(1 + 0.5 / 1024)), 0, 1e-7), "mean of both");
  });
}

}  // namespace
}  // namespace sdp
