// The engine on ranks that are threads: memory and traffic against the plan's figures, and bit-identical
// values on all holders. The values themselves are compared with plain PyTorch in
// test/cli/test_equivalence.py.

#include <algorithm>
#include <cmath>
#include <random>

#include "catch.h"
#include "comm/thread_ranks.h"
#include "engine_cases.h"
#include "model_names.h"

namespace sdp {
namespace {

/// Makes every value that this process does not update unreadable until it is received.
void spoil_values(Engine& engine, const ExchangePlan& exchanges, int process) {
  const at::NoGradGuard no_grad;
  for (const Bucket& bucket : exchanges.buckets)
    for (const Segment& segment : bucket.segments) {
      if (!segment.is_read_by(process)) continue;
      const bool updates_all = !exchanges.options.shard && segment.is_held_by(process);
      const int64_t begin = updates_all ? 0 : segment.shard_begin(process);
      const int64_t updated = updates_all ? segment.elements : segment.shard_elements(process);
      const at::Tensor values = at::full({segment.elements}, NAN, scalar_type(bucket.type));
      FlatCopies reads, writes;
      for (const SliceRange& range : slice_ranges(segment, begin, updated))
        engine.store().add_read(reads, range, values.narrow(0, begin, updated));
      reads.run();
      for (const SliceRange& slice : slice_ranges(segment, 0, segment.elements))
        engine.store().add_write(writes, slice, values);
      writes.run();
    }
}

/// All processes that have a segment's values have the same bits.
void expect_readers_agree(const Engine& engine, const ExchangePlan& exchanges, Communicator& comm) {
  for (const Bucket& bucket : exchanges.buckets) {
    for (const Segment& segment : bucket.segments) {
      const bool reads = segment.is_read_by(comm.rank());
      const auto options = at::TensorOptions(scalar_type(bucket.type)).device(comm.device());
      const at::Tensor mine = at::empty({segment.elements}, options);
      FlatCopies copies;
      if (reads)
        for (const SliceRange& slice : slice_ranges(segment, 0, segment.elements))
          engine.store().add_read(copies, slice, mine);
      copies.run();
      at::Tensor first = mine.clone();
      comm.broadcast(first, segment.holders.front());
      if (!reads) continue;
      const auto bits = [](const at::Tensor& t) { return t.contiguous().view(at::kByte); };
      expect(at::equal(bits(first), bits(mine)), "readers of a segment differ");
      expect(at::isfinite(mine).all().item<bool>(), "values are not finite");
    }
  }
}

void check_case(const Case& c) {
  const Planned experiment(spec_of(c), c.processes, 9);
  const ExperimentSpec& spec = experiment.spec;
  const bool reduces_each = c.reduce_every == ReduceEvery::kMicroBatch;
  run_engine(experiment, [&](Engine& engine, Communicator& comm) {
    const Cost planned = cost_of(experiment.plan, experiment.exchanges, spec.optimizer, comm.rank());
    expect_equal(engine.store().parameter_bytes(), planned.parameter_bytes, "parameter bytes");
    expect_equal(engine.optimizer_bytes(), planned.optimizer_bytes, "optimizer bytes");
    constexpr int kSteps = 3;
    for (int step = 0; step < kSteps; ++step) {
      int64_t largest_gradient = 0;
      int64_t accumulated = 0;
      for (int64_t micro_batch = 0; micro_batch < c.accumulate_steps; ++micro_batch)
        backward(engine, spec, experiment.plan, step, micro_batch + 1 < c.accumulate_steps && !reduces_each,
                 [&](int s) {
                   const int64_t gradient = engine.store().slot_gradient_bytes(s);
                   largest_gradient = std::max(largest_gradient, gradient);
                   // The last pass sends the accumulated gradients if gradients are released.
                   accumulated = std::max(accumulated, engine.gradient_bytes() - gradient);
                 });
      const int64_t standing = largest_gradient + accumulated;
      if (c.release_gradients) {
        expect_equal(largest_gradient, 0, "gradient bytes at the end of a pass");
        expect(standing <= planned.gradient_bytes, "more gradients stand than planned");
        if (c.accumulate_steps > 1 && c.workers == c.processes && !reduces_each)
          expect_equal(standing, planned.gradient_bytes, "accumulated gradient bytes");
      } else {
        expect_equal(standing, planned.gradient_bytes, "gradient bytes");
      }
      engine.reduce();
      expect_equal(engine.gradient_bytes(), planned.averaged_gradient_bytes, "averaged gradient bytes");
      engine.step(spec.optimizer.lr());
      expect_equal(engine.gradient_bytes(), 0, "gradient bytes after the update");
      spoil_values(engine, experiment.exchanges, comm.rank());
      engine.gather_values();
      if (step == 1) continue;  // values are received during the next forward pass
      engine.await_all_values();
      expect_readers_agree(engine, experiment.exchanges, comm);
    }
    expect_equal(comm.traffic().all_to_all_bytes, kSteps * planned.bytes_sent_per_step(), "bytes sent");
    expect_equal(engine.optimizer_bytes(), planned.optimizer_bytes, "optimizer bytes after steps");
  });
}

void check_in_every_regime(Case c) {
  for (const Construction construction : {Construction::kBlock, Construction::kNeuron})
    for (const Masking masking : {Masking::kForward, Masking::kBackward}) {
      c.construction = construction;
      c.masking = masking;
      check_case(c);
    }
}

TEST_CASE("bytes held and sent match the plan, and all holders of a value have the same bits") {
  for (const bool shard : {true, false})
    for (const bool release : {true, false})
      for (const Precision precision : {Precision::kFp64, Precision::kFp32, Precision::kBf16}) {
        const bool is_fp32 = precision == Precision::kFp32;
        check_case({.precision = precision,
                    .optimizer = (shard == release) == is_fp32 ? "sgd" : "adamw",
                    .shard = shard,
                    .model = is_fp32 ? "resnet18" : "mlp",
                    .release_gradients = release});
      }
}

TEST_CASE("the same for other coverages, and with gradients rounded for sending") {
  for (const char* coverage : {"1/4", "3/4", "1"})
    check_case({.coverage = coverage, .model = "mlp"});
  check_case({.workers = 3, .processes = 3, .coverage = "2/3", .model = "mlp"});
  for (const bool shard : {true, false})
    check_case({.reduce_dtype = WireType::kBf16, .shard = shard, .model = "mlp"});
}

TEST_CASE("the same in every regime") {
  check_in_every_regime({.processes = 2, .shard = false});
  check_in_every_regime({.shard = false, .model = "mlp", .release_gradients = false});
  check_in_every_regime({.model = "mlp"});
  check_in_every_regime({.processes = 2, .model = "mlp"});
  check_in_every_regime({.replicas = 2, .processes = 2, .shard = false, .model = "mlp"});
  Case three{.workers = 3, .processes = 3, .coverage = "2/3", .accumulate_steps = 2, .model = "mlp"};
  three.precision = Precision::kBf16;
  three.optimizer = "adamw";
  check_in_every_regime(three);
}

TEST_CASE("the same for every model") {
  for (const std::string_view name : first_model_names()) {
    const Precision precision = tiny_model(name).has_batch_norm() ? Precision::kFp32 : Precision::kBf16;
    Case c{.precision = precision, .optimizer = "adamw", .model = name};
    check_case(c);
    c.construction = Construction::kNeuron;
    c.masking = Masking::kBackward;
    check_case(c);
  }
}

TEST_CASE("the same for several workers per process, replicas and accumulation") {
  check_case({.processes = 1, .precision = Precision::kBf16, .model = "mlp"});
  check_case({.replicas = 2, .processes = 8, .model = "mlp"});
  check_case({.replicas = 2, .processes = 2, .precision = Precision::kBf16, .model = "mlp"});
  check_case({.processes = 2, .shard = false, .accumulate_steps = 2, .model = "mlp"});
  for (const bool release : {true, false})
    for (const ReduceEvery every : {ReduceEvery::kStep, ReduceEvery::kMicroBatch})
      check_case(
          {.accumulate_steps = 3, .model = "mlp", .release_gradients = release, .reduce_every = every});
  for (const bool shard : {true, false})
    check_case({.processes = 2,
                .precision = Precision::kBf16,
                .shard = shard,
                .accumulate_steps = 2,
                .model = "mlp",
                .reduce_every = ReduceEvery::kMicroBatch});
}

TEST_CASE("a gradient is the mean over its owners in all replicas") {
  const Planned c(plain_sgd({.workers = 2, .replicas = 2, .coverage = "1", .model = "mlp"}),
                  /*processes=*/4);
  run_engine(c, [&](Engine& engine, Communicator& comm) {
    const at::Tensor leaf = zero_leaf(engine, c);
    step_with_gradient(engine, leaf, 1 + comm.rank(), /*lr=*/1);
    expect(at::equal(leaf.detach(), at::full_like(leaf.detach(), -2.5)), "the mean of 1, 2, 3 and 4");
  });
}

TEST_CASE("sums that were taken can be set for several steps, as a CUDA graph does") {
  const Planned c(plain_sgd({.workers = 2, .coverage = "1", .model = "mlp"}), /*processes=*/1);
  run_engine(c, [&](Engine& engine, Communicator&) {
    const at::Tensor leaf = zero_leaf(engine, c);
    for (const int slot : {0, 1}) {
      const at::Tensor of_slot = engine.store().slot(slot).parameter("head.weight");
      engine.begin_backward(slot, /*last=*/slot == 1);
      of_slot.mutable_grad() = at::full_like(of_slot.detach(), 1 + slot);
      engine.end_backward();
    }
    engine.sum_gradients();
    const Engine::Sums sums = engine.take_sums();
    for (const double steps : {1, 2}) {
      engine.set_sums(sums);
      finish_step(engine, /*lr=*/1);
      expect(at::equal(leaf.detach(), at::full_like(leaf.detach(), -1.5 * steps)),
             "the mean of 1 and 2, each step");
    }
  });
}

TEST_CASE("a worker whose backward pass left no gradients counts as zero gradients") {
  const Case two{.workers = 2, .coverage = "1", .model = "mlp", .release_gradients = false};
  const Planned c(plain_sgd(two), /*processes=*/2);
  run_engine(c, [&](Engine& engine, Communicator& comm) {
    const at::Tensor leaf = zero_leaf(engine, c);
    if (comm.rank() == 0) {
      step_with_gradient(engine, leaf, 1, /*lr=*/1);
    } else {
      engine.begin_backward(0, /*last=*/true);
      engine.end_backward();
      finish_step(engine, /*lr=*/1);
    }
    expect(at::equal(leaf.detach(), at::full_like(leaf.detach(), -0.5)), "half of the one gradient");
  });
}

TEST_CASE("a gradient may be a part of a larger tensor") {
  for (const auto& [workers, processes] : {std::pair(1, 1), std::pair(2, 1), std::pair(2, 2)}) {
    const Planned c(plain_sgd({.workers = workers, .coverage = "1", .model = "mlp"}), processes);
    run_engine(c, [&](Engine& engine, Communicator&) {
      const at::Tensor leaf = zero_leaf(engine, c);
      const at::Tensor both = at::arange(2 * leaf.numel(), leaf.options().requires_grad(false));
      const at::Tensor gradient = both.narrow(0, leaf.numel(), leaf.numel()).view(leaf.sizes());
      const int slots = static_cast<int>(engine.store().slots().size());
      for (int slot = 0; slot < slots; ++slot) {
        engine.begin_backward(slot, /*last=*/slot + 1 == slots);
        engine.store().slot(slot).parameter("head.weight").mutable_grad() = gradient;
        engine.end_backward();
      }
      finish_step(engine, /*lr=*/1);
      expect(at::equal(leaf.detach(), -gradient), "the gradient");
    });
  }
}

TEST_CASE("the clipped norm counts every parameter once, whichever process holds it") {
  std::vector<double> norms;
  using Way = std::tuple<int64_t, bool, bool>;
  for (const auto& [processes, shard, clips] :
       {Way{4, true, true}, Way{2, true, true}, Way{1, true, true}, Way{4, false, true}, Way{4, true, false},
        Way{1, false, false}}) {
    ExperimentSpec spec =
        spec_of({.processes = processes, .precision = Precision::kFp64, .shard = shard, .model = "mlp"});
    spec.optimizer.clip_norm = clips ? 0.01 : 0;
    const Planned c(spec, processes, 9);
    std::vector<double> of_rank(processes);
    run_engine(c, [&](Engine& engine, Communicator& comm) {
      backward(engine, c.spec, c.plan, 0);
      engine.reduce(/*measures_norm=*/true);
      of_rank[comm.rank()] = engine.gradient_norm().item<double>();
    });
    norms.insert(norms.end(), of_rank.begin(), of_rank.end());
  }
  CHECK(norms.front() > 0.01);
  for (double norm : norms)
    CHECK(norm == Approx(norms.front()).epsilon(1e-12));
}

TEST_CASE("bf16: master values start as drawn and gradients are summed in fp32") {
  const Planned c(plain_sgd({.coverage = "1", .precision = Precision::kBf16, .model = "mlp"}),
                  /*processes=*/4);
  run_engine(c, [&](Engine& engine, Communicator& comm) {
    const auto expect_moved_by = [&](double distance) {
      for (const StateRange& range : engine.owned_state()) {
        const ParameterLayout& parameter = c.plan.layout.parameters[range.parameter];
        if (range.kind != "value" || parameter.name != "head.weight") continue;
        const at::Tensor drawn = draw_parameter(parameter, 3).reshape({-1}).slice(0, range.begin, range.end);
        expect(at::allclose(range.values.cpu(), drawn - distance, 0, 1e-6), "master values");
      }
    };
    expect_moved_by(0);
    // In bf16, 256 + 1 gives 256.
    const at::Tensor leaf = engine.store().slot(0).parameter("head.weight");
    step_with_gradient(engine, leaf, comm.rank() == 0 ? 256 : 1, 1.0 / 64);
    expect_moved_by(259.0 / 4 / 64);
  });
}

// Gradients that are exchanged while the backward pass continues.

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
