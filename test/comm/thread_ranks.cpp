#include "comm/thread_ranks.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/AutogradState.h>

#include <cstdlib>
#include <deque>
#include <exception>
#include <thread>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <utility>

#include "comm/connection.h"
#include "comm/launcher.h"
#include "spec/error.h"

namespace sdp {
namespace {

class LateBackend;

/// A requested all-to-all. It holds only weak references to its buffers, so that it detects buffers that the
/// caller has freed.
class LateWork : public c10d::Work {
 public:
  LateWork(LateBackend& backend, const at::Tensor& recv, const at::Tensor& send,
           std::vector<int64_t> recv_splits, std::vector<int64_t> send_splits)
      : backend_(backend),
        recv_(recv.getIntrusivePtr()),
        send_(send.getIntrusivePtr()),
        recv_splits_(std::move(recv_splits)),
        send_splits_(std::move(send_splits)),
        future_(c10::make_intrusive<c10::ivalue::Future>(c10::NoneType::get())) {}

  bool wait(std::chrono::milliseconds timeout) override;
  bool isCompleted() override { return future_->completed(); }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }
  void exchange(c10d::Backend& inner);

 private:
  using WeakTensor = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
  static at::Tensor alive(const WeakTensor& tensor) {
    auto implementation = tensor.lock();
    TORCH_CHECK(implementation, "a buffer was freed while its exchange was in flight");
    return at::Tensor(std::move(implementation));
  }

  LateBackend& backend_;
  WeakTensor recv_, send_;
  std::vector<int64_t> recv_splits_, send_splits_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

/// As late as NCCL may be and Gloo on a CPU never is: delays every all-to-all until it is waited for. The
/// call fills the receive buffer with bytes 0xFF, which is NaN in every floating-point type. wait() carries
/// out the exchanges in the order of the calls, from the send buffers' contents at that time. So a value that
/// is read too early is NaN; a send buffer that is overwritten while the exchange is in flight sends the
/// wrong data, and a freed one is an error; and an exchange that is never waited for does not happen. Other
/// collectives, for which the host waits at once, are passed to `inner`.
class LateBackend : public c10d::Backend {
 public:
  explicit LateBackend(c10::intrusive_ptr<c10d::Backend> inner)
      : Backend(inner->getRank(), inner->getSize()), inner_(std::move(inner)) {}

  const std::string getBackendName() const override { return "late " + inner_->getBackendName(); }

  c10::intrusive_ptr<c10d::Work> alltoall_base(at::Tensor& recv, at::Tensor& send,
                                               std::vector<int64_t>& recv_splits,
                                               std::vector<int64_t>& send_splits,
                                               const c10d::AllToAllOptions&) override {
    recv.view(at::kByte).fill_(0xFF);
    queue_.push_back(c10::make_intrusive<LateWork>(*this, recv, send, recv_splits, send_splits));
    return queue_.back();
  }
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& options) override {
    return inner_->allreduce(tensors, options);
  }
  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors,
                                           const c10d::BroadcastOptions& options) override {
    return inner_->broadcast(tensors, options);
  }
  c10::intrusive_ptr<c10d::Work> _allgather_base(at::Tensor& out, at::Tensor& in,
                                                 const c10d::AllgatherOptions& options) override {
    return inner_->_allgather_base(out, in, options);
  }

  /// Carries out all exchanges up to and including `work`. Every process requests the same exchanges in the
  /// same order, but may wait for them in a different order.
  void exchange_up_to(LateWork& work) {
    while (!work.isCompleted()) {
      const c10::intrusive_ptr<LateWork> next = std::move(queue_.front());
      queue_.pop_front();
      next->exchange(*inner_);
    }
  }

 private:
  c10::intrusive_ptr<c10d::Backend> inner_;
  std::deque<c10::intrusive_ptr<LateWork>> queue_;
};

bool LateWork::wait(std::chrono::milliseconds) {
  backend_.exchange_up_to(*this);
  return true;
}

void LateWork::exchange(c10d::Backend& inner) {
  at::Tensor recv = alive(recv_);
  at::Tensor send = alive(send_);
  inner.alltoall_base(recv, send, recv_splits_, send_splits_)->wait();
  future_->markCompleted();
}

}  // namespace

void run_thread_ranks(int world, const std::function<void(Communicator&)>& body, Exchanges exchanges,
                      at::Device device, std::chrono::milliseconds timeout) {
  ignore_sigpipe();
  // c10d has one flight recorder for the whole process, which does not support several backends.
  ::setenv("TORCH_FR_BUFFER_SIZE", "0", /*overwrite=*/1);
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::vector<std::exception_ptr> causes(static_cast<size_t>(world)), consequences(causes.size());
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        at::set_num_threads(1);
        // Run backward passes in this thread. The ranks share a device, and therefore autograd's thread for
        // that device, in which one rank's hooks would wait for hooks of other ranks that run later.
        c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
        Ranks ranks;
        ranks.rank = rank;
        ranks.world = world;
        auto connection = connect_over(store, {.ranks = ranks,
                                               .device = device,
                                               .options = {.backend = BackendKind::kGloo, .timeout = timeout},
                                               .is_process = false});
        if (exchanges == Exchanges::kLate && connection->backend)
          connection->backend = c10::make_intrusive<LateBackend>(std::move(connection->backend));
        Communicator comm(std::move(connection));
        body(comm);
      } catch (const PeerLostError&) {
        consequences[static_cast<size_t>(rank)] = std::current_exception();
      } catch (...) {
        causes[static_cast<size_t>(rank)] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  causes.insert(causes.end(), consequences.begin(), consequences.end());
  for (const std::exception_ptr& error : causes)
    if (error) std::rethrow_exception(error);
}

}  // namespace sdp
