#include "spec/read.h"

#include <charconv>
#include <cmath>
#include <limits>
#include <set>

#include "spec/error.h"

namespace sdp {
namespace {

bool is_plain(const YamlNode& node) {
  return node.kind == YamlNode::Kind::kScalar && !node.quoted;
}

/// The text of a number without a leading plus, which std::from_chars does not accept.
std::string_view without_plus(const std::string& text) {
  const std::string_view view = text;
  return view.size() > 1 && view[0] == '+' && view[1] != '-' ? view.substr(1) : view;
}

template <class Number>
Number read_number(const YamlValue& value, const std::string& kind, const std::string& range) {
  if (!is_plain(value.node)) value.refuse_number(kind);
  const std::string_view text = without_plus(value.node.text);
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (end != text.data() + text.size()) value.refuse_number(kind);
  if (error == std::errc::result_out_of_range) value.refuse_number(kind + " " + range);
  if (error != std::errc()) value.refuse_number(kind);
  return number;
}

}  // namespace

void YamlValue::refuse(const std::string& expected) const {
  fail_at(node.position, key, found(node) + ", expected " + expected);
}

void YamlValue::refuse_number(const std::string& kind) const {
  const std::string limits = describe(field.limits);
  refuse(limits.empty() ? kind : kind + ", " + limits);
}

void YamlValue::refuse_name(const std::vector<std::string_view>& names) const {
  const std::string expected = (names.size() == 1 ? "" : "one of ") + join(names, ", ");
  refuse(expected + did_you_mean(node.text, names));
}

void read_value(bool& target, const YamlValue& value) {
  static const std::set<std::string_view> kTrue = {"true", "True", "TRUE"};
  static const std::set<std::string_view> kFalse = {"false", "False", "FALSE"};
  const bool is_true = kTrue.contains(value.node.text);
  if (!is_plain(value.node) || (!is_true && !kFalse.contains(value.node.text))) value.refuse("true or false");
  target = is_true;
}

void read_value(int64_t& target, const YamlValue& value) {
  const auto number = read_number<int64_t>(
      value, "a whole number", "of magnitude at most " + std::to_string(std::numeric_limits<int64_t>::max()));
  if (!value.field.limits.contains(static_cast<double>(number))) value.refuse_number("a whole number");
  target = number;
}

void read_value(double& target, const YamlValue& value) {
  const auto number = read_number<double>(value, "a number", "that fits a double");
  if (!std::isfinite(number)) value.refuse_number("a finite number");
  if (!value.field.limits.contains(number)) value.refuse_number("a number");
  target = number;
}

void read_value(std::string& target, const YamlValue& value) {
  if (value.node.kind != YamlNode::Kind::kScalar) value.refuse("text");
  if (value.field.required && value.node.text.empty()) value.refuse("text that is not empty");
  if (has_shell_expansion(value.node.text)) value.refuse(std::string(kNoShellExpansion));
  target = value.node.text;
}

void read_value(Coverage& target, const YamlValue& value) {
  if (value.node.kind != YamlNode::Kind::kScalar) value.refuse("a coverage, such as 4/8 or 0.5");
  Coverage coverage;
  coverage.text = value.node.text;
  try {
    value_of(coverage);
  } catch (const UsageError& error) {
    fail_at(value.node.position, value.key, error.what());
  }
  target = coverage;
}

}  // namespace sdp
