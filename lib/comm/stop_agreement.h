#pragma once

// Where all processes stop. Internal to comm/.

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

namespace sdp {

/// The place at which all processes stop, once one of them was asked to. All pass the same stop points in the
/// same order: one before every training step, others within an evaluation. Between two collectives a process
/// may be ahead of another one by any number of points, so none can choose the point alone. Each sends all
/// others how many points it has passed, at once and whatever it is computing, and then passes no further one
/// before it has heard the same from all. The largest number is the point: nobody has passed more, and
/// everybody can reach it.
///
/// A process whose training has not begun says so, and then nobody trains on: there is nothing to save yet.
///
/// Functions of the training loop and of the thread that hears the others may be called at the same time.
class StopAgreement {
 public:
  static constexpr int64_t kNotBegun = 0;  ///< points passed

  StopAgreement(int rank, int size) : rank_(static_cast<size_t>(rank)), said_(static_cast<size_t>(size)) {}

  /// A stop point: whether this process stops here. If not, it has passed the point. Waits only where this
  /// process has sent its number and not received all others'.
  bool stops_here();
  /// Between two stop points, as often as a process likes: whether it leaves what it does there, as do all
  /// that have passed as many points, nobody having passed more. From the first call to the next stop point
  /// there must be no collective. Waits as stops_here does.
  bool stops_within();

  /// A stop is asked for: what this process has to send to all others; nothing if it has done so.
  std::optional<int64_t> ask();
  /// What another process sends.
  void hear(int rank, int64_t passed);
  /// A process was lost: nothing more is agreed on, and nobody waits.
  void abandon();

  /// Whether somebody's training had not begun.
  bool is_before_training() const;
  /// Ranks that have sent nothing since a stop was asked for; empty where none was.
  std::vector<int> missing() const;

 private:
  bool is_asked() const { return said_[rank_].has_value(); }
  bool is_agreed() const;
  bool is_reached(std::unique_lock<std::mutex>& lock);

  const size_t rank_;
  mutable std::mutex mutex_;  ///< of what follows
  std::condition_variable changed_;
  int64_t passed_ = kNotBegun;
  std::vector<std::optional<int64_t>> said_;  ///< [W] points passed
  bool abandoned_ = false;
};

}  // namespace sdp
