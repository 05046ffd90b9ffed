#include "model/layout_builder.h"
#include "model/mlp/mlp_spec.h"

namespace sdp {
namespace {

constexpr int64_t kNeuronGranularity = 8;

void add_branch(LayoutBuilder& builder, const std::string& name, int block, int64_t width,
                int64_t hidden_width) {
  const int branch = builder.begin_branch(name, block, {width, width}, hidden_width, kNeuronGranularity);
  const LayerPlace hidden{.branch = branch, .output = kRows, .recomputed_if_frozen = true};
  builder.layer_norm(name + ".norm", width, 1, {.branch = branch, .recomputed_if_frozen = true});
  builder.linear(name + ".mlp.0", width, hidden_width, 1, hidden);
  builder.operation({.kind = OperationKind::kRelu, .in = hidden_width}, hidden);
  builder.linear(name + ".mlp.3", hidden_width, width, 1,
                 {.branch = branch, .input = kColumns, .scales_branch_output = true});
  builder.operation({.kind = OperationKind::kAdd, .in = width}, {.branch = branch});
  const double w = static_cast<double>(width);
  BranchActivations& saved = builder.saved(branch);
  saved.owned.elements = static_cast<double>(hidden_width);  // ReLU's output, the second layer's input
  saved.with_owned.elements = 2 * w;                         // the norm's input and output
  saved.block_frozen.elements = w;                           // the norm's input
  saved.neuron_frozen.elements = 2 * w;
  saved.checkpointed.elements = w;
  // Gradients of the branch's output and its input; gradients of ReLU's output and its input.
  saved.workspace.elements = 2 * w;
  saved.workspace_of_slices.elements = 2.0 * static_cast<double>(hidden_width);
}

}  // namespace

ModelLayout layout_of(const MlpSpec& spec, int64_t) {
  LayoutBuilder builder;
  const int64_t input = spec.image_channels * spec.image_size.value() * spec.image_size.value();
  builder.linear("stem", input, *spec.width, 1, {}, {.input_needs_gradient = false});
  builder.saved().elements += static_cast<double>(input);
  for (int64_t i = 0; i < *spec.depth; ++i)
    add_branch(builder, "blocks." + std::to_string(i), static_cast<int>(i), *spec.width, *spec.hidden_width);
  builder.linear("head", *spec.width, spec.num_classes, 1, {});
  builder.operation({.kind = OperationKind::kCrossEntropy, .in = spec.num_classes}, {});
  builder.saved().elements += static_cast<double>(*spec.width + spec.num_classes);
  return builder.take();
}

}  // namespace sdp
