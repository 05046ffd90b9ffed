#pragma once

// Reads a YAML tree into typed structs.

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "spec/one_of.h"
#include "spec/position.h"
#include "spec/text.h"
#include "spec/visit.h"
#include "spec/yaml_tree.h"

namespace sdp {

/// A value that is being read: its node in the tree, the key it belongs to, and the key's entry in the field
/// list.
struct YamlValue {
  const YamlNode& node;
  const std::string& key;
  const FieldInfo& field;

  /// Throws UsageError: what was found and what was expected.
  [[noreturn]] void refuse(const std::string& expected) const;
  /// Likewise for a number. The message includes the limits of the key.
  [[noreturn]] void refuse_number(const std::string& kind) const;
  /// Likewise for a name. The message lists the accepted names and suggests the nearest.
  [[noreturn]] void refuse_name(const std::vector<std::string_view>& names) const;
};

void read_value(bool& target, const YamlValue& value);
void read_value(int64_t& target, const YamlValue& value);
void read_value(double& target, const YamlValue& value);
void read_value(std::string& target, const YamlValue& value);
void read_value(Coverage& target, const YamlValue& value);

template <NamedEnum Enum>
void read_value(Enum& target, const YamlValue& value) {
  for (const auto& [candidate, name] : EnumNames<Enum>::values) {
    if (value.node.kind != YamlNode::Kind::kScalar || value.node.text != name) continue;
    target = candidate;
    return;
  }
  value.refuse_name(names_of<Enum>());
}

/// Checks that a kind has the name. The kind itself is chosen by choose_kinds.
template <KindOfSeveral T>
void read_value(T&, const YamlValue& value) {
  if (value.node.kind != YamlNode::Kind::kScalar || !T().choose(value.node.text))
    value.refuse_name(T::all_names());
}

template <class T>
void read_value(std::optional<T>& target, const YamlValue& value) {
  if (value.node.kind == YamlNode::Kind::kNull) {
    target.reset();
    return;
  }
  T read{};
  read_value(read, value);
  target = read;
}

template <class T>
void read_value(std::vector<T>& target, const YamlValue& value) {
  if (value.node.kind != YamlNode::Kind::kList)
    value.refuse(NamedEnum<T> ? "a list of names, such as [a, b]" : "a list of numbers, such as [0.5, 0.75]");
  std::vector<T> read;
  for (size_t i = 0; i < value.node.items.size(); ++i) {
    const YamlNode& node = value.node.items[i];
    const std::string key = value.key + "[" + std::to_string(i) + "]";
    T item{};
    read_value(item, YamlValue{node, key, value.field});
    if (std::find(read.begin(), read.end(), item) != read.end())
      fail_at(node.position, key, found(node) + " a second time, expected each value once");
    read.push_back(item);
  }
  target = std::move(read);
}

/// Chooses the kinds that the tree names. This is done before any keys are read, so that the order of keys
/// and files does not matter. Names that no kind has are left to read_section, which refuses them.
template <SpecStruct Spec>
void choose_kinds(Spec& spec, const YamlNode& node) {
  for_each_field<Spec>([&]<class T>(const FieldInfo& field, T Spec::*member) {
    const YamlNode* child = find_key(node, field.key);
    if (!child) return;
    if constexpr (SpecStruct<T>) choose_kinds(spec.*member, *child);
    if constexpr (KindOfSeveral<T>) (spec.*member).choose(child->text);
  });
}

/// Sets the keys of `spec` that are in the mapping `node` and leaves the others unchanged.
template <SpecStruct Spec>
void read_keys(Spec& spec, const YamlNode& node, const std::string& parent, Positions& positions);

/// Reads a mapping, all of whose keys must be keys of `spec`.
template <SpecStruct Spec>
void read_section(Spec& spec, const YamlNode& node, const std::string& parent, Positions& positions) {
  const auto allowed = keys_with_kinds<Spec>();
  if (node.kind != YamlNode::Kind::kMapping)
    fail_at(node.position, parent, found(node) + ", expected a mapping with the keys " + join(allowed, ", "));
  check_keys(node, parent, allowed);
  if (!positions.is_set(parent)) positions.set(parent, node.position);
  read_keys(spec, node, parent, positions);
}

template <SpecStruct Spec>
void read_keys(Spec& spec, const YamlNode& node, const std::string& parent, Positions& positions) {
  for_each_field<Spec>([&]<class T>(const FieldInfo& field, T Spec::*member) {
    const YamlNode* child = find_key(node, field.key);
    const std::string key = dotted(parent, field.key);
    if constexpr (SpecStruct<T>) {
      if (child) read_section(spec.*member, *child, key, positions);
    } else if (child) {
      read_value(spec.*member, YamlValue{*child, key, field});
      if (child->kind == YamlNode::Kind::kNull)
        positions.unset(key);
      else
        positions.set(key, child->position);
    }
    // Keys of other kinds are read too, so that every file is checked in full. Their values are discarded.
    if constexpr (KindOfSeveral<T>)
      for_each_kind<T>([&]<class Kind>() {
        Kind other;
        read_keys((spec.*member).template is<Kind>() ? (spec.*member).template as<Kind>() : other, node,
                  parent, positions);
      });
  });
}

/// Throws UsageError that names the first required key that was not set.
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

}  // namespace sdp
