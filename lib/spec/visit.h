#pragma once

// Walks field lists.
//
// A struct of the spec has `template <class Visitor> static void fields(Visitor& field)`, which calls
//     field(key, member pointer, doc, attributes...)
// once per key. A member is one of: bool, int64_t, double, std::string, an enum with EnumNames, a std::vector
// of int64_t, double or an enum with EnumNames, Coverage, a std::optional of one of these, a OneOf
// (spec/one_of.h), a std::vector of structs with fields, or another struct with fields, which takes no
// attributes.
//
// Attributes, in any order:
// - an OnResume and an InReport, which every key must have, unless its struct declares one Treatment for all
//   of its keys (`static constexpr Treatment treatment`);
// - Limits;
// - the unit, a string;
// - kRequired;
// - any number of advise_when(..), which warn of settings that have no effect or an unexpected cost.

#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "spec/field.h"

namespace sdp {

/// How `--resume` and `report` treat a changed key.
struct Treatment {
  OnResume on_resume = OnResume::kFixed;
  InReport in_report = InReport::kCompared;
};

/// The entry of one key in a field list.
struct FieldInfo {
  std::string_view key;
  std::string_view doc;
  Limits limits = {};
  std::string_view unit = {};
  bool required = false;
  Treatment treatment = {};
};

/// A warning that is printed if the key was set and `applies` holds for its struct.
template <class Spec>
struct Advice {
  bool (*applies)(const Spec&);
  std::string_view message;
};
template <class Spec>
Advice<Spec> advise_when(bool (*applies)(const Spec&), std::string_view message) {
  return {applies, message};
}

/// FieldInfo with the advice that depends on other keys of the same struct.
template <class Spec>
struct Field : FieldInfo {
  std::vector<Advice<Spec>> advice = {};
};

namespace detail {

template <class Wanted, class... Attributes>
inline constexpr bool has_attribute = (std::is_same_v<Wanted, Attributes> || ...);

template <class T>
concept HasTreatment = requires {
  T::treatment;
};

struct IgnoreField {
  template <class Info, class Member>
  void operator()(const Info&, Member) const {}
};

}  // namespace detail

/// A visitor that calls `handler(Field<Spec>, member pointer)` for every entry of a field list.
template <class Handler>
class FieldVisitor {
 public:
  explicit FieldVisitor(Handler& handler) : handler_(handler) {}

  template <class Spec, class T, class... Attributes>
  void operator()(std::string_view key, T Spec::*member, std::string_view doc,
                  const Attributes&... attributes);

 private:
  template <class Spec>
  static void add(Field<Spec>& field, OnResume on_resume) {
    field.treatment.on_resume = on_resume;
  }
  template <class Spec>
  static void add(Field<Spec>& field, InReport in_report) {
    field.treatment.in_report = in_report;
  }
  template <class Spec>
  static void add(Field<Spec>& field, const Limits& limits) {
    field.limits = limits;
  }
  template <class Spec>
  static void add(Field<Spec>& field, std::string_view unit) {
    field.unit = unit;
  }
  template <class Spec>
  static void add(Field<Spec>& field, Required) {
    field.required = true;
  }
  template <class Spec>
  static void add(Field<Spec>& field, const Advice<Spec>& advice) {
    field.advice.push_back(advice);
  }

  Handler& handler_;
};

/// Calls `handler(Field<Spec>, member pointer)` for every key of a struct, in the order of its field list.
template <class Spec, class Handler>
void for_each_field(Handler&& handler) {
  FieldVisitor<std::remove_reference_t<Handler>> visitor(handler);
  Spec::fields(visitor);
}

/// A struct with a field list. It is a mapping in YAML.
template <class T>
concept SpecStruct = requires(FieldVisitor<const detail::IgnoreField>& visitor) {
  T::fields(visitor);
};

template <class T>
inline constexpr bool is_list_of_structs = false;
template <SpecStruct Item>
inline constexpr bool is_list_of_structs<std::vector<Item>> = true;

/// A list of structs with field lists. It is a list of mappings in YAML.
template <class T>
concept ListOfStructs = is_list_of_structs<T>;

template <class Handler>
template <class Spec, class T, class... Attributes>
void FieldVisitor<Handler>::operator()(std::string_view key, T Spec::*member, std::string_view doc,
                                       const Attributes&... attributes) {
  Field<Spec> field;
  field.key = key;
  field.doc = doc;
  if constexpr (detail::HasTreatment<Spec>) {
    field.treatment = Spec::treatment;
  } else {
    static_assert(SpecStruct<T> || (detail::has_attribute<OnResume, Attributes...> &&
                                    detail::has_attribute<InReport, Attributes...>),
                  "a key needs an OnResume (its effect on --resume) and an InReport (its effect on report)");
  }
  (add(field, attributes), ...);
  handler_(std::as_const(field), member);
}

/// An enum whose values have names.
template <class T>
concept NamedEnum = std::is_enum_v<T> && requires {
  EnumNames<T>::values;
};

/// The keys of a struct, in order, without the keys of its kinds (spec/one_of.h).
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
