// Training methods on ranks that are threads, against correct and wrong references. All methods with two
// processes: test/cli/test_doctor.py.

#include <ATen/ATen.h>

#include <cmath>

#include "catch.h"
#include "comm/communicator.h"
#include "comm/thread_ranks.h"
#include "doctor/doctor.h"
#include "doctor/regimes.h"
#include "temp_folder.h"

using namespace sdp;

namespace {

Finding check(const CheckedMethod& method, int world, const ReferenceOf& reference) {
  Finding finding;
  run_thread_ranks(world, [&](Communicator& control) {
    const std::unique_ptr<Communicator> comm =
        connect_beside(control, Ranks{}, at::kCPU, std::chrono::seconds{30});
    const Agreed agreed =
        agree(control, method.name, [&] { return check_method(method, *comm, control, reference); });
    if (control.rank() == 0) finding = agreed.finding;
  });
  return finding;
}

}  // namespace

TEST_CASE("three processes have six workers") {
  const Finding finding = check(checked_methods().front(), 3, reference_values);
  INFO(finding.detail);
  CHECK(finding.status == Status::kPass);
}

TEST_CASE("a slightly wrong result fails and names the model") {
  const CheckedMethod method = checked_methods()[1];
  const Finding finding = check(method, 2, [](const ExperimentSpec& spec) {
    FullValues values = reference_values(spec);
    if (spec.model.kind.is<MlpSpec>()) values.front() += 1e-7;
    return values;
  });
  CHECK(finding.status == Status::kFail);
  CHECK(contains(finding.detail, "mlp in fp64"));
  CHECK_FALSE(contains(finding.detail, "bf16"));
  CHECK_FALSE(contains(finding.detail, "resnet18"));
}

TEST_CASE("results of another regime fail in both precisions") {
  // N-SDP's reference for N_b-SDP: different gradients.
  const std::vector<CheckedMethod> methods = checked_methods();
  const Finding finding = check(methods[3], 2, [&](const ExperimentSpec& spec) {
    return reference_values(tiny_spec(methods[0], spec.model.name(), Precision::kFp64, 2));
  });
  CHECK(finding.status == Status::kFail);
  CHECK(contains(finding.detail, "mlp in fp64"));
  CHECK(contains(finding.detail, "mlp in bf16"));
  CHECK(contains(finding.detail, "llama_tiny in fp64"));
}

TEST_CASE("differences are relative to the change by training; not-a-number is infinitely far") {
  const FullValues initial = {at::zeros({2}, at::kDouble)};
  const FullValues reference = {at::full({2}, 2, at::kDouble)};
  const FullValues found = {at::full({2}, 3, at::kDouble)};
  CHECK(relative_difference(found, reference, initial) == 0.5);
  CHECK(std::isinf(relative_difference({at::full({2}, NAN, at::kDouble)}, reference, initial)));
}
