#include "experiment/regime.h"

#include "spec_errors.h"

namespace sdp {
namespace {

constexpr const char* kDense = "subnetwork: {workers: 4, coverage: 1}\n";

TEST_CASE("methods by the regime below full coverage, and by the divided state at full coverage") {
  const auto of = [](const std::string& construction, const std::string& masking) {
    return method_of(load("subnetwork: {workers: 4, coverage: 2/4, construction: " + construction +
                          ", masking: " + masking + "}\noptimizer: {shard: false}"));
  };
  CHECK(of("block", "forward") == "B-SDP");
  CHECK(of("block", "backward") == "B_b-SDP");
  CHECK(of("neuron", "forward") == "N-SDP");
  CHECK(of("neuron", "backward") == "N_b-SDP");
  CHECK(method_of(load(kDense)) == "ZeRO-2");
  CHECK(method_of(load(std::string(kDense) + "train: {release_gradients: false}")) == "ZeRO-1");
  CHECK(method_of(load(std::string(kDense) + "optimizer: {shard: false}")) == "DDP");
  CHECK(method_of(load("subnetwork: {workers: 4, coverage: 4/4}")) == "ZeRO-2");
  // Gradients that are accumulated over micro-batches are kept in full.
  CHECK(method_of(load(std::string(kDense) + "train: {accumulate_steps: 2}")) == "ZeRO-1");
  CHECK(method_of(load(std::string(kDense) + "train: {accumulate_steps: 2, reduce_every: micro_batch}")) ==
        "ZeRO-2");
}

TEST_CASE("labels that name another method are detected") {
  const ExperimentSpec zero2 = load(kDense);
  CHECK(contradicted_method("DDP", zero2) == "DDP");
  CHECK(contradicted_method("wide (ddp), width 12", zero2) == "DDP");
  CHECK(contradicted_method("ZeRO-1", zero2) == "ZeRO-1");
  CHECK(contradicted_method("FSDP", zero2) == "FSDP");
  CHECK(contradicted_method("N-SDP", zero2) == "N-SDP");
  for (const char* label : {"ZeRO-2, width 52", "baseline", "", "B-SDP, coverage=1", "noDDP", "ZeRO-22"})
    CHECK_FALSE(contradicted_method(label, zero2));

  const ExperimentSpec subnetworks = load("subnetwork: {workers: 4, coverage: 1/2, masking: backward}");
  CHECK_FALSE(contradicted_method("B_b-SDP, coverage=1/2", subnetworks));
  CHECK(contradicted_method("B-SDP", subnetworks) == "B-SDP");
  CHECK(contradicted_method("B_b-SDP beside DDP", subnetworks) == "DDP");
}

}  // namespace
}  // namespace sdp
