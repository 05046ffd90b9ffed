#pragma once

// Checks of values: whether they are finite, and whether the copies on different processes are equal.

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "subnet/plan.h"

namespace sdp {

class Engines;

/// By tensor, whether all of its elements are finite: [tensors.size()] of bool on their device. There must be
/// a tensor; the tensors may have any shapes and floating-point types.
at::Tensor are_finite(const std::vector<at::Tensor>& tensors);

/// Index of the first tensor that contains a NaN or an infinity, or nullopt if there is none. The tensors are
/// on one device, for which the host waits once.
std::optional<size_t> first_not_finite(const std::vector<at::Tensor>& tensors);

/// Whether a single tensor is finite.
inline bool is_finite(const at::Tensor& tensor) {
  return !first_not_finite({tensor});
}

// Compares the copies of parameter values on different processes. The method keeps them equal bit by bit:
// every owner applies the same averaged gradient, or receives the values from the one that does. A difference
// means that a copy was changed otherwise, for example by faulty memory.

/// A unit's slice of a parameter of which not all copies are equal.
struct DifferentCopies {
  int parameter = 0;
  int unit = kSharedUnit;
  std::vector<std::vector<int>> ranks;  ///< the ranks with equal copies; the largest group first
};

/// Finds different copies by 64-bit hashes of their bits, which a single flipped bit always changes.
/// Collective; the host waits for the device. All values must have been awaited; with local steps, call it
/// between rounds only.
std::vector<DifferentCopies> find_different_copies(const Engines& engines, Communicator& comm);

/// The first of them in words, with its parameter, unit and ranks, and how many there are.
std::string describe(const std::vector<DifferentCopies>& found, const SubnetPlan& plan);

}  // namespace sdp
