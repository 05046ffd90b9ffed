#include "doctor/rates.h"

#include <fmt/format.h>

#include <algorithm>

#include "measure/measure.h"
#include "spec/json_fields.h"
#include "text/units.h"

namespace sdp {
namespace {

/// "12.3 G", or "12.3 to 15.6 G" if ranks differ by more than a tenth.
template <class RateOf>
std::string range_text(const std::vector<RankRates>& of_ranks, RateOf rate_of, const char* unit) {
  std::vector<double> rates;
  for (const RankRates& one : of_ranks)
    rates.push_back(rate_of(one));
  const auto [least, most] = std::minmax_element(rates.begin(), rates.end());
  if (*most <= 1.1 * *least) return format_count(*least) + unit;
  return fmt::format("{}{} (rank {}) to {}{}", format_count(*least), unit, least - rates.begin(),
                     format_count(*most), unit);
}

/// The smaller one, ignoring rates that were not measured (0).
double lesser(double a, double b) {
  if (a == 0 || b == 0) return std::max(a, b);
  return std::min(a, b);
}

}  // namespace

RankRates measure_rates(Communicator& comm, const std::vector<std::string>& hosts) {
  RankRates rates;
  for (const auto& [precision, name] : EnumNames<Precision>::values) {
    comm.barrier();
    rates.profiles[precision] = measure_device(comm.device(), precision);
  }
  rates.exchange = measure_exchange(comm, hosts);
  return rates;
}

DeviceProfiles common_profiles(const std::vector<RankRates>& of_ranks) {
  DeviceProfiles common = of_ranks.front().profiles;
  ExchangeRates links = of_ranks.front().exchange;
  for (const RankRates& one : of_ranks) {
    links.inside_bytes_per_s = lesser(links.inside_bytes_per_s, one.exchange.inside_bytes_per_s);
    links.between_bytes_per_s = lesser(links.between_bytes_per_s, one.exchange.between_bytes_per_s);
    for (auto& [precision, profile] : common) {
      const DeviceProfile& other = one.profiles.at(precision);
      profile.flops_per_s = std::min(profile.flops_per_s, other.flops_per_s);
      profile.memory_bytes_per_s = std::min(profile.memory_bytes_per_s, other.memory_bytes_per_s);
      profile.launch_s = std::max(profile.launch_s, other.launch_s);
      profile.memory_bytes = std::min(profile.memory_bytes, other.memory_bytes);
      for (int64_t DeviceProfile::*bytes :
           {&DeviceProfile::allowance_bytes, &DeviceProfile::library_workspace_bytes,
            &DeviceProfile::convolution_workspace_bytes})
        profile.*bytes = std::max(profile.*bytes, other.*bytes);
    }
  }
  for (auto& [precision, profile] : common) {
    const double copied = profile.memory_bytes_per_s / 2;
    profile.inside_bytes_per_s = links.inside_bytes_per_s > 0 ? links.inside_bytes_per_s : copied;
    profile.between_bytes_per_s =
        links.between_bytes_per_s > 0 ? links.between_bytes_per_s : profile.inside_bytes_per_s;
  }
  return common;
}

Finding judge_device_rates(const std::vector<RankRates>& of_ranks) {
  std::string text;
  for (const auto& [precision, name] : EnumNames<Precision>::values) {
    const auto rate_of = [p = precision](const RankRates& one) { return one.profiles.at(p).flops_per_s; };
    text += fmt::format("{}{} {}", text.empty() ? "products: " : ", ", name,
                        range_text(of_ranks, rate_of, "FLOP/s"));
  }
  const auto copied = [](const RankRates& one) {
    return one.profiles.at(Precision::kFp32).memory_bytes_per_s / 2;
  };
  return pass("device rates", text + "; copies: " + range_text(of_ranks, copied, "B/s"));
}

Finding judge_library_workspace(const std::vector<RankRates>& of_ranks,
                                const std::vector<std::string>& devices) {
  constexpr const char* kCheck = "library workspace";
  std::vector<Finding> findings;
  for (size_t rank = 0; rank < of_ranks.size(); ++rank) {
    const DeviceProfile& profile = of_ranks[rank].profiles.at(Precision::kFp32);
    const std::optional<int64_t> expected = expected_library_workspace_bytes(devices[rank]);
    const std::string found = fmt::format("cuBLAS holds {}, cuDNN takes {} for a convolution",
                                          format_bytes(profile.library_workspace_bytes),
                                          format_bytes(profile.convolution_workspace_bytes));
    if (profile.library_workspace_bytes == 0)
      findings.push_back(skipped(kCheck, "not on a CPU"));
    else if (!expected)
      findings.push_back(pass(kCheck, found + "; plan has no data sheet of this GPU"));
    else if (*expected == profile.library_workspace_bytes)
      findings.push_back(pass(kCheck, found + ", as in plans for this GPU"));
    else
      findings.push_back(
          failed(kCheck, fmt::format("{}; plans for this GPU expect {}", found, format_bytes(*expected)),
                 "Unset CUBLAS_WORKSPACE_CONFIG, or plan with the saved profile (plan --device FILE.json)."));
  }
  return merged(findings);
}

Finding judge_exchange_rates(const std::vector<RankRates>& of_ranks) {
  constexpr const char* kCheck = "exchange rates";
  if (of_ranks.size() == 1) return skipped(kCheck, "a single process");
  std::string text = "all-to-all, sent by each process:";
  const auto add = [&](const char* where, double ExchangeRates::*rate) {
    const auto rate_of = [rate](const RankRates& one) { return one.exchange.*rate; };
    if (std::any_of(of_ranks.begin(), of_ranks.end(), [&](const RankRates& one) { return rate_of(one) > 0; }))
      text += fmt::format(" {} {},", range_text(of_ranks, rate_of, "B/s"), where);
  };
  add("within the host", &ExchangeRates::inside_bytes_per_s);
  add("to other hosts", &ExchangeRates::between_bytes_per_s);
  double slowest_s = 0;
  for (const RankRates& one : of_ranks)
    slowest_s = std::max(slowest_s, one.exchange.small_s);
  return pass(kCheck, fmt::format("{} at least {:.0f} us", text, 1e6 * slowest_s));
}

std::string to_text(const RankRates& rates) {
  return nlohmann::ordered_json{{"profiles", to_json(rates.profiles)}, {"exchange", json_of(rates.exchange)}}
      .dump();
}

RankRates rates_from(const std::string& text) {
  const auto json = nlohmann::ordered_json::parse(text);
  return {.profiles = profiles_of(json.at("profiles")),
          .exchange = struct_of<ExchangeRates>(json.at("exchange"))};
}

}  // namespace sdp
