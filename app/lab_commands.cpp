// What the lab (python/sdp_lab) asks of the program, and the commands that are programs of the lab.

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "comm/ranks.h"
#include "commands.h"
#include "cost/accounting.h"
#include "cost/forecast.h"
#include "cost/make_experiment.h"
#include "engine/device.h"
#include "experiment/load.h"
#include "experiment/print.h"
#include "experiment/regime.h"
#include "experiment/resume.h"
#include "experiment/run_steps.h"
#include "inputs.h"
#include "optim/registry.h"
#include "process/identity.h"
#include "run/checkpoint_store.h"
#include "run/progress.h"
#include "run/resumed_run.h"
#include "run/run_data.h"
#include "run/run_folder.h"
#include "run/run_lock.h"
#include "run/run_summary.h"
#include "spec/error.h"
#include "spec/value_text.h"
#include "subnet/plan.h"
#include "train/run_rank.h"

namespace sdp {

SDP_ENUM_NAMES(InReport, {InReport::kCompared, "compared"}, {InReport::kInRegime, "in_regime"},
               {InReport::kFollowsRegime, "follows_regime"}, {InReport::kNotCompared, "not_compared"})

namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

ordered_json read_input() {
  const std::string text((std::istreambuf_iterator<char>(std::cin)), {});
  return ordered_json::parse(text);
}

/// Progress of the run in a folder, and who works on it. `lock`: read before, so that a run that ends between
/// the two is seen as done.
ordered_json state_of(const RunFolder& folder, const LockChain& lock) {
  ordered_json state = {{"stage", "to do"}, {"step", 0}};
  if (lock.state() != LockState::kFree) {
    const std::optional<RunOwner>& owner = lock.owner;
    state["owner"] = {{"text", owner ? describe(*owner) : "its lock file names no owner"},
                      {"host", owner ? owner->host : "?"},
                      {"is_on_this_machine", owner && owner->machine == machine_id()}};
  }
  const std::optional<RunSummary> summary = read_summary(folder.summary());
  const std::optional<int64_t> saved = CheckpointStore(folder.dir).latest_step();
  std::error_code ignored;
  if (!fs::exists(folder.spec(), ignored) || (!summary && !saved)) return state;
  const bool is_done = summary && summary->step >= summary->total_steps;
  state["stage"] = is_done ? "done" : "interrupted";
  state["step"] = is_done ? summary->step : saved.value_or(0);
  return state;
}

/// Differences between the spec and that of the run in its folder.
ordered_json changes_of(const RunFolder& folder, const ExperimentSpec& spec) {
  ExperimentSpec saved = load_saved_spec(folder.spec());
  // Runs are saved with an absolute path. That of a published run may be relative to the working directory.
  make_data_path_absolute(saved);
  ordered_json changes = ordered_json::array();
  for (const SpecChange& change : changes_between(saved, spec))
    changes.push_back({{"text", change.text()}, {"has_effect", change.on_resume != OnResume::kFree}});
  return changes;
}

/// Checks the points of one sweep.
class PointChecker {
 public:
  explicit PointChecker(const CheckArguments& arguments) : arguments_(arguments), line_(STDERR_FILENO) {}

  ordered_json check(const ordered_json& point) {
    ordered_json result;
    try {
      fill(point, result);
    } catch (const Error& error) {
      result["error"] = error.what();
      result["code"] = static_cast<int>(error.code());
    }
    return result;
  }

 private:
  void fill(const ordered_json& point, ordered_json& result) {
    std::vector<fs::path> configs;
    for (const std::string path : point.at("configs"))
      configs.emplace_back(path);
    ExperimentSpec spec = load_run_spec(configs, point.at("set").get<std::vector<std::string>>(),
                                        arguments_.device ? NamedFiles::kNotNeeded : NamedFiles::kMustExist)
                              .spec;
    // A table that labels ZeRO-2 "DDP" would be wrong.
    if (const auto method = contradicted_method(point.at("label").get<std::string>(), spec))
      throw UsageError(
          fmt::format("the label '{}' says {}, but the settings are those of {} ({}). Change the label, or "
                      "use the settings of configs/regime.",
                      point.at("label").get<std::string>(), *method, method_of(spec), method_settings(spec)));
    result["output_dir"] = spec.output.dir;
    for_each_value(spec, "", [&](const std::string& key, const FieldInfo&, const auto& value) {
      if (key != "name") result["values"][key] = yaml_text(value);
    });
    // 2/4 and 1/2 are the same.
    result["values"]["subnetwork.coverage"] = owners_of(spec.subnetwork.coverage, spec.subnetwork.workers);
    spec.output.dir = (fs::path(spec.output.dir) / arguments_.sweep).string();
    const RunFolder folder = run_folder_of(spec);
    check_run_files(folder, /*to_write=*/true);
    result["state"] = state_of(folder, read_lock(folder.dir));
    const std::string stage = result["state"]["stage"];
    result["changes"] = stage == "to do" ? ordered_json::array() : changes_of(folder, spec);
    if (stage == "done" || result["state"].contains("owner")) {
      if (arguments_.device) try_to_price(spec, result);
      return;
    }
    const Experiment experiment = experiment_of(
        spec, stage == "interrupted"
                  ? owners_to_keep(CheckpointStore(folder.dir), result["state"]["step"].get<int64_t>(), spec)
                  : std::nullopt);
    if (arguments_.device) result["price"] = price_of(experiment, result["values"]);
  }

  Experiment experiment_of(ExperimentSpec spec, const std::optional<fs::path>& saved_plan) {
    // Checks do not depend on the owner sets, whose search would take minutes for a large sweep.
    Assignment& assignment = spec.subnetwork.assignment;
    if (assignment == Assignment::kBalanced || assignment == Assignment::kEqualUnits)
      assignment = Assignment::kWindow;
    return make_experiment(spec, processes_of_run(spec, arguments_.processes), saved_plan, std::nullopt,
                           &models_);
  }

  /// Of a run that is done or running: one that could not be started here is no error.
  void try_to_price(const ExperimentSpec& spec, ordered_json& result) {
    try {
      result["price"] = price_of(experiment_of(spec, std::nullopt), result["values"]);
    } catch (const UsageError&) {
    }
  }

  /// Computed once for points with the same values and owners, as those that differ in the seed mostly are.
  ordered_json price_of(const Experiment& experiment, ordered_json values) {
    values.erase("seed");
    const std::string key = values.dump() + plan_hash(experiment.plan);
    const auto known = prices_.find(key);
    return known != prices_.end() ? known->second : prices_[key] = new_price(experiment);
  }

  /// Steps, FLOPs and hours are absent if nobody knows how long an epoch is.
  ordered_json new_price(const Experiment& experiment) {
    const TrainSpec& train = experiment.spec.train;
    const SlotMap& slot_map = experiment.exchanges.slot_map;
    const auto samples = static_cast<double>(slot_map.slots_per_process() * train.accumulate_steps *
                                             train.batch_size_per_worker);
    const std::vector<Cost> costs = costs_of(experiment);
    double flops_per_step = 0;
    for (const Cost& cost : costs)
      flops_per_step += cost.flops_per_sample * samples;
    const StepForecast step = forecast_plan(experiment, costs, device_for(train.precision));
    ordered_json price = {{"peak_bytes", step.peak.total()}};
    if (const std::optional<int64_t> size = train.max_steps ? 1 : size_of_data(experiment.spec)) {
      const int64_t steps = run_steps(experiment, *size).length.total_steps;
      price["steps"] = steps;
      price["flops"] = flops_per_step * static_cast<double>(steps);
      price["hours"] = step.step_ms / 3.6e6 * static_cast<double>(steps);
    }
    return price;
  }

  const DeviceProfile& device_for(Precision precision) {
    const auto [known, is_new] = devices_.try_emplace(precision);
    if (is_new) known->second = device_profile(*arguments_.device, precision);
    return known->second;
  }

  /// Number of training samples: of the data, which are opened once, or where they are not there, of the data
  /// set as it was published.
  std::optional<int64_t> size_of_data(const ExperimentSpec& spec) {
    std::string key;
    for_each_value(spec.data, "", [&](const std::string&, const FieldInfo&, const auto& value) {
      key += yaml_text(value) + "\n";
    });
    const auto [known, is_new] = sizes_.try_emplace(key);
    if (is_new) {
      try {
        known->second = open_split(spec, Split::kTrain, line_)->size();
      } catch (const Error&) {  // a price needs no data
        known->second = spec.data.official_samples();
      }
    }
    return known->second;
  }

  const CheckArguments& arguments_;
  ProgressLine line_;
  std::map<std::string, std::optional<int64_t>> sizes_;
  std::map<Precision, DeviceProfile> devices_;
  std::vector<RecordedModel> models_;
  std::map<std::string, ordered_json> prices_;
};

/// How often runs in other processes are looked at.
constexpr std::chrono::seconds kLookEvery{2};

ordered_json wait_for_locks(const ordered_json& folders, bool wait) {
  std::vector<LockChain> locks(folders.size());
  for (;; std::this_thread::sleep_for(kLookEvery)) {
    ordered_json states = ordered_json::array();
    bool is_settled = false;
    for (size_t i = 0; i < locks.size(); ++i) {
      const RunFolder folder{folders[i].get<std::string>()};
      locks[i] = read_lock(folder.dir, locks[i]);
      states.push_back(state_of(folder, locks[i]));
      is_settled = is_settled || states.back()["stage"] == "done" || !states.back().contains("owner");
    }
    if (is_settled || !wait) return states;
  }
}

ordered_json options_of(const ExperimentSpec& spec) {
  ordered_json options = ordered_json::array();
  for_each_value(spec, "", [&](const std::string& key, const FieldInfo& field, const auto& value) {
    options.push_back({{"key", key},
                       {"value", yaml_text(value)},
                       {"in_report", name_of(field.treatment.in_report)},
                       {"fixed", field.treatment.on_resume == OnResume::kFixed}});
  });
  return options;
}

ordered_json description_of(const std::filesystem::path& file) {
  ordered_json json = {{"file", file.string()}};
  try {
    const ExperimentSpec spec = load_saved_spec(file);
    json["method"] = method_of(spec);
    json["is_of_tokens"] = spec.data.is_of_tokens();
    json["sequence_length"] = spec.data.is_of_tokens() ? spec.data.sequence_length() : 0;
    json["options"] = options_of(spec);
  } catch (const Error& error) {
    json["error"] = error.what();
  }
  return json;
}

}  // namespace

int check_command(const CheckArguments& arguments) {
  if (const auto ranks = ranks_from_environment(current_environment()))
    throw UsageError(fmt::format(
        "sweep starts the processes of each run itself, but was started by {} as one of several. Start it "
        "without srun, mpirun or torchrun.",
        ranks->source));
  const ordered_json input = read_input();
  ordered_json results = ordered_json::array();
  if (arguments.sweep.empty()) {
    results = wait_for_locks(input, arguments.wait);
  } else {
    PointChecker checker(arguments);
    for (const ordered_json& point : input)
      results.push_back(checker.check(point));
  }
  const ordered_json answer = {{"format", kRunFormat}, {"results", results}};
  std::printf("%s\n", answer.dump().c_str());
  return 0;
}

int describe_command(const std::vector<std::filesystem::path>& specs) {
  ordered_json json = {{"format", kRunFormat}, {"version", kProgramVersion}};
  json["options"] = options_of(ExperimentSpec());
  json["specs"] = ordered_json::array();
  for (const std::filesystem::path& file : specs)
    json["specs"].push_back(description_of(file));
  std::printf("%s\n", json.dump().c_str());
  return 0;
}

int external_command(const std::string& name, std::vector<std::string> arguments) {
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  const fs::path bin = self.parent_path();
  const std::string program = "sdp-train-" + name;
  setenv("SDP_TRAIN", self.c_str(), /*overwrite=*/1);
  std::fflush(stdout);
  for (const fs::path& folder : {bin, bin.parent_path() / "libexec" / "sdp-train"}) {
    std::string path = (folder / program).string();
    std::vector<char*> argv = {path.data()};
    for (std::string& argument : arguments)
      argv.push_back(argument.data());
    argv.push_back(nullptr);
    execv(path.c_str(), argv.data());
  }
  std::fprintf(stderr,
               "error: sdp-train %s is a program in Python, %s, that is neither in %s nor in "
               "../libexec/sdp-train. Build or install sdp-train again, and run scripts/setup for its "
               "packages.\n",
               name.c_str(), program.c_str(), bin.c_str());
  return static_cast<int>(ExitCode::kUsage);
}

}  // namespace sdp
