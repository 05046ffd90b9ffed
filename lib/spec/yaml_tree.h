#pragma once

// A YAML document as plain values that know where they were written.

#include <string>
#include <vector>

#include "spec/position.h"

namespace sdp {

struct YamlNode {
  enum class Kind { kNull, kScalar, kList, kMapping };

  Kind kind = Kind::kNull;
  Position position;            ///< of a value that is absent ("key:"): its key's
  std::string text;             ///< of a scalar
  bool quoted = false;          ///< a scalar that is text whatever it looks like
  std::vector<YamlNode> keys;   ///< of a mapping: scalars; duplicates are kept
  std::vector<YamlNode> items;  ///< of a list, or the values of `keys`
};

/// Reads one document; a text without any is kNull. Positions are counted in `origin.source`, which
/// begins at `origin`; where that is an override, every node has it. Throws UsageError with a position:
/// broken syntax, a second document, an alias (*name), a key that is not a plain word.
YamlNode parse_yaml(const std::string& text, const Position& origin);

}  // namespace sdp
