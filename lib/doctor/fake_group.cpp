#include <ATen/ATen.h>

#include <stdexcept>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "comm/connection.h"
#include "doctor/measure.h"

namespace sdp {
namespace {

class Done : public c10d::Work {
 public:
  bool wait(std::chrono::milliseconds /*timeout*/) override { return true; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    auto future = c10::make_intrusive<c10::ivalue::Future>(c10::NoneType::get());
    future->markCompleted();
    return future;
  }
};

/// c10d also has a fake process group, but its header needs Python's headers.
class NobodyElse : public c10d::Backend {
 public:
  using WorkHandle = c10::intrusive_ptr<c10d::Work>;
  using Backend::Backend;

  const std::string getBackendName() const override { return "nobody else"; }
  c10d::ErrorType getError() override { return c10d::ErrorType::SUCCESS; }

  // Zero the received values: otherwise they could be any numbers, including some that slow down arithmetic.
  WorkHandle alltoall_base(at::Tensor& recv, at::Tensor& /*send*/, std::vector<int64_t>& /*recv_splits*/,
                           std::vector<int64_t>& /*send_splits*/,
                           const c10d::AllToAllOptions& /*options*/) override {
    recv.zero_();
    return c10::make_intrusive<Done>();
  }
  WorkHandle _allgather_base(at::Tensor& out, at::Tensor& in,
                             const c10d::AllgatherOptions& /*options*/) override {
    for (at::Tensor& rank : out.chunk(size_))
      rank.copy_(in);
    return c10::make_intrusive<Done>();
  }
  WorkHandle allreduce(std::vector<at::Tensor>& /*tensors*/,
                       const c10d::AllreduceOptions& /*options*/) override {
    return c10::make_intrusive<Done>();
  }
  WorkHandle broadcast(std::vector<at::Tensor>& /*tensors*/,
                       const c10d::BroadcastOptions& /*options*/) override {
    return c10::make_intrusive<Done>();
  }
};

}  // namespace

std::unique_ptr<Communicator> fake_communicator(int rank, int size, at::Device device) {
  if (rank < 0 || rank >= size) throw std::logic_error("fake_communicator: rank outside the world");
  auto connection = std::make_unique<Communicator::Connection>();
  connection->rank = rank;
  connection->size = size;
  connection->device = device;
  connection->is_stream_ordered = device.is_cuda();  // as in a real world of processes
  connection->store = c10::make_intrusive<c10d::HashStore>();
  connection->store->add("finished", size - 1);  // so that the destructor does not wait
  if (size > 1) connection->backend = c10::make_intrusive<NobodyElse>(rank, size);
  return std::make_unique<Communicator>(std::move(connection));
}

}  // namespace sdp
