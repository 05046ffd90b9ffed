#pragma once

// How the field lists of experiment_spec.h are walked.
//
// A struct of the spec has `template <class Visitor> static void fields(Visitor& field)`, which calls
//     field(key, member pointer, doc [, Limits [, unit]])    or    field(key, member pointer, doc, kRequired)
// once per key. A member is one of: bool, int64_t, double, std::string, an enum with EnumNames, a std::vector
// of double or of such an enum, Coverage, a std::optional of one of these, or another struct with fields.

#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "spec/field.h"

namespace sdp {

/// What a field list says of one key.
struct FieldInfo {
  std::string_view key;
  std::string_view doc;
  Limits limits;
  std::string_view unit;
  bool required = false;
};

/// A visitor that hands every form of call in a field list to one `handler(FieldInfo, member pointer)`.
template <class Handler>
class FieldVisitor {
 public:
  explicit FieldVisitor(Handler& handler) : handler_(handler) {}

  template <class Spec, class T>
  void operator()(std::string_view key, T Spec::*member, std::string_view doc, Limits limits = {},
                  std::string_view unit = {}) {
    handler_(FieldInfo{.key = key, .doc = doc, .limits = limits, .unit = unit}, member);
  }

  template <class Spec, class T>
  void operator()(std::string_view key, T Spec::*member, std::string_view doc, Required) {
    handler_(FieldInfo{.key = key, .doc = doc, .limits = {}, .unit = {}, .required = true}, member);
  }

 private:
  Handler& handler_;
};

/// Calls `handler(FieldInfo, member pointer)` for every key of a struct, in the order of its field list.
template <class Spec, class Handler>
void for_each_field(Handler&& handler) {
  FieldVisitor<std::remove_reference_t<Handler>> visitor(handler);
  Spec::fields(visitor);
}

namespace detail {
struct IgnoreField {
  template <class Member>
  void operator()(const FieldInfo&, Member) const {}
};
}  // namespace detail

/// A struct with a field list: a mapping in YAML.
template <class T>
concept SpecStruct = requires(FieldVisitor<const detail::IgnoreField>& visitor) {
  T::fields(visitor);
};

/// An enum whose values have names.
template <class T>
concept NamedEnum = std::is_enum_v<T> && requires {
  EnumNames<T>::values;
};

/// The keys of a struct, in order.
template <SpecStruct Spec>
std::vector<std::string_view> keys_of() {
  std::vector<std::string_view> keys;
  for_each_field<Spec>([&](const FieldInfo& field, auto) { keys.push_back(field.key); });
  return keys;
}

/// The names of an enum's values, in order.
template <NamedEnum Enum>
std::vector<std::string_view> names_of() {
  std::vector<std::string_view> names;
  for (const auto& [value, name] : EnumNames<Enum>::values)
    names.push_back(name);
  return names;
}

/// "optimizer" and "lr" make "optimizer.lr"; the parent of a top-level key is empty.
inline std::string dotted(std::string_view parent, std::string_view key) {
  return parent.empty() ? std::string(key) : std::string(parent) + "." + std::string(key);
}

}  // namespace sdp
