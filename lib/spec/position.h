#pragma once

// Where the keys of a spec were set, for messages.

#include <map>
#include <string>

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

}  // namespace sdp
