#pragma once

// A machine's measured rates in a file: written by `doctor --save`, read by `plan --device FILE`.

#include <filesystem>
#include <map>
#include <nlohmann/json_fwd.hpp>

#include "forecast/device_profile.h"

namespace sdp {

/// One device's profile in each precision.
using DeviceProfiles = std::map<Precision, DeviceProfile>;

nlohmann::ordered_json to_json(const DeviceProfiles& profiles);
/// Throws nlohmann::json::exception where a field is missing or of another type.
DeviceProfiles profiles_of(const nlohmann::ordered_json& json);

/// The text of the file: a version of its form, and the profiles.
std::string profile_text(const DeviceProfiles& profiles);

/// The saved profile for a run of this precision. Throws UsageError that says what is wrong with the file.
DeviceProfile read_profile(const std::filesystem::path& file, Precision precision);

}  // namespace sdp
