#pragma once

#include "spec/experiment_spec.h"
#include "subnet/layout.h"

namespace sdp {

/// Layout of the model that the resolved spec names. Torch-free. What a language model keeps and computes a
/// sample is for `sequence_length` tokens.
ModelLayout layout_of(const ModelSpec& spec, int64_t sequence_length = 1);

/// ResNet-18 (He et al. 2016) with torchvision's names: torchvision.models.resnet18. Stages have width, 2, 4
/// and 8 times width channels. Stem cifar: 3x3 convolution, stride 1, no pooling. WideResNet-18 (after
/// Zagoruyko and Komodakis 2016) is the same with every width times width_multiplier, the stem's too.
ModelLayout resnet_layout(const ModelSpec& spec);

/// Swin-T (Liu et al. 2021) with torchvision's names: torchvision.models.swin_t.
ModelLayout swin_layout(const ModelSpec& spec);

/// LLaMA (Touvron et al. 2023) with the names of Hugging Face transformers' LlamaForCausalLM.
ModelLayout llama_layout(const ModelSpec& spec, int64_t sequence_length);

/// Rows whose logits a language model's loss computes together (model/linear_cross_entropy.h): in fp32 they
/// take at most 64 MiB, but they are 64 at least.
int64_t logit_rows_at_a_time(int64_t vocabulary);

/// Pre-norm residual MLP on the flattened image: x <- x + W2 relu(W1 norm(x)); names of a branch's layers as
/// in torchvision.ops.MLP.
ModelLayout mlp_layout(const ModelSpec& spec);

}  // namespace sdp
