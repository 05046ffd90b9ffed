#include "helper_process.h"

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <fstream>
#include <functional>
#include <stdexcept>
#include <thread>

namespace sdp::test {
namespace {

/// "comm_helper serve", which ends with this process.
class HelperServer {
 public:
  static int ask(const std::vector<std::string>& request) {
    static const HelperServer server;
    std::string text;
    for (const std::string& word : request)
      text.append(word).push_back('\0');
    int answer = 0;
    if (send(server.socket_, text.data(), text.size(), MSG_NOSIGNAL) < 0 ||
        recv(server.socket_, &answer, sizeof(answer), 0) != sizeof(answer))
      throw std::runtime_error("comm_helper does not answer");
    return answer;
  }

 private:
  HelperServer() {
    const std::string program =
        std::filesystem::read_symlink("/proc/self/exe").replace_filename("comm_helper");
    std::array<int, 2> ends = {};
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0)
      throw std::runtime_error("no socket pair");
    if (fork() == 0) {
      dup2(ends[1], STDIN_FILENO);
      execl(program.c_str(), program.c_str(), "serve", nullptr);
      _exit(127);
    }
    close(ends[1]);
    socket_ = ends[0];
  }
  int socket_ = -1;
};

}  // namespace

bool eventually(std::chrono::milliseconds limit, const std::function<bool()>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

void ScratchFolder::await(const std::string& name, const std::string& content) const {
  const auto is_there = [&] { return has(name) && (content.empty() || read(name) == content); };
  if (!eventually(std::chrono::seconds(120), is_there)) throw std::runtime_error(name + " did not come");
}

std::vector<pid_t> ScratchFolder::await_ranks(int size) const {
  std::vector<pid_t> processes;
  for (int rank = 0; rank < size; ++rank) {
    const std::string name = "ready-" + std::to_string(rank);
    await(name);
    processes.push_back(std::stoi(read(name)));
  }
  return processes;
}

HelperProcess::HelperProcess(const ScratchFolder& folder, const std::string& name,
                             const std::vector<std::string>& arguments, const Environment& additional) {
  std::vector<std::string> request = {folder.path() / ("console-" + name)};
  Environment environment = current_environment();
  for (const auto& [variable, value] : additional)
    environment[variable] = value;
  for (const auto& [variable, value] : environment)
    request.push_back(variable + "=" + value);
  request.insert(request.end(), {"--", "comm_helper"});
  request.insert(request.end(), arguments.begin(), arguments.end());
  pid_ = HelperServer::ask(request);
}

HelperProcess::~HelperProcess() {
  if (!running_) return;
  kill(pid_, SIGKILL);
  wait();
}

int HelperProcess::wait() {
  int status = -1;
  const std::string pid = std::to_string(pid_);
  if (!eventually(std::chrono::seconds(120), [&] { return (status = HelperServer::ask({pid})) >= 0; }))
    throw std::runtime_error("the helper does not end");
  running_ = false;
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

std::vector<std::unique_ptr<HelperProcess>> start_ranks(const ScratchFolder& folder, int world,
                                                        const std::vector<std::string>& mode, int master_port,
                                                        const Environment& additional) {
  std::vector<std::string> arguments = {"0", folder.path(), "-"};
  arguments.insert(arguments.end(), mode.begin(), mode.end());
  std::vector<std::unique_ptr<HelperProcess>> ranks;
  for (int rank = 0; rank < world; ++rank) {
    Environment environment = additional;
    environment.insert({{"RANK", std::to_string(rank)},
                        {"WORLD_SIZE", std::to_string(world)},
                        {"MASTER_ADDR", kLoopback},
                        {"MASTER_PORT", std::to_string(master_port)}});
    ranks.push_back(std::make_unique<HelperProcess>(folder, std::to_string(rank), arguments, environment));
  }
  return ranks;
}

bool disappears(pid_t pid, std::chrono::milliseconds limit) {
  return eventually(limit, [&] {
    std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
    std::string number, name, state;
    return !(file >> number >> name >> state) || state == "Z" || state == "X";
  });
}

}  // namespace sdp::test
