#pragma once

// Compares the copies of parameter values on different processes. The method keeps them equal bit by bit:
// every owner applies the same averaged gradient, or receives the values from the one that does. A difference
// means that a copy was changed otherwise, for example by faulty memory.

#include <cstdint>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "engine/parameter_store.h"

namespace sdp {

/// A unit's piece of a parameter of which not all copies are equal.
struct DifferentCopies {
  int parameter = 0;
  int unit = kSharedUnit;
  std::vector<std::vector<int>> ranks;  ///< the ranks with equal copies; the largest group first
};

/// Finds different copies by 64-bit hashes of their bits, which a single flipped bit always changes.
/// Collective; the host waits for the device. All values must have been awaited.
std::vector<DifferentCopies> find_different_copies(const ParameterStore& store, Communicator& comm);

/// The first of them in words, with its parameter, unit and ranks, and how many there are.
std::string describe(const std::vector<DifferentCopies>& found, const SubnetPlan& plan);

}  // namespace sdp
