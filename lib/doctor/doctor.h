#pragma once

// `sdp-train doctor`: checks whether this machine and these processes can train.

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "doctor/facts.h"
#include "doctor/finding.h"
#include "experiment/spec/experiment_spec.h"
#include "forecast/device_profile.h"

namespace sdp {

struct DoctorOptions {
  DeviceKind device = DeviceKind::kAuto;
  std::filesystem::path data;  ///< empty: not requested
  std::filesystem::path output = ".";
  std::filesystem::path save;  ///< file for the profile; empty: none
};

struct Diagnosis {
  std::vector<Report> ranks;  ///< in order of rank
  std::vector<Finding> findings;
  DeviceProfiles profiles;  ///< empty if no rates were measured
};

/// How long the ranks wait for each other: in a check, and then when they exchange their results. A rank that
/// leaves a check early does not end the other ranks' check.
inline constexpr std::chrono::seconds kCheckTimeout{30};
inline constexpr std::chrono::seconds kAgreeTimeout{90};

/// Runs all checks and adds the findings to `diagnosis`, the same on all ranks. Collective. `control`
/// connects the ranks on the CPU and stays usable whatever the devices do. If a check throws on a rank, it
/// has failed; checks that need what it made unusable are skipped and say so. Throws PeerLostError if a rank
/// is gone. `tell` is called with the name of each check before it begins.
void examine(const Ranks& ranks, const DoctorOptions& options, Communicator& control, Diagnosis& diagnosis,
             const std::function<void(const std::string& check)>& tell);

/// This process's own facts and versions, for ranks that could not connect.
void examine_alone(const Ranks& ranks, const std::string& reason, Diagnosis& diagnosis);

/// Runs `check` on every rank and combines the findings. Collective.
struct Agreed {
  Finding finding;
  bool threw = false;  ///< on some rank
};
Agreed agree(Communicator& control, const std::string& name, const std::function<Finding()>& check);

/// Tables of the ranks and of the findings, and a verdict.
std::string text_of(const Diagnosis& diagnosis, const Ranks& ranks);
/// The same as JSON.
std::string json_text_of(const Diagnosis& diagnosis, const Ranks& ranks);

}  // namespace sdp
