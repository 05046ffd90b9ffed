#include "spec/usage_errors.h"

#include <algorithm>

namespace sdp {

bool UsageErrors::concern(const std::string& key) const {
  return std::any_of(keys_.begin(), keys_.end(), [&](const std::string& other) {
    return key == other || key.starts_with(other + ".") || other.starts_with(key + ".");
  });
}

void UsageErrors::throw_if_any() const {
  constexpr size_t kMost = 50;
  if (messages_.empty()) return;
  if (messages_.size() == 1) throw UsageError(messages_.front());
  std::string text = std::to_string(messages_.size()) + " errors:";
  for (size_t i = 0; i < std::min(messages_.size(), kMost); ++i)
    text += "\n  " + messages_[i];
  if (messages_.size() > kMost) text += "\n  ...";
  throw UsageError(text);
}

}  // namespace sdp
