// Every key of the schema: what is printed loads again, and what is wrong is refused at its place.

#include "experiment/print.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "optim/registry.h"
#include "spec/read.h"
#include "spec/value_text.h"
#include "spec_errors.h"

namespace sdp {
namespace {

using Json = nlohmann::ordered_json;
using Keys = std::set<std::string>;

// ---- values other than the default, within the limits of their key ----

template <class T>
requires std::is_arithmetic_v<T> T other(const T& value, const FieldInfo& field) {
  if constexpr (std::is_same_v<T, bool>) return !value;
  const double least = field.limits.min, x = static_cast<double>(value);
  const double part = std::is_integral_v<T> ? 1 : 1.0 / 3;
  for (const double candidate :
       {x + part, x - part, x / 3 + 1e-9, std::floor(least) + 1, least + part, least + 2})
    if (const T rounded = static_cast<T>(candidate); rounded != value && field.limits.contains(rounded))
      return rounded;
  throw std::logic_error("no other value of " + std::string(field.key));
}

std::string other(const std::string&, const FieldInfo&) {
  return "with \"quotes\", \\ # : and\ttab\nline é";
}

Coverage other(const Coverage&, const FieldInfo&) {
  return {.text = "0.333333"};
}

template <NamedEnum Enum>
Enum other(const Enum& value, const FieldInfo&) {
  const auto& values = EnumNames<Enum>::values;
  return value == values.front().first ? values.back().first : values.front().first;
}

template <class T>
std::vector<T> other(const std::vector<T>& value, const FieldInfo& field) {
  std::vector<T> items = {other(T{}, field)};
  if (items == value) items.clear();
  return items;
}

template <class T>
std::optional<T> other(const std::optional<T>& value, const FieldInfo& field) {
  return other(value.value_or(T{}), field);
}

/// Calls `visit(member, field)` for every value of a spec, those of its kinds included.
template <HasFields Spec, class Visit>
void for_each_value(Spec& spec, const Visit& visit) {
  for_each_field<Spec>([&]<class T>(const FieldInfo& field, T Spec::*member) {
    if constexpr (HasFields<T>)
      for_each_value(spec.*member, visit);
    else if constexpr (KindOfSeveral<T>)
      (spec.*member).visit([&](auto& kind) { for_each_value(kind, visit); });
    else
      visit(spec.*member, field);
  });
}

template <class T>
void change(T& value, const FieldInfo& field) {
  if constexpr (ListOfStructs<T>) {
    typename T::value_type item;
    for_each_value(item, [](auto& of_item, const FieldInfo& own) { change(of_item, own); });
    value.push_back(item);
  } else {
    value = other(value, field);
  }
}

/// A spec of every kind of every section, by the name of the kind, with the defaults where there are some.
std::map<std::string, ExperimentSpec> all_kinds() {
  std::map<std::string, ExperimentSpec> specs;
  for_each_field<ExperimentSpec>([&]<class Section>(const FieldInfo&, Section ExperimentSpec::*section) {
    if constexpr (HasFields<Section>)
      for_each_field<Section>([&]<class T>(const FieldInfo&, T Section::*member) {
        if constexpr (KindOfSeveral<T>)
          for (const std::string_view name : T::all_names()) {
            ExperimentSpec& spec = specs[std::string(name)];
            spec.name = "test";
            spec.data.path = ".";
            (spec.*section.*member).choose(name);
          }
      });
  });
  return specs;
}

/// What a text says, without the checks across keys.
ExperimentSpec read(const std::string& text) {
  const YamlNode tree = parse_yaml(text, {.source = "x.yaml", .line = 1, .column = 1});
  ExperimentSpec spec;
  Positions positions;
  UsageErrors errors;
  ReadResults results{.positions = positions, .errors = errors, .all_keys = {}};
  choose_kinds(spec, tree);
  read_section(spec, tree, "", results);
  errors.throw_if_any();
  return spec;
}

TEST_CASE("the output of to_yaml loads as an equal spec, whatever the kinds and values") {
  std::vector<ExperimentSpec> specs;
  for (const auto& [name, spec] : all_kinds()) {
    specs.push_back(spec);
    specs.push_back(spec);
    for_each_value(specs.back(), [](auto& value, const FieldInfo& field) { change(value, field); });
    CHECK(specs.back() != spec);
    CHECK(spec_hash(specs.back()) != spec_hash(spec));
  }
  const ExperimentSpec minimal = parse_spec(spec_with(""), "x.yaml").spec;
  for (const char* word : {"null", "true", "123", ""}) {  // which YAML would read as another type
    specs.push_back(minimal);
    specs.back().output.dir = word;
  }
  specs.push_back(minimal);
  specs.back().optimizer.rule = AdamWSpec{0.1 + 0.2, 1e300, true, 0.95, 1 - 1e-16, 5e-324};
  for (const ExperimentSpec& spec : specs) {
    const std::string text = to_yaml(spec);
    INFO(text);
    CHECK(read(text) == spec);
    CHECK(to_yaml(read(text)) == text);
  }
  CHECK(parse_spec(to_yaml(minimal), "x.yaml").spec == minimal);
}

// ---- the keys of the schema ----

/// The keys that hold values, with their schemas. Checks the requirements on every level on the way.
std::vector<std::pair<std::string, Json>> schema_keys(const Json& schema = Json::parse(json_schema()),
                                                      const std::string& parent = "") {
  INFO(parent);
  REQUIRE(schema.at("type") == "object");
  CHECK(schema.at("additionalProperties") == false);
  std::vector<std::pair<std::string, Json>> keys;
  for (const auto& [name, property] : schema.at("properties").items()) {
    const std::string key = dotted(parent, name);
    INFO(key);
    CHECK(property.at("description").get<std::string>() != "");
    if (property.value("type", Json()) == "object")
      std::ranges::copy(schema_keys(property, key), std::back_inserter(keys));
    else if (key != "base")  // not a key of the experiment: it names files that provide other keys
      keys.emplace_back(key, property);
  }
  return keys;
}

TEST_CASE("schema, spec and description have the same keys, for every kind") {
  Keys in_schema, in_specs;
  for (const auto& [key, schema] : schema_keys())
    CHECK(in_schema.insert(key).second);
  const auto described = [&](const ChosenNames& kinds) {
    Keys keys;
    std::istringstream lines(describe_fields(kinds));
    for (std::string line; std::getline(lines, line);) {
      INFO(line);
      CHECK(line.size() <= 110);
      const std::string word = line.substr(0, line.find(' '));
      if (in_schema.contains(word)) keys.insert(word);
    }
    return keys;
  };
  CHECK(described({}) == in_schema);
  const Json sections = Json::parse(json_schema()).at("properties");
  for (const auto& [name, spec] : all_kinds()) {
    INFO(name);
    Keys keys;
    for_each_value(spec, "",
                   [&](const std::string& key, const FieldInfo&, const auto&) { keys.insert(key); });
    in_specs.insert(keys.begin(), keys.end());
    CHECK(described({{"model", std::string(spec.model.kind.name())},
                     {"data", std::string(spec.data.set.name())},
                     {"optimizer", std::string(spec.optimizer.rule.name())}}) == keys);
    for (const char* section : {"model", "data", "optimizer"})  // again under the condition on the name
      for (const Json& kind : sections.at(section).at("allOf")) {
        const Json names = kind.at("if").at("properties").at("name").at("enum");
        if (std::find(names.begin(), names.end(), Json(name)) == names.end()) continue;
        for (const auto& [key, schema] : kind.at("then").at("properties").items())
          CHECK((schema.value("type", Json()) == "object" || keys.contains(dotted(section, key))));
      }
  }
  CHECK(in_specs == in_schema);
  CHECK_THROWS_AS(describe_fields({{"model", "resnet19"}}), UsageError);
}

/// The spec with `value` at the key, and the place of the value.
std::pair<std::string, std::string> text_with(const std::string& key, const std::string& value) {
  std::string text = key == "name" ? "" : "name: test\n";
  if (!key.starts_with("data.")) text += "data: {path: .}\n";
  std::istringstream sections(key);
  std::string indent;
  for (std::string section; std::getline(sections, section, '.'); indent += "  ")
    text.append(text.ends_with(':') ? "\n" : "").append(indent).append(section).append(":");
  const auto line = std::ranges::count(text, '\n') + 1;
  const size_t column = text.size() - text.rfind('\n') + 1;
  return {text + " " + value + "\n",
          "x.yaml:" + std::to_string(line) + ":" + std::to_string(column) + ": " + key + ": found "};
}

/// Values that a schema does not allow.
std::vector<std::string> wrong_values(const Json& schema) {
  std::vector<std::string> wrong = {"{a: b}"};
  for (const Json& one : schema.value("anyOf", Json::array({schema}))) {
    const Json type = one.at("type").is_array() ? one.at("type").at(0) : one.at("type");
    if (type == "boolean") wrong.emplace_back("yes");
    if (type == "integer" || type == "number") wrong.emplace_back("four");
    if (type == "integer") wrong.emplace_back("2.5");
    if (one.contains("enum")) wrong.emplace_back("no-such-name");
    for (const auto& [bound, step] :
         {std::pair{"minimum", -1}, {"exclusiveMinimum", 0}, {"maximum", 1}, {"exclusiveMaximum", 0}}) {
      if (!one.contains(bound)) continue;
      const double beyond = one.at(bound).get<double>() + step;
      wrong.push_back(type == "integer" ? std::to_string(static_cast<int64_t>(beyond)) : Json(beyond).dump());
    }
  }
  return wrong;
}

TEST_CASE("what the schema does not allow is refused at its place, and its defaults are those of the spec") {
  const ExperimentSpec defaults = read("data: {path: .}");
  for (const auto& [key, schema] : schema_keys()) {
    for (const std::string& value : wrong_values(schema)) {
      const auto [text, place] = text_with(key, value);
      CAPTURE(text, place);
      CHECK(contains(spec_error(text), place));
    }
    if (!schema.contains("default")) continue;
    const auto [text, place] = text_with(key, schema.at("default").dump());
    INFO(text);
    ExperimentSpec spec = read(text);
    spec.name = defaults.name;
    spec.data.path = defaults.data.path;
    CHECK(spec == defaults);
  }
}

}  // namespace
}  // namespace sdp
