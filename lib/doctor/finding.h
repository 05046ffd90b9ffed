#pragma once

// The finding of a check of `sdp-train doctor`, and how the ranks' findings become one.

#include <functional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "spec/field.h"

namespace sdp {

enum class Status { kSkip, kPass, kFail };  ///< the later one counts if ranks differ
SDP_ENUM_NAMES(Status, {Status::kSkip, "SKIP"}, {Status::kPass, "PASS"}, {Status::kFail, "FAIL"})

struct Finding {
  std::string check;
  Status status = Status::kPass;
  std::string detail;  ///< what was found, the reason for a failure, or why the check was skipped
  std::string advice;  ///< how to fix a failure; may be empty

  bool operator==(const Finding&) const = default;

  template <class Visitor>
  static void fields(Visitor& field) {
    field("check", &Finding::check);
    field("status", &Finding::status);
    field("detail", &Finding::detail);
    field("advice", &Finding::advice);
  }
};

Finding pass(std::string check, std::string detail);
/// `detail` is the reason.
Finding skipped(std::string check, std::string detail);
Finding failed(std::string check, std::string reason, std::string advice = "");
bool any_failed(const std::vector<Finding>& findings);

/// Combines the findings of all ranks, in rank order, from the same check. The status is FAIL if any rank
/// failed, else PASS if any passed, else SKIP. Ranks with that status are named, "rank 1: no such folder",
/// unless all ranks that ran the check found the same. Empty details are left out.
Finding merged(const std::vector<Finding>& of_ranks);

/// Runs `check` on every rank and merges the findings. A check that throws has failed. Collective.
struct Agreed {
  Finding finding;
  bool threw = false;  ///< on some rank
};
Agreed agree(Communicator& control, const std::string& name, const std::function<Finding()>& check);

}  // namespace sdp
