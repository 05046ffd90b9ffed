#include "forecast/profile_file.h"

#include <fmt/format.h>

#include <fstream>
#include <sstream>

#include "spec/error.h"
#include "spec/json_fields.h"
#include "spec/text.h"

namespace sdp {
namespace {

using Json = nlohmann::ordered_json;
constexpr int kFormVersion = 2;

[[noreturn]] void refuse(const std::filesystem::path& file, const std::string& reason) {
  throw UsageError(
      fmt::format("--device {}: {}. Expected a profile as `sdp-train doctor --save {}` writes it "
                  "(docs/plans.md).",
                  file.string(), reason, shell_word(file.string())));
}

/// Throws std::invalid_argument unless `json` has every key of a profile and no other, with values that a
/// machine can have.
void check_values(const Json& json) {
  const Json required = json_of(DeviceProfile{});
  Json known = required;
  known["latency_s"] = 0.0;
  for (const auto& [key, example] : required.items())
    if (!json.contains(key)) throw std::invalid_argument(key + ": missing");
  for (const auto& [key, value] : json.items()) {
    if (!known.contains(key)) throw std::invalid_argument(key + ": not a key of a profile");
    const Json& example = known.at(key);
    const bool may_be_zero =
        key.ends_with("_bytes") || key == "peak_flops_per_s" || key == "launch_s" || key == "latency_s";
    const double number = value.is_number() ? value.get<double>() : -1;
    if (example.is_number() ? number >= 0 && (number > 0 || may_be_zero) && number <= 1e18 &&
                                  (example.is_number_float() || value.is_number_integer())
                            : value.type() == example.type())
      continue;
    const char* const range = !example.is_number() ? ""
                              : may_be_zero        ? ", from 0 to 1e18"
                                                   : ", above 0, to 1e18";
    throw std::invalid_argument(
        fmt::format("{}: found {}, expected a {}{}", key, shortened(value.dump()),
                    example.is_number_integer() ? "whole number" : example.type_name(), range));
  }
}

}  // namespace

Json to_json(const DeviceProfiles& profiles) {
  Json json;
  for (const auto& [precision, profile] : profiles)
    json[std::string(name_of(precision))] = json_of(profile);
  return json;
}

DeviceProfiles profiles_of(const Json& json) {
  DeviceProfiles profiles;
  for (const auto& [precision, name] : EnumNames<Precision>::values)
    profiles[precision] = struct_of<DeviceProfile>(json.at(std::string(name)));
  return profiles;
}

std::string profile_text(const DeviceProfiles& profiles) {
  return Json{{"sdp_train_profile", kFormVersion}, {"profiles", to_json(profiles)}}.dump(2) + "\n";
}

DeviceProfile read_profile(const std::filesystem::path& file, Precision precision) {
  std::ifstream input(file);
  std::ostringstream text;
  if (!(text << input.rdbuf())) refuse(file, "cannot be read");
  if (const std::string wrong = wrong_content(text.view()); !wrong.empty()) refuse(file, wrong);
  const std::string name(name_of(precision));
  try {
    const Json json = Json::parse(text.str());
    if (const Json version = json.at("sdp_train_profile"); version != kFormVersion)
      refuse(file, fmt::format("sdp_train_profile: found {}, expected {}", shortened(version.dump()),
                               kFormVersion));
    const Json& values = json.at("profiles").at(name);
    check_values(values);
    DeviceProfile profile = struct_of<DeviceProfile>(values);
    if (profile.tensor_bytes() <= 0)
      throw std::invalid_argument(fmt::format(
          "memory_bytes: found {}, expected more than allowance and workspace", profile.memory_bytes));
    profile.rates = RatesFrom::kSavedProfile;
    return profile;
  } catch (const std::invalid_argument& error) {
    refuse(file, fmt::format("profiles.{}.{}", name, error.what()));
  } catch (const FieldError& error) {
    refuse(file, fmt::format("profiles.{}: {}", name, error.what()));
  } catch (const nlohmann::json::exception& error) {
    refuse(file, fmt::format("is not a profile ({})", error.what()));
  }
}

}  // namespace sdp
