#include "doctor/checks.h"

#include <fmt/format.h>

#include <algorithm>

#include "doctor/measure.h"
#include "spec/units.h"

namespace sdp {
namespace {

using Rate = double DeviceProfile::*;

std::vector<double> rates_of(const std::vector<DeviceProfiles>& of_ranks, Precision precision, Rate rate) {
  std::vector<double> rates;
  for (const DeviceProfiles& profiles : of_ranks)
    rates.push_back(profiles.at(precision).*rate);
  return rates;
}

/// "12.3 G", or "12.3 G (rank 1) to 15.6 G" if ranks differ by more than a tenth.
std::string range_text(const std::vector<double>& rates, const char* unit) {
  const auto [least, most] = std::minmax_element(rates.begin(), rates.end());
  if (*most <= 1.1 * *least) return format_count(*least) + unit;
  return fmt::format("{}{} (rank {}) to {}{}", format_count(*least), unit, least - rates.begin(),
                     format_count(*most), unit);
}

/// The smaller one, ignoring rates that were not measured (0).
double lesser(double a, double b) {
  return a == 0 || b == 0 ? std::max(a, b) : std::min(a, b);
}

}  // namespace

DeviceProfiles measure_rates(Communicator& comm, const std::vector<std::string>& hosts) {
  DeviceProfiles profiles;
  for (const auto& [precision, name] : EnumNames<Precision>::values) {
    comm.barrier();
    profiles[precision] = measure_device(comm.device(), precision);
  }
  const LinkRates links = measure_links(comm, hosts);
  for (auto& [precision, profile] : profiles) {
    profile.inside_bytes_per_s = links.inside_bytes_per_s;
    profile.between_bytes_per_s = links.between_bytes_per_s;
  }
  return profiles;
}

DeviceProfiles common_profiles(const std::vector<DeviceProfiles>& of_ranks) {
  DeviceProfiles common = of_ranks.front();
  for (auto& [precision, profile] : common) {
    for (const DeviceProfiles& profiles : of_ranks) {
      const DeviceProfile& other = profiles.at(precision);
      for (const Rate rate : {&DeviceProfile::flops_per_s, &DeviceProfile::memory_bytes_per_s,
                              &DeviceProfile::inside_bytes_per_s, &DeviceProfile::between_bytes_per_s})
        profile.*rate = lesser(profile.*rate, other.*rate);
      profile.launch_s = std::max(profile.launch_s, other.launch_s);
      profile.memory_bytes = std::min(profile.memory_bytes, other.memory_bytes);
      for (int64_t DeviceProfile::*bytes :
           {&DeviceProfile::allowance_bytes, &DeviceProfile::library_workspace_bytes,
            &DeviceProfile::convolution_workspace_bytes})
        profile.*bytes = std::max(profile.*bytes, other.*bytes);
    }
    if (profile.inside_bytes_per_s == 0) profile.inside_bytes_per_s = profile.memory_bytes_per_s / 2;
    if (profile.between_bytes_per_s == 0) profile.between_bytes_per_s = profile.inside_bytes_per_s;
  }
  return common;
}

std::string device_rates_text(const std::vector<DeviceProfiles>& of_ranks) {
  std::string text = "products:";
  for (const auto& [precision, name] : EnumNames<Precision>::values)
    text += fmt::format(" {} {},", name,
                        range_text(rates_of(of_ranks, precision, &DeviceProfile::flops_per_s), "FLOP/s"));
  std::vector<double> copies = rates_of(of_ranks, Precision::kFp32, &DeviceProfile::memory_bytes_per_s);
  for (double& rate : copies)
    rate /= 2;  // a copy reads and writes
  return fmt::format("{} copies: {}", text, range_text(copies, "B/s"));
}

std::string link_rates_text(const std::vector<DeviceProfiles>& of_ranks) {
  std::string text;
  for (const auto& [where, link] : {std::pair{"within the host", &DeviceProfile::inside_bytes_per_s},
                                    {"to other hosts", &DeviceProfile::between_bytes_per_s}}) {
    const std::vector<double> rates = rates_of(of_ranks, Precision::kFp32, link);
    if (std::any_of(rates.begin(), rates.end(), [](double rate) { return rate > 0; }))
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", range_text(rates, "B/s"), where);
  }
  return "all-to-all, sent by each process: " + text;
}

}  // namespace sdp
