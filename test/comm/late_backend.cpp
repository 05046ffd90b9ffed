#include "comm/late_backend.h"

#include <ATen/ATen.h>

#include <deque>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>
#include <vector>

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

c10::intrusive_ptr<c10d::Backend> late_backend(c10::intrusive_ptr<c10d::Backend> inner) {
  return c10::make_intrusive<LateBackend>(std::move(inner));
}

}  // namespace sdp
