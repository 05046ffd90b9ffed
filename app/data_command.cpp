#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "comm/cores.h"
#include "commands.h"
#include "data/check.h"
#include "data/split_files.h"
#include "experiment/load.h"
#include "run/progress.h"
#include "spec/error.h"
#include "spec/json_fields.h"
#include "spec/table.h"

namespace sdp {
namespace {

using nlohmann::ordered_json;

const char* name_of_split(Split split) {
  return split == Split::kTrain ? "train" : "test";
}

std::string text_of(const std::optional<int64_t>& number) {
  return number ? std::to_string(*number) : "-";
}

/// "224 x 224", or the range of the sizes and the most frequent.
std::string describe_sizes(const SplitReport& report) {
  const auto& sizes = report.images_of_size;
  const auto text = [](const auto& size) { return fmt::format("{} x {}", size.second, size.first); };
  if (sizes.size() == 1) return text(sizes.begin()->first);
  const auto [least, most] =
      std::minmax_element(sizes.begin(), sizes.end(), [](const auto& a, const auto& b) {
        return a.first.first * a.first.second < b.first.first * b.first.second;
      });
  const auto usual = std::max_element(sizes.begin(), sizes.end(),
                                      [](const auto& a, const auto& b) { return a.second < b.second; });
  return fmt::format("{} sizes from {} to {} pixels, {} of them {}", sizes.size(), text(least->first),
                     text(most->first), usual->second, text(usual->first));
}

/// The number of images of each class, by label and name, of which the data may have none. One line where all
/// have as many.
std::string describe_classes(const std::vector<int64_t>& images_of_class,
                             const std::vector<std::string>& names) {
  const auto [least, most] = std::minmax_element(images_of_class.begin(), images_of_class.end());
  if (*least == *most)
    return fmt::format("  {} images in each class{}\n", *least, names.empty() ? "" : ": " + enumerate(names));
  TextTable table({"label", "images", "class"});
  for (size_t label = 0; label < images_of_class.size(); ++label)
    table.add_row({std::to_string(label), std::to_string(images_of_class[label]),
                   label < names.size() ? names[label] : ""});
  return table.str();
}

/// As options that train with it.
std::string describe_normalization(const SplitReport& report) {
  const Normalization measured = report.normalization();
  return fmt::format("  pixels: data.normalization.mean=[{:.4f}] data.normalization.std=[{:.4f}]\n",
                     fmt::join(measured.mean, ", "), fmt::join(measured.stddev, ", "));
}

std::string describe_shards(const std::vector<TokenScan>& shards) {
  TextTable table({"shard", "tokens", "bits", "smallest", "largest"});
  for (const TokenScan& shard : shards)
    table.add_row({shard.path.filename().string(), std::to_string(shard.tokens),
                   std::to_string(8 * shard.token_bytes), text_of(shard.smallest), text_of(shard.largest)});
  return table.str();
}

/// What a problem says, without its place ("FILE: ", "FILE: member NAME at offset N: ") and without numbers.
std::string kind_of(const std::string& problem) {
  size_t begin = problem.find(": ");
  if (begin == std::string::npos) return problem;
  if (problem.compare(begin, 9, ": member ") == 0)
    begin = std::min(problem.find(": ", begin + 1), problem.size());
  std::string kind = problem.substr(begin);
  std::erase_if(kind, [](char letter) { return letter >= '0' && letter <= '9'; });
  return kind;
}

/// The first three of each kind, and how many more there are.
std::string describe_problems(const std::vector<std::string>& problems) {
  constexpr size_t kMostShown = 3;
  std::map<std::string, std::vector<std::string>> of_kind;
  std::vector<std::string> kinds;  // in the order of their first problems
  for (const std::string& problem : problems) {
    std::vector<std::string>& alike = of_kind[kind_of(problem)];
    if (alike.empty()) kinds.push_back(kind_of(problem));
    alike.push_back(problem);
  }
  std::string text;
  for (const std::string& kind : kinds) {
    const std::vector<std::string>& alike = of_kind[kind];
    for (size_t i = 0; i < std::min(alike.size(), kMostShown); ++i)
      text += fmt::format("problem: {}\n", alike[i]);
    if (alike.size() > kMostShown)
      text += fmt::format("problem: {} more of this kind (--json lists them)\n", alike.size() - kMostShown);
  }
  return text;
}

std::string describe(const SplitReport& report, const DataSpec& spec) {
  std::string text;
  if (!report.shards.empty())
    text = fmt::format("{}: {} samples of {} tokens\n{}", name_of_split(report.split), report.samples,
                       spec.sequence_length(), describe_shards(report.shards));
  else if (!report.images_of_size.empty())
    text = fmt::format("{}: {} images in {} classes, {}\n{}", name_of_split(report.split), report.samples,
                       report.images_of_class.size(), describe_sizes(report),
                       describe_classes(report.images_of_class, spec.class_names())) +
           describe_normalization(report);
  else
    text = fmt::format("{}: nothing that can be read\n", name_of_split(report.split));
  text += describe_problems(report.problems);
  if (!report.note.empty()) text += fmt::format("note: {}\n", report.note);
  return text;
}

ordered_json json_of(const SplitReport& report, const DataSpec& spec) {
  ordered_json json = {{"samples", report.samples}, {"problems", report.problems}};
  if (!report.note.empty()) json["note"] = report.note;
  if (!report.shards.empty()) {
    json["shards"] = ordered_json::array();
    for (const TokenScan& shard : report.shards) {
      ordered_json line = {{"path", shard.path.string()}, {"token_bytes", shard.token_bytes},
                           {"tokens", shard.tokens},      {"smallest", nullptr},
                           {"largest", nullptr},          {"beyond_vocab", shard.beyond_vocab}};
      if (shard.smallest) line["smallest"] = *shard.smallest;
      if (shard.largest) line["largest"] = *shard.largest;
      json["shards"].push_back(line);
    }
    return json;
  }
  json["images_of_class"] = report.images_of_class;
  json["classes"] = spec.class_names();
  json["sizes"] = ordered_json::array();
  for (const auto& [size, images] : report.images_of_size)
    json["sizes"].push_back({{"height", size.first}, {"width", size.second}, {"images", images}});
  const Normalization measured = report.normalization();
  json["normalization"] = {{"mean", measured.mean}, {"std", measured.stddev}};
  return json;
}

SplitReport check(const ExperimentSpec& spec, Split split, ProgressLine& line) {
  ProgressTask task(line, fmt::format("reading {}", name_of_split(split)));
  return check_split(spec.data, spec.model, split, available_cores(), task.on_progress());
}

}  // namespace

int data_check_command(const DataCheckArguments& arguments) {
  const ExperimentSpec spec =
      load_spec(arguments.spec.configs, arguments.spec.overrides, NamedFiles::kMustExist).spec;
  ordered_json json = {{"name", spec.data.name()}, {"path", spec.data.path}};
  if (!arguments.json)
    std::fputs(fmt::format("{} in {}\n", spec.data.name(), spec.data.path).c_str(), stdout);
  ProgressLine line(STDERR_FILENO);
  size_t problems = 0;
  std::vector<Split> splits = {Split::kTrain};
  if (spec.data.validation_share == 0) splits.push_back(Split::kTest);
  for (const Split split : splits) {
    const SplitReport report = check(spec, split, line);
    problems += report.problems.size();
    json[name_of_split(split)] = json_of(report, spec.data);
    if (!arguments.json) std::fputs(describe(report, spec.data).c_str(), stdout);
    std::fflush(stdout);
  }
  if (arguments.json) std::printf("%s\n", json_text(json, 2).c_str());
  if (problems > 0)
    throw DataError(fmt::format("data check found {} problem{}.", problems, problems == 1 ? "" : "s"));
  if (!arguments.json) std::printf("no problem found\n");
  return 0;
}

}  // namespace sdp
