#pragma once

// Plain structs to JSON and back by one list of their fields: `template <class Visitor> static void
// fields(Visitor& field)`, which calls field("name", &Struct::member) for each.

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "spec/field.h"

namespace sdp {

/// Keys in the order of the list; enums by their names (SDP_ENUM_NAMES).
template <class Struct>
nlohmann::ordered_json json_of(const Struct& value) {
  nlohmann::ordered_json json;
  auto field = [&]<class Member>(const char* name, Member Struct::*member) {
    if constexpr (std::is_enum_v<Member>) {
      json[name] = std::string(name_of(value.*member));
    } else {
      json[name] = value.*member;
    }
  };
  Struct::fields(field);
  return json;
}

/// Every field must be there. Throws nlohmann::json::exception or std::invalid_argument, which say what is
/// wrong.
template <class Struct>
Struct struct_of(const nlohmann::ordered_json& json) {
  Struct value;
  auto field = [&]<class Member>(const char* name, Member Struct::*member) {
    if constexpr (std::is_enum_v<Member>) {
      const std::string text = json.at(name).get<std::string>();
      for (const auto& [candidate, candidate_name] : EnumNames<Member>::values)
        if (candidate_name == text) return static_cast<void>(value.*member = candidate);
      throw std::invalid_argument(std::string(name) + " cannot be " + text);
    } else {
      json.at(name).get_to(value.*member);
    }
  };
  Struct::fields(field);
  return value;
}

}  // namespace sdp
