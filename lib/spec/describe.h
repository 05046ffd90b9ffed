#pragma once

// The table that `sdp-train spec` prints.

#include <algorithm>
#include <array>
#include <map>
#include <string>

#include "spec/one_of.h"
#include "spec/text.h"
#include "spec/value_text.h"
#include "spec/visit.h"

namespace sdp {
namespace detail {

template <class T>
struct TypeName;
template <>
struct TypeName<bool> {
  static constexpr const char* text = "true or false";
};
template <>
struct TypeName<int64_t> {
  static constexpr const char* text = "whole number";
};
template <>
struct TypeName<double> {
  static constexpr const char* text = "number";
};
template <>
struct TypeName<std::string> {
  static constexpr const char* text = "text";
};
template <>
struct TypeName<Coverage> {
  static constexpr const char* text = "fraction";
};
template <NamedEnum Enum>
struct TypeName<Enum> {
  static constexpr const char* text = "name";
};
template <>
struct TypeName<std::vector<double>> {
  static constexpr const char* text = "list of numbers";
};
template <>
struct TypeName<std::vector<int64_t>> {
  static constexpr const char* text = "list of whole numbers";
};
template <NamedEnum Enum>
struct TypeName<std::vector<Enum>> {
  static constexpr const char* text = "list of names";
};
template <ListOfStructs T>
struct TypeName<T> {
  static constexpr const char* text = "list of mappings";
};
template <class T>
struct TypeName<std::optional<T>> : TypeName<T> {};
template <KindOfSeveral T>
struct TypeName<T> {
  static constexpr const char* text = "name";
};

/// The names that are accepted as a value; empty for types that are not names.
template <class T>
struct AcceptedNames {
  static std::string text() { return {}; }
};
template <NamedEnum Enum>
struct AcceptedNames<Enum> {
  static std::string text() { return join(names_of<Enum>(), " | "); }
};
template <class T>
struct AcceptedNames<std::vector<T>> : AcceptedNames<T> {};
template <class T>
struct AcceptedNames<std::optional<T>> : AcceptedNames<T> {};
template <KindOfSeveral T>
struct AcceptedNames<T> {
  static std::string text() { return join(T::all_names(), " | "); }
};
template <>
struct AcceptedNames<Coverage> {
  static std::string text() { return "p/n, or more than 0 and at most 1"; }
};

/// Width of the table. `wrap` breaks a text into lines of at most this many columns, each of which begins
/// with `indent`.
inline constexpr size_t kDescribedColumns = 110;
std::string wrap(std::string_view text, const std::string& indent);
std::string row(const std::array<std::string, 4>& cells);

template <class T>
std::string default_text(const FieldInfo& field, const T& value) {
  return field.required ? "(required)" : yaml_text(value);
}
template <class T>
std::string default_text(const FieldInfo&, const std::optional<T>&) {
  return "unset";
}

}  // namespace detail

/// Maps a section to the name of the kind whose keys are listed. For other sections the keys of all kinds are
/// listed.
using ChosenNames = std::map<std::string, std::string>;

/// Appends a row for every key (type, default, accepted values and unit), followed by its description. The
/// keys of a section's kinds follow the keys of the section.
template <HasFields Spec>
void describe_keys(const std::string& parent, const ChosenNames& chosen, std::string& out) {
  const Spec defaults;
  std::string of_kinds;
  for_each_field<Spec>([&]<class T>(const FieldInfo& field, T Spec::*member) {
    const std::string key = dotted(parent, field.key);
    if constexpr (HasFields<T>) {
      out += "\n" + key + ": " + std::string(field.doc) + "\n\n";
      describe_keys<T>(key, chosen, out);
    } else {
      std::string accepted = detail::AcceptedNames<T>::text() + describe(field.limits);
      if (!field.unit.empty()) accepted += (accepted.empty() ? "[" : " [") + std::string(field.unit) + "]";
      out += detail::row(
          {key, detail::TypeName<T>::text, detail::default_text(field, defaults.*member), accepted});
      out += detail::wrap(field.doc, "    ");
      if constexpr (ListOfStructs<T>) describe_keys<typename T::value_type>(key + "[]", chosen, out);
      if constexpr (KindOfSeveral<T>)
        for_each_kind<T>([&]<class Kind>() {
          const auto name = chosen.find(parent);
          if (name != chosen.end() &&
              std::find(Kind::names.begin(), Kind::names.end(), name->second) == Kind::names.end())
            return;
          std::string keys;
          describe_keys<Kind>(parent, chosen, keys);
          if (!keys.empty()) of_kinds += "\nwith " + key + " " + names_of_kind<Kind>(" or ") + ":\n\n" + keys;
        });
    }
  });
  out += of_kinds;
}

/// The table's header: a line of column titles and a rule.
std::string description_header();

}  // namespace sdp
