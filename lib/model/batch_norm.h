#pragma once

#include <string>

#include "model/model.h"

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

}  // namespace sdp
