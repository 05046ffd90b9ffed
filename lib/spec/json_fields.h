#pragma once

// Writes structs with field lists (spec/visit.h) as JSON, and reads them.
//
// A member is a bool, a number, a string, an enum with SDP_ENUM_NAMES, a struct with a field list, a vector
// of these, an optional of these, or a type with a json_of and a read_json of its own. The key of an optional
// without a value is omitted (kOrNull: null). A member function without arguments is a computed figure: it is
// written but not read back. JSON has neither NaN nor infinity: both are written as null.

#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "spec/text.h"
#include "spec/visit.h"

namespace sdp {

/// Names the key that is missing or has a value of another type.
struct FieldError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

template <HasFields Struct>
void put_fields(const Struct& value, nlohmann::ordered_json& json);

/// An optional without a value is null.
template <class T>
nlohmann::ordered_json json_of(const T& value) {
  if constexpr (HasFields<T>) {
    auto json = nlohmann::ordered_json::object();
    put_fields(value, json);
    return json;
  } else if constexpr (detail::is_vector<T>) {
    auto json = nlohmann::ordered_json::array();
    for (const auto& element : value)
      json.push_back(json_of(element));
    return json;
  } else if constexpr (detail::is_optional<T>) {
    return value ? json_of(*value) : nlohmann::ordered_json();
  } else if constexpr (std::is_enum_v<T>) {
    return std::string(name_of(value));
  } else {
    return value;
  }
}

/// Adds the keys of a struct to an object.
template <HasFields Struct>
void put_fields(const Struct& value, nlohmann::ordered_json& json) {
  const auto put = [&]<class T>(const FieldInfo& field, const T& figure) {
    if constexpr (detail::is_optional<T>)
      if (!figure && !field.or_null) return;
    json[std::string(field.key)] = json_of(figure);
  };
  for_each_field<Struct>([&]<class T>(const Field<Struct>& field, T Struct::*member) {
    if (field.only_if && !(value.*field.only_if)()) return;
    if constexpr (std::is_function_v<T>) {
      put(field, (value.*member)());
    } else {
      if constexpr (HasFields<T>)
        if (field.key == kInline) return put_fields(value.*member, json);
      put(field, value.*member);
    }
  });
}

/// What reading does about a key that is missing.
enum class MissingKeys {
  kRefused,  ///< unless it is an optional or kOrDefault
  /// It was not yet written by an older program: a double is then NaN (kOrDefault), as for null; all others
  /// keep their value. Only kRequired keys are refused.
  kUnknown
};

template <HasFields Struct>
void take_fields(Struct& value, const nlohmann::ordered_json& json, MissingKeys missing);

/// Throws nlohmann::json::exception if the value has another type, and FieldError.
template <class T>
void read_json(const nlohmann::ordered_json& json, T& value, MissingKeys missing = MissingKeys::kRefused) {
  if constexpr (HasFields<T>) {
    take_fields(value, json, missing);
  } else if constexpr (detail::is_vector<T>) {
    value.clear();
    for (const nlohmann::ordered_json& element : json.get_ref<const nlohmann::ordered_json::array_t&>())
      read_json(element, value.emplace_back(), missing);
  } else if constexpr (detail::is_optional<T>) {
    if (json.is_null() && missing == MissingKeys::kRefused)
      value.reset();
    else
      read_json(json, value.emplace(), missing);
  } else if constexpr (std::is_enum_v<T>) {
    const auto text = json.get<std::string>();
    const std::optional<T> named = value_named<T>(text);
    if (!named) throw FieldError("cannot be " + text);
    value = *named;
  } else {
    if constexpr (std::is_same_v<T, double>)
      if (missing == MissingKeys::kUnknown && json.is_null())
        return static_cast<void>(value = std::numeric_limits<double>::quiet_NaN());
    json.get_to(value);
  }
}

/// Reads the keys of a struct from an object, and ignores other keys. Throws FieldError.
template <HasFields Struct>
void take_fields(Struct& value, const nlohmann::ordered_json& json, MissingKeys missing) {
  for_each_field<Struct>([&]<class T>(const Field<Struct>& field, T Struct::*member) {
    if constexpr (!std::is_function_v<T>) {
      if constexpr (HasFields<T>)
        if (field.key == kInline) return take_fields(value.*member, json, missing);
      const std::string name = "the key \"" + std::string(field.key) + "\"";
      const auto found = json.find(std::string(field.key));
      if (found == json.end()) {
        const bool may_miss = field.or_default || detail::is_optional<T>;
        if (field.required || (missing == MissingKeys::kRefused && !may_miss))
          throw FieldError(name + " is missing");
        if constexpr (std::is_same_v<T, double>)
          if (!field.or_default) value.*member = std::numeric_limits<double>::quiet_NaN();
        return;
      }
      try {
        read_json(*found, value.*member, missing);
      } catch (const nlohmann::json::exception& error) {
        throw FieldError(name + ": " + error.what());
      } catch (const FieldError& error) {
        throw FieldError(name + ": " + error.what());
      }
    }
  });
}

/// Throws FieldError if a number of the object, or of an object in it, is beyond the limits of its key.
template <HasFields Struct>
void check_limits(const nlohmann::ordered_json& json) {
  for_each_field<Struct>([&]<class T>(const FieldInfo& field, T Struct::*) {
    const auto value = json.find(std::string(field.key));
    if (value == json.end()) return;
    if constexpr (HasFields<T>) check_limits<T>(*value);
    if (!field.limits.has_min()) return;
    constexpr bool is_whole = std::is_same_v<T, int64_t>;
    const bool is_number = is_whole ? value->is_number_integer() : value->is_number();
    if (!is_number || !field.limits.contains(value->template get<double>()))
      throw FieldError("the key \"" + std::string(field.key) + "\": found " + shortened(value->dump()) +
                       ", expected a " + (is_whole ? "whole number " : "number ") + describe(field.limits));
  });
}

/// Throws FieldError.
template <HasFields Struct>
Struct struct_of(const nlohmann::ordered_json& json) {
  Struct value;
  read_json(json, value);
  return value;
}

/// The text of a nlohmann::json or ordered_json. Bytes that are not UTF-8, as in the names of files, become
/// U+FFFD: dump() would throw. `indent`: spaces per level; -1 for a single line.
template <class Json>
std::string json_text(const Json& json, int indent = -1) {
  return json.dump(indent, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

}  // namespace sdp
