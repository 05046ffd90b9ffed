#pragma once

// Collects the errors of a spec, so that all of them are reported at once.

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "spec/error.h"
#include "spec/position.h"

namespace sdp {

class UsageErrors {
 public:
  /// Runs `check` and keeps the UsageError that it throws. Of several errors of one key at one position, the
  /// first is kept: each kind of a component reads the keys that it has in common with others.
  template <class Check>
  void collect(const Position& position, const std::string& key, Check check) {
    try {
      check();
    } catch (const UsageError& error) {
      keys_.insert(key);
      if (places_.emplace(position.prefix(), key).second) messages_.emplace_back(error.what());
    }
  }

  /// Whether the key, the section that contains it, or a key of the section that it is has an error.
  bool concern(const std::string& key) const;

  /// Throws a UsageError with all messages, one to a line, if there are any.
  void throw_if_any() const;

 private:
  std::vector<std::string> messages_;
  std::set<std::string> keys_;
  std::set<std::pair<std::string, std::string>> places_;
};

}  // namespace sdp
