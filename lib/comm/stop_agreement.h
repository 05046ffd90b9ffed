#pragma once

// The agreement of all processes on where to stop. Internal to comm/.

#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "process/condition_variable.h"

namespace sdp {

/// Determines the point at which all processes stop once one of them was asked to. All processes pass the
/// same stop points in the same order: one before every training step, others within an evaluation. Between
/// two collectives a process may be any number of points ahead of another, so no process can choose the point
/// by itself. Instead, each process sends the number of points it has passed to all others, at once and
/// whatever it is computing, and passes no further point before it has received the numbers of all others.
/// All stop at the largest number: no process has passed more points, and every process can reach it.
///
/// If training has not begun on some process, that process says so, and all processes end without training
/// further: there is nothing to save yet.
///
/// The training loop and the thread that listens to the other processes may call functions at the same time.
class StopAgreement {
 public:
  static constexpr int64_t kNotBegun = 0;  ///< points passed

  StopAgreement(int rank, int size) : rank_(static_cast<size_t>(rank)), said_(static_cast<size_t>(size)) {}

  /// A stop point. Returns whether this process stops here; if not, it has passed the point. Waits only if
  /// this process has sent its number and not yet received all others.
  bool stops_here();
  /// May be called between two stop points any number of times. Returns whether this process aborts its work
  /// between them: true if a stop was agreed on and no process has passed more points than this one. From the
  /// first call to the next stop point there must be no collective. Waits like stops_here().
  bool stops_within();

  /// Call this when a stop is asked for. Returns the number that this process must send to all others;
  /// nullopt if it has already been sent.
  std::optional<int64_t> ask();
  /// Call this when another process sends its number.
  void receive(int rank, int64_t passed);
  /// Call this when a process was lost: the agreement is abandoned, and calls no longer wait.
  void abandon();

  /// Whether training had not begun on some process.
  bool is_before_training() const;
  /// Ranks that have sent nothing since a stop was asked for; empty if none was.
  std::vector<int> missing() const;

 private:
  bool is_asked() const { return said_[rank_].has_value(); }
  bool is_agreed() const;
  bool is_reached(std::unique_lock<std::mutex>& lock);

  const size_t rank_;
  mutable std::mutex mutex_;  ///< protects the following members
  std::condition_variable changed_;
  int64_t passed_ = kNotBegun;
  std::vector<std::optional<int64_t>> said_;  ///< [W] points passed
  bool abandoned_ = false;
};

}  // namespace sdp
