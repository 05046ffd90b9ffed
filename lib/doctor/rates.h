#pragma once

// Rates of the ranks' devices and of the links between them: the profile that `plan --device FILE` reads.

#include <string>
#include <vector>

#include "comm/communicator.h"
#include "doctor/exchange.h"
#include "doctor/finding.h"
#include "forecast/device_profile.h"

namespace sdp {

/// Measurements of one rank.
struct RankRates {
  DeviceProfiles profiles;  ///< without links
  ExchangeRates exchange;
};

/// Collective. All ranks measure at the same time, as they compute at the same time in training.
RankRates measure_rates(Communicator& comm, const std::vector<std::string>& hosts);

/// One profile for all ranks. Every rate is that of the slowest rank, as the others wait for it. A link that
/// was not measured, because there is only one process or one host, gets the rate of the next faster link or
/// of the device's memory.
DeviceProfiles common_profiles(const std::vector<RankRates>& of_ranks);

/// The range of the ranks' rates, and the slowest rank if they differ.
Finding judge_device_rates(const std::vector<RankRates>& of_ranks);
/// Compares the library workspace of each rank's GPU with the profile that plans use for it. `devices`: names
/// of the ranks' devices.
Finding judge_library_workspace(const std::vector<RankRates>& of_ranks,
                                const std::vector<std::string>& devices);
Finding judge_exchange_rates(const std::vector<RankRates>& of_ranks);

std::string to_text(const RankRates& rates);
RankRates rates_from(const std::string& text);

}  // namespace sdp
