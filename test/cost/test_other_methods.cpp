// ZeRO-3's and Megatron-LM's published formulas, and sizes counted by hand. Tensor parallelism of all models
// is compared with PyTorch in test/cli/test_plan.py.

#include "cost/other_methods.h"

#include "catch.h"
#include "model/model_spec.h"
#include "optim/registry.h"

namespace sdp {
namespace {

ExperimentSpec training(Precision precision, std::string_view optimizer, double momentum = 0.9) {
  ExperimentSpec spec;
  spec.train.precision = precision;
  spec.optimizer.rule = UpdateRule(optimizer);
  if (spec.optimizer.rule.is<SgdSpec>()) spec.optimizer.rule = SgdSpec{.momentum = momentum};
  return spec;
}

int64_t state(const FsdpBytes& bytes) {
  return 2 * bytes.weights + bytes.optimizer;
}

// LLaMA 1B of 32,000 tokens, counted by hand.
constexpr int64_t kWidth = 2048, kHidden = 5120, kBlocks = 18;
constexpr int64_t kBlock = 4 * kWidth * kWidth + 3 * kWidth * kHidden + 2 * kWidth;
constexpr int64_t psi(int64_t vocabulary) {
  return 2 * vocabulary * kWidth + kBlocks * kBlock + kWidth;
}
constexpr int64_t kNorms = (2 * kBlocks + 1) * kWidth;

ModelLayout llama_1b(int64_t vocabulary, bool tied = false) {
  ModelSpec spec = model_named("llama_1b");
  spec.kind.as<LlamaSpec>().vocab_size = vocabulary;
  spec.kind.as<LlamaSpec>().tied_embeddings = tied;
  return structure_of(spec, /*sequence_length=*/1024);
}

TEST_CASE("FSDP's state is (2 + 2 + K) Psi / N bytes") {
  const ExperimentSpec mixed = training(Precision::kBf16, "adamw");
  const ModelLayout even = llama_1b(32000);
  REQUIRE(even.parameter_count() == psi(32000));
  for (int n : {1, 8, 64})
    CHECK(state(fsdp_bytes(even, mixed, n)) == (2 + 2 + 12) * psi(32000) / n);
  const ModelLayout odd = llama_1b(50257);  // 50257 = 785 x 64 + 17: 786 rows per process
  for (int n : {8, 64}) {
    const double formula = 16.0 * static_cast<double>(psi(50257)) / n;
    const auto counted = static_cast<double>(state(fsdp_bytes(odd, mixed, n)));
    INFO(n << " processes: " << counted / formula);
    CHECK(counted >= formula);
    CHECK(counted <= formula + 16 * 2 * kWidth);  // one more row of embedding and head
  }
  const auto bytes_each = [&](Precision precision, std::string_view optimizer, double momentum) {
    return static_cast<double>(state(fsdp_bytes(even, training(precision, optimizer, momentum), 8))) * 8 /
           static_cast<double>(psi(32000));
  };
  CHECK(bytes_each(Precision::kFp32, "adamw", 0.9) == 4 + 4 + 8);
  CHECK(bytes_each(Precision::kFp32, "sgd", 0.9) == 4 + 4 + 4);
  CHECK(bytes_each(Precision::kFp32, "sgd", 0) == 4 + 4);
  CHECK(bytes_each(Precision::kFp64, "sgd", 0.9) == 8 + 8 + 8);
}

TEST_CASE("FSDP gathers parameters twice and reduces gradients once") {
  ExperimentSpec spec = training(Precision::kBf16, "adamw");
  const ModelLayout layout = llama_1b(32000);
  for (int n : {8, 64}) {
    const int64_t all = (2 * (psi(32000) - kNorms) + 4 * kNorms) / n * (n - 1);  // norms are fp32
    spec.train.reduce_dtype.reset();
    CHECK(fsdp_bytes(layout, spec, n).gather_sent == all);
    CHECK(fsdp_bytes(layout, spec, n).reduce_sent == all);
    spec.train.reduce_dtype = WireType::kFp32;
    CHECK(fsdp_bytes(layout, spec, n).gather_sent == all);
    CHECK(fsdp_bytes(layout, spec, n).reduce_sent == 4 * psi(32000) / n * (n - 1));
  }
  CHECK(fsdp_bytes(layout, spec, 1).gather_sent == 0);
}

TEST_CASE("values of two units and gradients of one are complete at a time") {
  const ExperimentSpec spec = training(Precision::kFp32, "sgd");
  const int64_t embedding = int64_t{32000} * kWidth;
  const FsdpBytes untied = fsdp_bytes(llama_1b(32000), spec, 8);
  CHECK(untied.gathered_weights == 4 * (kBlock + embedding + kWidth));  // last block; norm and head
  CHECK(untied.unit_gradients == 4 * (embedding + kWidth));
  CHECK(untied.reduce_buffer == untied.unit_gradients);
  const FsdpBytes tied = fsdp_bytes(llama_1b(32000, /*tied=*/true), spec, 8);
  CHECK(tied.gathered_weights == 4 * (embedding + 2 * kBlock));
  CHECK(tied.unit_gradients == 4 * (embedding + kBlock));
  CHECK(tied.reduce_buffer == 4 * embedding);

  // ResNet-18: a block's projection is gathered with the block.
  const FsdpBytes resnet = fsdp_bytes(structure_of(model_named("resnet18")), spec, 8);
  const int64_t last = 2 * (9 * 512 * 512 + 2 * 512);
  const int64_t before = 9 * 256 * 512 + 9 * 512 * 512 + 256 * 512 + 3 * 2 * 512;
  CHECK(resnet.gathered_weights == 4 * (before + last));
  CHECK(resnet.unit_gradients == 4 * last);
}

}  // namespace
}  // namespace sdp
