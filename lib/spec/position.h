#pragma once

// Where the keys of a spec were set, for messages.

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "spec/error.h"

namespace sdp {

/// A position in a file, or an override on the command line.
struct Position {
  std::string source;  ///< file name, or "--set a.b=v"
  int line = 0;        ///< from 1; 0 for an override
  int column = 0;      ///< from 1

  bool is_override() const { return line == 0; }
  /// "file:line:column: " or "--set a.b=v: ".
  std::string prefix() const;
};

/// Throws UsageError "<position>: <key>: <problem>". An empty key stands for the whole file and is omitted.
[[noreturn]] void fail_at(const Position& position, const std::string& key, const std::string& problem);

/// The position of every key that was set, by its dotted name. The key "" stands for the whole file.
class Positions {
 public:
  void set(const std::string& key, const Position& position) { positions_[key] = position; }
  void unset(const std::string& key) { positions_.erase(key); }
  bool is_set(const std::string& key) const { return positions_.contains(key); }

  /// Where `key` was set. If it was not set, where the innermost enclosing mapping begins.
  const Position& of(const std::string& key) const;

 private:
  std::map<std::string, Position> positions_;
};

// Collects the errors of a spec, so that all of them are reported at once.

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
