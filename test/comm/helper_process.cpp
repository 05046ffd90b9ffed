#include "helper_process.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <fstream>
#include <functional>
#include <stdexcept>
#include <thread>

namespace sdp::test {
namespace {

bool eventually(std::chrono::milliseconds limit, const std::function<bool()>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (std::string& text : strings)
    result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

}  // namespace

void ScratchFolder::await(const std::string& name) const {
  if (!eventually(std::chrono::seconds(120), [&] { return has(name); }))
    throw std::runtime_error(name + " did not come");
}

void ScratchFolder::await_ranks(int size) const {
  for (int rank = 0; rank < size; ++rank)
    await("ready-" + std::to_string(rank));
}

pid_t ScratchFolder::process_of(int rank) const {
  const std::string name = "ready-" + std::to_string(rank);
  await(name);
  return std::stoi(read(name));
}

HelperProcess::HelperProcess(const ScratchFolder& folder, const std::string& name,
                             const std::vector<std::string>& arguments, const Environment& additional) {
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").replace_filename("comm_helper");
  std::vector<std::string> words = {program};
  words.insert(words.end(), arguments.begin(), arguments.end());
  Environment environment = current_environment();
  for (const auto& [variable, value] : additional)
    environment[variable] = value;
  std::vector<std::string> settings;
  for (const auto& [variable, value] : environment)
    settings.push_back(variable + "=" + value);
  const std::vector<char*> word_pointers = pointers(words);
  const std::vector<char*> setting_pointers = pointers(settings);
  const int console =
      open((folder.path() / ("console-" + name)).c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  pid_ = fork();
  if (pid_ == 0) {
    for (const int signal :
         {SIGINT, SIGHUP})  // under nohup or in a shell's background, all child processes ignore these
      std::signal(signal, SIG_DFL);
    dup2(console, STDOUT_FILENO);
    dup2(console, STDERR_FILENO);
    execve(program.c_str(), word_pointers.data(), setting_pointers.data());
    _exit(127);
  }
  close(console);
}

HelperProcess::~HelperProcess() {
  if (!running_) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

int HelperProcess::wait() {
  int status = 0;
  if (!eventually(std::chrono::seconds(120), [&] { return waitpid(pid_, &status, WNOHANG) == pid_; }))
    throw std::runtime_error("the helper does not end");
  running_ = false;
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

Listener::Listener() : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  socklen_t length = sizeof(address);
  if (bind(socket_, reinterpret_cast<sockaddr*>(&address), length) != 0 || listen(socket_, 1) != 0 ||
      getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &length) != 0)
    throw std::runtime_error("no port");
  port_ = ntohs(address.sin_port);
}

Listener::~Listener() {
  close(socket_);
}

int free_port() {
  const Listener listener;
  return listener.port();
}

std::vector<std::unique_ptr<HelperProcess>> start_ranks(const ScratchFolder& folder, int world,
                                                        const std::vector<std::string>& mode, int master_port,
                                                        const Environment& additional) {
  const std::string port = std::to_string(master_port);
  std::vector<std::string> arguments = {"0", folder.path(), "-"};
  arguments.insert(arguments.end(), mode.begin(), mode.end());
  std::vector<std::unique_ptr<HelperProcess>> ranks;
  for (int rank = 0; rank < world; ++rank) {
    Environment environment = {{"RANK", std::to_string(rank)},
                               {"WORLD_SIZE", std::to_string(world)},
                               {"MASTER_ADDR", "127.0.0.1"},
                               {"MASTER_PORT", port}};
    for (const auto& [name, value] : additional)
      environment[name] = value;
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
