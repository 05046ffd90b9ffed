#pragma once

// The file of a machine's measured rates, written by `doctor --save` and read by `plan --device FILE`.

#include <filesystem>
#include <map>
#include <nlohmann/json_fwd.hpp>

#include "forecast/device_profile.h"

namespace sdp {

/// The profile of one device in each precision.
using DeviceProfiles = std::map<Precision, DeviceProfile>;

nlohmann::ordered_json to_json(const DeviceProfiles& profiles);
/// Throws nlohmann::json::exception if a precision is missing, and FieldError (spec/json_fields.h).
DeviceProfiles profiles_of(const nlohmann::ordered_json& json);

/// The text of the file: the version of its format, and the profiles.
std::string profile_text(const DeviceProfiles& profiles);

/// The saved profile for a run in this precision. If the file cannot be used, throws UsageError, which gives
/// the reason.
DeviceProfile read_profile(const std::filesystem::path& file, Precision precision);

}  // namespace sdp
