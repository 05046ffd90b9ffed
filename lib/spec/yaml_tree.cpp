#include "spec/yaml_tree.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <optional>
#include <sstream>
#include <utility>

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
    scalar.quoted = tag != "?";  // the tag of a plain scalar that has none of its own
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
    YamlNode made;
    made.kind = kind;
    made.position = position_of(mark, origin_);
    return made;
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
        fail_at(value.position, "", "found a key that is not a word, expected a key as in 'name: value'");
      parent.keys.push_back(std::move(value));
      return;
    }
    // The parser puts an absent value where the next token is.
    if (parent.kind == YamlNode::Kind::kMapping && value.kind == YamlNode::Kind::kNull)
      value.position = parent.keys.back().position;
    parent.items.push_back(std::move(value));
  }

  const Position& origin_;
  std::vector<YamlNode> open_;  // mappings and lists that have begun, outermost first
  std::optional<YamlNode> root_;
};

}  // namespace

YamlNode parse_yaml(const std::string& text, const Position& origin) {
  YamlNode nothing;
  nothing.position = origin;
  TreeBuilder builder(origin);
  try {
    // yaml-cpp takes the end of the text for the end of an open quotation; in front of an end mark it does
    // not.
    std::istringstream stream(text + (text.ends_with('\n') ? "...\n" : "\n...\n"));
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (const YAML::Exception& error) {
    fail_at(position_of(error.mark, origin), "", "not valid YAML: " + error.msg);
  }
  return builder.root().value_or(nothing);
}

}  // namespace sdp
