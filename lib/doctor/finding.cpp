#include "doctor/finding.h"

#include <fmt/format.h>

#include <algorithm>

#include "spec/json_fields.h"
#include "spec/units.h"

namespace sdp {

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

bool any_failed(const std::vector<Finding>& findings) {
  return std::any_of(findings.begin(), findings.end(),
                     [](const Finding& finding) { return finding.status == Status::kFail; });
}

Finding merged(const std::vector<Finding>& of_ranks) {
  Finding result = skipped(of_ranks.front().check, "");
  size_t checked = 0;
  for (const Finding& finding : of_ranks) {
    result.status = std::max(result.status, finding.status);
    checked += finding.status != Status::kSkip;
  }
  std::vector<std::pair<std::string, std::vector<int>>> ranks_by_detail;
  for (size_t rank = 0; rank < of_ranks.size(); ++rank) {
    const Finding& finding = of_ranks[rank];
    if (finding.status != result.status) continue;
    if (result.advice.empty()) result.advice = finding.advice;
    if (finding.detail.empty()) continue;
    auto same = std::find_if(ranks_by_detail.begin(), ranks_by_detail.end(),
                             [&](const auto& other) { return other.first == finding.detail; });
    if (same == ranks_by_detail.end())
      same = ranks_by_detail.insert(same, {finding.detail, std::vector<int>()});
    same->second.push_back(static_cast<int>(rank));
  }
  for (const auto& [detail, ranks] : ranks_by_detail) {
    const bool all_agree =
        ranks_by_detail.size() == 1 && (result.status != Status::kFail || ranks.size() == checked);
    result.detail += result.detail.empty() ? "" : "; ";
    if (!all_agree)
      result.detail += fmt::format("rank{} {}: ", ranks.size() == 1 ? "" : "s",
                                   format_numbers(ranks, /*most_characters=*/40));
    result.detail += detail;
  }
  return result;
}

Agreed agree(Communicator& control, const std::string& name, const std::function<Finding()>& check) {
  Finding own;
  bool threw = false;
  try {
    own = check();
  } catch (const std::exception& error) {
    threw = true;
    const std::string what = error.what();
    own = failed(name, what.substr(0, what.find('\n')));  // LibTorch appends its call stack
  }
  own.check = name;
  nlohmann::ordered_json json = json_of(own);
  json["threw"] = threw;
  Agreed agreed;
  std::vector<Finding> of_ranks;
  for (const std::string& text : control.all_gather_strings(json_text(json))) {
    const auto other = nlohmann::ordered_json::parse(text);
    of_ranks.push_back(struct_of<Finding>(other));
    agreed.threw = agreed.threw || other.at("threw").get<bool>();
  }
  agreed.finding = merged(of_ranks);
  return agreed;
}

}  // namespace sdp
