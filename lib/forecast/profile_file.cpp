#include "forecast/profile_file.h"

#include <fmt/format.h>

#include <cmath>
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
  throw UsageError(fmt::format("--device {}: {}. Expected a profile written by `sdp-train doctor --save {}`.",
                               file.string(), reason, shell_word(file.string())));
}

/// Whether a step time can be computed from the profile.
bool is_usable(const DeviceProfile& profile) {
  const auto positive = [](double rate) { return std::isfinite(rate) && rate > 0; };
  return positive(profile.flops_per_s) && positive(profile.memory_bytes_per_s) &&
         positive(profile.inside_bytes_per_s) && positive(profile.between_bytes_per_s) &&
         std::isfinite(profile.launch_s) && profile.launch_s >= 0 && profile.tile_side >= 1 &&
         profile.tiles_at_once >= 1 && profile.allowance_bytes >= 0 && profile.library_workspace_bytes >= 0 &&
         profile.convolution_workspace_bytes >= 0 && profile.tensor_bytes() > 0;
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
  try {
    const Json json = Json::parse(text.str());
    if (json.at("sdp_train_profile").get<int>() != kFormVersion)
      refuse(file, "was written by another version of sdp-train");
    DeviceProfile profile = profiles_of(json.at("profiles")).at(precision);
    if (!is_usable(profile)) refuse(file, fmt::format("has an invalid rate for {}", name_of(precision)));
    profile.rates = RatesFrom::kSavedProfile;
    return profile;
  } catch (const nlohmann::json::exception& error) {
    refuse(file, fmt::format("is not a profile ({})", error.what()));
  }
}

}  // namespace sdp
