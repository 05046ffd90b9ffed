#include "comm/stop_agreement.h"

#include <algorithm>

namespace sdp {

bool StopAgreement::is_agreed() const {
  return std::all_of(said_.begin(), said_.end(), [](const auto& passed) { return passed.has_value(); });
}

/// Whether all processes stop at the point that this process has reached.
bool StopAgreement::is_reached(std::unique_lock<std::mutex>& lock) {
  if (!is_asked()) return false;
  changed_.wait(lock, [&] { return is_agreed() || abandoned_; });
  return is_agreed() && passed_ >= *std::max_element(said_.begin(), said_.end());
}

bool StopAgreement::stops_here() {
  std::unique_lock lock(mutex_);
  if (is_reached(lock)) return true;
  ++passed_;
  return false;
}

bool StopAgreement::stops_within() {
  std::unique_lock lock(mutex_);
  return is_reached(lock);
}

std::optional<int64_t> StopAgreement::ask() {
  const std::lock_guard lock(mutex_);
  if (is_asked()) return std::nullopt;
  said_[rank_] = passed_;
  changed_.notify_all();
  return passed_;
}

void StopAgreement::receive(int rank, int64_t passed) {
  const std::lock_guard lock(mutex_);
  said_[static_cast<size_t>(rank)] = passed;
  changed_.notify_all();
}

void StopAgreement::abandon() {
  const std::lock_guard lock(mutex_);
  abandoned_ = true;
  changed_.notify_all();
}

bool StopAgreement::is_before_training() const {
  const std::lock_guard lock(mutex_);
  return std::any_of(said_.begin(), said_.end(), [](const auto& passed) { return passed == kNotBegun; });
}

std::vector<int> StopAgreement::missing() const {
  const std::lock_guard lock(mutex_);
  std::vector<int> ranks;
  for (size_t rank = 0; is_asked() && rank < said_.size(); ++rank)
    if (!said_[rank]) ranks.push_back(static_cast<int>(rank));
  return ranks;
}

}  // namespace sdp
