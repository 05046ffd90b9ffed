#pragma once

// Values of spec fields as YAML, each on one line, and a walk through them.

#include <cstdint>
#include <string>
#include <type_traits>

#include "spec/field.h"
#include "spec/one_of.h"
#include "spec/text.h"
#include "spec/visit.h"

namespace sdp {

/// Texts are always in double quotes.
template <class T>
std::string yaml_text(const T& value) {
  if constexpr (detail::is_optional<T>) {
    return value ? yaml_text(*value) : "null";
  } else if constexpr (detail::is_vector<T>) {
    std::string text;
    for (const auto& item : value)
      text += (text.empty() ? "" : ", ") + yaml_text(item);
    return "[" + text + "]";
  } else if constexpr (HasFields<T>) {
    std::string text;
    for_each_field<T>([&](const FieldInfo& field, auto member) {
      text += (text.empty() ? "" : ", ") + std::string(field.key) + ": " + yaml_text(value.*member);
    });
    return "{" + text + "}";
  } else if constexpr (NamedEnum<T>) {
    return std::string(name_of(value));
  } else if constexpr (KindOfSeveral<T>) {
    return std::string(value.name());
  } else if constexpr (std::is_same_v<T, Coverage>) {
    return value.text;
  } else if constexpr (std::is_same_v<T, bool>) {
    return value ? "true" : "false";
  } else if constexpr (std::is_same_v<T, double>) {
    return shortest_decimal(value);
  } else if constexpr (std::is_same_v<T, int64_t>) {
    return std::to_string(value);
  } else {
    return double_quoted(value);
  }
}

/// Calls `handler(dotted key, Field, value)` for every key of the spec, in the order of the field lists. The
/// keys of the chosen kind follow their OneOf.
template <HasFields Spec, class Handler>
void for_each_value(const Spec& spec, const std::string& parent, const Handler& handler) {
  for_each_field<Spec>([&]<class T>(const Field<Spec>& field, T Spec::*member) {
    const std::string key = dotted(parent, field.key);
    const T& value = spec.*member;
    if constexpr (HasFields<T>) {
      for_each_value(value, key, handler);
    } else {
      handler(key, field, value);
    }
    if constexpr (KindOfSeveral<T>)
      value.visit([&](const auto& kind) { for_each_value(kind, parent, handler); });
  });
}

/// Appends every key of the spec with its value, one per line. The value of an unset key is null.
template <HasFields Spec>
void print_yaml(const Spec& spec, const std::string& indent, std::string& out) {
  for_each_field<Spec>([&]<class T>(const FieldInfo& field, T Spec::*member) {
    out += indent + std::string(field.key) + ":";
    if constexpr (HasFields<T>) {
      out += "\n";
      print_yaml(spec.*member, indent + "  ", out);
    } else {
      out += " " + yaml_text(spec.*member) + "\n";
    }
    if constexpr (KindOfSeveral<T>)
      (spec.*member).visit([&](const auto& kind) { print_yaml(kind, indent, out); });
  });
}

}  // namespace sdp
