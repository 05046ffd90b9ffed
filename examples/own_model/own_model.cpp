// Trains a custom network with Subnetwork Data Parallelism, without YAML and without this program's models
// and data sets: x <- x + down relu(up x), six times, on four workers; each branch has two owners.
//     cmake --build build --target own_model && build/own_model

#include <torch/torch.h>

#include <cstdio>

#include "engine/engine.h"

constexpr int kBranches = 6, kSteps = 300;
constexpr int64_t kWidth = 16, kHidden = 32, kBatch = 64;

std::string name_of(int branch, const char* layer) {
  return "branch" + std::to_string(branch) + "." + layer;
}

/// The parameters to divide among the workers.
sdp::ModelLayout own_layout() {
  sdp::ModelLayout layout;
  for (int b = 0; b < kBranches; ++b) {
    layout.branches.push_back({.name = name_of(b, "mlp"), .block = b, .hidden_width = kHidden});
    for (const char* layer : {"up", "down"}) {  // a slice of the hidden width: rows of up, columns of down
      sdp::ParameterLayout& parameter = layout.parameters.emplace_back();
      const bool is_up = layer[0] == 'u';
      parameter.name = name_of(b, layer);
      parameter.shape = is_up ? std::vector{kHidden, kWidth} : std::vector{kWidth, kHidden};
      parameter.init = {sdp::Initializer::Kind::kNormal, is_up ? 0.25 : 0.05};
      parameter.branch = b;
      parameter.slice = sdp::SliceRule{.dim = is_up ? 0 : 1};
    }
  }
  return layout;
}

/// A worker's subnetwork applied to x, [B, kWidth]: the parts of each branch that the worker holds, if any.
torch::Tensor forward(const sdp::TensorSource& worker, torch::Tensor x) {
  for (int b = 0; b < kBranches; ++b) {
    torch::Tensor sum = x;
    for (int part = 0; part < worker.parts(b); ++part)
      sum = sum + torch::relu(x.matmul(worker.parameter(name_of(b, "up"), part).t()))
                      .matmul(worker.parameter(name_of(b, "down"), part).t());
    x = sum;
  }
  return x;
}

int main() {
  sdp::SubnetworkSpec subnetwork;
  subnetwork.workers = 4;
  subnetwork.coverage.text = "2/4";
  const sdp::OptimizerSpec optimizer{.rule = sdp::SgdSpec{.weight_decay = 0}};
  const sdp::SubnetPlan plan = sdp::make_plan(own_layout(), subnetwork, /*seed=*/0);
  const sdp::Placement placement = sdp::make_placement(subnetwork.workers, /*replicas=*/1, /*processes=*/1);
  const sdp::Schedule schedule = sdp::make_schedule(plan, placement, {});
  const auto comm = sdp::connect(sdp::Ranks{}, torch::kCPU, {});  // or ranks_from_environment() for several
  sdp::Engine engine(plan, schedule, optimizer, *comm);
  engine.initialize(/*seed=*/0);

  torch::manual_seed(0);
  const torch::Tensor target = torch::randn({kWidth, kWidth}) / 4;
  for (int step = 0; step < kSteps; ++step) {
    double mean_loss = 0;
    engine.await_all_values();
    for (int slot = 0; slot < placement.slots(); ++slot) {
      const torch::Tensor x = torch::randn({kBatch, kWidth});
      const torch::Tensor y = forward(engine.store().slot(slot), x);
      const torch::Tensor loss = (y - x - torch::tanh(x.matmul(target))).square().mean();
      engine.begin_backward(slot, /*last=*/slot + 1 == placement.slots());
      loss.backward();
      engine.end_backward();
      mean_loss += loss.item<double>() / placement.slots();
    }
    engine.reduce();  // averages every gradient over the workers that own it
    engine.step(/*lr=*/0.1);
    engine.gather_values();
    if (step % 50 == 0 || step + 1 == kSteps) std::printf("step %d: loss %.6f\n", step, mean_loss);
  }
}
