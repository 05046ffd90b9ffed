#pragma once

#include <vector>

#include "model/model.h"
#include "model/swin/swin_spec.h"
#include "model/swin/swin_stages.h"

namespace sdp {

// Letters in the comments: B batch, S height and width of a stage's map, C width of a stage, w side of a
// window, N = w w positions per window, W windows per map, D elements per head, A heads of a part, H hidden
// neurons of a part.

/// torchvision.models.swin_t (Liu et al. 2021); layouts in model/layouts.h. Every block has two branches:
/// attention within windows, which are shifted in every second block, and an MLP.
class SwinT : public Model {
 public:
  SwinT(const SwinSpec& spec, const DropRates& drop);
  void bind_shared(const TensorSource& source) override;
  void bind_branch(int branch, const TensorSource& source) override;
  void unbind_branch(int branch) override;
  at::Tensor features(const at::Tensor& images, const ForwardMode& mode) override;
  Head head() const override { return {.weight = head_weight_, .bias = head_bias_}; }

 private:
  struct Norm {
    at::Tensor weight, bias;  // [C], possibly of a wider type than the activations
  };
  struct AttentionPart {
    at::Tensor qkv_weight, qkv_bias;  // [3 A D, C], [3 A D]
    at::Tensor proj_weight;           // [C, A D]
    at::Tensor bias_table;            // [(2 w - 1)^2, A]
  };
  struct MlpPart {
    at::Tensor up_weight, up_bias;  // [H, C], [H]
    at::Tensor down_weight;         // [C, H]
  };
  template <class Part>
  struct Branch {
    Norm norm;
    at::Tensor output_bias;  // [C]
    std::vector<Part> parts;
  };
  struct Block {
    std::string name;
    size_t stage = 0;
    bool shifted = false;
    std::optional<Branch<AttentionPart>> attention;  ///< std::nullopt: not bound
    std::optional<Branch<MlpPart>> mlp;
  };
  struct Merging {
    Norm norm;             // [4 C]
    at::Tensor reduction;  // [2 C, 4 C]
  };

  static Norm bind_norm(const TensorSource& source, const std::string& name);
  static at::Tensor layer_norm(const at::Tensor& x, const Norm& norm);
  /// x [B, S, S, C] -> the branch's output, of x's shape, or [C] if there are no parts.
  at::Tensor attention_forward(const Block& block, const at::Tensor& x) const;
  at::Tensor mlp_forward(const Branch<MlpPart>& branch, const at::Tensor& x) const;
  /// Runs branch `branch`; both branches of every block are counted.
  at::Tensor add_branch(int branch, const at::Tensor& x, const ForwardMode& mode) const;

  const SwinSpec spec_;
  const DropRates drop_;
  const std::vector<SwinStage> stages_;
  at::Tensor patch_weight_, patch_bias_;  // [C, channels, patch, patch], [C] of the first stage
  Norm patch_norm_, norm_;
  std::vector<Merging> mergings_;        // after each stage but the last
  at::Tensor head_weight_, head_bias_;   // [num_classes, C], [num_classes]
  at::Tensor position_index_;            // [N N]
  std::vector<at::Tensor> shift_masks_;  // [W, N, N] of each stage
  std::vector<Block> blocks_;
};

}  // namespace sdp
