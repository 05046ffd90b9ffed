#pragma once

// `sdp-train doctor`: whether this machine, and these processes, can train.

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "doctor/facts.h"
#include "doctor/finding.h"
#include "experiment/spec/experiment_spec.h"
#include "forecast/profile_file.h"

namespace sdp {

struct DoctorOptions {
  DeviceKind device = DeviceKind::kAuto;
  std::filesystem::path data;  ///< empty: not asked for
  std::filesystem::path output = ".";
  std::filesystem::path save;  ///< file for the profile; empty: none
};

struct Diagnosis {
  std::vector<Report> ranks;  ///< in order of rank
  std::vector<Finding> findings;
  DeviceProfiles profiles;  ///< empty where rates were not measured
};

/// How long the ranks wait for each other, first in the checks, then to agree on what they found: a rank that
/// leaves a check does not end the others'.
inline constexpr std::chrono::seconds kCheckTimeout{30};
inline constexpr std::chrono::seconds kAgreeTimeout{90};

/// Makes all checks and adds what they find to `diagnosis`, the same on all ranks. Collective. `control`
/// joins the ranks on the CPU and stays usable whatever the devices do. A check that throws on a rank has
/// failed; checks that need what it left unusable are skipped and say so. Throws PeerLostError where a rank
/// is gone. `tell` is called with what begins.
void examine(const Ranks& ranks, const DoctorOptions& options, Communicator& control, Diagnosis& diagnosis,
             const std::function<void(const std::string& check)>& tell);

/// This process's own facts and versions, where the ranks could not meet.
void examine_alone(const Ranks& ranks, const std::string& reason, Diagnosis& diagnosis);

/// `check` on every rank, and what all of them found. Collective.
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
