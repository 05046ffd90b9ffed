#include <cstdio>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "device/version.h"
#include "experiment/run_format.h"
#include "experiment/spec/load.h"
#include "experiment/spec/regime.h"
#include "spec/error.h"
#include "spec/value_text.h"
#include "spec/walk.h"

namespace sdp {
namespace {

using nlohmann::ordered_json;

const char* name_of(InReport in_report) {
  switch (in_report) {
    case InReport::kCompared:
      return "compared";
    case InReport::kInRegime:
      return "in_regime";
    case InReport::kFollowsRegime:
      return "follows_regime";
    case InReport::kNotCompared:
      break;
  }
  return "not_compared";
}

ordered_json options_of(const ExperimentSpec& spec) {
  ordered_json options = ordered_json::array();
  for_each_value(spec, "", [&](const std::string& key, const FieldInfo& field, const auto& value) {
    options.push_back({{"key", key},
                       {"value", yaml_text(value)},
                       {"in_report", name_of(field.treatment.in_report)},
                       {"fixed", field.treatment.on_resume == OnResume::kFixed}});
  });
  return options;
}

ordered_json description_of(const std::filesystem::path& file) {
  ordered_json json = {{"file", file.string()}};
  try {
    const ExperimentSpec spec = load_saved_spec(file);
    json["method"] = method_of(spec);
    json["is_of_tokens"] = spec.data.is_of_tokens();
    json["sequence_length"] = spec.data.is_of_tokens() ? spec.data.sequence_length() : 0;
    json["options"] = options_of(spec);
  } catch (const Error& error) {
    json["error"] = error.what();
  }
  return json;
}

}  // namespace

int describe_command(const std::vector<std::filesystem::path>& specs) {
  ordered_json json = {{"format", kRunFormat}, {"version", kProgramVersion}};
  json["options"] = options_of(ExperimentSpec());
  json["specs"] = ordered_json::array();
  for (const std::filesystem::path& file : specs)
    json["specs"].push_back(description_of(file));
  std::printf("%s\n", json.dump().c_str());
  return 0;
}

}  // namespace sdp
