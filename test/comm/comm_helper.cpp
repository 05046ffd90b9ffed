// A program that starts itself as W ranks, for the tests of the launcher and of lost peers:
//   comm_helper PROCESSES FOLDER LOGS MODE [ARGUMENT...]
// LOGS: folder of the ranks' logs; "-": FOLDER. Each rank leaves FOLDER/ready-R, which holds its process id.

#include <ATen/ATen.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <thread>

#include "comm/communicator.h"
#include "comm/launcher.h"
#include "spec/error.h"

namespace {

volatile std::sig_atomic_t last_signal = 0;

void note_signal(int signal) {
  last_signal = signal;
}

struct Call {
  std::filesystem::path folder;
  std::string mode;
  std::vector<std::string> arguments;
};

void leave_ready(const Call& call, int rank) {
  const std::filesystem::path path = call.folder / ("ready-" + std::to_string(rank));
  std::ofstream(path.string() + ".part") << getpid();
  std::filesystem::rename(path.string() + ".part", path);
}

/// codes CODE...: writes 30 lines to stdout and one to stderr and ends with the rank's code.
int end_with_code(const Call& call, int rank) {
  for (int i = 0; i < 30; ++i)
    std::fprintf(stdout, "rank %d says %d\n", rank, i);
  std::fflush(stdout);
  std::fprintf(stderr, "rank %d complains\n", rank);
  return std::stoi(call.arguments.at(static_cast<size_t>(rank)));
}

/// signals: appends every signal it gets to FOLDER/signals-R, and ends with 75 after SIGTERM.
int record_signals(const Call& call, int rank) {
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1, SIGHUP})
    std::signal(signal, note_signal);
  leave_ready(call, rank);
  std::ofstream signals(call.folder / ("signals-" + std::to_string(rank)));
  while (last_signal != SIGTERM) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    if (last_signal == 0) continue;
    signals << last_signal << std::endl;
    if (last_signal != SIGTERM) last_signal = 0;
  }
  return static_cast<int>(sdp::ExitCode::kPreempted);
}

/// save SECONDS...: at the first SIGINT or SIGTERM leaves FOLDER/saving-R, takes the rank's time to save and
/// ends with 75; a second one ends it at once, as in sdp-train.
int save_when_told(const Call& call, int rank) {
  for (const int signal : {SIGINT, SIGTERM})
    std::signal(signal, [](int caught) {
      last_signal = caught;
      std::signal(caught, SIG_DFL);
    });
  leave_ready(call, rank);
  while (last_signal == 0)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  std::ofstream(call.folder / ("saving-" + std::to_string(rank))) << last_signal;
  std::this_thread::sleep_for(std::chrono::seconds(std::stoi(call.arguments.at(static_cast<size_t>(rank)))));
  return static_cast<int>(sdp::ExitCode::kPreempted);
}

/// sleep [RANK CODE]: sleeps for a minute; that rank instead ends with that code.
int sleep_long(const Call& call, int rank) {
  leave_ready(call, rank);
  if (!call.arguments.empty() && std::stoi(call.arguments.at(0)) == rank)
    return std::stoi(call.arguments.at(1));
  std::this_thread::sleep_for(std::chrono::minutes(1));
  return 0;
}

/// exchange [STEPS]: exchanges with all ranks, forever or for that many steps, and checks what it receives.
int exchange(const Call& call, const sdp::Ranks& ranks) {
  const auto comm =
      sdp::connect(ranks, at::kCPU, {.timeout = std::chrono::seconds(300), .folder = call.folder});
  const int64_t steps = call.arguments.empty() ? INT64_MAX : std::stoll(call.arguments.front());
  const std::vector<int64_t> splits(static_cast<size_t>(comm->size()), 1000);
  const at::Tensor send = at::full({1000 * comm->size()}, comm->rank(), at::kFloat);
  const at::Tensor recv = at::empty_like(send);
  const at::Tensor expected = at::arange(comm->size(), at::kFloat).repeat_interleave(1000);
  for (int64_t step = 0; step < steps; ++step) {
    comm->all_to_all(recv, send, splits, splits).wait();
    if (!recv.equal(expected)) return 1;
    if (step == 0) leave_ready(call, comm->rank());
  }
  return 0;
}

/// lone RANK sleep|fail barrier|patient: after a first exchange, that rank sleeps for a minute or fails; the
/// others continue, with barriers of that kind.
int leave_alone(const Call& call, const sdp::Ranks& ranks) {
  const auto comm = sdp::connect(ranks, at::kCPU, {.timeout = std::chrono::seconds(300)});
  const sdp::PhaseScope phase(*comm, "the test");
  comm->barrier();
  leave_ready(call, comm->rank());
  if (std::stoi(call.arguments.at(0)) == comm->rank()) {
    if (call.arguments.at(1) == "fail") throw sdp::DataError("nothing to read");
    std::this_thread::sleep_for(std::chrono::minutes(1));
  }
  for (;;)
    call.arguments.at(2) == "patient" ? comm->patient_barrier() : comm->barrier();
}

/// connect SECONDS: connects within that time, and leaves FOLDER/destructed-R when its static objects are
/// destructed.
int connect_in_time(const Call& call, const sdp::Ranks& ranks) {
  struct Witness {
    std::filesystem::path path;
    ~Witness() { std::ofstream(path) << "destructed"; }
  };
  static const Witness witness{call.folder / ("destructed-" + std::to_string(ranks.rank))};
  const auto comm =
      sdp::connect(ranks, at::kCPU, {.timeout = std::chrono::seconds(std::stoi(call.arguments.at(0)))});
  return 0;
}

int run_rank(const Call& call, const sdp::Ranks& ranks) {
  if (call.mode == "codes") return end_with_code(call, ranks.rank);
  if (call.mode == "signals") return record_signals(call, ranks.rank);
  if (call.mode == "save") return save_when_told(call, ranks.rank);
  if (call.mode == "sleep") return sleep_long(call, ranks.rank);
  if (call.mode == "exchange") return exchange(call, ranks);
  if (call.mode == "connect") return connect_in_time(call, ranks);
  if (call.mode == "lone") return leave_alone(call, ranks);
  throw sdp::UsageError("unknown mode " + call.mode);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::vector<std::string> arguments(argv, argv + argc);
    const Call call = {arguments.at(2), arguments.at(4), {arguments.begin() + 5, arguments.end()}};
    const auto ranks = sdp::ranks_from_environment(sdp::current_environment());
    if (ranks) return run_rank(call, *ranks);
    const std::string& logs = arguments.at(3);
    return sdp::launch(std::stoi(arguments.at(1)), arguments, logs == "-" ? arguments.at(2) : logs);
  } catch (const sdp::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(error.code());
  }
}
