#pragma once

// Shared by the branches of all models: their place in a residual stream, random dropping of a branch's
// output, and recomputation, which lets a branch save less for the backward pass.

#include <ATen/core/Tensor.h>

#include <functional>

#include "layers/drop_rates.h"
#include "layers/model.h"

namespace sdp {

/// Applies dropout to the elements of a branch's output [B, ..], and stochastic depth to its samples (Huang
/// et al. 2016; rates.stochastic_depth_rule gives the probability for branch `branch` of `branches`). Both
/// scale the output so that its expectation does not change. In evaluation, or without a generator, the
/// output is returned unchanged.
at::Tensor drop_randomly(const at::Tensor& branch_output, const DropRates& rates, int branch, int branches,
                         const ForwardMode& mode);

/// x + scale * output() between the mode's calls before and after the branch. `output` is called after
/// mode.before_branch, which may bind the branch; it returns an undefined tensor if the branch is not bound.
at::Tensor add_branch(int branch, const at::Tensor& x, const ForwardMode& mode,
                      const std::function<at::Tensor()>& output);

/// A computation that may run twice. The second time, with `again`, it must not change any state.
using Recipe = std::function<at::Tensor(const at::Tensor& x, bool again)>;

/// The name of the scope of recomputations, for recorders and profilers.
inline constexpr const char* kRecomputation = "recomputation";

/// Returns f(x, false) and saves only x for the backward pass. The backward pass computes f(x, true), through
/// which the parameters of f get their gradients.
at::Tensor recomputed(const Recipe& f, const at::Tensor& x);

/// Returns a branch's output; with mode.checkpoint_branches, the branch is recomputed in the backward pass.
at::Tensor run_branch(const Recipe& branch, const at::Tensor& x, const ForwardMode& mode);

}  // namespace sdp
