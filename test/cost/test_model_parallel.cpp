// Megatron-LM's formulas on shapes with known results. All models are compared with PyTorch in
// test/cli/test_plan.py.

#include "cost/other_methods.h"

#include "catch.h"
#include "cost/layouts.h"

namespace sdp {
namespace {

ModelLayout layout_of_preset(std::string_view name, int64_t sequence_length = 1) {
  return layout_of(model_named(name), sequence_length);
}

TEST_CASE("a transformer's tensor parallelism reduces four times per block") {
  const ModelLayout layout = layout_of_preset("llama_1b", 1024);
  const int64_t bsh = int64_t{256} * 1024 * 2048;  // elements
  for (int t : {2, 8, 64}) {
    const ModelParallelTraffic traffic = model_parallel_traffic(layout, Precision::kBf16, 256, t);
    CHECK(traffic.global_batch_size == 256);
    CHECK(traffic.tensor.processes == t);
    CHECK(traffic.tensor.bytes_sent == 18 * 4 * bsh * 2 * 2 * (t - 1) / t);
    CHECK(traffic.pipeline.stages == std::min(t, 18));  // blocks
    CHECK(traffic.pipeline.bytes_sent == (t == 2 ? 1 : 2) * bsh * 2);
  }
}

TEST_CASE("a pipeline's busiest stage is where the residual stream is largest") {
  const ModelLayout resnet = layout_of_preset("resnet18");
  const auto sent = [&](int stages) {
    return model_parallel_traffic(resnet, Precision::kFp32, 10, stages).pipeline.bytes_sent;
  };
  CHECK(sent(1) == 0);
  CHECK(sent(2) == 10 * 4 * 128 * 16 * 16);     // between layer2.1 and layer3.0
  CHECK(sent(8) == 10 * 4 * 2 * 64 * 32 * 32);  // to layer1.1 and on to layer2.0
  const ModelLayout mlp = layout_of_preset("mlp");
  CHECK(model_parallel_traffic(mlp, Precision::kFp64, 10, 4).pipeline.bytes_sent == 10 * 8 * 2 * 64);
  CHECK(model_parallel_traffic(mlp, Precision::kFp64, 10, 4).tensor.bytes_sent ==
        10 * 8 * 4 * 2 * 64 * 3 / 2);
  CHECK(model_parallel_traffic(mlp, Precision::kFp64, 10, 1).tensor.bytes_sent == 0);
}

}  // namespace
}  // namespace sdp
