#include "spec/read.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <set>

#include "spec/error.h"
#include "spec/text.h"
#include "spec/visit.h"

namespace sdp {
namespace {

/// A value that is being read: what is there, the key it belongs to, and what the field list says of that
/// key.
struct Value {
  const YamlNode& node;
  const std::string& key;
  const FieldInfo& field;

  [[noreturn]] void refuse(const std::string& expected) const {
    fail_at(node.position, key, found(node) + ", expected " + expected);
  }
  [[noreturn]] void refuse_number(const std::string& kind) const {
    const std::string limits = describe(field.limits);
    refuse(limits.empty() ? kind : kind + ", " + limits);
  }
  bool is_plain() const { return node.kind == YamlNode::Kind::kScalar && !node.quoted; }
};

/// Text of a number as std::from_chars takes it, which knows no leading plus.
std::string_view without_plus(const std::string& text) {
  const std::string_view view = text;
  return view.size() > 1 && view[0] == '+' && view[1] != '-' ? view.substr(1) : view;
}

template <class Number>
Number read_number(const Value& value, const std::string& kind, const std::string& range) {
  if (!value.is_plain()) value.refuse_number(kind);
  const std::string_view text = without_plus(value.node.text);
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (end != text.data() + text.size()) value.refuse_number(kind);
  if (error == std::errc::result_out_of_range) value.refuse_number(kind + " " + range);
  if (error != std::errc()) value.refuse_number(kind);
  return number;
}

void read_value(bool& target, const Value& value) {
  static const std::set<std::string_view> kTrue = {"true", "True", "TRUE"};
  static const std::set<std::string_view> kFalse = {"false", "False", "FALSE"};
  const bool is_true = kTrue.contains(value.node.text);
  if (!value.is_plain() || (!is_true && !kFalse.contains(value.node.text))) value.refuse("true or false");
  target = is_true;
}

void read_value(int64_t& target, const Value& value) {
  const auto number = read_number<int64_t>(
      value, "a whole number", "not beyond " + std::to_string(std::numeric_limits<int64_t>::max()));
  if (!value.field.limits.contains(static_cast<double>(number))) value.refuse_number("a whole number");
  target = number;
}

void read_value(double& target, const Value& value) {
  const auto number = read_number<double>(value, "a number", "that fits a double");
  if (!std::isfinite(number)) value.refuse_number("a finite number");
  if (!value.field.limits.contains(number)) value.refuse_number("a number");
  target = number;
}

void read_value(std::string& target, const Value& value) {
  if (value.node.kind != YamlNode::Kind::kScalar) value.refuse("a text");
  if (value.field.required && value.node.text.empty()) value.refuse("a text that is not empty");
  target = value.node.text;
}

void read_value(Coverage& target, const Value& value) {
  if (value.node.kind != YamlNode::Kind::kScalar) value.refuse("a coverage, as 4/8 or 0.5");
  Coverage coverage;
  coverage.text = value.node.text;
  try {
    value_of(coverage);
  } catch (const UsageError& error) {
    fail_at(value.node.position, value.key, error.what());
  }
  target = coverage;
}

template <NamedEnum Enum>
void read_value(Enum& target, const Value& value) {
  for (const auto& [candidate, name] : EnumNames<Enum>::values) {
    if (value.node.kind != YamlNode::Kind::kScalar || value.node.text != name) continue;
    target = candidate;
    return;
  }
  const auto names = names_of<Enum>();
  std::string expected = (names.size() == 1 ? "" : "one of ") + join(names, ", ");
  if (const auto nearest = nearest_name(value.node.text, names))
    expected += "; did you mean '" + std::string(*nearest) + "'?";
  value.refuse(expected);
}

template <class T>
void read_value(std::optional<T>& target, const Value& value) {
  if (value.node.kind == YamlNode::Kind::kNull) {
    target.reset();
    return;
  }
  T read{};
  read_value(read, value);
  target = read;
}

template <class T>
void read_value(std::vector<T>& target, const Value& value) {
  if (value.node.kind != YamlNode::Kind::kList)
    value.refuse(NamedEnum<T> ? "a list of names, as [a, b]" : "a list of numbers, as [0.5, 0.75]");
  std::vector<T> read;
  for (size_t i = 0; i < value.node.items.size(); ++i) {
    const YamlNode& node = value.node.items[i];
    const std::string key = value.key + "[" + std::to_string(i) + "]";
    T item{};
    read_value(item, Value{node, key, value.field});
    if (std::find(read.begin(), read.end(), item) != read.end())
      fail_at(node.position, key, found(node) + " a second time, expected each once");
    read.push_back(item);
  }
  target = std::move(read);
}

template <SpecStruct Spec>
void read_struct(Spec& spec, const YamlNode& node, const std::string& parent, Positions& positions) {
  const auto allowed = keys_of<Spec>();
  if (node.kind != YamlNode::Kind::kMapping)
    fail_at(node.position, parent, found(node) + ", expected a mapping with the keys " + join(allowed, ", "));
  check_keys(node, parent, allowed);
  if (!positions.is_set(parent)) positions.set(parent, node.position);

  for_each_field<Spec>([&](const FieldInfo& field, auto member) {
    const YamlNode* child = find_key(node, field.key);
    if (!child) return;
    const std::string key = dotted(parent, field.key);
    if constexpr (SpecStruct<std::remove_reference_t<decltype(spec.*member)>>) {
      read_struct(spec.*member, *child, key, positions);
    } else {
      read_value(spec.*member, Value{*child, key, field});
      if (child->kind == YamlNode::Kind::kNull)
        positions.unset(key);
      else
        positions.set(key, child->position);
    }
  });
}

template <SpecStruct Spec>
void check_required(const std::string& parent, const Positions& positions) {
  for_each_field<Spec>([&]<class T>(const FieldInfo& field, T Spec::*) {
    const std::string key = dotted(parent, field.key);
    if constexpr (SpecStruct<T>) {
      check_required<T>(key, positions);
    } else if (field.required && !positions.is_set(key)) {
      fail_at(positions.of(key), key, "missing, expected the " + std::string(field.doc));
    }
  });
}

}  // namespace

void read_into(ExperimentSpec& spec, const YamlNode& root, Positions& positions) {
  read_struct(spec, root, "", positions);
}

void check_required_keys(const Positions& positions) {
  check_required<ExperimentSpec>("", positions);
}

}  // namespace sdp
