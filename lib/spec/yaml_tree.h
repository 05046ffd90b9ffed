#pragma once

// A YAML document as plain values that know where they were written.

#include <filesystem>
#include <string>
#include <string_view>
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

/// The document of a file. Throws UsageError where it cannot be read, and as parse_yaml.
YamlNode read_yaml(const std::filesystem::path& file);

/// What was found, for messages: "found 'text'", "found a list", ...
std::string found(const YamlNode& node);

/// Throws UsageError for a key of a mapping that is not allowed, with the nearest that is, and for one that
/// is there twice. `parent`: the dotted name of the mapping.
void check_keys(const YamlNode& mapping, const std::string& parent,
                const std::vector<std::string_view>& allowed);

/// The value of a key; null without it.
const YamlNode* find_key(const YamlNode& mapping, std::string_view key);

/// Whether the text is words with dots between them.
bool is_dotted_key(std::string_view text);

/// Such a key "a.b" and a value as the tree of the file "a: {b: value}", every mapping and key placed at
/// `position`.
YamlNode nested(const std::string& key, YamlNode value, const Position& position);

}  // namespace sdp
