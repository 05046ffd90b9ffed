#pragma once

#include <string>

#include "layers/model.h"
#include "layers/tensors.h"

namespace sdp {

/// torch.nn.BatchNorm2d with C channels.
struct BatchNorm {
  enum class Statistics { kUpdate, kLeave };  ///< of the running statistics, in training

  at::Tensor weight, bias, running_mean, running_var;  // [C]

  /// Binds NAME.weight, NAME.bias and the running statistics.
  static BatchNorm bind(const TensorSource& source, const std::string& name, int part = 0);

  /// x [B, C, S, S]
  at::Tensor forward(const at::Tensor& x, const ForwardMode& mode,
                     Statistics statistics = Statistics::kUpdate) const;
};

/// torch.nn.LayerNorm (Ba et al. 2016) over the last dimension. It computes in fp32 internally (fp64 for fp64
/// tensors) and returns the type of its input. Saves its input x [.., W] and, for each vector, its mean and
/// 1 / deviation.
struct LayerNorm {
  at::Tensor weight, bias;  // [W], possibly of a wider type than x
  double eps = 1e-5;

  /// Binds NAME.weight and NAME.bias.
  static LayerNorm bind(const TensorSource& source, const std::string& name, double eps);

  at::Tensor operator()(const at::Tensor& x) const;
};

}  // namespace sdp
