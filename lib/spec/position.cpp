#include "spec/position.h"

#include <algorithm>
#include <stdexcept>

namespace sdp {

std::string Position::prefix() const {
  if (is_override()) return source + ": ";
  return source + ":" + std::to_string(line) + ":" + std::to_string(column) + ": ";
}

void fail_at(const Position& position, const std::string& key, const std::string& problem) {
  throw UsageError(position.prefix() + (key.empty() ? "" : key + ": ") + problem);
}

const Position& Positions::of(const std::string& key) const {
  const auto found = positions_.find(key);
  if (found != positions_.end()) return found->second;
  if (key.empty()) throw std::logic_error("Positions: no file was read");
  const size_t dot = key.rfind('.');
  return of(dot == std::string::npos ? "" : key.substr(0, dot));
}

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
