// Captures of steps, compared with the allocations of the same steps on the CPU.

#include <ATen/Version.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "catch.h"
#include "cost/record_step.h"
#include "cost/recorded_call.h"
#include "cost/recorder.h"
#include "model/make_model.h"
#include "model_names.h"
#include "real_step.h"

namespace sdp {
namespace {

Memory captured(const StepCapture& capture, int64_t batch_size) {
  const auto samples = static_cast<double>(batch_size);
  double now = 0;
  const auto most_of = [&](const std::vector<CaptureEvent>& events) {
    double most = now;
    for (const CaptureEvent& event : events) {
      const double bytes = capture.bytes_of(event, samples);
      most = std::max(most, now + bytes);
      const bool passes = event.what == CaptureEvent::What::kCopies ||  //
                          event.what == CaptureEvent::What::kConvolution;
      if (!passes) now += bytes;
    }
    return std::llround(most);
  };
  Memory memory;
  for (const PlacedLayerGroup& layer_group : capture.layer_groups)
    memory.most_forward = std::max<int64_t>(memory.most_forward, most_of(layer_group->forward.events));
  memory.kept = std::llround(now);
  for (auto layer_group = capture.layer_groups.rbegin(); layer_group != capture.layer_groups.rend();
       ++layer_group)
    memory.most_backward = std::max<int64_t>(memory.most_backward, most_of((*layer_group)->backward.events));
  return memory;
}

/// By pass, the operators that it calls. On the meta device autograd adds nothing in place.
std::vector<std::vector<std::string>> names_of(const std::vector<RecordedLayerGroup>& layer_groups) {
  std::vector<std::vector<std::string>> names;
  for (const RecordedLayerGroup& layer_group : layer_groups)
    for (const RecordedPass* pass : {&layer_group.forward, &layer_group.backward}) {
      names.emplace_back();
      for (const RecordedCall& call : pass->calls)
        names.back().push_back(
            call.op.name.ends_with("add_") ? call.op.name.substr(0, call.op.name.size() - 1) : call.op.name);
    }
  return names;
}

/// The formulas for what kernels allocate inside are oneDNN's on processors with AVX-512.
double tolerance() {
  return at::get_cpu_capability() == "AVX512" ? 0.05 : 0.25;
}

std::string text_of(const StepShape& step, const SubnetPlan& plan) {
  return std::string(step.model.name()) + ", " + std::string(name_of(plan.construction)) + ", " +
         masking_text(plan) + ", coverage " + std::to_string(plan.coverage());
}

void check(StepCaptures& captures, int worker, int64_t batch_size) {
  const StepShape& step = captures.step();
  const Memory real = allocated(step, captures.plan(), worker, batch_size);
  const Memory planned = captured(captures.of(worker), batch_size);
  INFO(text_of(step, captures.plan())
       << ", checkpointing " << step.checkpoint_activations << ", worker " << worker);
  CHECK(planned.kept == real.kept);
  CHECK(static_cast<double>(planned.most_forward) == Approx(real.most_forward).epsilon(tolerance()));
  CHECK(static_cast<double>(planned.most_backward) == Approx(real.most_backward).epsilon(tolerance()));
}

/// Calls check(step, plan) with a small instance of every model in every regime.
template <class Check>
void for_each_model(int64_t workers, Check check_one) {
  constexpr int64_t kTokens = 24;
  for (const std::string_view name : first_model_names())
    for (const Regime& regime : kRegimes) {
      const StepShape step{.model = tiny_model(name), .sequence_length = kTokens};
      const SubnetPlan plan = plan_of(structure_of(step.model, kTokens), regime, workers);
      INFO(text_of(step, plan));
      check_one(step, plan);
    }
}

TEST_CASE("a capture keeps what a step keeps, to the byte, and reaches its peak") {
  count_allocations(at::kCPU);
  for_each_model(/*workers=*/2, [](StepShape step, const SubnetPlan& plan) {
    for (const bool checkpoints : {false, true}) {
      step.checkpoint_activations = checkpoints;
      StepCaptures captures(step, plan);
      for (int worker = 0; worker < plan.workers; ++worker)
        check(captures, worker, /*batch_size=*/17);
    }
  });
}

TEST_CASE("in bf16, a capture keeps what a step keeps") {
  count_allocations(at::kCPU);
  for_each_model(/*workers=*/2, [](StepShape step, const SubnetPlan& plan) {
    step.precision = Precision::kBf16;
    CHECK(captured(StepCaptures(step, plan).of(0), 9).kept == allocated(step, plan, 0, 9).kept);
  });
}

TEST_CASE("where oneDNN does not compute them, convolutions have columns") {
  count_allocations(at::kCPU);
  const bool was_enabled = at::globalContext().userEnabledMkldnn();
  at::globalContext().setUserEnabledMkldnn(false);
  for (const std::string_view name : {"resnet18", "resnet50"})
    for (const Precision precision : {Precision::kFp64, Precision::kBf16})
      for (const Regime& regime : kRegimes) {
        const StepShape step{.model = tiny_model(name), .precision = precision};
        const SubnetPlan plan = plan_of(structure_of(step.model), regime);
        StepCaptures captures(step, plan);
        check(captures, /*worker=*/0, /*batch_size=*/17);
      }
  at::globalContext().setUserEnabledMkldnn(was_enabled);
}

/// Bytes that a convolution's backward pass allocates and frees again.
int64_t freed_by_gradients(int64_t batch, at::IntArrayRef weight_shape, int64_t side, int64_t stride,
                           bool planned) {
  const at::Tensor weight = at::rand(weight_shape).contiguous(at::MemoryFormat::ChannelsLast);
  const int64_t padding = weight.size(2) / 2;
  const at::Tensor x =
      at::rand({batch, weight.size(1), side, side}).contiguous(at::MemoryFormat::ChannelsLast);
  const at::Tensor gradient = at::rand_like(at::conv2d(x, weight, /*bias=*/{}, stride, padding));
  if (planned) {
    const std::vector<c10::IValue> arguments = {gradient,
                                                x,
                                                weight,
                                                c10::IValue(),
                                                std::vector<int64_t>{stride, stride},
                                                std::vector<int64_t>{padding, padding},
                                                std::vector<int64_t>{1, 1},
                                                false,
                                                std::vector<int64_t>{0, 0},
                                                int64_t{1},
                                                c10::List<bool>({true, true, false})};
    return copies_of_call("aten::convolution_backward",
                          c10::ArrayRef<const c10::IValue>(arguments.data(), arguments.size()))
        .bytes;
  }
  reset_peak();
  const auto results = at::convolution_backward(
      gradient, x, weight, /*bias_sizes=*/c10::nullopt, {stride, stride}, {padding, padding}, {1, 1},
      /*transposed=*/false, {0, 0}, /*groups=*/1, {true, true, false});
  return allocated_at_peak().total() - allocated_now().total();
}

TEST_CASE("the gradient of a weight whose kernel is higher than the image is planned") {
  if (at::get_cpu_capability() == "AVX512") return;  // its kernels are others
  count_allocations(at::kCPU);
  const auto check_gradients = [](int64_t batch, at::IntArrayRef weight, int64_t side, int64_t stride) {
    INFO("weight " << weight << ", side " << side << ", stride " << stride);
    const auto real = static_cast<double>(freed_by_gradients(batch, weight, side, stride, /*planned=*/false));
    CHECK(freed_by_gradients(batch, weight, side, stride, /*planned=*/true) == Approx(real).epsilon(0.02));
  };
  check_gradients(9, {24, 40, 3, 3}, 1, 1);
  check_gradients(5, {48, 16, 3, 3}, 2, 2);
  check_gradients(6, {32, 3, 7, 7}, 5, 2);
  check_gradients(3, {20, 20, 5, 5}, 4, 1);
}

TEST_CASE("captures that share layer groups with other workers are those of the worker alone") {
  for_each_model(/*workers=*/4, [](const StepShape& step, const SubnetPlan& plan) {
    StepCaptures together(step, plan);
    for (int worker = 0; worker < plan.workers; ++worker) {
      INFO("worker " << worker);
      CHECK(captured(together.of(worker), 8) == captured(StepCaptures(step, plan).of(worker), 8));
    }
  });
}

/// Names of the operators of a real step on the CPU, by layer group: forward, then backward.
std::vector<std::vector<std::string>> called(const StepShape& step, const SubnetPlan& plan, int worker,
                                             int64_t batch_size) {
  const WorkerTensors tensors = random_tensors(plan, worker, step.precision);
  const std::unique_ptr<Model> model = make_subnetwork(step.model, plan, worker, tensors);
  const Batch batch = random_batch(step, batch_size);
  const size_t layer_groups = plan.layout.branches.size() + 2;
  Recorder recorder(layer_groups, /*device_kernels=*/false);
  recorder.enter(0);
  const at::Tensor features = model->features(batch.input, {.training = true, .before_branch = [&](int b) {
                                                              recorder.enter(static_cast<size_t>(b) + 1);
                                                            }});
  recorder.enter(layer_groups - 1);
  const at::Tensor loss = training_loss(features, model->head(), {.labels = batch.labels}, 0).loss;
  recorder.begin_backward();
  loss.backward();
  return names_of(recorder.finish());
}

TEST_CASE("a capture has the operators that a step calls on a CPU") {
  for_each_model(/*workers=*/2, [](const StepShape& step, const SubnetPlan& plan) {
    const auto planned = names_of(record_step(step, plan, 0, 16)), real = called(step, plan, 0, 16);
    REQUIRE(planned.size() == real.size());
    CHECK_FALSE(planned.at(1).empty());  // the first layers have a backward pass
    for (size_t pass = 0; pass < planned.size(); ++pass) {
      INFO("pass " << pass);
      CHECK(planned[pass] == real[pass]);
    }
  });
}

TEST_CASE("a language model's loss takes the rows that it computes at a time") {
  count_allocations(at::kCPU);
  const StepShape step{.model = model_named("llama_tiny"), .sequence_length = 256};
  const SubnetPlan plan = plan_of(structure_of(step.model, step.sequence_length), kRegimes[0]);
  StepCaptures captures(step, plan);
  for (const int64_t batch_size : {1, 2, 5})  // 256 rows at a time
    check(captures, 0, batch_size);
}

TEST_CASE("masks of dropout are kept") {
  constexpr int64_t kTokens = 24;
  StepShape step{.model = tiny_model("gpt2"), .sequence_length = kTokens};
  const ModelLayout layout = structure_of(step.model, kTokens);
  const SubnetPlan plan = plan_of(layout, kRegimes[0]);
  const auto kept = [&](const StepShape& shape) { return StepCaptures(shape, plan).of(0).kept_bytes(3); };
  StepShape dropped = step;
  dropped.model.dropout = 0.5;
  double masks = 0;
  for (const BranchLayout& branch : layout.branches)
    masks += 3 * sizeof(float) * static_cast<double>(branch.stream.output);
  CHECK(kept(dropped) == kept(step) + masks);
}

}  // namespace
}  // namespace sdp
