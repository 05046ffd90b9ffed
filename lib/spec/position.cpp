#include "spec/position.h"

#include <stdexcept>

#include "spec/error.h"

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

}  // namespace sdp
