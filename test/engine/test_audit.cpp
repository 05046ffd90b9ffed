#include <algorithm>
#include <map>
#include <random>
#include <sstream>

#include "catch.h"
#include "engine/checks.h"
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

/// The same slice of a parameter on every rank that has it, drawn by all ranks alike.
std::pair<int, int> shared_slice(const ParameterStore& store, Communicator& comm, std::mt19937& random) {
  std::string own;
  for (const auto& [place, copies] : store.slices())
    own += std::to_string(place.first) + " " + std::to_string(place.second) + "\n";
  std::map<std::pair<int, int>, int> holders;
  for (const std::string& text : comm.all_gather_strings(own)) {
    std::istringstream lines(text);
    for (std::pair<int, int> place; lines >> place.first >> place.second;)
      ++holders[place];
  }
  std::vector<std::pair<int, int>> shared;
  for (const auto& [place, count] : holders)
    if (count > 1) shared.push_back(place);
  expect(!shared.empty(), "no slice is on two ranks");
  return shared[random() % shared.size()];
}

void check_flips(const Case& c) {
  const Planned experiment(spec_of(c), c.processes, 3);
  const SubnetPlan& plan = experiment.plan;
  run_thread_ranks(
      experiment.processes,
      [&](Communicator& comm) {
        Engine engine(plan, experiment.exchanges, experiment.spec.optimizer, comm);
        engine.initialize(3);
        for (int step = 0; step < 2; ++step) {
          backward(engine, experiment.spec, plan, step);
          finish_step(engine, 0.01);
        }
        ParameterStore& store = engine.store();
        expect(find_different_copies(store, comm).empty(), "copies differ after training");
        std::mt19937 random(11);
        for (int round = 0; round < 5; ++round) {
          const std::pair<int, int> place = shared_slice(store, comm, random);
          const auto own = store.slices().find(place);
          // The last rank that has the slice is the one whose memory is faulty.
          const std::vector<std::string> has =
              comm.all_gather_strings(own == store.slices().end() ? "" : "yes");
          const auto last = std::find(has.rbegin(), has.rend(), "yes");
          const int culprit = static_cast<int>(has.rend() - last) - 1;
          const unsigned element = random();
          const int bit = static_cast<int>(random() % 15);
          const auto flip_own = [&] {
            const at::Tensor& copy = own->second.front();
            flip(copy, element % copy.numel(), bit);
          };
          if (comm.rank() == culprit) flip_own();
          const std::vector<DifferentCopies> found = find_different_copies(store, comm);
          expect(found.size() == 1, std::to_string(found.size()) + " differences of one flipped bit");
          expect(found[0].parameter == place.first && found[0].unit == place.second,
                 "another slice is named");
          const auto is_culprit = [&](const std::vector<int>& ranks) {
            return ranks == std::vector<int>{culprit};
          };
          expect(found[0].ranks.size() == 2 &&
                     std::count_if(found[0].ranks.begin(), found[0].ranks.end(), is_culprit) == 1 &&
                     found[0].ranks[0].size() >= found[0].ranks[1].size(),
                 "other ranks are named");
          expect(describe(found, plan).find(plan.layout.parameters[place.first].name) == 0, "another name");
          if (comm.rank() == culprit) flip_own();
          expect(find_different_copies(store, comm).empty(), "copies differ after the bit was flipped back");
        }
      },
      Exchanges::kAtOnce, test_device());
}

}  // namespace

TEST_CASE("a flipped bit in a copy is found, with its parameter, unit and ranks") {
  for (const bool shard : {true, false}) {
    check_flips({.shard = shard});
    check_flips({.coverage = "3/4", .shard = shard, .construction = Construction::kNeuron});
    check_flips({.processes = 2, .shard = shard, .masking = Masking::kBackward});
    check_flips({.workers = 2, .replicas = 2, .coverage = "1/2", .shard = shard});
    check_flips({.precision = Precision::kBf16, .optimizer = "adamw", .shard = shard, .model = "mlp"});
  }
}

}  // namespace sdp
