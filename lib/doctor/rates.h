#pragma once

// Rates of the ranks' devices and of the links between them: the profile that `plan --device FILE` reads.

#include <string>
#include <vector>

#include "comm/communicator.h"
#include "forecast/device_profile.h"

namespace sdp {

/// Collective. All ranks measure at the same time, as they compute at the same time in training. `hosts`: of
/// all ranks. The rate of a link that this rank does not have is 0.
DeviceProfiles measure_rates(Communicator& comm, const std::vector<std::string>& hosts);

/// One profile for all ranks. Every rate is that of the slowest rank, as the others wait for it. A link that
/// was not measured, because there is only one process or one host, gets the rate of the next faster link or
/// of the device's memory.
DeviceProfiles common_profiles(const std::vector<DeviceProfiles>& of_ranks);

/// The range of the ranks' rates of products and copies, and the slowest rank if they differ.
std::string device_rates_text(const std::vector<DeviceProfiles>& of_ranks);
/// The same of the links between them.
std::string link_rates_text(const std::vector<DeviceProfiles>& of_ranks);

}  // namespace sdp
