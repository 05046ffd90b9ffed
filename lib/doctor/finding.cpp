#include "doctor/finding.h"

#include <fmt/format.h>

#include <algorithm>

#include "text/table.h"
#include "text/units.h"

namespace sdp {
namespace {

struct Group {
  std::string detail;
  std::vector<int> ranks;
};

std::vector<Group> groups_by_detail(const std::vector<Finding>& of_ranks, Status status) {
  std::vector<Group> groups;
  for (size_t rank = 0; rank < of_ranks.size(); ++rank) {
    const Finding& finding = of_ranks[rank];
    if (finding.status != status || finding.detail.empty()) continue;
    auto group = std::find_if(groups.begin(), groups.end(),
                              [&](const Group& other) { return other.detail == finding.detail; });
    if (group == groups.end()) group = groups.insert(groups.end(), {.detail = finding.detail, .ranks = {}});
    group->ranks.push_back(static_cast<int>(rank));
  }
  return groups;
}

Status worst_of(const std::vector<Finding>& of_ranks) {
  const auto any = [&](Status status) {
    return std::any_of(of_ranks.begin(), of_ranks.end(),
                       [&](const Finding& finding) { return finding.status == status; });
  };
  if (any(Status::kFail)) return Status::kFail;
  return any(Status::kPass) ? Status::kPass : Status::kSkip;
}

}  // namespace

Finding pass(std::string check, std::string detail) {
  return {.check = std::move(check), .status = Status::kPass, .detail = std::move(detail), .advice = {}};
}

Finding skipped(std::string check, std::string detail) {
  return {.check = std::move(check), .status = Status::kSkip, .detail = std::move(detail), .advice = {}};
}

Finding failed(std::string check, std::string reason, std::string advice) {
  return {.check = std::move(check),
          .status = Status::kFail,
          .detail = std::move(reason),
          .advice = std::move(advice)};
}

Finding merged(const std::vector<Finding>& of_ranks) {
  Finding result{.check = of_ranks.front().check, .status = worst_of(of_ranks), .detail = {}, .advice = {}};
  const std::vector<Group> groups = groups_by_detail(of_ranks, result.status);
  const auto checked =
      static_cast<size_t>(std::count_if(of_ranks.begin(), of_ranks.end(), [](const Finding& finding) {
        return finding.status != Status::kSkip;
      }));
  // If all ranks that ran the check agree, no rank is named.
  const bool names_ranks = groups.size() > 1 || (result.status == Status::kFail && !groups.empty() &&
                                                 groups.front().ranks.size() < checked);
  for (const Group& group : groups) {
    result.detail += result.detail.empty() ? "" : "; ";
    if (names_ranks)
      result.detail += fmt::format("rank{} {}: ", group.ranks.size() == 1 ? "" : "s",
                                   format_numbers(group.ranks, /*most_characters=*/40));
    result.detail += group.detail;
  }
  for (const Finding& finding : of_ranks)
    if (finding.status == result.status && result.advice.empty()) result.advice = finding.advice;
  return result;
}

bool any_failed(const std::vector<Finding>& findings) {
  return std::any_of(findings.begin(), findings.end(),
                     [](const Finding& finding) { return finding.status == Status::kFail; });
}

std::string text_of(const std::vector<Finding>& findings) {
  TextTable table({"check", "result", "what was found"});
  std::vector<std::pair<std::string, std::string>> advices;  // names of the checks, and the advice
  for (const Finding& finding : findings) {
    table.add_row({finding.check, std::string(name_of(finding.status)), finding.detail});
    if (finding.advice.empty()) continue;
    const auto same = std::find_if(advices.begin(), advices.end(),
                                   [&](const auto& other) { return other.second == finding.advice; });
    if (same == advices.end())
      advices.emplace_back(finding.check, finding.advice);
    else
      same->first += ", " + finding.check;
  }
  std::string text = table.str();
  if (!advices.empty()) text += "\n";
  for (const auto& [checks, advice] : advices)
    text += fmt::format("{}: {}\n", checks, advice);
  return text;
}

}  // namespace sdp
