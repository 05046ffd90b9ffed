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
  std::optional<Enum> named;
  if (value.node.kind == YamlNode::Kind::kScalar) named = value_named<Enum>(value.node.text);
  if (!named) value.refuse_name(names_of<Enum>());
  target = *named;
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
    if (NamedEnum<T> && std::find(read.begin(), read.end(), item) != read.end())
      fail_at(node.position, key, found(node) + " a second time, expected each name once");
    read.push_back(item);
  }
  target = std::move(read);
}

/// Chooses the kinds that the tree names. This is done before any keys are read, so that the order of keys
/// and files does not matter. Names that no kind has are left to read_section, which refuses them.
template <HasFields Spec>
void choose_kinds(Spec& spec, const YamlNode& node) {
  for_each_field<Spec>([&]<class T>(const FieldInfo& field, T Spec::*member) {
    const YamlNode* child = find_key(node, field.key);
    if (!child) return;
    if constexpr (HasFields<T>) choose_kinds(spec.*member, *child);
    if constexpr (KindOfSeveral<T>) (spec.*member).choose(child->text);
  });
}

/// What reading a tree adds to.
struct ReadResults {
  Positions& positions;
  UsageErrors& errors;
  std::vector<std::string> all_keys;  ///< dotted_keys of the whole spec
};

/// Sets the keys of `spec` that are in the mapping `node` and leaves the others unchanged.
template <HasFields Spec>
void read_keys(Spec& spec, const YamlNode& node, const std::string& parent, ReadResults& results);

/// The keys of a section, including those of the kinds that `spec` has chosen, unless the node names unknown
/// ones.
template <HasFields Spec>
std::vector<std::string_view> keys_to_list(const Spec& spec, const YamlNode& node) {
  std::vector<std::string_view> keys;
  for_each_field<Spec>([&]<class T>(const FieldInfo& field, T Spec::*member) {
    keys.push_back(field.key);
    if constexpr (KindOfSeveral<T>) {
      const YamlNode* name = find_key(node, field.key);
      if (name && !name->text.empty() && name->text != (spec.*member).name()) {
        keys.push_back("and those of a known name");
        return;
      }
      (spec.*member).visit([&]<class Kind>(const Kind&) {
        const auto own = keys_of<Kind>();
        keys.insert(keys.end(), own.begin(), own.end());
      });
    }
  });
  return keys;
}

/// Reads a mapping, all of whose keys must be keys of `spec` or of kinds that its components have. Messages
/// list the keys of the chosen kinds.
template <HasFields Spec>
void read_section(Spec& spec, const YamlNode& node, const std::string& parent, ReadResults& results) {
  const auto listed = keys_to_list(spec, node);
  if (node.kind != YamlNode::Kind::kMapping)
    return results.errors.collect(node.position, parent, [&] {
      fail_at(node.position, parent,
              found(node) + ", expected a mapping with the keys " + join(listed, ", "));
    });
  check_keys(node, parent,
             {.allowed = keys_with_kinds<Spec>(), .listed = listed, .everywhere = results.all_keys},
             results.errors);
  if (!results.positions.is_set(parent)) results.positions.set(parent, node.position);
  read_keys(spec, node, parent, results);
}

/// Reads a list of mappings. It replaces the list of an earlier file.
template <HasFields Item>
void read_list(std::vector<Item>& target, const YamlNode& node, const std::string& key,
               ReadResults& results) {
  if (node.kind != YamlNode::Kind::kList)
    return results.errors.collect(node.position, key, [&] {
      fail_at(node.position, key,
              found(node) + ", expected a list of mappings with the keys " + join(keys_of<Item>(), ", "));
    });
  target.clear();
  results.positions.set(key, node.position);
  for (size_t i = 0; i < node.items.size(); ++i) {
    const YamlNode& item = node.items[i];
    const std::string item_key = key + "[" + std::to_string(i) + "]";
    read_section(target.emplace_back(), item, item_key, results);
    for_each_field<Item>([&](const FieldInfo& field, auto) {
      const std::string required = dotted(item_key, field.key);
      if (field.required && item.kind == YamlNode::Kind::kMapping && !find_key(item, field.key))
        results.errors.collect(item.position, required, [&] {
          fail_at(item.position, required, "missing, expected the " + std::string(field.doc));
        });
    });
  }
}

template <HasFields Spec>
void read_keys(Spec& spec, const YamlNode& node, const std::string& parent, ReadResults& results) {
  for_each_field<Spec>([&]<class T>(const FieldInfo& field, T Spec::*member) {
    const YamlNode* child = find_key(node, field.key);
    const std::string key = dotted(parent, field.key);
    if constexpr (HasFields<T>) {
      if (child) read_section(spec.*member, *child, key, results);
    } else if constexpr (ListOfStructs<T>) {
      if (child) read_list(spec.*member, *child, key, results);
    } else if (child) {
      results.errors.collect(child->position, key, [&] {
        read_value(spec.*member, YamlValue{*child, key, field});
      });
      if (child->kind == YamlNode::Kind::kNull)
        results.positions.unset(key);
      else
        results.positions.set(key, child->position);
    }
    // Keys of other kinds are read too, so that every file is checked in full. Their values are discarded.
    if constexpr (KindOfSeveral<T>)
      for_each_kind<T>([&]<class Kind>() {
        Kind other;
        read_keys((spec.*member).template is<Kind>() ? (spec.*member).template as<Kind>() : other, node,
                  parent, results);
      });
  });
}

/// Adds an error for each required key that was not set.
template <HasFields Spec>
void check_required(const std::string& parent, const Positions& positions, UsageErrors& errors) {
  for_each_field<Spec>([&]<class T>(const FieldInfo& field, T Spec::*) {
    const std::string key = dotted(parent, field.key);
    if constexpr (HasFields<T>) {
      check_required<T>(key, positions, errors);
    } else if (field.required && !positions.is_set(key) && !errors.concern(key)) {
      errors.collect(positions.of(key), key, [&] {
        fail_at(positions.of(key), key, "missing, expected the " + std::string(field.doc));
      });
    }
  });
}

}  // namespace sdp
