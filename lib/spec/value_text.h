#pragma once

// Values of spec fields as YAML, each on one line, and a walk through them.

#include <optional>
#include <string>
#include <vector>

#include "spec/field.h"
#include "spec/one_of.h"
#include "spec/visit.h"

namespace sdp {

std::string yaml_text(bool value);
std::string yaml_text(int64_t value);
std::string yaml_text(double value);
std::string yaml_text(const std::string& value);  ///< always in double quotes
std::string yaml_text(const Coverage& value);

template <NamedEnum Enum>
std::string yaml_text(Enum value) {
  return std::string(name_of(value));
}

template <KindOfSeveral T>
std::string yaml_text(const T& kind) {
  return std::string(kind.name());
}

template <HasFields Spec>
std::string yaml_text(const Spec& spec);

template <class T>
std::string yaml_text(const std::vector<T>& values) {
  std::string text;
  for (const T& value : values)
    text += (text.empty() ? "" : ", ") + yaml_text(value);
  return "[" + text + "]";
}

template <class T>
std::string yaml_text(const std::optional<T>& value) {
  return value ? yaml_text(*value) : "null";
}

template <HasFields Spec>
std::string yaml_text(const Spec& spec) {
  std::string text;
  for_each_field<Spec>([&](const FieldInfo& field, auto member) {
    text += (text.empty() ? "" : ", ") + std::string(field.key) + ": " + yaml_text(spec.*member);
  });
  return "{" + text + "}";
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
