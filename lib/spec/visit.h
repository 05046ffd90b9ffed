#pragma once

// Walks field lists.
//
// A struct lists its fields once, in `template <class Visitor> static void fields(Visitor& field)`, which
// calls
//     field(key, member pointer, attributes...)
// for each of them, in order. From this list follow the keys of a spec (spec/read.h, print.h, describe.h,
// schema.h) and the JSON of records and figures (spec/json_fields.h).
//
// A member of a spec is one of: bool, int64_t, double, std::string, an enum with EnumNames, a std::vector
// of int64_t, double or an enum with EnumNames, Coverage, a std::optional of one of these, a OneOf
// (spec/one_of.h), a std::vector of structs with fields, or another struct with fields, which takes no
// attributes but its description. json_fields.h says what a member of a record or of figures is.
//
// Attributes of a spec's key: the description, a string, comes first. Then, in any order:
// - an OnResume and an InReport, which every key must have, unless its struct declares one Treatment for all
//   of its keys (`static constexpr Treatment treatment`);
// - Limits;
// - the unit, a string;
// - kRequired;
// - any number of advise_when(..), which warn of settings that have no effect or an unexpected cost.
//
// Attributes of a record's key: kRequired, kShown, kOrDefault, kOrNull, and a pointer to a const function
// that returns bool; where it returns false, the key is left out.

#include <cstddef>
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
  std::string_view doc = {};
  Limits limits = {};
  std::string_view unit = {};
  bool required = false;
  Treatment treatment = {};
  bool is_shown = false;
  bool or_default = false;
  bool or_null = false;
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

/// FieldInfo with what depends on other members of the same struct.
template <class Struct>
struct Field : FieldInfo {
  std::vector<Advice<Struct>> advice = {};
  bool (Struct::*only_if)() const = nullptr;
};

namespace detail {

struct IgnoreField {
  template <class... Arguments>
  constexpr void operator()(const Arguments&...) const {}
};

}  // namespace detail

/// A struct with a field list.
template <class T>
concept HasFields = requires(const detail::IgnoreField& field) {
  T::fields(field);
};

namespace detail {

template <class Wanted, class... Attributes>
inline constexpr bool has_attribute = (std::is_same_v<Wanted, Attributes> || ...);

template <class T>
concept HasTreatment = requires {
  T::treatment;
};

/// Calls `handler(Field<Struct>, member pointer)` for every entry of a field list.
template <class Struct, class Handler>
class FieldVisitor {
 public:
  explicit FieldVisitor(Handler& handler) : handler_(handler) {}

  /// `Owner` is Struct or a base of it.
  template <class Owner, class T, class... Attributes>
  void operator()(std::string_view key, T Owner::*member, const Attributes&... attributes) {
    Field<Struct> field;
    field.key = key;
    if constexpr (HasTreatment<Struct>) {
      field.treatment = Struct::treatment;
    } else {
      constexpr bool is_documented = (std::is_convertible_v<const Attributes&, std::string_view> || ...);
      static_assert(
          !is_documented || HasFields<T> ||
              (has_attribute<OnResume, Attributes...> && has_attribute<InReport, Attributes...>),
          "a key needs an OnResume (its effect on --resume) and an InReport (its effect on report)");
    }
    (add(field, attributes), ...);
    handler_(std::as_const(field), static_cast<T Struct::*>(member));
  }

 private:
  static void add(Field<Struct>& field, OnResume on_resume) { field.treatment.on_resume = on_resume; }
  static void add(Field<Struct>& field, InReport in_report) { field.treatment.in_report = in_report; }
  static void add(Field<Struct>& field, const Limits& limits) { field.limits = limits; }
  static void add(Field<Struct>& field, std::string_view text) {
    (field.doc.empty() ? field.doc : field.unit) = text;
  }
  static void add(Field<Struct>& field, Required) { field.required = true; }
  static void add(Field<Struct>& field, Shown) { field.is_shown = true; }
  static void add(Field<Struct>& field, OrDefault) { field.or_default = true; }
  static void add(Field<Struct>& field, OrNull) { field.or_null = true; }
  static void add(Field<Struct>& field, const Advice<Struct>& advice) { field.advice.push_back(advice); }
  static void add(Field<Struct>& field, bool (Struct::*only_if)() const) { field.only_if = only_if; }

  Handler& handler_;
};

constexpr size_t rounded_up(size_t bytes, size_t alignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

}  // namespace detail

/// Calls `handler(Field<Struct>, member pointer)` for every key of a struct, in the order of its field list.
template <class Struct, class Handler>
void for_each_field(Handler&& handler) {
  detail::FieldVisitor<Struct, std::remove_reference_t<Handler>> visitor(handler);
  Struct::fields(visitor);
}

/// Whether the sizes of the listed members add up to the size of the struct. A forgotten member makes the
/// struct larger, unless it fits into padding (a bool).
template <HasFields Struct>
consteval bool lists_every_member() {
  size_t bytes = 0;
  const auto field = [&]<class Owner, class Member>(std::string_view, Member Owner::*, const auto&...) {
    if constexpr (!std::is_function_v<Member>)
      bytes = detail::rounded_up(bytes, alignof(Member)) + sizeof(Member);
  };
  Struct::fields(field);
  return detail::rounded_up(bytes, alignof(Struct)) == sizeof(Struct);
}

namespace detail {

template <class T>
inline constexpr bool is_optional = false;
template <class T>
inline constexpr bool is_optional<std::optional<T>> = true;
template <class T>
inline constexpr bool is_vector = false;
template <class T>
inline constexpr bool is_vector<std::vector<T>> = true;

}  // namespace detail

/// A list of structs with field lists. It is a list of mappings in YAML.
template <class T>
concept ListOfStructs = detail::is_vector<T> && HasFields<typename T::value_type>;

/// An enum whose values have names.
template <class T>
concept NamedEnum = std::is_enum_v<T> && requires {
  EnumNames<T>::values;
};

/// The keys of a struct, in order, without the keys of its kinds (spec/one_of.h).
template <HasFields Spec>
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
