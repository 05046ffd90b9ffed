// The masked step on ranks that are threads, against the oracle and against wrong values. Every model in
// every regime: test/cli/test_equivalence.py.

#include <ATen/ATen.h>

#include <cmath>

#include "catch.h"
#include "comm/thread_ranks.h"
#include "doctor/checks.h"
#include "optim/sgd.h"
#include "temp_folder.h"

using namespace sdp;

namespace {

/// The finding of all ranks when `change` is made to the oracle's values.
Finding check(
    int world, const std::function<void(FullValues&)>& change = [](FullValues&) {}) {
  Finding finding;
  run_thread_ranks(world, [&](Communicator& comm) {
    FullValues expected = oracle_values(masked_step_spec(Precision::kFp64, world));
    change(expected);
    const Agreed agreed = agree(comm, "masked step", [&] { return check_masked_step(expected, comm); });
    if (comm.rank() == 0) finding = agreed.finding;
  });
  return finding;
}

}  // namespace

TEST_CASE("the masked step passes with any number of processes, and all find the same difference") {
  for (const int world : {1, 2, 3}) {
    const Finding finding = check(world);
    INFO(finding.detail);
    CHECK(finding.status == Status::kPass);
    CHECK_FALSE(contains(finding.detail, "rank"));
  }
}

TEST_CASE(
    "a slightly wrong value fails in fp64 only, a step twice as long or not-a-number in both precisions") {
  const auto slightly = [](FullValues& values) { values.front() += 1e-7; };
  const auto twice = [](FullValues& values) {
    ExperimentSpec spec = masked_step_spec(Precision::kFp64, 2);
    spec.optimizer.rule = SgdSpec{.lr = 2 * spec.optimizer.lr()};
    values = oracle_values(spec);
  };
  const auto nan = [](FullValues& values) { values[0].fill_(NAN); };
  for (const auto& [finding, is_small] :
       {std::pair(check(2, slightly), true), {check(2, twice), false}, {check(2, nan), false}}) {
    CHECK(finding.status == Status::kFail);
    CHECK(contains(finding.detail, "; in fp64 at most"));
    CHECK(contains(finding.detail, "; in bf16") == !is_small);
  }
}

TEST_CASE("another regime is not the oracle's, nor is a gradient averaged over other workers") {
  run_thread_ranks(2, [](Communicator& comm) {
    const FullValues expected = oracle_values(masked_step_spec(Precision::kFp64, 2));
    for (const bool frozen : {true, false}) {
      ExperimentSpec spec = masked_step_spec(Precision::kFp64, 2);
      if (frozen)
        spec.subnetwork.masking = Masking::kBackward;
      else
        spec.subnetwork.coverage.text = "1";
      if (!(step_difference(spec, expected, comm) > 1e-3)) throw std::logic_error("no difference");
    }
  });
}
