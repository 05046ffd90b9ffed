#pragma once

// What the branches of all models share: how their output joins the residual stream, and how frozen parts
// keep less.

#include <ATen/core/Tensor.h>

#include <functional>

#include "model/model.h"

namespace sdp {

/// Dropout on the elements of a branch's output [B, ..] and stochastic depth on its samples (Huang et al.
/// 2016, with the probability that rates.stochastic_depth_rule gives that of `branches`), both scaled so that
/// the expectation stays. Unchanged in evaluation or without a generator.
at::Tensor drop_randomly(const at::Tensor& branch_output, const DropRates& rates, int branch, int branches,
                         const ForwardMode& mode);

/// A computation that may be done twice; the second time, with `again`, it must change no state.
using Recipe = std::function<at::Tensor(const at::Tensor& x, bool again)>;

/// f(x, false), of which only x stays until the backward pass, where f(x, true) is computed again. Parameters
/// of f get their gradients then.
at::Tensor recomputed(const Recipe& f, const at::Tensor& x);

/// A branch's output, recomputed where the mode says so.
at::Tensor run_branch(const Recipe& branch, const at::Tensor& x, const ForwardMode& mode);

}  // namespace sdp
