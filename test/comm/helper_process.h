#pragma once

// Runs comm_helper as a user would: a process with a separate environment, its output in files.

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "comm/ranks.h"
#include "comm/sockets.h"
#include "temp_folder.h"

namespace sdp::test {

/// Waits up to `limit` until the condition holds, and returns whether it does.
bool eventually(std::chrono::milliseconds limit, const std::function<bool()>& condition);

/// What `call` returns for 0, 1 ... size - 1, each in a thread.
template <class Call>
auto in_parallel(int size, const Call& call) {
  std::vector<std::future<decltype(call(0))>> results;
  for (int i = 0; i < size; ++i)
    results.push_back(std::async(std::launch::async, call, i));
  std::vector<decltype(call(0))> values;
  for (auto& result : results)
    values.push_back(result.get());
  return values;
}

/// A folder in which the ranks of comm_helper leave files.
class ScratchFolder : public TempFolder {
 public:
  std::string read(const std::string& name) const { return get(path() / name); }
  bool has(const std::string& name) const { return std::filesystem::exists(path() / name); }
  /// Waits for a file, or until it has this content; throws after two minutes.
  void await(const std::string& name, const std::string& content = {}) const;
  /// Waits until ranks 0..size-1 are ready, and returns the process ids that they have written.
  std::vector<pid_t> await_ranks(int size) const;
};

/// comm_helper with these arguments and the default signal dispositions; its output goes to
/// FOLDER/console-NAME. Destruction kills the process. It is forked from one that has loaded LibTorch.
class HelperProcess {
 public:
  HelperProcess(const ScratchFolder& folder, const std::string& name,
                const std::vector<std::string>& arguments, const Environment& additional = {});
  ~HelperProcess();
  HelperProcess(const HelperProcess&) = delete;
  HelperProcess& operator=(const HelperProcess&) = delete;
  pid_t pid() const { return pid_; }
  /// The exit code, or -signal. Throws after two minutes.
  int wait();

 private:
  pid_t pid_ = -1;
  bool running_ = true;
};

/// A socket that listens on a free port, and never accepts.
inline Descriptor silent_listener() {
  return listen_on_free_port(kLoopback, /*loopback_only=*/false);
}

/// A port that was free a moment ago.
inline int free_port() {
  return port_of(silent_listener());
}

/// Ranks of comm_helper with torchrun's variables, each with its console in FOLDER/console-RANK.
std::vector<std::unique_ptr<HelperProcess>> start_ranks(const ScratchFolder& folder, int world,
                                                        const std::vector<std::string>& mode,
                                                        int master_port = free_port(),
                                                        const Environment& additional = {});

/// Waits up to `limit` until the process no longer exists or is only a zombie.
bool disappears(pid_t pid, std::chrono::milliseconds limit);

}  // namespace sdp::test
