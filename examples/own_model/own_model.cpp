// A network of your own with what the program's models have, without YAML: plan, training on several
// processes, evaluation, checkpoints, resuming and export. `own_model 100` trains for 100 steps, then
// `own_model 200` or `mpirun -n 4 own_model 200` continues to step 200 (from the repository's root; build it
// with cmake --build build --target own_model). The network, for images [B, 3, 32, 32]: x <- relu(bn(conv
// x)), five branches x <- x + conv2 relu(bn1(conv1 x)), the mean and a linear classifier. Each of four
// workers holds half of the hidden channels of every branch.

#include <ATen/ATen.h>

#include <cstdio>

#include "cost/make_experiment.h"
#include "cost/plan_text.h"
#include "experiment/load.h"
#include "hub/export.h"
#include "layers/branch.h"
#include "layers/conv.h"
#include "layers/norms.h"
#include "model/layout_builder.h"
#include "train/run_rank.h"

using namespace sdp;

constexpr int kBranches = 5;
constexpr int64_t kWidth = 16, kHidden = 32;

std::string name_of(int branch, const char* layer) {
  return "branch" + std::to_string(branch) + "." + layer;
}

/// The parameters, and how they are divided among the workers: by the hidden channels of each branch.
ModelLayout own_layout(const OwnSpec& spec, int64_t) {
  LayoutBuilder builder;
  builder.convolution("stem.conv", spec.image_channels, kWidth, 3, {});
  builder.batch_norm("stem.bn", kWidth, {});
  const int64_t stream = kWidth * *spec.image_size * *spec.image_size;
  for (int b = 0; b < kBranches; ++b) {
    builder.begin_branch(name_of(b, "conv"), b, {stream, stream}, kHidden, /*granularity=*/1);
    builder.convolution(name_of(b, "conv1"), kWidth, kHidden, 3, {.branch = b, .output = kRows});
    builder.batch_norm(name_of(b, "bn1"), kHidden, {.branch = b, .output = kRows});
    builder.convolution(name_of(b, "conv2"), kHidden, kWidth, 3,
                        {.branch = b, .input = kColumns, .scales_branch_output = true});
  }
  builder.linear("fc", kWidth, spec.num_classes, {});
  return builder.take();
}

at::Tensor conv(const at::Tensor& x, const at::Tensor& weight) {
  return conv2d(x, weight, /*stride=*/1, /*padding=*/1);
}

/// The forward pass of a worker's subnetwork, and of the whole network. Memory, FLOPs and times of plans
/// follow from it.
class OwnModel : public Model {
 public:
  void bind_shared(const TensorSource& source) override {
    stem_ = {source.parameter("stem.conv.weight"), BatchNorm::bind(source, "stem.bn"), {}};
    head_ = {source.parameter("fc.weight"), source.parameter("fc.bias")};
  }
  void bind_branch(int b, const TensorSource& source) override {
    for (int part = 0; part < source.parts(b); ++part)
      branches_.at(b).push_back({source.parameter(name_of(b, "conv1.weight"), part),
                                 BatchNorm::bind(source, name_of(b, "bn1"), part),
                                 source.parameter(name_of(b, "conv2.weight"), part)});
  }
  void unbind_branch(int b) override { branches_.at(b).clear(); }
  Head head() const override { return head_; }

  at::Tensor features(const at::Tensor& images, const ForwardMode& mode) override {
    at::Tensor x = at::relu(stem_.bn.forward(conv(images, stem_.conv1), mode));
    for (int b = 0; b < kBranches; ++b) {
      const std::vector<Part>& parts = branches_.at(b);
      const auto branch = [&parts, mode](const at::Tensor& input, bool again) {
        return sum_of(parts, input, mode, again ? Statistics::kLeave : Statistics::kUpdate);
      };
      const auto output = [&] { return parts.empty() ? at::Tensor() : run_branch(branch, x, mode); };
      x = add_branch(b, x, mode, output);
    }
    return x.mean({2, 3});
  }

 private:
  struct Part {
    at::Tensor conv1;
    BatchNorm bn;
    at::Tensor conv2;
  };
  using Statistics = BatchNorm::Statistics;

  static at::Tensor sum_of(const std::vector<Part>& parts, const at::Tensor& x, const ForwardMode& mode,
                           Statistics statistics) {
    at::Tensor sum = at::zeros_like(x);
    for (const Part& part : parts)
      sum = sum + conv(at::relu(part.bn.forward(conv(x, part.conv1), mode, statistics)), part.conv2);
    return sum;
  }

  Part stem_;
  Head head_;
  std::vector<std::vector<Part>> branches_{kBranches};
};

int main(int argc, char** argv) try {
  const std::string steps = argc > 1 ? argv[1] : "100";
  set_own_network(
      std::make_shared<OwnNetwork>(OwnNetwork{.layout = own_layout,
                                              .make = [](auto&&...) { return std::make_unique<OwnModel>(); },
                                              .has_batch_norm = true}));
  ExperimentSpec spec;
  spec.name = "own_model";
  spec.model.kind = OwnSpec();
  spec.data.path = "examples/data";
  spec.subnetwork.workers = 4;
  spec.subnetwork.coverage.text = "2/4";
  spec.subnetwork.construction = Construction::kNeuron;
  spec.train.max_steps = std::stoll(steps);
  spec.train.batch_size_per_worker = 16;
  spec = complete_spec(spec);
  const Ranks ranks = ranks_from_environment(current_environment()).value_or(Ranks());
  if (ranks.rank == 0) {
    const DeviceProfile gpu = device_profile("h100", spec.train.precision);
    const Experiment experiment = make_experiment(spec, /*processes=*/4);
    std::puts(describe_plan(figures_of(experiment, gpu), spec).c_str());
  }
  StopSignals signals(static_cast<int>(ExitCode::kPreempted));
  const int code = run_rank(spec, ranks, signals, {.resume = Resume::kIfAny});
  if (code == 0 && ranks.rank == 0) {
    const auto run = run_folder_of(spec).dir, out = run / "export" / (steps + ".safetensors");
    if (!exists(out)) export_run(spec, {.run_dir = run, .step = *spec.train.max_steps, .out = out});
  }
  return code;
} catch (const Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return static_cast<int>(error.code());
}
