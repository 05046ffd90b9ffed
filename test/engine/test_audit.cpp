#include <algorithm>
#include <random>

#include "catch.h"
#include "engine/checks.h"
#include "engine/engines.h"
#include "engine_cases.h"

namespace sdp {
namespace {

/// Flips one bit of an element of a slice.
void flip(const at::Tensor& copy, int64_t element, int bit) {
  const at::NoGradGuard no_grad;
  const bool is_wide = copy.element_size() == 4;
  const at::Tensor before = copy.reshape({-1}).clone();
  const at::Tensor bits = before.view(is_wide ? at::kInt : at::kShort);
  bits[element] = at::bitwise_xor(bits[element], is_wide ? 1 << bit : static_cast<int16_t>(1 << bit));
  copy.copy_(before.view(copy.sizes()));
}

/// Which ranks have which slice: ones in [rank, parameter, unit + 1].
at::Tensor holders(const ParameterStore& store, size_t parameters, Communicator& comm) {
  const at::Tensor holds = at::zeros({comm.size(), static_cast<int64_t>(parameters), 100});
  for (const auto& [place, copies] : store.slices())
    holds[comm.rank()][place.first][place.second + 1] = 1;
  const at::Tensor all = holds.to(comm.device());
  comm.all_reduce_sum(all);
  return all.cpu();
}

void check_flips(const Case& c) {
  const Planned experiment(spec_of(c), c.processes, 3);
  const SubnetPlan& plan = experiment.plan;
  run_ranks(experiment.processes, [&](Communicator& comm) {
    Engine engine(plan, experiment.exchanges, experiment.spec.optimizer, comm);
    engine.initialize(3);
    for (int step = 0; step < 2; ++step) {
      backward(engine, experiment.spec, plan, step);
      finish_step(engine, 0.01);
    }
    ParameterStore& store = engine.store();
    expect(find_different_copies(engine, comm).empty(), "copies differ after training");
    const at::Tensor holds = holders(store, plan.layout.parameters.size(), comm);
    const at::Tensor shared = (holds.sum(0) > 1).nonzero();
    std::mt19937 random(11);
    for (int round = 0; round < 3; ++round) {
      const at::Tensor drawn = shared[static_cast<int64_t>(random() % shared.size(0))];
      const std::pair place(drawn[0].item<int>(), drawn[1].item<int>() - 1);
      const auto own = store.slices().find(place);
      // The last rank that has the slice is the one whose memory is faulty.
      const int culprit =
          holds.select(1, place.first).select(1, place.second + 1).nonzero().max().item<int>();
      const unsigned element = random();
      const int bit = static_cast<int>(random() % 15);
      const auto flip_own = [&] {
        const at::Tensor& copy = own->second.front();
        flip(copy, element % copy.numel(), bit);
      };
      if (comm.rank() == culprit) flip_own();
      const std::vector<DifferentCopies> found = find_different_copies(engine, comm);
      expect(found.size() == 1, std::to_string(found.size()) + " differences of one flipped bit");
      expect(found[0].parameter == place.first && found[0].unit == place.second, "another slice is named");
      const auto is_culprit = [&](const std::vector<int>& ranks) {
        return ranks == std::vector<int>{culprit};
      };
      expect(found[0].ranks.size() == 2 &&
                 std::count_if(found[0].ranks.begin(), found[0].ranks.end(), is_culprit) == 1 &&
                 found[0].ranks[0].size() >= found[0].ranks[1].size(),
             "other ranks are named");
      expect(describe(found, plan).find(plan.layout.parameters[place.first].name) == 0, "another name");
      if (comm.rank() == culprit) flip_own();
      expect(find_different_copies(engine, comm).empty(), "copies differ after the bit was flipped back");
    }
  });
}

}  // namespace

TEST_CASE("a flipped bit in a copy is found, with its parameter, unit and ranks") {
  check_flips({.shard = false});
  check_flips({.coverage = "3/4", .model = "mlp", .construction = Construction::kNeuron});
  check_flips({.processes = 2, .shard = false, .model = "mlp", .masking = Masking::kBackward});
  check_flips({.workers = 2, .replicas = 2, .coverage = "1/2", .model = "mlp"});
  check_flips({.precision = Precision::kBf16, .optimizer = "adamw", .model = "mlp"});
}

}  // namespace sdp
