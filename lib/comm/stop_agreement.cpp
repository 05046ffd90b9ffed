#include "comm/stop_agreement.h"

#include <algorithm>

namespace sdp {

bool StopAgreement::is_agreed() const {
  return std::all_of(said_.begin(), said_.end(), [](const auto& begun) { return begun.has_value(); });
}

bool StopAgreement::stops_before(int64_t step) {
  std::unique_lock lock(mutex_);
  if (is_asked()) {
    changed_.wait(lock, [&] { return is_agreed() || abandoned_; });
    if (is_agreed() && step >= *std::max_element(said_.begin(), said_.end())) return true;
  }
  begun_ = step + 1;
  return false;
}

std::optional<int64_t> StopAgreement::ask() {
  const std::lock_guard lock(mutex_);
  if (is_asked()) return std::nullopt;
  said_[rank_] = begun_;
  changed_.notify_all();
  return begun_;
}

void StopAgreement::hear(int rank, int64_t begun) {
  const std::lock_guard lock(mutex_);
  said_[static_cast<size_t>(rank)] = begun;
  changed_.notify_all();
}

void StopAgreement::abandon() {
  const std::lock_guard lock(mutex_);
  abandoned_ = true;
  changed_.notify_all();
}

bool StopAgreement::is_before_training() const {
  const std::lock_guard lock(mutex_);
  return std::any_of(said_.begin(), said_.end(), [](const auto& begun) { return begun == kNotBegun; });
}

std::vector<int> StopAgreement::missing() const {
  const std::lock_guard lock(mutex_);
  std::vector<int> ranks;
  for (size_t rank = 0; is_asked() && rank < said_.size(); ++rank)
    if (!said_[rank]) ranks.push_back(static_cast<int>(rank));
  return ranks;
}

}  // namespace sdp
