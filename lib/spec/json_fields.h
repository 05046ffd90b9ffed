#pragma once

// Converts plain structs to JSON and back. A struct lists its fields once, in `template <class Visitor>
// static void fields(Visitor& field)`, which calls field("name", &Struct::member) for each field. A member is
// a number, a string, an enum with SDP_ENUM_NAMES, a struct with a field list, a vector of these, or an
// optional of these. The key of an optional without a value is omitted. A member function without arguments
// is a computed figure: it is written but not read back.

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "spec/field.h"

namespace sdp {

namespace json_fields {

struct AnyVisitor {
  template <class Member>
  void operator()(const char*, Member) {}
};
template <class T>
concept HasFields = requires(AnyVisitor& visitor) {
  T::fields(visitor);
};

template <class T>
struct IsOptional : std::false_type {};
template <class T>
struct IsOptional<std::optional<T>> : std::true_type {};
template <class T>
struct IsListOfStructs : std::false_type {};
template <class T>
struct IsListOfStructs<std::vector<T>> : std::bool_constant<HasFields<T>> {};

}  // namespace json_fields

template <class T>
nlohmann::ordered_json json_of(const T& value) {
  using namespace json_fields;
  if constexpr (HasFields<T>) {
    nlohmann::ordered_json json = nlohmann::ordered_json::object();
    auto field = [&](const char* name, auto member) {
      const auto& figure = std::invoke(member, value);
      if constexpr (IsOptional<std::remove_cvref_t<decltype(figure)>>::value) {
        if (figure) json[name] = json_of(*figure);
      } else {
        json[name] = json_of(figure);
      }
    };
    T::fields(field);
    return json;
  } else if constexpr (IsListOfStructs<T>::value) {
    nlohmann::ordered_json json = nlohmann::ordered_json::array();
    for (const auto& element : value)
      json.push_back(json_of(element));
    return json;
  } else if constexpr (std::is_enum_v<T>) {
    return std::string(name_of(value));
  } else {
    return value;
  }
}

/// Reads `value` from JSON; `key` is the key of the value, for error messages. Throws
/// nlohmann::json::exception or std::invalid_argument with a message that says what is wrong.
template <class T>
void read_json(const nlohmann::ordered_json& json, T& value, const std::string& key = "value") {
  using namespace json_fields;
  if constexpr (HasFields<T>) {
    auto field = [&]<class Member>(const char* name, Member member) {
      if constexpr (std::is_member_object_pointer_v<Member>) {
        auto& figure = value.*member;
        constexpr bool is_optional = IsOptional<std::remove_cvref_t<decltype(figure)>>::value;
        if constexpr (!is_optional)
          read_json(json.at(name), figure, name);
        else if (json.contains(name))
          read_json(json.at(name), figure.emplace(), name);
      }
    };
    T::fields(field);
  } else if constexpr (IsListOfStructs<T>::value) {
    value.clear();
    for (const nlohmann::ordered_json& element : json.get_ref<const nlohmann::ordered_json::array_t&>())
      read_json(element, value.emplace_back(), key);
  } else if constexpr (std::is_enum_v<T>) {
    const auto text = json.get<std::string>();
    for (const auto& [candidate, name] : EnumNames<T>::values)
      if (name == text) return static_cast<void>(value = candidate);
    throw std::invalid_argument(key + " cannot be " + text);
  } else {
    json.get_to(value);
  }
}

template <class Struct>
Struct struct_of(const nlohmann::ordered_json& json) {
  Struct value;
  read_json(json, value);
  return value;
}

}  // namespace sdp
