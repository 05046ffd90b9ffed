#include "spec/yaml_tree.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <sstream>
#include <utility>

#include "spec/error.h"
#include "spec/text.h"
#include "spec/visit.h"

namespace sdp {
namespace {

Position position_of(const YAML::Mark& mark, const Position& origin) {
  if (origin.is_override()) return origin;
  if (mark.is_null()) return origin;
  return {origin.source, mark.line + 1, mark.column + 1};
}

class TreeBuilder : public YAML::EventHandler {
 public:
  explicit TreeBuilder(const Position& origin) : origin_(origin) {}

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (root_) fail_at(position_of(mark, origin_), "", "found a second document, expected one");
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t) override { add(node(YamlNode::Kind::kNull, mark)); }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    fail_at(position_of(mark, origin_), "", "found an alias (*name), expected the value itself");
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t,
                const std::string& value) override {
    YamlNode scalar = node(YamlNode::Kind::kScalar, mark);
    scalar.text = value;
    scalar.quoted = tag != "?";  // yaml-cpp's tag for a plain scalar without an explicit one
    add(std::move(scalar));
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {
    open_.push_back(node(YamlNode::Kind::kList, mark));
  }
  void OnSequenceEnd() override { close(); }

  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {
    open_.push_back(node(YamlNode::Kind::kMapping, mark));
  }
  void OnMapEnd() override { close(); }

  const std::optional<YamlNode>& root() const { return root_; }

 private:
  YamlNode node(YamlNode::Kind kind, const YAML::Mark& mark) const {
    return {.kind = kind, .position = position_of(mark, origin_)};
  }

  void close() {
    YamlNode finished = std::move(open_.back());
    open_.pop_back();
    add(std::move(finished));
  }

  void add(YamlNode value) {
    if (open_.empty()) {
      if (value.kind == YamlNode::Kind::kNull) value.position = origin_;
      root_ = std::move(value);
      return;
    }
    YamlNode& parent = open_.back();
    if (parent.kind == YamlNode::Kind::kMapping && parent.keys.size() == parent.items.size()) {
      if (value.kind != YamlNode::Kind::kScalar)
        fail_at(value.position, "",
                "found a key that is not a word, expected a key such as name in 'name: value'");
      parent.keys.push_back(std::move(value));
      return;
    }
    // The parser reports an absent value at the position of the next token.
    if (parent.kind == YamlNode::Kind::kMapping && value.kind == YamlNode::Kind::kNull)
      value.position = parent.keys.back().position;
    parent.items.push_back(std::move(value));
  }

  const Position& origin_;
  std::vector<YamlNode> open_;  // mappings and lists that are still open, outermost first
  std::optional<YamlNode> root_;
};

std::string read_text(const std::filesystem::path& file) {
  constexpr std::uintmax_t kMostBytes = 1 << 20;
  const std::string name = shortened(file.string());
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(file, error);
  if (std::filesystem::is_directory(status))
    throw UsageError(name + ": found a folder, expected a YAML file");
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status))
    throw UsageError(name + ": found a pipe or a device, expected a YAML file. Write it to a file first");
  const std::uintmax_t bytes = std::filesystem::file_size(file, error);
  if (!error && bytes > kMostBytes)
    throw UsageError(name + ": found " + std::to_string(bytes) + " bytes, expected a YAML file of at most " +
                     std::to_string(kMostBytes));
  errno = 0;
  std::ifstream stream(file, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(stream), {}};
  if (!stream.good() && !stream.eof())
    throw UsageError(name + ": cannot be read (" + std::strerror(errno) + "), expected a YAML file");
  if (const std::string wrong = wrong_content(text); !wrong.empty()) throw UsageError(name + ": " + wrong);
  return text;
}

/// YAML may be UTF-16, but nothing else here is.
void check_utf8(const std::string& text, const Position& origin) {
  const std::optional<size_t> at = invalid_utf8_at(text);
  const bool has_nul = text.find('\0') != std::string::npos;
  if (!at && !has_nul) return;
  const bool is_utf16 = text.starts_with("\xff\xfe") || text.starts_with("\xfe\xff") || has_nul;
  Position position = origin;
  if (!origin.is_override() && !is_utf16) {
    position.line =
        1 + static_cast<int>(std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(*at), '\n'));
    position.column = static_cast<int>(*at - (text.rfind('\n', *at) + 1)) + 1;
  }
  fail_at(position, "",
          is_utf16
              ? "found UTF-16 or binary data, expected UTF-8 text. To convert: iconv -f UTF-16 -t UTF-8"
              : "found a byte that is not UTF-8, expected UTF-8 text. If it is Latin-1, to convert: iconv -f "
                "LATIN1 -t UTF-8");
}

std::string first_line(const Position& position) {
  return position.is_override() ? "" : " (the first is on line " + std::to_string(position.line) + ")";
}

}  // namespace

YamlNode parse_yaml(const std::string& text, const Position& origin) {
  check_utf8(text, origin);
  TreeBuilder builder(origin);
  try {
    // yaml-cpp accepts an unterminated quoted string at the end of the text, but not before a document end
    // marker.
    std::istringstream stream(text + (text.ends_with('\n') ? "...\n" : "\n...\n"));
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (const YAML::Exception& error) {
    const char* tabs =
        text.find('\t') == text.npos ? "" : ". The text has tabs; YAML is indented with blanks";
    fail_at(position_of(error.mark, origin), "", "not valid YAML: " + error.msg + tabs);
  }
  return builder.root().value_or(YamlNode{.position = origin});
}

YamlNode parse_typed_value(const std::string& text, const Position& origin) {
  constexpr std::string_view kBegins = "'\"[{";
  constexpr std::string_view kEnds = "'\"]}";
  const size_t kind = text.empty() ? std::string_view::npos : kBegins.find(text.front());
  if (kind != std::string_view::npos) {
    YamlNode value = parse_yaml(text, origin);
    if (text.back() != kEnds[kind])
      fail_at(origin, "", std::string("not valid YAML: text after the closing ") + kEnds[kind]);
    return value;
  }
  check_utf8(text, origin);
  if (text.empty() || text == "~" || text == "null") return {.position = origin};
  return {.kind = YamlNode::Kind::kScalar, .position = origin, .text = text};
}

YamlNode read_yaml(const std::filesystem::path& file) {
  return parse_yaml(read_text(file), {.source = file.string(), .line = 1, .column = 1});
}

std::string found(const YamlNode& node) {
  switch (node.kind) {
    case YamlNode::Kind::kNull:
      return "found nothing";
    case YamlNode::Kind::kList:
      return "found a list";
    case YamlNode::Kind::kMapping:
      return "found a mapping";
    case YamlNode::Kind::kScalar:
      break;
  }
  const std::string text = shortened(node.text);
  return node.quoted ? "found the text \"" + text + "\"" : "found '" + text + "'";
}

namespace {

/// A key of another section whose last word is `word` or begins with it.
std::string other_section_hint(const std::string& word, const std::vector<std::string>& everywhere) {
  std::vector<std::string_view> keys;
  for (const std::string& key : everywhere)
    if (word.size() > 1 && std::string_view(key).substr(key.rfind('.') + 1).starts_with(word))
      keys.push_back(key);
  return keys.empty() ? "" : "; did you mean " + join(keys, " or ") + "?";
}

void refuse_key(const YamlNode& key, const std::string& dotted_key, const KnownKeys& known) {
  std::string hint = did_you_mean(key.text, known.allowed);
  if (hint.empty()) hint = other_section_hint(key.text, known.everywhere);
  fail_at(key.position, dotted_key,
          "unknown key" + (hint.empty() ? "." : hint) + " Allowed here: " + join(known.listed, ", "));
}

}  // namespace

void check_keys(const YamlNode& mapping, const std::string& parent, const KnownKeys& known,
                UsageErrors& errors) {
  std::map<std::string_view, const YamlNode*> seen;
  for (const YamlNode& key : mapping.keys) {
    const std::string dotted_key = dotted(parent, shortened(key.text));
    errors.collect(key.position, dotted_key, [&] {
      if (std::find(known.allowed.begin(), known.allowed.end(), key.text) == known.allowed.end())
        refuse_key(key, dotted_key, known);
      const auto [first, is_new] = seen.emplace(key.text, &key);
      if (!is_new)
        fail_at(key.position, dotted_key,
                "found a second time, expected once" + first_line(first->second->position));
    });
  }
}

const YamlNode* find_key(const YamlNode& mapping, std::string_view key) {
  for (size_t i = 0; i < mapping.keys.size(); ++i)
    if (mapping.keys[i].text == key) return &mapping.items[i];
  return nullptr;
}

bool is_dotted_key(std::string_view text) {
  constexpr auto kMostDots = 8;  // more than in any key
  return !text.empty() && std::count(text.begin(), text.end(), '.') <= kMostDots && !text.starts_with('.') &&
         !text.ends_with('.') && text.find("..") == std::string_view::npos;
}

YamlNode nested(const std::string& key, YamlNode value, const Position& position) {
  std::string_view path = key;
  while (!path.empty()) {
    const size_t dot = path.rfind('.');
    const std::string_view word = path.substr(dot == std::string_view::npos ? 0 : dot + 1);
    YamlNode mapping{.kind = YamlNode::Kind::kMapping, .position = position};
    mapping.keys.push_back(
        {.kind = YamlNode::Kind::kScalar, .position = position, .text = std::string(word)});
    mapping.items.push_back(std::move(value));
    value = std::move(mapping);
    path = path.substr(0, dot == std::string_view::npos ? 0 : dot);
  }
  return value;
}

}  // namespace sdp
