// A program that starts itself as W ranks, for the tests of the launcher and of lost peers:
//   comm_helper PROCESSES FOLDER LOGS MODE [ARGUMENT...]
// LOGS: folder of the ranks' logs; "-": FOLDER. Each rank leaves FOLDER/ready-R, which holds its process id.
// "comm_helper serve" loads LibTorch once: copies of the program are forked and not executed.

#include <ATen/ATen.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "comm/communicator.h"
#include "comm/launcher.h"
#include "io/file.h"
#include "process/copy.h"
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

/// codes CODE...: writes 30 lines to stdout and one to stderr and ends with the rank's code, or, if that is
/// "-", after a minute.
int end_with_code(const Call& call, int rank) {
  for (int i = 0; i < 30; ++i)
    std::fprintf(stdout, "rank %d says %d\n", rank, i);
  std::fflush(stdout);
  std::fprintf(stderr, "rank %d complains\n", rank);
  const std::string& code = call.arguments.at(static_cast<size_t>(rank));
  if (code != "-") return std::stoi(code);
  std::this_thread::sleep_for(std::chrono::minutes(1));
  return 0;
}

/// signals: appends every signal it gets to FOLDER/signals-R, and ends with 75 after SIGTERM.
int record_signals(const Call& call, int rank) {
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1, SIGHUP})
    std::signal(signal, note_signal);
  leave_ready(call, rank);
  std::ofstream signals(call.folder / ("signals-" + std::to_string(rank)));
  for (int signal = 0; signal != SIGTERM;) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    signal = last_signal;
    if (signal == 0) continue;
    last_signal = 0;
    signals << signal << std::endl;
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

/// exchange [STEPS [SECONDS]]: connects within that time, exchanges with all ranks, forever or for that many
/// steps, and checks what it receives. Leaves FOLDER/destructed-R when its static objects are destructed.
int exchange(const Call& call, const sdp::Ranks& ranks) {
  struct Witness {
    std::filesystem::path path;
    ~Witness() { std::ofstream(path) << "destructed"; }
  };
  static const Witness witness{call.folder / ("destructed-" + std::to_string(ranks.rank))};
  const int seconds = call.arguments.size() < 2 ? 300 : std::stoi(call.arguments[1]);
  const auto comm =
      sdp::connect(ranks, at::kCPU, {.timeout = std::chrono::seconds(seconds), .folder = call.folder});
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

int run_rank(const Call& call, const sdp::Ranks& ranks) {
  if (call.mode == "codes") return end_with_code(call, ranks.rank);
  if (call.mode == "signals") return record_signals(call, ranks.rank);
  if (call.mode == "save") return save_when_told(call, ranks.rank);
  return call.mode == "exchange" ? exchange(call, ranks) : leave_alone(call, ranks);
}

int run(const std::vector<std::string>& arguments) {
  try {
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

/// CONSOLE NAME=VALUE... -- ARGUMENT...: starts the program, with its output in that file.
pid_t start(const std::vector<std::string>& request) {
  const auto separator = std::find(request.begin(), request.end(), "--");
  const std::vector<std::string> arguments(separator + 1, request.end());
  const sdp::Descriptor console(open(request.at(0).c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  sigset_t no_signals;
  sigemptyset(&no_signals);
  return sdp::start_copy({.arguments = arguments,
                          .environment = std::vector<std::string>(request.begin() + 1, separator),
                          .output = console.number(),
                          .signal_mask = no_signals});
}

/// Requests come from the socket on standard input, every word ended by a null byte: a program to start,
/// which is answered by its process id, or a process id, which is answered by the status of that process if
/// it has ended, else -1.
int serve() {
  for (const int signal : {SIGINT, SIGHUP})  // under nohup or in a shell's background these are ignored
    std::signal(signal, SIG_DFL);
  std::string buffer(size_t{1} << 18, '\0');
  for (ssize_t size = 0; (size = recv(STDIN_FILENO, buffer.data(), buffer.size(), 0)) > 0;) {
    std::istringstream words(buffer.substr(0, static_cast<size_t>(size)));
    std::vector<std::string> request;
    for (std::string word; std::getline(words, word, '\0');)
      request.push_back(word);
    int answer = -1;
    if (request.size() > 1)
      answer = start(request);
    else if (waitpid(std::stoi(request.front()), &answer, WNOHANG) <= 0)
      answer = -1;
    if (send(STDIN_FILENO, &answer, sizeof(answer), MSG_NOSIGNAL) < 0) return 1;
  }
  return 0;
}

}  // namespace

/// How a copy of the program starts (process/copy.cpp).
extern "C" int execve(const char*, char* const arguments[], char* const environment[]) noexcept {
  environ = const_cast<char**>(environment);
  std::vector<std::string> words;
  for (char* const* word = arguments; *word != nullptr; ++word)
    words.emplace_back(*word);
  std::exit(run(words));
}

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv, argv + argc);
  return arguments.at(1) == "serve" ? serve() : run(arguments);
}
