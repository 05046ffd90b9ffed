// Trains a custom convolutional network with BatchNorm on images of CIFAR-10, evaluates the assembled model,
// and saves a checkpoint from which the next call continues:
//     cmake --build build --target own_convnet && build/own_convnet checkpoint.pt 100
// x <- relu(bn(conv x)), then five times x <- x + conv2 relu(bn1(conv1 x)), then the mean and a linear
// classifier. Each of four workers holds half of the hidden channels of every branch.

#include <torch/torch.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <tuple>

#include "data/sets/cifar.h"
#include "data/sets/image_array.h"
#include "engine/engine.h"
#include "engine/full_model.h"

constexpr int kBranches = 5, kClasses = 10;
constexpr int64_t kWidth = 16, kHidden = 32, kBatch = 16;
constexpr const char* kImages = "examples/data";

std::string name_of(int branch, const char* tensor) {
  return "branch" + std::to_string(branch) + "." + tensor;
}

// ---- the network ----

struct LayoutMaker {
  sdp::ModelLayout layout;

  void conv(const std::string& name, int64_t out, int64_t in, std::optional<int> branch = {},
            std::optional<sdp::SliceRule> slice = {}) {
    add(name, {out, in, 3, 3}, sdp::ParameterRole::kWeight,
        {sdp::Initializer::Kind::kNormal, std::sqrt(2.0 / static_cast<double>(9 * in))}, branch, slice);
  }
  /// With running statistics, which every worker has for what it holds.
  void batch_norm(const std::string& name, int64_t width, std::optional<int> branch = {},
                  std::optional<sdp::SliceRule> slice = {}) {
    add(name + ".weight", {width}, sdp::ParameterRole::kNorm, {sdp::Initializer::Kind::kConstant, 1}, branch,
        slice);
    add(name + ".bias", {width}, sdp::ParameterRole::kNorm, {}, branch, slice);
    layout.buffers.push_back({name + ".running_mean", {width}, 0, branch, slice});
    layout.buffers.push_back({name + ".running_var", {width}, 1, branch, slice});
  }
  void add(const std::string& name, std::vector<int64_t> shape, sdp::ParameterRole role,
           sdp::Initializer init, std::optional<int> branch = {}, std::optional<sdp::SliceRule> slice = {}) {
    layout.parameters.push_back({.name = name,
                                 .shape = std::move(shape),
                                 .role = role,
                                 .init = init,
                                 .branch = branch,
                                 .slice = slice});
  }
};

sdp::ModelLayout own_layout() {
  LayoutMaker maker;
  maker.conv("stem.conv", kWidth, 3);
  maker.batch_norm("stem.bn", kWidth);
  const sdp::SliceRule rows{.dim = 0}, columns{.dim = 1};
  for (int b = 0; b < kBranches; ++b) {
    maker.layout.branches.push_back({.name = name_of(b, "conv"), .block = b, .hidden_width = kHidden});
    maker.conv(name_of(b, "conv1"), kHidden, kWidth, b, rows);
    maker.batch_norm(name_of(b, "bn1"), kHidden, b, rows);
    maker.conv(name_of(b, "conv2"), kWidth, kHidden, b, columns);
    maker.layout.parameters.back().scales_branch_output = true;
  }
  maker.add("fc.weight", {kClasses, kWidth}, sdp::ParameterRole::kWeight,
            {sdp::Initializer::Kind::kNormal, 0.1});
  maker.add("fc.bias", {kClasses}, sdp::ParameterRole::kBias, {});
  return std::move(maker.layout);
}

torch::Tensor batch_norm(const sdp::TensorSource& source, const std::string& name, int part,
                         const torch::Tensor& x, bool training) {
  return torch::batch_norm(
      x, source.parameter(name + ".weight", part), source.parameter(name + ".bias", part),
      source.buffer(name + ".running_mean", part), source.buffer(name + ".running_var", part), training,
      /*momentum=*/0.1, /*eps=*/1e-5, /*cudnn_enabled=*/false);
}

/// A worker's subnetwork, or the assembled model, applied to images [B, 3, 32, 32].
torch::Tensor forward(const sdp::TensorSource& source, torch::Tensor x, bool training) {
  const auto conv = [](const torch::Tensor& input, const torch::Tensor& weight) {
    return torch::conv2d(input, weight, {}, /*stride=*/1, /*padding=*/1);
  };
  x = torch::relu(batch_norm(source, "stem.bn", 0, conv(x, source.parameter("stem.conv")), training));
  for (int b = 0; b < kBranches; ++b) {
    torch::Tensor sum = x;
    for (int part = 0; part < source.parts(b); ++part) {
      const torch::Tensor hidden = conv(x, source.parameter(name_of(b, "conv1"), part));
      sum = sum + conv(torch::relu(batch_norm(source, name_of(b, "bn1"), part, hidden, training)),
                       source.parameter(name_of(b, "conv2"), part));
    }
    x = sum;
  }
  return torch::linear(x.mean({2, 3}), source.parameter("fc.weight"), source.parameter("fc.bias"));
}

// ---- data ----

struct Images {
  torch::Tensor pixels, labels;  // [N, 3, 32, 32], [N]
};

Images read_images(sdp::Split split) {
  sdp::DataSpec spec{.path = kImages};
  sdp::ImageArray array = sdp::read_set(sdp::Cifar10Spec{}, spec, split, sdp::throw_problem);
  array.normalization = sdp::Cifar10Spec::normalization();
  const sdp::ArrayDataset set(std::move(array));
  std::vector<int64_t> all(static_cast<size_t>(set.size()));
  std::iota(all.begin(), all.end(), 0);
  sdp::Batch batch = set.eval_batch(all);
  return {torch::from_blob(batch.images.data(), {set.size(), 3, 32, 32}).clone(),
          torch::tensor(batch.labels)};
}

// ---- a checkpoint: the engine's state by piece, and every worker's BatchNorm statistics ----

void save(sdp::Engine& engine, const std::string& path) {
  std::vector<torch::Tensor> tensors = {torch::tensor(engine.step_count())};
  for (const sdp::StateRange& range : engine.owned_state())
    tensors.push_back(range.values);
  for (int slot = 0; slot < static_cast<int>(engine.store().slots().size()); ++slot)
    for (const sdp::BufferPiece& piece : engine.store().buffer_pieces(slot))
      tensors.push_back(piece.values);
  torch::save(tensors, path);
}

void load(sdp::Engine& engine, const std::string& path) {
  std::vector<torch::Tensor> tensors;
  torch::load(tensors, path);
  size_t next = 1;
  std::map<std::tuple<std::string, int, int>, torch::Tensor> pieces;  // one process saves every piece whole
  for (const sdp::StateRange& range : engine.owned_state())
    pieces[{range.kind, range.parameter, range.unit}] = tensors.at(next++);
  engine.load_state([&](const sdp::StateRange& range) {
    range.values.copy_(pieces.at({range.kind, range.parameter, range.unit}).slice(0, range.begin, range.end));
  });
  torch::NoGradGuard no_grad;
  for (int slot = 0; slot < static_cast<int>(engine.store().slots().size()); ++slot)
    for (const sdp::BufferPiece& piece : engine.store().buffer_pieces(slot))
      piece.values.copy_(tensors.at(next++));
  engine.set_step_count(tensors.at(0).item<int64_t>());
}

// ---- training ----

double train_step(sdp::Engine& engine, const Images& images, int64_t step) {
  double mean_loss = 0;
  engine.await_all_values();
  const int slots = static_cast<int>(engine.store().slots().size());
  for (int slot = 0; slot < slots; ++slot) {
    torch::manual_seed(step * slots + slot);  // a step's batches depend only on its number
    const torch::Tensor chosen = torch::randint(images.labels.numel(), {kBatch});
    const torch::Tensor logits =
        forward(engine.store().slot(slot), images.pixels.index_select(0, chosen), true);
    const torch::Tensor loss = torch::cross_entropy_loss(logits, images.labels.index_select(0, chosen));
    engine.begin_backward(slot, /*last=*/slot + 1 == slots);
    loss.backward();
    engine.end_backward();
    mean_loss += loss.item<double>() / slots;
  }
  engine.reduce();
  engine.step(/*lr=*/0.05);
  engine.gather_values();
  return mean_loss;
}

/// Accuracy of the assembled model. Branches were present in half of the subnetworks: their output is scaled.
double accuracy(const sdp::SubnetPlan& plan, const sdp::Schedule& schedule, sdp::Engine& engine,
                sdp::Communicator& comm, const Images& images) {
  torch::NoGradGuard no_grad;
  engine.await_all_values();
  sdp::LiveFullModel full(plan, schedule, engine, comm);
  full.set_branch_scale(plan.coverage());
  full.fetch_shared();
  for (int b = 0; b < kBranches; ++b)
    full.fetch_branch(b);
  return forward(full, images.pixels, false)
      .argmax(1)
      .eq(images.labels)
      .to(torch::kDouble)
      .mean()
      .item<double>();
}

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: own_convnet CHECKPOINT STEPS\n");
    return 2;
  }
  const std::string checkpoint = argv[1];
  const int64_t steps = std::atoll(argv[2]);
  sdp::SubnetworkSpec subnetwork;
  subnetwork.workers = 4;
  subnetwork.coverage.text = "2/4";
  subnetwork.construction = sdp::Construction::kNeuron;
  const sdp::OptimizerSpec optimizer{.rule = sdp::SgdSpec{}};
  const sdp::SubnetPlan plan = sdp::make_plan(own_layout(), subnetwork, /*seed=*/0);
  const sdp::Placement placement = sdp::make_placement(subnetwork.workers, /*replicas=*/1, /*processes=*/1);
  const sdp::Schedule schedule = sdp::make_schedule(plan, placement, {});
  const auto comm = sdp::connect(sdp::Ranks{}, torch::kCPU, {});
  sdp::Engine engine(plan, schedule, optimizer, *comm);
  if (std::filesystem::exists(checkpoint)) {
    load(engine, checkpoint);
    std::printf("continues at step %lld\n", static_cast<long long>(engine.step_count()));
  } else {
    engine.initialize(/*seed=*/0);
  }
  const Images images = read_images(sdp::Split::kTrain);
  for (int64_t step = engine.step_count(); step < steps; ++step) {
    const double loss = train_step(engine, images, step);
    if (step % 20 == 0 || step + 1 == steps)
      std::printf("step %lld: loss %.6f\n", static_cast<long long>(step), loss);
  }
  save(engine, checkpoint);
  std::printf("accuracy %.4f\n", accuracy(plan, schedule, engine, *comm, read_images(sdp::Split::kTest)));
}
