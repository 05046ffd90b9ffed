// Prints a diagnosis for people and for programs.

#include <fmt/format.h>

#include "doctor/doctor.h"
#include "spec/json_fields.h"
#include "spec/table.h"
#include "spec/units.h"

namespace sdp {
namespace {

std::string or_dash(const std::string& text) {
  return text.empty() ? "-" : text;
}

std::string table_of(const std::vector<ProcessFacts>& processes) {
  TextTable table({"rank", "host", "device", "memory", "free", "cores", "threads", "Gloo over"});
  for (const ProcessFacts& facts : processes)
    table.add_row({std::to_string(facts.rank), facts.host, or_dash(facts.device),
                   facts.memory_bytes > 0 ? format_bytes(facts.memory_bytes) : "-",
                   facts.free_memory_bytes > 0 ? format_bytes(facts.free_memory_bytes) : "-",
                   std::to_string(facts.cores), std::to_string(facts.threads), or_dash(facts.interface)});
  return table.str();
}

}  // namespace

std::string text_of(const Diagnosis& diagnosis, const Ranks& ranks) {
  TextTable table({"check", "result", "what was found"});
  std::string advice, names;
  for (const Finding& finding : diagnosis.findings) {
    table.add_row({finding.check, std::string(name_of(finding.status)), finding.detail});
    if (!finding.advice.empty()) advice += fmt::format("{}: {}\n", finding.check, finding.advice);
    if (finding.status == Status::kFail) names += (names.empty() ? "" : ", ") + finding.check;
  }
  if (!advice.empty()) advice = "\n" + advice;
  return fmt::format("{} process{}, ranks from {}\n\n{}\n{}{}\n{}\n", ranks.world,
                     ranks.world == 1 ? "" : "es", ranks.source, table_of(diagnosis.processes), table.str(),
                     advice, names.empty() ? "Nothing failed." : "Failed: " + names);
}

std::string json_text_of(const Diagnosis& diagnosis, const Ranks& ranks) {
  nlohmann::ordered_json json = {{"passed", !any_failed(diagnosis.findings)},
                                 {"processes", ranks.world},
                                 {"ranks_from", ranks.source},
                                 {"checks", json_of(diagnosis.findings)},
                                 {"ranks", json_of(diagnosis.processes)},
                                 {"profiles", to_json(diagnosis.profiles)}};
  return json_text(json, 2) + "\n";
}

}  // namespace sdp
