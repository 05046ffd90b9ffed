#pragma once

// `sdp-train doctor`: checks whether this machine and these processes can train.

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "cost/device_profile.h"
#include "doctor/finding.h"
#include "doctor/machine.h"
#include "experiment/experiment_spec.h"

namespace sdp {

struct DoctorOptions {
  DeviceKind device = DeviceKind::kAuto;
  std::filesystem::path output = ".";
  std::filesystem::path save;  ///< file for the profile; empty: none
};

struct Diagnosis {
  std::vector<ProcessFacts> processes;  ///< by rank; only this one if the processes did not connect
  std::vector<Finding> findings;
  DeviceProfiles profiles;  ///< empty if no rates were measured
  std::string lost;         ///< why ranks did not connect or were lost; empty: they are all here
};

/// Connects the ranks and runs all checks; the diagnosis is the same on all ranks. A second communicator on
/// the CPU stays usable whatever the devices do. If a check throws on a rank, it has failed; checks that need
/// what it made unusable are skipped and say so. If ranks do not connect or one is lost, that is the last
/// finding. `on_check` is called with the name of each check before it begins.
Diagnosis diagnose(const Ranks& ranks, const DoctorOptions& options,
                   const std::function<void(const std::string& check)>& on_check);

/// Tables of the processes and of the findings, advice for each failure, and a verdict.
std::string text_of(const Diagnosis& diagnosis, const Ranks& ranks);
/// The same as JSON.
std::string json_text_of(const Diagnosis& diagnosis, const Ranks& ranks);

}  // namespace sdp
