// Which worker trains which unit in the plain code against which the regimes are checked. Its values are
// compared with the engine's in test_methods.cpp, and the engine's with PyTorch in
// test/cli/test_equivalence.py.

#include <ATen/ATen.h>

#include "capture/layouts.h"
#include "catch.h"
#include "doctor/regimes.h"

using namespace sdp;

TEST_CASE("a unit is trained only by its owners") {
  for (const CheckedMethod& method : checked_methods()) {
    if (!method.half_coverage) continue;
    INFO(method.name);
    const ExperimentSpec spec = tiny_spec(method, "mlp", Precision::kFp64, 1);
    const SubnetPlan plan =
        make_plan(layout_of(spec.model), spec.subnetwork, static_cast<uint64_t>(spec.seed));
    // The batches of all workers that do not own the first unit change: its values must not change in one
    // step.
    const Unit& unit = plan.units.front();
    const auto trained_with = [&](double others) {
      OptimizerSpec sgd = spec.optimizer;
      FullValues values = initial_values(spec);
      train_masked_mlp(values, plan, sgd, /*steps=*/1, [&](int64_t, int worker) {
        const double factor = unit.owners.contains(worker) ? 1 : others;
        return MlpBatch{.images = at::full({4, 3, 8, 8}, 0.1 * factor, at::kDouble), .labels = at::arange(4)};
      });
      return values;
    };
    const FullValues once = trained_with(1), again = trained_with(3);
    const auto up = static_cast<size_t>(plan.layout.parameter_index("blocks.0.mlp.0.weight"));
    const auto stem = static_cast<size_t>(plan.layout.parameter_index("stem.weight"));
    const auto rows = [&](const at::Tensor& weight) {
      return weight.narrow(0, unit.begin, unit.end - unit.begin);
    };
    CHECK(at::equal(rows(once[up]), rows(again[up])));
    CHECK_FALSE(at::equal(once[stem], again[stem]));
  }
}
