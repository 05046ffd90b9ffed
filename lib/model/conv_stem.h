#pragma once

#include "model/batch_norm.h"
#include "model/residual_layout.h"

namespace sdp {

/// The forward pass of the stem.
class ConvStem {
 public:
  explicit ConvStem(Stem stem) : stem_(stem) {}
  void bind(const TensorSource& source);
  /// images [B, C, S, S] -> [B, W, S', S']. `is_kept`: whether a later operation saves the result.
  at::Tensor forward(const at::Tensor& images, const ForwardMode& mode, bool is_kept) const;

 private:
  Stem stem_;
  at::Tensor conv1_;  // [W, C, 3, 3] or [W, C, 7, 7]
  BatchNorm bn1_;
};

}  // namespace sdp
