#pragma once

// A YAML document as plain values, each with its position in the file.

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "spec/position.h"

namespace sdp {

struct YamlNode {
  enum class Kind { kNull, kScalar, kList, kMapping };

  Kind kind = Kind::kNull;
  Position position = {};            ///< of an absent value ("key:"): the position of its key
  std::string text = {};             ///< of a scalar
  bool quoted = false;               ///< the scalar is text even if it looks like a number or a boolean
  std::vector<YamlNode> keys = {};   ///< of a mapping: scalars; duplicates are kept
  std::vector<YamlNode> items = {};  ///< of a list; of a mapping: the values of `keys`
};

/// Reads one document. A text without a document gives kNull. Positions are lines and columns of
/// `origin.source`; if `origin` is an override, it is the position of every node. Throws UsageError with a
/// position for text that is not UTF-8, a syntax error, a second document, an alias (*name) or a key that is
/// not a plain word.
YamlNode parse_yaml(const std::string& text, const Position& origin);

/// Reads a value as it is typed on a command line. A list, a mapping or a text in quotes is YAML; anything
/// else is null (nothing, ~ or null) or a scalar with exactly this text, also where YAML would see a comment
/// ("a #1") or a mapping ("a: b"). Throws as parse_yaml, and if something follows the end of the YAML value.
YamlNode parse_typed_value(const std::string& text, const Position& origin);

/// Reads the document of a file. Throws UsageError if the file cannot be read, and for the same reasons as
/// parse_yaml.
YamlNode read_yaml(const std::filesystem::path& file);

/// Describes the node in messages: "found 'text'", "found a list", ...
std::string found(const YamlNode& node);

/// The keys of a mapping.
struct KnownKeys {
  std::vector<std::string_view> allowed;
  std::vector<std::string_view> listed = allowed;  ///< in messages
  std::vector<std::string> everywhere =
      {};  ///< dotted keys of the whole document, to suggest another section
};

/// Adds an error for each key that is not allowed in the mapping, with similar keys, and for each key that
/// occurs twice. `parent` is the dotted name of the mapping.
void check_keys(const YamlNode& mapping, const std::string& parent, const KnownKeys& known,
                UsageErrors& errors);

/// The value of a key; null if the mapping does not have it.
const YamlNode* find_key(const YamlNode& mapping, std::string_view key);

/// Whether the text consists of words separated by dots.
bool is_dotted_key(std::string_view text);

/// For a dotted key "a.b" and a value, the tree of the file "a: {b: value}". Every mapping and key has the
/// position `position`.
YamlNode nested(const std::string& key, YamlNode value, const Position& position);

}  // namespace sdp
