#include "comm/thread_ranks.h"

#include <ATen/Parallel.h>
#include <c10/core/AutogradState.h>

#include <cstdlib>
#include <exception>
#include <mutex>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "comm/connection.h"
#include "comm/late_backend.h"
#include "comm/launcher.h"
#include "spec/error.h"

namespace sdp {
namespace {

/// Selects the exception to report if several threads have thrown one.
class FirstException {
 public:
  /// Call inside a handler.
  void keep(bool is_consequence) {
    const std::lock_guard lock(mutex_);
    if (exception_ && (is_consequence || !replaceable_)) return;
    exception_ = std::current_exception();
    replaceable_ = is_consequence;
  }
  void rethrow() const {
    if (exception_) std::rethrow_exception(exception_);
  }

 private:
  std::mutex mutex_;
  std::exception_ptr exception_;
  bool replaceable_ = false;
};

}  // namespace

void run_thread_ranks(int world, const std::function<void(Communicator&)>& body, Exchanges exchanges,
                      at::Device device, std::chrono::milliseconds timeout) {
  ignore_sigpipe();
  // c10d has one flight recorder for the whole process, which does not support several backends.
  ::setenv("TORCH_FR_BUFFER_SIZE", "0", /*overwrite=*/1);
  const auto store = c10::make_intrusive<c10d::HashStore>();
  FirstException first;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        at::set_num_threads(1);
        // Run backward passes in this thread. The ranks share a device, and therefore autograd's thread for
        // that device, in which one rank's hooks would wait for hooks of other ranks that run later.
        c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
        auto connection = connect_over(store, {.rank = rank,
                                               .size = world,
                                               .device = device,
                                               .backend = BackendKind::kGloo,
                                               .timeout = timeout,
                                               .is_process = false});
        if (exchanges == Exchanges::kLate && connection->backend)
          connection->backend = late_backend(std::move(connection->backend));
        Communicator comm(std::move(connection));
        body(comm);
      } catch (const PeerLostError&) {
        first.keep(true);
      } catch (...) {
        first.keep(false);
      }
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  first.rethrow();
}

}  // namespace sdp
