// run_model
//
// Runs workers' subnetworks on given weights, for tests in Python (run_model.py). Every line of standard
// input requests one pass: "FOLDER<tab>WORKER<tab>train" or "...eval"; WORKER -1 is the full model. The
// answer is one line: "ok" or an error message. FOLDER contains spec.yaml and in.safetensors, and receives
// out.safetensors.
//
// in.safetensors: parameters and buffers of the full model by name, in any float type, `input` (images [B, C,
// S, S] or tokens [B, T]) and `labels` ([B] or [B, T]).
//
// out.safetensors: `logits`; `loss`, their mean cross-entropy; units|BRANCH|PART and hidden|BRANCH|PART, the
// units and the hidden units of each part; `kept_bytes`, the bytes that a forward pass and its loss keep for
// the backward pass, including the input but not the labels and a language model's head gradient;
// `planned_flops` of one sample in training; and in training grad|NAME|PART of everything owned.

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <map>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "cost/layouts.h"
#include "engine/device.h"
#include "experiment/load.h"
#include "io/safetensors.h"
#include "layers/loss.h"
#include "layers/tensors.h"
#include "model/make_model.h"
#include "process/allocations.h"
#include "run/checkpoint_tensors.h"
#include "spec/error.h"
#include "test_device.h"

namespace sdp {
namespace {

at::Tensor read(const SafetensorsFile& file, const std::string& name) {
  const TensorView* view = file.find(name);
  if (!view) throw UsageError(fmt::format("the input file has no tensor {}", name));
  return as_tensor(*view).to(test_device(), /*non_blocking=*/false, /*copy=*/true);
}

void write(const std::filesystem::path& path, const std::map<std::string, at::Tensor>& tensors) {
  TensorFile file;
  for (const auto& entry : tensors)
    file.add(entry.first, dtype_of(entry.second.scalar_type()), entry.second.sizes().vec(),
             [&entry] { return entry.second; });
  file.write(path, /*metadata=*/{});
}

/// A worker's parts of the tensors in a file.
class CutTensors : public TensorSource {
 public:
  CutTensors(const SafetensorsFile& file, const SubnetPlan& plan, int worker, Precision precision)
      : plan_(plan), worker_(worker) {
    for (const ParameterLayout& parameter : plan.layout.parameters) {
      const at::ScalarType type = scalar_type(element_type(parameter, precision));
      add(parameter, read(file, parameter.name).to(type), /*is_trained=*/true);
    }
    // Statistics have the type of the normalization's parameters and are divided in the same way.
    for (const BufferLayout& buffer : plan.layout.buffers) {
      const ParameterLayout alike{.name = buffer.name,
                                  .shape = buffer.shape,
                                  .role = ParameterRole::kNorm,
                                  .init = {},
                                  .branch = buffer.branch,
                                  .slice = buffer.slice};
      const at::ScalarType type = scalar_type(element_type(alike, precision));
      add(alike, read(file, buffer.name).to(type), /*is_trained=*/false);
    }
  }

  int parts(int branch) const override { return static_cast<int>(plan_.parts_of(worker_, branch).size()); }

  /// Gradients of every trained part; zeros if the loss does not depend on it.
  std::map<std::string, at::Tensor> gradients() const {
    std::map<std::string, at::Tensor> result;
    for (const auto& [key, tensor] : tensors_) {
      if (!tensor.requires_grad()) continue;
      const at::Tensor& gradient = tensor.grad();
      result[fmt::format("grad|{}|{}", key.first, key.second)] =
          gradient.defined() ? gradient : at::zeros_like(tensor).detach();
    }
    return result;
  }

 private:
  at::Tensor find_parameter(const std::string& name, int part) const override {
    return tensors_.at({name, part});
  }
  at::Tensor find_buffer(const std::string& name, int part) const override {
    return tensors_.at({name, part});
  }

  void add(const ParameterLayout& layout, const at::Tensor& full, bool is_trained) {
    const std::vector<int> all = plan_.units_of(layout);
    const std::vector<at::Tensor> slices = slice_views(full, layout.slice, plan_, all);
    int number = 0;
    for (const BranchPart& part : plan_.parts_of(worker_, layout)) {
      const at::Tensor own = at::empty(shape_of_units(layout.shape, layout.slice, plan_, part.units),
                                       full.options(), storage_format(layout.shape.size()));
      const std::vector<at::Tensor> own_slices = slice_views(own, layout.slice, plan_, part.units);
      for (size_t i = 0; i < part.units.size(); ++i) {
        const auto found = std::find(all.begin(), all.end(), part.units[i]);
        own_slices.at(i).copy_(slices.at(static_cast<size_t>(found - all.begin())));
      }
      tensors_[{layout.name, number++}] = own.set_requires_grad(is_trained && !part.frozen);
    }
  }

  const SubnetPlan& plan_;
  const int worker_;
  std::map<std::pair<std::string, int>, at::Tensor> tensors_;
};

at::Tensor int64s(const std::vector<int64_t>& values) {
  return at::tensor(values, at::kLong);
}

struct Pass {
  std::filesystem::path folder;
  int worker = 0;
  bool is_training = true;
};

Pass parse(const std::string& line) {
  std::istringstream words(line);
  std::string folder, worker, mode;
  std::getline(words, folder, '\t');
  std::getline(words, worker, '\t');
  std::getline(words, mode);
  return {.folder = folder, .worker = std::stoi(worker), .is_training = mode == "train"};
}

void run(const Pass& pass) {
  const ExperimentSpec spec = load_spec({pass.folder / "spec.yaml"}, {}, NamedFiles::kNotNeeded).spec;
  const Precision precision = spec.train.precision;
  SubnetPlan plan = make_plan(layout_of(spec.model, spec.data.sequence_length()), spec.subnetwork,
                              static_cast<uint64_t>(spec.seed));
  if (pass.worker < 0) plan = dense_plan(plan, plan.construction);
  const int worker = std::max(pass.worker, 0);
  const SafetensorsFile file(pass.folder / "in.safetensors");
  const CutTensors tensors(file, plan, worker, precision);
  const std::unique_ptr<Model> model = make_subnetwork(spec.model, plan, worker, tensors);
  at::Tensor input = read(file, "input");
  input = input.to(input.is_floating_point() ? scalar_type(compute_type(precision)) : at::kLong);
  const at::Tensor labels = read(file, "labels").to(at::kLong);
  const ForwardMode mode{.training = pass.is_training,
                         .checkpoint_branches = spec.train.checkpoint_activations};
  const at::AutoGradMode with_gradients(pass.is_training);

  const int64_t bytes_before = allocated_now().total();
  const at::Tensor loss = training_loss(model->features(input.clone(), mode), model->head(),
                                        {.labels = labels}, spec.train.label_smoothing)
                              .loss;
  int64_t kept_bytes = allocated_now().total() - bytes_before;
  if (spec.model.reads_tokens() && pass.is_training)  // the head's gradient is computed with the loss
    kept_bytes -= model->head().weight.numel() * bytes_of(sum_type(precision));
  std::map<std::string, at::Tensor> results;
  if (pass.is_training) {
    loss.backward();
    results = tensors.gradients();
  }
  results["loss"] = loss.detach();
  results["logits"] = model->forward(input, mode).detach();
  for (int b = 0; b < static_cast<int>(plan.layout.branches.size()); ++b) {
    int number = 0;
    for (const BranchPart& part : plan.parts_of(worker, b)) {
      std::vector<int64_t> hidden;
      for (int unit : part.units)
        for (int64_t i = plan.units[unit].begin; i < plan.units[unit].end; ++i)
          hidden.push_back(i);
      results[fmt::format("units|{}|{}", b, number)] = int64s({part.units.begin(), part.units.end()});
      results[fmt::format("hidden|{}|{}", b, number++)] = int64s(hidden);
    }
  }
  results["kept_bytes"] = int64s({kept_bytes});
  results["planned_flops"] = at::tensor({plan.worker_flops(worker)}, at::kDouble);
  write(pass.folder / "out.safetensors", results);
}

}  // namespace
}  // namespace sdp

int main() {
  try {
    sdp::prepare_device(sdp::test_device());
    // The memory that cuBLAS allocates for its first product stays allocated and is not kept by a pass.
    const at::Tensor square = at::ones({8, 8}, sdp::test_device());
    square.mm(square);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  for (std::string line; std::getline(std::cin, line);) {
    try {
      sdp::run(sdp::parse(line));
      std::puts("ok");
    } catch (const std::exception& error) {
      std::string message = error.what();
      std::replace(message.begin(), message.end(), '\n', ' ');
      std::puts(message.c_str());
    }
    std::fflush(stdout);
  }
  return 0;
}
