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

/// What a key's value is, by the type of the member.
template <class T>
constexpr const char* type_name() {
  if constexpr (is_optional<T>) return type_name<typename T::value_type>();
  if constexpr (std::is_same_v<T, bool>) return "true or false";
  if constexpr (std::is_same_v<T, int64_t>) return "whole number";
  if constexpr (std::is_same_v<T, double>) return "number";
  if constexpr (std::is_same_v<T, std::string>) return "text";
  if constexpr (std::is_same_v<T, Coverage>) return "fraction";
  if constexpr (NamedEnum<T> || KindOfSeveral<T>) return "name";
  if constexpr (std::is_same_v<T, std::vector<double>>) return "list of numbers";
  if constexpr (std::is_same_v<T, std::vector<int64_t>>) return "list of whole numbers";
  if constexpr (std::is_same_v<T, std::vector<Coverage>>) return "list of fractions";
  if constexpr (ListOfStructs<T>) return "list of mappings";
  if constexpr (is_vector<T>) return "list of names";
}

/// The names that are accepted as a value; empty for types that are not names.
template <class T>
std::string accepted_names() {
  if constexpr (is_optional<T> || is_vector<T>) return accepted_names<typename T::value_type>();
  if constexpr (NamedEnum<T>) return join(names_of<T>(), " | ");
  if constexpr (KindOfSeveral<T>) return join(T::all_names(), " | ");
  if constexpr (std::is_same_v<T, Coverage>) return "p/n, or more than 0 and at most 1";
  return {};
}

/// Width of the table. `wrap` breaks a text into lines of at most this many columns, each of which begins
/// with `indent`.
inline constexpr size_t kDescribedColumns = 110;
std::string wrap(std::string_view text, const std::string& indent);
std::string row(const std::array<std::string, 4>& cells);

template <class T>
std::string default_text(const FieldInfo& field, const T& value) {
  if constexpr (is_optional<T>) return "unset";
  return field.required ? "(required)" : yaml_text(value);
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
      std::string accepted = detail::accepted_names<T>() + describe(field.limits);
      if (!field.unit.empty()) accepted += (accepted.empty() ? "[" : " [") + std::string(field.unit) + "]";
      out +=
          detail::row({key, detail::type_name<T>(), detail::default_text(field, defaults.*member), accepted});
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
