// json_schema: the spec file for editors and validators.

#include <nlohmann/json.hpp>

#include "spec/print.h"
#include "spec/visit.h"

namespace sdp {
namespace {

using Json = nlohmann::ordered_json;

Json number_limits(const Limits& limits) {
  Json schema = Json::object();
  // Whole bounds are written as such: "minimum": 1, not 1.0.
  const auto bound = [](double value) {
    const auto whole = static_cast<int64_t>(value);
    return static_cast<double>(whole) == value ? Json(whole) : Json(value);
  };
  if (limits.has_min()) schema[limits.exclusive_min ? "exclusiveMinimum" : "minimum"] = bound(limits.min);
  if (limits.has_max()) schema[limits.exclusive_max ? "exclusiveMaximum" : "maximum"] = bound(limits.max);
  return schema;
}

// Type and accepted values of each kind of member, and its default.

Json kind_schema(const bool&, const FieldInfo&) {
  return {{"type", "boolean"}};
}

Json kind_schema(const int64_t&, const FieldInfo& field) {
  Json schema = {{"type", "integer"}};
  schema.update(number_limits(field.limits));
  return schema;
}

Json kind_schema(const double&, const FieldInfo& field) {
  Json schema = {{"type", "number"}};
  schema.update(number_limits(field.limits));
  return schema;
}

Json kind_schema(const std::string&, const FieldInfo& field) {
  Json schema = {{"type", "string"}};
  if (field.required) schema["minLength"] = 1;
  return schema;
}

Json kind_schema(const Coverage&, const FieldInfo&) {
  return {{"type", Json::array({"string", "number"})},
          {"pattern", "^([0-9]+/[0-9]+|[0-9]*\\.?[0-9]+([eE][-+]?[0-9]+)?)$"},
          {"exclusiveMinimum", 0},
          {"maximum", 1}};
}

template <NamedEnum Enum>
Json kind_schema(const Enum&, const FieldInfo&) {
  return {{"type", "string"}, {"enum", names_of<Enum>()}};
}

template <class T>
Json kind_schema(const std::vector<T>&, const FieldInfo& field) {
  return {{"type", "array"}, {"items", kind_schema(T{}, field)}, {"uniqueItems", true}};
}

template <class T>
Json kind_schema(const std::optional<T>&, const FieldInfo& field) {
  Json schema = kind_schema(T{}, field);
  schema["type"] = Json::array({schema["type"], "null"});
  return schema;
}

template <class T>
Json json_value(const T& value) {
  return value;
}
Json json_value(const Coverage& value) {
  return value.text;
}
template <NamedEnum Enum>
Json json_value(const Enum& value) {
  return name_of(value);
}
template <class T>
Json json_value(const std::vector<T>& values) {
  Json list = Json::array();
  for (const T& value : values)
    list.push_back(json_value(value));
  return list;
}
template <class T>
Json json_value(const std::optional<T>& value) {
  return value ? json_value(*value) : Json(nullptr);
}

template <SpecStruct Spec>
Json struct_schema() {
  const Spec defaults;
  Json properties = Json::object();
  Json required = Json::array();
  for_each_field<Spec>([&]<class T>(const FieldInfo& field, T Spec::*member) {
    const std::string key(field.key);
    bool is_required = field.required;
    Json schema;
    if constexpr (SpecStruct<T>) {
      schema = struct_schema<T>();
      is_required = schema.contains("required");
    } else {
      schema = kind_schema(defaults.*member, field);
      if (!is_required) schema["default"] = json_value(defaults.*member);
    }
    const std::string unit = field.unit.empty() ? "" : " [" + std::string(field.unit) + "]";
    schema["description"] = std::string(field.doc) + unit;
    if (is_required) required.push_back(key);
    properties[key] = std::move(schema);
  });

  Json schema = {{"type", "object"}, {"additionalProperties", false}, {"properties", properties}};
  if (!required.empty()) schema["required"] = required;
  return schema;
}

}  // namespace

std::string json_schema() {
  Json schema = {{"$schema", "https://json-schema.org/draft/2020-12/schema"},
                 {"title", "sdp-train experiment"}};
  schema.update(struct_schema<ExperimentSpec>());
  // Not a key of the experiment: where a file's other keys come from (spec/load.h).
  schema["properties"]["base"] = {
      {"type", {"string", "array"}},
      {"items", {{"type", "string"}}},
      {"description", "YAML file or files, relative to this one, that are read first; the later wins"}};
  return schema.dump(2) + "\n";
}

}  // namespace sdp
