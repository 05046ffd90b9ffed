#pragma once

// The subcommands of sdp-train. Each returns the program's exit code and throws sdp::Error for errors that a
// user can correct.

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "run/run_folder.h"

namespace sdp {

struct ExperimentSpec;

/// --config and --set, which several commands have.
struct SpecArguments {
  std::vector<std::filesystem::path> configs;
  std::vector<std::string> overrides;
};

struct TrainArguments {
  SpecArguments spec;
  std::filesystem::path run_dir;     ///< --run: the run whose spec.yaml takes the place of --config
  std::optional<int64_t> processes;  ///< --nproc
  Resume resume = Resume::kNo;
  bool smoke = false;
  std::vector<std::string> command_line;  ///< passed on to the processes the launcher starts
};
int train_command(const TrainArguments& arguments);

/// Number of processes that this program starts for a run: `asked_for`, or one per GPU; on a CPU as many as
/// the cores allow.
int processes_of_run(const ExperimentSpec& spec, std::optional<int64_t> asked_for);

/// The device whose rates forecasts are made with unless --device names another one.
inline constexpr const char* kForecastDevice = "h100";

struct PlanArguments {
  SpecArguments spec;
  std::filesystem::path run_dir;  ///< --run: a run that is to go on, instead of --config
  std::optional<int64_t> processes;
  std::optional<int64_t> processes_per_node;
  bool json = false;
  /// Device to forecast for (device_profile). Unset: kForecastDevice, or with --measure this machine.
  std::optional<std::string> device;
  // Instead of the device's.
  std::optional<double> memory_gib;
  std::optional<double> bandwidth_gbit;  ///< of the link between processes, per second
  std::optional<double> latency_us;      ///< of a message between processes
  std::filesystem::path out;             ///< folder for plan.json and pictures; empty: none
  bool measure = false;                  ///< run the real step of the process of `worker`
  std::optional<int> worker;             ///< unset: the one with the largest predicted peak
};
int plan_command(const PlanArguments& arguments);

struct DataCheckArguments {
  SpecArguments spec;
  bool json = false;
};
/// Throws DataError if the data set has a problem, after the results are printed.
int data_check_command(const DataCheckArguments& arguments);

struct ImportArguments {
  SpecArguments spec;
  std::filesystem::path from;
  bool new_head = false;
};
int import_command(const ImportArguments& arguments);

/// A finished or interrupted run, with changes to how it is evaluated (--set eval.branch_scale=survival).
struct RunArguments {
  std::filesystem::path run_dir;
  std::vector<std::string> overrides;
  std::string checkpoint = {};  ///< a step, or kBestCheckpoint; empty: the newest
};

/// The checkpoint whose evaluation was the best: by checkpoint.keep_best, without it by loss for tokens and
/// by accuracy for images.
inline constexpr std::string_view kBestCheckpoint = "best";

struct EvalArguments {
  RunArguments run;
  bool json = false;
  bool train_data = false;  ///< on the training set, without augmentation
  bool per_class = false;   ///< adds a table by class
  // Files for the evaluated images; empty: none.
  std::filesystem::path logits;       ///< logits, as safetensors
  std::filesystem::path predictions;  ///< CSV
};
int eval_command(const EvalArguments& arguments);

struct ExportArguments {
  RunArguments run;
  std::filesystem::path out;
  std::optional<int> worker;  ///< --worker: this subnetwork instead of the assembled model
  bool average = false;       ///< --average: the moving average of the values
};
int export_command(const ExportArguments& arguments);

struct AnalyzeArguments {
  SpecArguments spec;             ///< a model at initialization; or
  std::filesystem::path run_dir;  ///< a run's newest checkpoint, with --set as for the commands above
  bool all_checkpoints = false;   ///< every checkpoint of the run
  std::optional<std::string> regimes;
  std::optional<int64_t> batch_size;
  int64_t batches = 1;
  std::filesystem::path out;  ///< folder for CSV files; empty: none
};
int analyze_command(const AnalyzeArguments& arguments);

struct DoctorArguments {
  std::string device = "auto";  ///< name of a DeviceKind
  std::filesystem::path output = ".";
  std::filesystem::path save;        ///< file for the profile; empty: none
  std::optional<int64_t> processes;  ///< --nproc
  bool json = false;
  std::vector<std::string> command_line;  ///< passed on to the processes the launcher starts
};
/// Returns 1 if a check failed.
int doctor_command(const DoctorArguments& arguments);

/// Prints what the lab (python/sdp_lab) knows of the program, as JSON: every option with its default and
/// whether `report` compares it, and for each spec.yaml its values and its method's name, or the error.
int describe_command(const std::vector<std::filesystem::path>& specs);

struct CheckArguments {
  std::string sweep;                 ///< name of the sweep whose points are checked; empty: run folders
  std::optional<int64_t> processes;  ///< --nproc of every run
  /// Adds steps, FLOPs, memory and hours on this device (device_profile) of runs, whose data need not be
  /// there.
  std::optional<std::string> device;
  bool wait = false;  ///< until one of the run folders is done, or free
};
/// For `sweep` of the lab (python/sdp_lab/sweep.py). Reads JSON from stdin, a list of points {"label",
/// "configs", "set"} or of run folders, and prints "results" in their order: for a point all its errors,
/// or its resolved values, state, changes and price; for a folder its state.
int check_command(const CheckArguments& arguments);

/// `chosen` maps a section to the name of the kind whose keys are listed.
int spec_command(bool schema, const std::map<std::string, std::string>& chosen);

/// Commands that are programs of their own, as those of git: `sdp-train report ...` replaces this program by
/// sdp-train-report, which stands next to it or in ../libexec/sdp-train, with these arguments and this
/// program's path in SDP_TRAIN. Returns only if there is no such program: an error that says what to install
/// is printed then, and the result is the exit code.
int external_command(const std::string& name, std::vector<std::string> arguments);

}  // namespace sdp
