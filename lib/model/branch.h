#pragma once

// What the branches of all models share: how their output joins the residual stream, and how frozen parts
// keep less.

#include <ATen/core/Tensor.h>

#include <functional>

#include "model/model.h"

namespace sdp {

/// Dropout on the elements of a branch's output [B, ..] and stochastic depth on its samples (Huang et al.
/// 2016: the last of `branches` is dropped with probability spec.stochastic_depth, the others linearly less),
/// both scaled so that the expectation stays. Unchanged in evaluation or without a generator.
at::Tensor drop_randomly(const at::Tensor& branch_output, const ModelSpec& spec, int branch, int branches,
                         const ForwardMode& mode);

/// f(x, false), of which only x stays until the backward pass, where f(x, true) is computed again. f has no
/// parameter that requires a gradient. With a second argument of true it must change no state.
at::Tensor recomputed(const std::function<at::Tensor(const at::Tensor& x, bool again)>& f,
                      const at::Tensor& x);

}  // namespace sdp
