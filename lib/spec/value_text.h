#pragma once

// Values of spec fields as YAML, each on one line.

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

}  // namespace sdp
