// Collectives between threads over Gloo. Their values, in worlds of any size: test/doctor.

#include <ATen/ATen.h>

#include <chrono>
#include <thread>

#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "catch.h"
#include "comm/connection.h"
#include "comm/thread_ranks.h"
#include "message_of.h"
#include "spec/error.h"

using Catch::Matchers::Contains;

namespace sdp {
namespace {

using Counts = std::vector<int64_t>;

/// A backend whose all-reduce fails.
template <class Exception>
struct FailingBackend : c10d::Backend {
  FailingBackend(int size, const Exception& the_error) : Backend(0, size), error(the_error) {}
  const std::string getBackendName() const override { return "failing"; }
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>&, const c10d::AllreduceOptions&) override {
    throw error;
  }
  Exception error;
};

/// Throws what all_reduce_sum throws when c10d throws `error`, in a world of `size`.
template <class Exception>
void reduce_failing(int size, const Exception& error) {
  auto connection = std::make_unique<Communicator::Connection>();
  connection->size = size;
  connection->store = c10::make_intrusive<c10d::HashStore>();
  connection->backend = c10::make_intrusive<FailingBackend<Exception>>(size, error);
  Communicator(std::move(connection)).all_reduce_sum(at::zeros({1}));
}

}  // namespace

TEST_CASE("exchanges of uneven and zero splits in flight, waited for in any order") {
  run_ranks(3, [](Communicator& comm) {
    expect(comm.size() == 3 && comm.device() == test_device() && !comm.is_stream_ordered(), "place");
    const at::TensorOptions options = at::TensorOptions(at::kFloat).device(test_device());
    const int rank = comm.rank();
    int64_t sent_bytes = 0;
    std::vector<at::Tensor> sends, received, expected;
    std::vector<Pending> pending;
    for (const int64_t factor : {1, 300, 7, 1000}) {
      Counts recv_splits, send_splits;
      std::vector<at::Tensor> sent, from;
      for (int other = 0; other < 3; ++other) {
        send_splits.push_back(factor * ((2 * rank + other) % 4));
        recv_splits.push_back(factor * ((2 * other + rank) % 4));
        sent.push_back(at::full({send_splits.back()}, 3 * rank + other + 0.5, options));
        from.push_back(at::full({recv_splits.back()}, 3 * other + rank + 0.5, options));
        if (other != rank) sent_bytes += 4 * send_splits.back();
      }
      sends.push_back(at::cat(sent));
      expected.push_back(at::cat(from));
      received.push_back(at::zeros_like(expected.back()));
      pending.push_back(comm.all_to_all(received.back(), sends.back(), recv_splits, send_splits));
    }
    for (auto exchange = pending.rbegin(); exchange != pending.rend(); ++exchange) {
      exchange->wait();
      exchange->wait();
    }
    for (size_t i = 0; i < expected.size(); ++i)
      expect(received[i].equal(expected[i]), "all-to-all");
    expect(comm.traffic() == Traffic{.all_to_all_bytes = sent_bytes}, "counted bytes");
  });
}

TEST_CASE("the bytes that collectives send are counted") {
  const int world = GENERATE(1, 2, 4);
  run_ranks(world, [&](Communicator& comm) {
    const at::Tensor values = at::ones({12}, at::TensorOptions(at::kDouble).device(comm.device()));
    comm.all_reduce_sum(values);
    expect(values.eq(world).all().item<bool>(), "all-reduce");
    comm.broadcast(values, world - 1);
    comm.all_gather(at::empty({12 * world}, values.options()), values);
    expect(comm.traffic() == Traffic{.all_reduce_bytes = 96 * 2 * (world - 1) / world,
                                     .broadcast_bytes = comm.rank() == world - 1 ? 96 * (world - 1) : 0,
                                     .all_gather_bytes = 96 * (world - 1)},
           "counted bytes");
  });
}

TEST_CASE("strings are gathered, of any length and content") {
  const int world = GENERATE(1, 3);
  run_ranks(world, [&](Communicator& comm) {
    const auto rank = static_cast<size_t>(comm.rank());
    std::vector<std::string> texts = {std::string("\0x", 2), "", std::string(1000, 'a')};
    texts.resize(static_cast<size_t>(world));
    expect(comm.all_gather_strings(texts[rank]) == texts, "texts");
    expect(comm.all_gather_strings("") == std::vector<std::string>(texts.size()), "empty");
  });
}

TEST_CASE("a barrier holds until the last rank has arrived") {
  const auto barrier = GENERATE(&Communicator::barrier, &Communicator::patient_barrier);
  std::atomic<int> arrived = 0;
  run_ranks(3, [&](Communicator& comm) {
    for (int round = 1; round <= 3; ++round) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10 * comm.rank()));
      ++arrived;
      (comm.*barrier)();
      expect(arrived >= 3 * round, "a rank passed too early");
    }
  });
}

TEST_CASE("invalid calls are errors of our own and send nothing") {
  const int world = GENERATE(1, 2);
  run_thread_ranks(world, [&](Communicator& comm) {
    const auto refused = [&](const std::function<void()>& call) {
      expect(!message_of<std::logic_error>(call).empty(), "accepted");
    };
    const Counts ones(static_cast<size_t>(world), 1);
    const at::Tensor fits = at::zeros({world});
    const auto exchange = [&](const at::Tensor& recv, const at::Tensor& send, const Counts& splits) {
      refused([&] { comm.all_to_all(recv, send, splits, ones).wait(); });
    };
    exchange(at::zeros({world + 1}), fits, ones);
    exchange(at::zeros({world}, at::kDouble), fits, ones);
    exchange(fits, fits, Counts(static_cast<size_t>(world) + 1, 1));
    refused([&] { comm.broadcast(fits, world); });
    refused([&] { comm.all_gather(fits, at::zeros({2})); });
    comm.barrier();
    expect(comm.traffic() == Traffic{}, "counted bytes");
  });
}

TEST_CASE("only errors that other processes may have caused count as a lost peer") {
  const c10::SourceLocation here = {__func__, __FILE__, __LINE__};
  const c10::AcceleratorError device(here, 700, "an illegal memory access was encountered");
  const c10::OutOfMemoryError memory(here, "CUDA out of memory");
  const c10::DistBackendError network(here, "connection closed by peer");
  for (const int size : {1, 2}) {
    CHECK_THROWS_AS(reduce_failing(size, device), c10::AcceleratorError);
    CHECK_THROWS_AS(reduce_failing(size, memory), c10::OutOfMemoryError);
    CHECK_THROWS_AS(reduce_failing(size, std::bad_alloc()), std::bad_alloc);
  }
  CHECK_THROWS_AS(reduce_failing(1, network), c10::DistBackendError);
  CHECK_THROWS_AS(reduce_failing(2, network), PeerLostError);
  CHECK_THROWS_AS(reduce_failing(2, std::runtime_error("reset")), PeerLostError);
}

TEST_CASE("the cause below the first line of an NCCL error is reported") {
  const std::string text = readable_part(std::runtime_error(
      "NCCL error in: ../ProcessGroupNCCL.cpp:94, invalid usage (run with NCCL_DEBUG=WARN for details)\n"
      "ncclInvalidUsage: This usually reflects invalid usage of NCCL library.\n"
      "Last error:\nDuplicate GPU detected : rank 1 and rank 0 both on CUDA device 1000\nstack"));
  CHECK_THAT(text, Contains("Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1000") &&
                       Contains("ProcessGroupNCCL.cpp:94") && !Contains("stack"));
  for (const char* one : {"one\ntwo", "one\nLast error:\n"})
    CHECK(readable_part(std::runtime_error(one)) == "one");
}

}  // namespace sdp
