#pragma once

// What a check of `sdp-train doctor` found. Free of LibTorch.

#include <string>
#include <vector>

#include "spec/field.h"

namespace sdp {

enum class Status { kPass, kSkip, kFail };
SDP_ENUM_NAMES(Status, {Status::kPass, "PASS"}, {Status::kSkip, "SKIP"}, {Status::kFail, "FAIL"})

struct Finding {
  std::string check;
  Status status = Status::kPass;
  std::string detail;  ///< what was found, the reason of a failure, or why nothing was checked
  std::string advice;  ///< what to do about a failure; may be empty

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

/// One finding of those that all ranks made of the same check, in order of rank. The worst status counts:
/// FAIL, then PASS, then SKIP. Ranks that have it are named, "rank 1: no such folder", where not all that
/// checked found the same. Empty details add nothing.
Finding merged(const std::vector<Finding>& of_ranks);

bool any_failed(const std::vector<Finding>& findings);

/// A table, and below it what to do about each failure.
std::string text_of(const std::vector<Finding>& findings);

}  // namespace sdp
