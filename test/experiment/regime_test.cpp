#include "experiment/regime.h"

#include "experiment/run_steps.h"
#include "spec_errors.h"

namespace sdp {
namespace {

int64_t owners(const std::string& text, int64_t workers) {
  return owners_of(Coverage{.text = text}, workers);
}

std::string owners_error(const std::string& text, int64_t workers) {
  return message_of<UsageError>([&] { owners(text, workers); });
}

TEST_CASE("methods by the regime below full coverage, and by the divided state at full coverage") {
  for (const auto& [keys, method] :
       {std::pair{"2/4, construction: block}", "B-SDP"},
        {"2/4, construction: block, masking: backward}", "B_b-SDP"},
        {"2/4, construction: neuron}", "N-SDP"},
        {"2/4, construction: neuron, masking: backward}", "N_b-SDP"},
        {"1}", "ZeRO-2"},
        {"4/4}", "ZeRO-2"},
        {"1}\ntrain: {release_gradients: false}", "ZeRO-1"},
        {"1}\noptimizer: {shard: false}", "DDP"},
        // Gradients that are added up over micro-batches are kept in full.
        {"1}\ntrain: {accumulate_steps: 2}", "ZeRO-1"},
        {"1}\ntrain: {accumulate_steps: 2, reduce_every: micro_batch}", "ZeRO-2"}})
    CHECK(method_of(load("subnetwork: {workers: 4, coverage: " + std::string(keys))) == method);
}

TEST_CASE("labels that name another method are detected") {
  const ExperimentSpec zero2 = load("subnetwork: {workers: 4, coverage: 1}");
  const ExperimentSpec subnetworks = load("subnetwork: {workers: 4, coverage: 1/2, masking: backward}");
  for (const char* label : {"DDP", "ZeRO-1", "FSDP", "N-SDP"})
    CHECK(contradicted_method(label, zero2) == label);
  CHECK(contradicted_method("wide (ddp), width 12", zero2) == "DDP");
  for (const char* label : {"ZeRO-2, width 52", "baseline", "", "B-SDP, coverage=1", "noDDP", "ZeRO-22"})
    CHECK_FALSE(contradicted_method(label, zero2));
  CHECK_FALSE(contradicted_method("B_b-SDP, coverage=1/2", subnetworks));
  CHECK(contradicted_method("B-SDP", subnetworks) == "B-SDP");
  CHECK(contradicted_method("B_b-SDP beside DDP", subnetworks) == "DDP");
}

TEST_CASE("coverage times workers is the number of owners of a unit") {
  for (int64_t n = 1; n <= 64; ++n)
    for (int64_t p = 1; p <= n; ++p)
      CHECK(owners(std::to_string(p) + "/" + std::to_string(n), n) == p);
  constexpr int64_t kHuge = int64_t{1} << 62;
  using Row = std::tuple<const char*, int64_t, int64_t>;
  for (const auto& [text, workers, expected] :  // a decimal may be off by 1e-6
       {Row{"1", 7, 7}, Row{"4/8", 4, 2}, Row{"8/8", 3, 3}, Row{"0.375", 8, 3}, Row{"5e-1", 2, 1},
        Row{"4000000000000000000/8000000000000000000", 8, 4}, Row{"3/4", kHuge, kHuge / 4 * 3},
        Row{"0.333333", 3, 1}, Row{"0.6666667", 3, 2}})
    CHECK(owners(text, workers) == expected);
  CHECK(value_of(Coverage{.text = "3/8"}) == 0.375);
  CHECK(value_of(Coverage{.text = "0.25"}) == 0.25);
  CHECK(value_of(Coverage{}) == 1);
}

TEST_CASE("a coverage without a whole number of owners is refused, naming its neighbors") {
  for (const auto& [text, workers, neighbors] :
       {std::tuple{"0.4", 8, "3/8, 4/8"},
        {"1/9", 8, ": 1/8"},
        {"0.99", 8, "7/8, 8/8"},
        {"0.33333", 3, "1/3"},
        {"333333333333/1000000000000", 3, "1/3"}})  // a fraction is taken exactly
    CHECK(contains(owners_error(text, workers), neighbors));
  CHECK_FALSE(contains(owners_error("1/9", 8), "0/8"));
  for (const char* text : {"", "0", "-0.5", "1.1", "0/8", "9/8", "-4/8", "4/", "/8", "4/8/2", "a", "nan",
                           "inf", "4 / 8", "50%", "0.5x", "99999999999999999999/99999999999999999999"})
    CHECK_FALSE(owners_error(text, 8).empty());
}

// Cosine, linear and constant, with warm-up: test/run/test_resharding.cpp.
TEST_CASE("the learning rate of a step schedule decreases at its milestones") {
  const RunLength length{.total_steps = 100, .warmup_steps = 0};
  ScheduleSpec spec;
  spec.name = ScheduleName::kStep;  // by 0.1 at 0.5 and 0.75
  for (const auto& [step, rate] : {std::pair{49, 1.0}, {50, 0.1}, {74, 0.1}, {75, 0.01}})
    CHECK(learning_rate(spec, 1, length, step) == Approx(rate));
}

}  // namespace
}  // namespace sdp
