// Runs that are killed (SIGKILL) at random moments, repeatedly, or stop. Each part is a forked process,
// because starting the program takes longer than the run. This is a separate program: OpenMP threads of
// earlier tests would not survive a fork.

#include <ATen/Parallel.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "catch.h"
#include "comm/communicator.h"
#include "cost/make_experiment.h"
#include "experiment/load.h"
#include "io/safetensors.h"
#include "process/identity.h"
#include "process/signals.h"
#include "run/checkpoint_store.h"
#include "run/log.h"
#include "run/resumed_run.h"
#include "run/shared_run_folder.h"
#include "temp_folder.h"
#include "train/trainer.h"

namespace sdp {
namespace {

namespace fs = std::filesystem;

/// 50 images of noise to train on, and 10.
void write_cifar10(const fs::path& folder) {
  std::mt19937 random(7);
  const nlohmann::json names = Cifar10Spec::images().class_names;
  for (const auto& [name, images] : {std::pair("train.safetensors", 50), {"val.safetensors", 10}}) {
    SafetensorsWriter file(folder / name,
                           {{"images", DType::kU8, {images, 32, 32, 3}}, {"labels", DType::kU8, {images}}},
                           {{"class_names", names.dump()}});
    for (const auto& [size, below] : {std::pair(images * 3072, 256), {images, 10}}) {
      std::vector<std::byte> values(static_cast<size_t>(size));
      for (std::byte& value : values)
        value = static_cast<std::byte>(random() % below);
      file.write(values);
    }
    file.finish();
  }
}

ExperimentSpec spec_of(const fs::path& folder, const std::string& construction, const std::string& masking) {
  // One construction has BatchNorm statistics and momentum, the other AdamW's moments and dropout.
  const std::string model = construction == "block"
                                ? "{name: resnet18, width: 4}\noptimizer: {name: sgd, lr: 0.05}"
                                : "{name: mlp, width: 8, depth: 3, hidden_width: 16, dropout: 0.2}\n"
                                  "optimizer: {name: adamw, lr: 0.01}";
  return parse_spec(
             fmt::format(
                 "name: run\n"
                 "model: {}\n"
                 "data: {{name: cifar10, path: {}, loader_threads: 1}}\n"
                 "subnetwork: {{workers: 4, coverage: 2/4, construction: {}, masking: {}}}\n"
                 "train: {{max_steps: 12, batch_size_per_worker: 2, log_every_steps: 3, device: cpu}}\n"
                 "checkpoint: {{every_steps: 1, keep_last: 1}}\n"
                 "eval: {{every_epochs: 0, recalibrate_batches: 0}}\n"
                 "output: {{dir: {}}}\n",
                 model, folder.string(), construction, masking, (folder / "runs").string()),
             "spec.yaml")
      .spec;
}

/// Starts or continues training, as the program does with one process.
ExitCode train(const ExperimentSpec& spec, int stop_descriptor = -1, const LockTimes& times = {}) {
  LockedRunFolder locked =
      create_run_folder(spec.output.dir, spec.name, /*resume=*/true, [&](const fs::path& path) {
        return RunLock::acquire(
            path, [](const std::string&) {}, times);
      });
  const CheckpointStore store(locked.folder.dir);
  const std::optional<int64_t> step = store.latest_step();
  const Experiment experiment =
      make_experiment(spec, /*processes=*/1, step ? owners_to_keep(store, *step, spec) : std::nullopt);
  const std::unique_ptr<Communicator> comm =
      connect(Ranks{}, at::kCPU, {.timeout = std::chrono::seconds(60), .stop_descriptor = stop_descriptor});
  const SharedRunFolder run = share_run_folder(*comm, locked.folder, {.host = host_name(), .threads = 1},
                                               [&] { return std::move(locked.lock); });
  const Logger log = make_logger(/*rank=*/0, run.folder.log(), /*console=*/false);
  return sdp::train(experiment, *comm, run, log, Resume::kIfAny);
}

/// In a process of its own, which ends with the code that `run` returns.
pid_t start(const std::function<ExitCode()>& run) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  ::dup2(::open("/dev/null", O_WRONLY), STDOUT_FILENO);
  at::set_num_threads(1);
  try {
    ::_exit(static_cast<int>(run()));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
  ::_exit(1);
}

pid_t start(const ExperimentSpec& spec) {
  return start([&] { return train(spec); });
}

/// The process's exit code, or -signal.
int end_of(pid_t child) {
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

/// Whether it was killed; any end other than this and success fails the test.
bool wait_for(pid_t child) {
  const int end = end_of(child);
  REQUIRE((end == -SIGKILL || end == 0));
  return end == -SIGKILL;
}

/// Weights, optimizer state and BatchNorm statistics of a finished run: the hash of the file that contains
/// them.
std::string state_of(const ExperimentSpec& spec) {
  const CheckpointStore store(fs::path(spec.output.dir) / spec.name);
  REQUIRE(store.latest_step() == 12);
  return store.read(12, /*verify_hashes=*/true).files.front().xxh3_128;
}

/// Kills the run at random moments. `begin` leaves its folder as it is before it starts.
void check_kills(const ExperimentSpec& spec, int kills, std::mt19937& random,
                 const std::function<void()>& begin) {
  begin();
  const auto began = std::chrono::steady_clock::now();
  wait_for(start(spec));
  const std::chrono::duration<double> whole_s = std::chrono::steady_clock::now() - began;
  const std::string expected = state_of(spec);
  begin();
  std::uniform_real_distribution<double> part(0, 1);
  for (int killed = 0; killed < kills;) {
    const pid_t child = start(spec);
    std::this_thread::sleep_for(part(random) * whole_s);
    ::kill(child, SIGKILL);
    if (wait_for(child)) {
      ++killed;
    } else {  // it had finished: the next one starts anew
      CHECK(state_of(spec) == expected);
      begin();
    }
  }
  wait_for(start(spec));
  CHECK(state_of(spec) == expected);
}

/// The writes of a killed process stay with the system; without a disk, fsync takes no time.
void use_memory_for_files() {
  if (fs::is_directory("/dev/shm")) ::setenv("TMPDIR", "/dev/shm", /*overwrite=*/1);
}

TEST_CASE("a run killed 20 times at random moments, in every regime, ends with the uninterrupted run's") {
  use_memory_for_files();
  std::mt19937 random(20);
  for (const auto& [construction, masking] : {std::pair("block", "forward"),
                                              {"block", "backward"},
                                              {"neuron", "forward"},
                                              {"neuron", "backward"}}) {
    INFO(construction << " " << masking);
    const TempFolder folder;
    write_cifar10(folder.path());
    const ExperimentSpec spec = spec_of(folder.path(), construction, masking);
    check_kills(spec, 5, random, [&] { fs::remove_all(fs::path(spec.output.dir) / spec.name); });
  }
}

TEST_CASE(
    "a run with local steps, killed 10 times anywhere in its rounds, ends with the uninterrupted run's") {
  use_memory_for_files();
  std::mt19937 random(22);
  for (const auto& [construction, masking] : {std::pair("block", "forward"), {"neuron", "backward"}}) {
    const TempFolder folder;
    write_cifar10(folder.path());
    ExperimentSpec spec = spec_of(folder.path(), construction, masking);
    spec.exchange.every_steps = 4;
    check_kills(spec, 5, random, [&] { fs::remove_all(fs::path(spec.output.dir) / spec.name); });
  }
}

TEST_CASE("a run killed 10 times around a change of its division ends with the uninterrupted run's") {
  use_memory_for_files();
  std::mt19937 random(21);
  for (const char* construction : {"block", "neuron"}) {
    const TempFolder folder;
    write_cifar10(folder.path());
    ExperimentSpec spec = spec_of(folder.path(), construction, "backward");
    const fs::path run = fs::path(spec.output.dir) / spec.name, before = folder / "before";
    spec.train.max_steps = 9;
    wait_for(start(spec));
    fs::copy(run, before, fs::copy_options::recursive);
    spec.train.max_steps = 12;
    spec.subnetwork.workers = 3;
    spec.subnetwork.coverage.text = "1/3";
    spec.subnetwork.masking = Masking::kForward;
    spec.train.batch_size_per_worker = 3;
    check_kills(spec, 5, random, [&] {
      fs::remove_all(run);
      fs::copy(before, run, fs::copy_options::recursive);
    });
  }
}

TEST_CASE("a run that cannot write its heartbeat saves and stops before another host may take it over") {
  const TempFolder folder;
  write_cifar10(folder.path());
  ExperimentSpec spec = spec_of(folder.path(), "neuron", "backward");
  spec.train.max_steps = 1000000;
  spec.checkpoint.every_steps.reset();
  const RunFolder run{fs::path(spec.output.dir) / spec.name};
  const pid_t child = start([&] {
    StopSignals signals(/*exit_code=*/1);
    signals.remember();
    std::thread([&] {
      while (!contains(get(run.metrics()), "loss"))
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      break_writes(run.lock());
    }).detach();
    return train(spec, signals.descriptor(),
                 {.heartbeat = std::chrono::milliseconds(10), .silence = std::chrono::milliseconds(200)});
  });
  CHECK(end_of(child) == static_cast<int>(ExitCode::kPreempted));
  CHECK(CheckpointStore(run.dir).latest_step().value_or(0) > 0);
  CHECK(contains(get(run.log()), "run.lock"));
}

}  // namespace
}  // namespace sdp
