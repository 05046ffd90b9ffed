#pragma once

// Placement: n workers x R replicas on W processes. A slot is one (worker, replica); slots are numbered
// worker * R + replica, and every process runs the same number of consecutive slots, one after another.

#include <compare>
#include <cstdint>
#include <vector>

#include "subnet/member_set.h"

namespace sdp {

struct Slot {
  int worker = 0;
  int replica = 0;

  // NOLINTNEXTLINE(modernize-use-nullptr): false alarm of clang-tidy 14
  auto operator<=>(const Slot&) const = default;
};

struct Placement {
  int workers = 1;    ///< n
  int replicas = 1;   ///< R
  int processes = 1;  ///< W

  int slots() const { return workers * replicas; }
  int slots_per_process() const { return slots() / processes; }
  int process_of(Slot slot) const { return (slot.worker * replicas + slot.replica) / slots_per_process(); }
  /// Slots of a process, in the order in which their gradients are summed.
  std::vector<Slot> slots_of(int process) const;
  /// Processes that run at least one slot of one of these workers.
  MemberSet processes_of(const MemberSet& worker_set) const;
};

/// W must be R n or divide n; otherwise throws UsageError naming the possible W.
Placement make_placement(int64_t workers, int64_t replicas, int64_t processes);

}  // namespace sdp
