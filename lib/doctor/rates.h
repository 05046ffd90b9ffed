#pragma once

// Rates of the ranks' devices and of the links between them: the profile that `plan --device FILE` reads.

#include <string>
#include <vector>

#include "comm/communicator.h"
#include "doctor/exchange.h"
#include "doctor/finding.h"
#include "forecast/profile_file.h"

namespace sdp {

/// What one rank has measured.
struct RankRates {
  DeviceProfiles profiles;  ///< links not filled in
  ExchangeRates exchange;
};

/// Collective; all ranks measure at the same time, as they compute when they train.
RankRates measure_rates(Communicator& comm, const std::vector<std::string>& hosts);

/// One profile for all: every rate that of the slowest rank, as everybody waits for it. Links that were not
/// measured, as there is only one process or one host: the next faster one, or the device's memory.
DeviceProfiles common_profiles(const std::vector<RankRates>& of_ranks);

/// The range of the ranks' rates, and which rank is the slowest where they differ.
Finding judge_device_rates(const std::vector<RankRates>& of_ranks);
Finding judge_exchange_rates(const std::vector<RankRates>& of_ranks);

std::string to_text(const RankRates& rates);
RankRates rates_from(const std::string& text);

}  // namespace sdp
