#include "analysis/analysis.h"
#include "catch.h"
#include "message_of.h"
#include "spec/error.h"

namespace sdp {
namespace {

ExperimentSpec small_spec(Construction construction, Masking masking) {
  ExperimentSpec spec;
  spec.model.kind = MlpSpec{.depth = 3};
  resolve_model(spec.model);
  spec.subnetwork.workers = 4;
  spec.subnetwork.coverage.text = "2/4";
  spec.subnetwork.construction = construction;
  spec.subnetwork.masking = masking;
  return spec;
}

TEST_CASE("regimes are found by their names; others are refused") {
  const std::vector<Regime> regimes = parse_regimes("bbsdp,nsdp", "--regimes");
  REQUIRE(regimes.size() == 2);
  CHECK((regimes[0] == Regime{Construction::kBlock, Masking::kBackward}));
  CHECK((regimes[1] == Regime{Construction::kNeuron, Masking::kForward}));
  CHECK((parse_regimes("nsdp,bsdp,bbsdp,nbsdp", "--regimes") == all_regimes()));
  for (const Regime regime : all_regimes())
    CHECK((parse_regimes(name_of(regime), "--regimes") == std::vector{regime}));
  const auto refusal = [](const std::string& names) {
    return message_of<UsageError>([&] { parse_regimes(names, "--regimes"); });
  };
  for (const std::string names : {"csdp", "", "bsdp,", "b_sdp", "bsdp, nsdp", "B-SDP"})
    CHECK_THAT(refusal(names), Catch::Contains("nsdp, bsdp, bbsdp, nbsdp"));
  CHECK_THAT(refusal("bsdp,nsdp,bsdp"), Catch::Contains("found bsdp twice"));
}

TEST_CASE("a regime's plan has the spec's workers and coverage and the regime's construction and masking") {
  const ExperimentSpec spec = small_spec(Construction::kBlock, Masking::kBackward);
  CHECK((regime_of(spec.subnetwork) == Regime{Construction::kBlock, Masking::kBackward}));
  for (const Regime regime : all_regimes()) {
    const SubnetPlan plan = plan_of_regime(spec, regime, std::nullopt);
    CHECK(plan.workers == 4);
    CHECK(plan.owners_per_unit() == 2);
    CHECK((plan.construction == regime.construction));
    CHECK((plan.main_masking() == regime.masking));
    CHECK(plan.units.size() == (regime.construction == Construction::kBlock ? 3 : 12));
  }
}

TEST_CASE("owner sets from a file apply only to regimes of the file's construction") {
  ExperimentSpec spec = small_spec(Construction::kBlock, Masking::kForward);
  spec.subnetwork.assignment = Assignment::kFile;
  spec.subnetwork.assignment_file = "missing.json";
  const auto plan_in = [&](Construction construction) {
    return message_of<UsageError>([&] {
      plan_of_regime(spec, {construction, Masking::kBackward}, std::nullopt);
    });
  };
  CHECK_THAT(plan_in(Construction::kNeuron), Catch::Contains("of block construction"));
  CHECK_THAT(plan_in(Construction::kBlock), Catch::Contains("missing.json"));
}

}  // namespace
}  // namespace sdp
