#pragma once

// After which step all processes stop. Internal to comm/.

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

namespace sdp {

/// The step after which all processes stop, once one of them was asked to. Between two steps that are far
/// apart in communication a process may be ahead of another one by any number of steps, so none can choose
/// the step alone. Each tells all others how many steps it has begun, at once and whatever its training loop
/// is doing, and then begins no further one before it has heard the same from all. The largest number is the
/// step: nobody has passed it, and everybody can reach it.
///
/// A process whose training has not begun says so, and then nobody trains on: there is nothing to save yet.
///
/// Functions of the training loop and of the thread that hears the others may be called at the same time.
class StopAgreement {
 public:
  static constexpr int64_t kNotBegun = -1;

  StopAgreement(int rank, int size) : rank_(static_cast<size_t>(rank)), said_(static_cast<size_t>(size)) {}

  /// The training loop, with `step` steps done, is about to begin the next one: whether it stops here
  /// instead. Waits only where this process has told its number and not heard all others'.
  bool stops_before(int64_t step);

  /// A stop is asked for: what this process has to tell all others, nothing if it has done so.
  std::optional<int64_t> ask();
  /// What another process tells.
  void hear(int rank, int64_t begun);
  /// A process was lost: nothing more is agreed on, and nobody waits.
  void abandon();

  /// Whether somebody's training had not begun.
  bool is_before_training() const;
  /// Ranks that have told nothing since a stop was asked for; empty where none was.
  std::vector<int> missing() const;

 private:
  bool is_asked() const { return said_[rank_].has_value(); }
  bool is_agreed() const;

  const size_t rank_;
  mutable std::mutex mutex_;  ///< of what follows
  std::condition_variable changed_;
  int64_t begun_ = kNotBegun;
  std::vector<std::optional<int64_t>> said_;  ///< [W] steps begun
  bool abandoned_ = false;
};

}  // namespace sdp
