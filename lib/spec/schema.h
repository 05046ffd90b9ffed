#pragma once

// JSON Schema of a spec file, for editors and validators.

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "spec/json_fields.h"
#include "spec/one_of.h"
#include "spec/visit.h"

namespace sdp {

/// Defaults of specs as JSON.
template <KindOfSeveral T>
nlohmann::ordered_json json_of(const T& value) {
  return value.name();
}
inline nlohmann::ordered_json json_of(const Coverage& value) {
  return value.text;
}

namespace detail {

using Json = nlohmann::ordered_json;

inline Json number_limits(const Limits& limits) {
  Json schema = Json::object();
  // Whole bounds are written as integers: "minimum": 1, not 1.0.
  const auto bound = [](double value) {
    const auto whole = static_cast<int64_t>(value);
    return static_cast<double>(whole) == value ? Json(whole) : Json(value);
  };
  if (limits.has_min()) schema[limits.exclusive_min ? "exclusiveMinimum" : "minimum"] = bound(limits.min);
  if (limits.has_max()) schema[limits.exclusive_max ? "exclusiveMaximum" : "maximum"] = bound(limits.max);
  return schema;
}

// `value_schema`: JSON type and accepted values, by the C++ type of a member.

template <class T>
Json value_schema(const T&, const FieldInfo& field) {
  Json schema;
  if constexpr (std::is_same_v<T, bool>) {
    schema = {{"type", "boolean"}};
  } else if constexpr (std::is_arithmetic_v<T>) {
    schema = {{"type", std::is_same_v<T, double> ? "number" : "integer"}};
    schema.update(number_limits(field.limits));
  } else if constexpr (std::is_same_v<T, std::string>) {
    schema = {{"type", "string"}};
    if (field.required) schema["minLength"] = 1;
  } else if constexpr (std::is_same_v<T, Coverage>) {
    schema = {{"type", Json::array({"string", "number"})},
              {"pattern", "^([0-9]+/[0-9]+|[0-9]*\\.?[0-9]+([eE][-+]?[0-9]+)?)$"},
              {"exclusiveMinimum", 0},
              {"maximum", 1}};
  } else if constexpr (NamedEnum<T>) {
    schema = {{"type", "string"}, {"enum", names_of<T>()}};
  } else {
    schema = {{"type", "string"}, {"enum", T::all_names()}};
  }
  return schema;
}

template <class T>
Json value_schema(const std::vector<T>&, const FieldInfo& field) {
  return {{"type", "array"}, {"items", value_schema(T{}, field)}, {"uniqueItems", NamedEnum<T>}};
}

template <class T>
Json value_schema(const std::optional<T>&, const FieldInfo& field) {
  Json schema = value_schema(T{}, field);
  schema["type"] = Json::array({schema["type"], "null"});
  return schema;
}

template <HasFields Spec>
Json struct_schema();

template <HasFields Item>
Json value_schema(const std::vector<Item>&, const FieldInfo&) {
  return {{"type", "array"}, {"items", struct_schema<Item>()}};
}

/// The schema of a kind's keys, which applies where the section names the kind.
template <class Kind>
Json schema_of_kind(const std::string& name_key) {
  return {
      {"if", {{"properties", {{name_key, {{"enum", Kind::names}}}}}, {"required", Json::array({name_key})}}},
      {"then", {{"properties", struct_schema<Kind>()["properties"]}}}};
}

/// Adds the keys of a kind to those of its section. A file may have them whichever kind it names, because
/// another file may choose the kind.
template <class Kind>
void add_keys_of_kind(Json& properties) {
  constexpr const char* kDescription = "description";
  const Json own = struct_schema<Kind>()["properties"];
  for (const auto& [key, schema] : own.items()) {
    const std::string doc =
        names_of_kind<Kind>(", ") + ": " + schema[kDescription].template get<std::string>();
    Json bare = schema;
    bare.erase(kDescription);
    if (!properties.contains(key)) {
      properties[key] = bare;
      properties[key][kDescription] = doc;
      continue;
    }
    Json known = properties[key];
    known.erase(kDescription);
    const std::string docs = properties[key][kDescription].template get<std::string>() + "; " + doc;
    if (known != bare) {
      Json any = known.contains("anyOf") ? known["anyOf"] : Json::array({known});
      any.push_back(bare);
      properties[key] = {{"anyOf", any}};
    }
    properties[key][kDescription] = docs;
  }
}

template <HasFields Spec>
Json struct_schema() {
  const Spec defaults;
  Json properties = Json::object();
  Json required = Json::array();
  Json kinds = Json::array();
  for_each_field<Spec>([&]<class T>(const FieldInfo& field, T Spec::*member) {
    const std::string key(field.key);
    bool is_required = field.required;
    Json schema;
    if constexpr (HasFields<T>) {
      schema = struct_schema<T>();
      is_required = schema.contains("required");
    } else {
      schema = value_schema(defaults.*member, field);
      if (!is_required) schema["default"] = json_of(defaults.*member);
    }
    const std::string unit = field.unit.empty() ? "" : " [" + std::string(field.unit) + "]";
    schema["description"] = std::string(field.doc) + unit;
    if (is_required) required.push_back(key);
    properties[key] = std::move(schema);
    if constexpr (KindOfSeveral<T>)
      for_each_kind<T>([&]<class Kind>() {
        add_keys_of_kind<Kind>(properties);
        kinds.push_back(schema_of_kind<Kind>(key));
      });
  });

  Json schema = {{"type", "object"}, {"additionalProperties", false}, {"properties", properties}};
  if (!required.empty()) schema["required"] = required;
  if (!kinds.empty()) schema["allOf"] = kinds;
  return schema;
}

}  // namespace detail

/// The schema of a mapping with the keys of a struct, each with type, limits, default and description.
template <HasFields Spec>
nlohmann::ordered_json json_schema_of() {
  return detail::struct_schema<Spec>();
}

}  // namespace sdp
