#include "experiment/print.h"

#include "optim/registry.h"
#include "spec/error.h"
#include "spec/hash.h"
#include "spec/schema.h"
#include "spec/text.h"
#include "spec/value_text.h"

namespace sdp {
namespace {

template <HasFields Spec>
void check_chosen(const std::string& parent, const ChosenNames& chosen) {
  for_each_field<Spec>([&]<class T>(const FieldInfo& field, T Spec::*) {
    if constexpr (HasFields<T>) check_chosen<T>(dotted(parent, field.key), chosen);
    if constexpr (KindOfSeveral<T>) {
      const auto name = chosen.find(parent);
      if (name == chosen.end() || T().choose(name->second)) return;
      throw UsageError(dotted(parent, field.key) + ": found '" + shortened(name->second) +
                       "', expected one of " + join(T::all_names(), ", "));
    }
  });
}

}  // namespace

std::string to_yaml(const ExperimentSpec& spec) {
  std::string out;
  print_yaml(spec, "", out);
  return out;
}

std::string spec_hash(const ExperimentSpec& spec) {
  return xxh3_128(to_yaml(spec));
}

std::string describe_fields(const ChosenNames& chosen) {
  check_chosen<ExperimentSpec>("", chosen);
  std::string out = description_header();
  describe_keys<ExperimentSpec>("", chosen, out);
  return out;
}

std::string json_schema() {
  nlohmann::ordered_json schema = {{"$schema", "https://json-schema.org/draft/2020-12/schema"},
                                   {"title", "sdp-train experiment"}};
  schema.update(json_schema_of<ExperimentSpec>());
  // `base` is not a key of the experiment: it names the files that a file is based on (load.h).
  schema["properties"]["base"] = {{"type", {"string", "array"}},
                                  {"items", {{"type", "string"}}},
                                  {"description",
                                   "YAML file or files, relative to this file, that are read before it; "
                                   "later files override earlier ones"}};
  return schema.dump(2) + "\n";
}

}  // namespace sdp
