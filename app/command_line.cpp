// Command line of sdp-train: subcommands and exit codes.

#include "command_line.h"

#include <fcntl.h>
#include <unistd.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "commands.h"
#include "cost/device_profile.h"
#include "engine/device.h"
#include "model/own_spec.h"
#include "spec/error.h"
#include "spec/text.h"

namespace {

void add_spec_options(CLI::App& app, sdp::SpecArguments& arguments, bool required) {
  auto* config = app.add_option("--config", arguments.configs,
                                "experiment in YAML; if several are given, later ones win");
  if (required) config->required();
  app.add_option("--set", arguments.overrides, "override one key: a.b=v (repeatable)");
}

void add_run_options(CLI::App& app, sdp::RunArguments& arguments) {
  app.add_option("--run", arguments.run_dir, "run folder")->required();
  app.add_option("--set", arguments.overrides,
                 "override one key, e.g. eval.branch_scale=survival (repeatable)");
}

void add_checkpoint_option(CLI::App& app, sdp::RunArguments& arguments) {
  app.add_option("--checkpoint", arguments.checkpoint,
                 "step of the checkpoint, or best: the one with the best evaluation (default: the newest)");
}

void add_doctor_options(CLI::App& app, sdp::DoctorArguments& arguments) {
  app.add_option("--device", arguments.device, "device to check: auto (default), cpu or cuda")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}));
  app.add_option("--nproc", arguments.processes,
                 "processes to start here (default: one per GPU, or two on a CPU)")
      ->check(CLI::Range(1, 1024));
  app.add_option(
      "--output", arguments.output,
      "folder to test locking and writing in, as output.dir of a run (default: the working directory)");
  app.add_option("--save", arguments.save, "file (.json) for the measured rates, for plan --device");
  app.add_flag("--json", arguments.json, "print the results as JSON");
  app.footer("Exit code 0: no check failed; 1: a check failed; its reason is printed.");
}

sdp::Resume resume_of(const std::string& value) {
  if (value.empty()) return sdp::Resume::kNo;
  if (value == "latest") return sdp::Resume::kLatest;
  if (value == "latest-good") return sdp::Resume::kLatestGood;
  if (value == "if-any") return sdp::Resume::kIfAny;
  throw sdp::UsageError("--resume=" + value + ": expected --resume, --resume=latest-good or --resume=if-any");
}

/// What a first argument that is neither an option nor a command may mean.
std::string hint_for(const std::string& first) {
  if (first.ends_with(".yaml") || first.ends_with(".yml"))
    return "To train the experiment in " + first + ": sdp-train --config " + sdp::shell_word(first);
  if (first == "train" || first == "run")
    return "Training has no command of its own: sdp-train --config X.yaml";
  return "";
}

/// Programs of their own (external_command).
struct ExternalCommand {
  std::string name;
  std::string description;
};
const std::vector<ExternalCommand>& external_commands() {
  static const std::vector<ExternalCommand> commands = {
      {"sweep", "train a grid of experiments one after another; continues a stopped sweep"},
      {"report", "compare runs: accuracy, memory, time and traffic; tables, figures and a page"},
      {"draw", "draw what plan --out or analyze --out wrote into a folder"}};
  return commands;
}

int run(int argc, char** argv, const std::vector<std::string>& self) {
  for (const ExternalCommand& command : external_commands())
    if (argc > 1 && argv[1] == command.name)
      return sdp::external_command(command.name, {argv + 2, argv + argc});
  CLI::App app{
      "Subnetwork Data Parallelism: n workers train one model, each holding a complete subnetwork of it."};
  app.set_version_flag("--version", std::string("sdp-train ") + sdp::kProgramVersion);
  app.footer(
      "Exit codes: 0 success, 1 internal error, out of memory or diverged training,\n"
      "2 spec, usage or run folder,\n"
      "3 data, checkpoint or output,\n"
      "4 a process was lost, 75 stopped by a signal after saving a checkpoint.");

  sdp::TrainArguments train;
  train.command_line = self;
  add_spec_options(app, train.spec, /*required=*/false);
  app.add_option("--nproc", train.processes,
                 "processes to start here (default: one per GPU; on a CPU as many as the cores allow)");
  app.add_option("--run", train.run_dir, "run folder to continue, with --resume and instead of --config")
      ->excludes("--config");
  std::string network;  // see choose_network
  app.add_option("--network", network,
                 "network in Python for model.name own, FILE.py:CLASS; for every command that reads a spec");
  std::string resume;
  app.add_flag(
      "--resume{latest}", resume,
      "continue from the run folder's newest checkpoint; --resume=latest-good: from the newest intact "
      "checkpoint, skipping damaged ones; --resume=if-any: from the newest, or from the beginning if "
      "there is none");
  app.add_flag(
         "--smoke", train.smoke,
         "try the experiment: two steps, a small evaluation and a checkpoint in a temporary folder, which is "
         "removed")
      ->excludes("--resume");
  app.require_subcommand(0, 1);
  for (const ExternalCommand& command : external_commands())
    app.add_subcommand(command.name, command.description);

  sdp::PlanArguments plan;
  CLI::App* plan_app =
      app.add_subcommand("plan", "show units, memory, FLOPs, balance and traffic without running");
  add_spec_options(*plan_app, plan.spec, /*required=*/false);
  plan_app
      ->add_option(
          "--run", plan.run_dir,
          "run folder, instead of --config: what --resume with these --set would have, and the bytes "
          "that move")
      ->excludes("--config");
  plan_app->add_option("--nproc", plan.processes, "processes that run the workers (default: one per worker)");
  plan_app->add_option("--processes-per-node", plan.processes_per_node,
                       "processes per node (default: all), for the traffic between nodes");
  plan_app->add_flag("--json", plan.json, "print plan.json");
  plan_app->add_option(
      "--device", plan.device,
      fmt::format("device to forecast memory and time for: {}, or a .json file written by doctor --save "
                  "(default: {}; with --measure this machine)",
                  fmt::join(sdp::known_devices(), ", "), sdp::kForecastDevice));
  CLI::Option* const plan_memory = plan_app->add_option(
      "--memory", plan.memory_gib, "memory of the device in GiB, instead of its actual memory");
  CLI::Option* const plan_bandwidth = plan_app->add_option(
      "--bandwidth", plan.bandwidth_gbit,
      "what a process can send to others in Gbit/s, instead of the device's links; with several nodes "
      "(--processes-per-node): to other nodes");
  CLI::Option* const plan_latency =
      plan_app->add_option("--latency", plan.latency_us,
                           "time of the smallest message between processes in microseconds (default: 0)");
  CLI::Option* plan_out =
      plan_app->add_option("--out", plan.out, "folder for plan.json, and pictures of it as PDF and SVG");
  plan_app
      ->add_flag("--measure", plan.measure,
                 "run the real step of a single worker and compare it with the plan")
      ->excludes(plan_out)
      ->excludes(plan_memory)
      ->excludes(plan_bandwidth)
      ->excludes(plan_latency);
  plan_app->add_option("--worker", plan.worker, "the worker to measure (default: the largest)");

  sdp::EvalArguments eval;
  CLI::App* eval_app =
      app.add_subcommand("eval", "evaluate the assembled model of a run's newest checkpoint");
  add_run_options(*eval_app, eval.run);
  add_checkpoint_option(*eval_app, eval.run);
  eval_app->add_flag("--json", eval.json, "print the record as JSON");
  eval_app->add_flag("--train-data", eval.train_data,
                     "evaluate on the training set, without augmentation, instead of the test set");
  eval_app->add_option("--logits", eval.logits,
                       "write logits, labels and indices of the evaluated images as safetensors");
  eval_app->add_flag("--per-class", eval.per_class,
                     "add the accuracy of each class and the classes it is taken for; with --json the whole "
                     "confusion matrix");
  eval_app->add_option(
      "--predictions", eval.predictions,
      "write file name, label, prediction and its probability for each evaluated image as CSV");
  eval_app->footer(
      "--set eval.max_samples=N evaluates at most N samples, evenly spread over the test set.\n"
      "--set eval.max_samples_per_subnetwork=N does the same for single subnetworks; 0: none.");

  sdp::ExportArguments exported;
  CLI::App* export_app =
      app.add_subcommand("export", "write the assembled model, or one subnetwork, as safetensors");
  add_run_options(*export_app, exported.run);
  add_checkpoint_option(*export_app, exported.run);
  export_app->add_option("--out", exported.out, "file to write; config.json is written next to it")
      ->required();
  CLI::Option* worker =
      export_app->add_option("--worker", exported.worker, "write the subnetwork of this worker instead");
  export_app
      ->add_flag("--average", exported.average,
                 "write the moving average of the values (optimizer.ema_decay)")
      ->excludes(worker);

  sdp::ImportArguments imported;
  CLI::App* import_app = app.add_subcommand(
      "import", "make a run folder that starts from weights of torchvision or transformers");
  add_spec_options(*import_app, imported.spec, /*required=*/true);
  import_app->add_flag(
      "--new-head", imported.new_head,
      "draw the classifier, or embedding and head, anew: for another number of classes or tokens");
  import_app
      ->add_option(
          "--from", imported.from,
          "safetensors file with the library's names, or a folder downloaded from the Hugging Face hub")
      ->required();

  sdp::AnalyzeArguments analyze;
  CLI::App* analyze_app = app.add_subcommand("analyze",
                                             "compare gradients of the subnetworks with the full model's: "
                                             "cosine similarity and norms per layer, and "
                                             "the deviation of the averaged gradient against its bound");
  add_spec_options(*analyze_app, analyze.spec, /*required=*/false);
  analyze_app->add_option("--run", analyze.run_dir,
                          "run whose newest checkpoint is analyzed, instead of --config");
  analyze_app->add_flag("--all-checkpoints", analyze.all_checkpoints,
                        "analyze every checkpoint of the run (checkpoint.keep_last sets how many are kept)");
  analyze_app->add_option("--regimes", analyze.regimes,
                          "comma-separated: nsdp, bsdp, bbsdp, nbsdp (default: all; with --run: the run's)");
  analyze_app->add_option("--batch-size", analyze.batch_size,
                          "samples per batch of a worker (default: train.batch_size_per_worker)");
  analyze_app->add_option("--batches", analyze.batches,
                          "batches per worker, to average over; tables show the spread (default: 1)");
  analyze_app->add_option("--out", analyze.out, "folder for tables (CSV), which sdp-train draw draws");

  sdp::DataCheckArguments data_check;
  CLI::App* data_app = app.add_subcommand("data", "check the data set of an experiment");
  data_app->require_subcommand(1);
  CLI::App* data_check_app = data_app->add_subcommand(
      "check", "read the whole data set: counts, classes, sizes, token range, and every damaged sample");
  add_spec_options(*data_check_app, data_check.spec, /*required=*/true);
  data_check_app->add_flag("--json", data_check.json, "print the results as JSON");

  sdp::DoctorArguments doctor;
  doctor.command_line = self;
  CLI::App* doctor_app = app.add_subcommand(
      "doctor",
      "check whether this machine can train: versions, devices, network, results, rates and folder");
  add_doctor_options(*doctor_app, doctor);

  bool schema = false;
  CLI::App* spec_app = app.add_subcommand("spec", "list every option with type, default and unit");
  spec_app->add_flag("--schema", schema, "print a JSON Schema");
  std::map<std::string, std::string> chosen;
  for (const auto& [section, kind] :
       {std::pair("model", "model"), std::pair("data", "data set"), std::pair("optimizer", "optimizer")})
    spec_app->add_option_function<std::string>(
        fmt::format("--{}", section),
        [&chosen, key = section](const std::string& name) { chosen[key] = name; },
        fmt::format("list only the keys of this {}", kind));

  std::vector<std::filesystem::path> described;
  CLI::App* describe_app = app.add_subcommand("describe", "")->group("");  // for the lab
  describe_app->add_option("SPEC", described, "spec.yaml of runs");

  sdp::CheckArguments check;
  CLI::App* check_app = app.add_subcommand("check", "")->group("");  // for the lab
  check_app->add_option("--sweep", check.sweep);
  check_app->add_option("--nproc", check.processes);
  check_app->add_option("--price", check.device);
  check_app->add_flag("--wait", check.wait);

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);
    if (code == 0) return 0;
    if (const std::string hint = hint_for(argc > 1 ? argv[1] : ""); !hint.empty())
      std::fprintf(stderr, "%s\n", hint.c_str());
    return static_cast<int>(sdp::ExitCode::kUsage);
  }
  if (*data_check_app) return sdp::data_check_command(data_check);
  if (*plan_app) return sdp::plan_command(plan);
  if (*eval_app) return sdp::eval_command(eval);
  if (*export_app) return sdp::export_command(exported);
  if (*import_app) return sdp::import_command(imported);
  if (*analyze_app) return sdp::analyze_command(analyze);
  if (*doctor_app) return sdp::doctor_command(doctor);
  if (*describe_app) return sdp::describe_command(described);
  if (*check_app) return sdp::check_command(check);
  if (*spec_app) return sdp::spec_command(schema, chosen);
  train.resume = resume_of(resume);
  if (train.spec.configs.empty() && train.run_dir.empty())
    throw sdp::UsageError("no --config given. Try: sdp-train --help");
  return sdp::train_command(train);
}

/// Refuses arguments that nobody means as they are: text in another encoding than UTF-8, which spec.yaml and
/// JSON cannot hold, and paths that a shell would have expanded but for their place (--run=~/runs). The
/// values of --set are checked with their keys.
void check_arguments(int argc, char** argv) {
  std::error_code error;
  if (const auto folder = std::filesystem::current_path(error).string(); sdp::invalid_utf8_at(folder))
    throw sdp::UsageError("the working folder's path is not UTF-8: " + folder +
                          ". Rename it, or use another one.");
  bool is_set = false;
  for (int i = 1; i < argc; ++i) {
    std::string_view argument = argv[i];
    if (sdp::invalid_utf8_at(argument))
      throw sdp::UsageError(std::string(argument) + ": not UTF-8, expected UTF-8. Rename what it names.");
    const bool was_set = std::exchange(is_set, argument == "--set");
    if (was_set || argument.starts_with("--set=")) continue;
    if (argument.starts_with("--")) argument.remove_prefix(std::min(argument.size(), argument.find('=') + 1));
    if (sdp::has_shell_expansion(argument))
      throw sdp::UsageError(std::string(argv[i]) + ": expected " + std::string(sdp::kNoShellExpansion) + ".");
  }
}

/// Takes --network out of the arguments: the processes that this one starts, also those of `sweep`, find the
/// network in the environment.
void choose_network(std::vector<std::string>& arguments) {
  constexpr std::string_view kOption = "--network";
  const auto found = std::ranges::find_if(arguments, [&](const std::string& argument) {
    return argument == kOption || argument.starts_with("--network=");
  });
  if (found == arguments.end()) return;
  const bool is_apart = *found == kOption;
  const auto value = std::next(found, is_apart ? 1 : 0);
  std::string network = value == arguments.end() ? "" : value->substr(is_apart ? 0 : kOption.size() + 1);
  if (network.find(".py:") == std::string::npos)
    throw sdp::UsageError("--network " + network +
                          ": expected a file and a class or function in it, such as net.py:Net");
  setenv(sdp::kNetworkVariable, std::filesystem::absolute(network).c_str(), /*overwrite=*/1);
  arguments.erase(found, std::next(value));
}

/// Whether a network in Python is chosen, and this process does not run in Python.
bool needs_python(const std::vector<std::string>& arguments) {
  const auto is_command = [&](const ExternalCommand& command) {
    return arguments.size() > 1 && arguments[1] == command.name;
  };
  return std::getenv(sdp::kNetworkVariable) && !sdp::own_network() &&
         std::ranges::none_of(external_commands(), is_command);
}

/// If standard output is closed, the next file that is opened would get its descriptor, and everything
/// printed would be written into that file. A read-only placeholder takes the descriptor instead.
void keep_standard_descriptors() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (fcntl(descriptor, F_GETFD) < 0 && errno == EBADF) open("/dev/null", O_RDONLY);
}

/// Flushes standard output. Returns `code`, or an error code if the output could not be written.
int after_output(int code) {
  errno = 0;
  const bool is_out = std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
  if (is_out) return code;
  std::fprintf(stderr, "error: cannot write to standard output: %s. What was printed is incomplete.\n",
               errno != 0 ? std::strerror(errno) : "an earlier write failed");
  return code != 0 ? code : static_cast<int>(sdp::ExitCode::kData);
}

}  // namespace

namespace sdp {

int run_command_line(std::vector<std::string> arguments, std::vector<std::string> self) {
  keep_standard_descriptors();
  try {
    choose_network(arguments);
    std::vector<char*> argv;
    for (std::string& argument : arguments)
      argv.push_back(argument.data());
    const int argc = static_cast<int>(argv.size());
    check_arguments(argc, argv.data());
    if (needs_python(arguments)) return external_command("network", {arguments.begin() + 1, arguments.end()});
    return after_output(run(argc, argv.data(), self));
  } catch (const Error& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "internal error: %s\n", error.what());
    return static_cast<int>(ExitCode::kInternal);
  }
}

}  // namespace sdp
