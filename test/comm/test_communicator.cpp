// Collectives between threads over Gloo, against plain sums and copies.

#include <ATen/ATen.h>

#include <chrono>
#include <thread>

#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "catch.h"
#include "comm/connection.h"
#include "comm/thread_ranks.h"
#include "message_of.h"
#include "spec/error.h"
#include "test_device.h"

using Catch::Matchers::Contains;

namespace sdp {
namespace {

using Counts = std::vector<int64_t>;

/// Ranks whose tensors are on the test's device.
void run_ranks(int world, const std::function<void(Communicator&)>& body) {
  run_thread_ranks(world, body, Exchanges::kAtOnce, test_device());
}

constexpr at::ScalarType kTypes[] = {at::kBFloat16, at::kFloat, at::kDouble, at::kLong};

/// Elements that `from` sends to `to`: uneven, with zeros.
int64_t elements(int from, int to) {
  return (3 * from + 5 * to + from * to) % 4 * 7;
}

/// The value of the i-th element of that message; exact in every type.
double value(int from, int to, int64_t i) {
  return from * 16 + to * 4 + static_cast<double>(i % 3);
}

struct Message {
  at::Tensor recv, send, expected;
  Counts recv_splits, send_splits;
};

Message make_message(int rank, int world, at::ScalarType type, int64_t factor) {
  Message message;
  std::vector<double> send, expected;
  for (int other = 0; other < world; ++other) {
    message.send_splits.push_back(elements(rank, other) * factor);
    message.recv_splits.push_back(elements(other, rank) * factor);
    for (int64_t i = 0; i < message.send_splits.back(); ++i)
      send.push_back(value(rank, other, i));
    for (int64_t i = 0; i < message.recv_splits.back(); ++i)
      expected.push_back(value(other, rank, i));
  }
  message.send = at::tensor(send, at::kDouble).to(test_device(), type);
  message.expected = at::tensor(expected, at::kDouble).to(test_device(), type);
  message.recv = at::full_like(message.expected, 99);
  return message;
}

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

TEST_CASE("all-to-all with uneven and zero splits, several in flight, waited for in any order") {
  const int world = GENERATE(1, 2, 4);
  run_ranks(world, [&](Communicator& comm) {
    expect(comm.size() == world && comm.device() == test_device() && !comm.is_stream_ordered(), "place");
    int64_t sent_bytes = 0;
    std::vector<Message> messages;
    for (const at::ScalarType type : kTypes)
      for (const int64_t factor : {1, 300, 7, 1000}) {
        messages.push_back(make_message(comm.rank(), world, type, factor));
        for (int other = 0; other < world; ++other)
          if (other != comm.rank())
            sent_bytes +=
                factor * elements(comm.rank(), other) * static_cast<int64_t>(c10::elementSize(type));
      }
    std::vector<Pending> pending;
    for (Message& message : messages)
      pending.push_back(
          comm.all_to_all(message.recv, message.send, message.recv_splits, message.send_splits));
    std::reverse(pending.begin(), pending.end());
    for (Pending& exchange : pending) {
      exchange.wait();
      exchange.wait();
    }
    for (const Message& message : messages)
      expect(message.recv.equal(message.expected), "all-to-all");
    expect(comm.traffic() == Traffic{.all_to_all_bytes = sent_bytes}, "counted bytes");
  });
}

TEST_CASE("all-reduce, broadcast and all-gather") {
  const int world = GENERATE(1, 2, 4);
  run_ranks(world, [&](Communicator& comm) {
    const int rank = comm.rank();
    const at::TensorOptions options = at::TensorOptions(at::kDouble).device(comm.device());
    Traffic expected;
    for (const at::ScalarType type : kTypes) {
      const int64_t bytes = static_cast<int64_t>(c10::elementSize(type));
      const at::Tensor base = at::arange(12, options).view({3, 4});
      const at::Tensor sum = (base + rank).to(type);
      comm.all_reduce_sum(sum);
      expect(sum.equal((base * world + world * (world - 1) / 2).to(type)), "all-reduce");
      expected.all_reduce_bytes += 12 * bytes * 2 * (world - 1) / world;

      for (int root = 0; root < world; ++root) {
        const at::Tensor values = (base + 10 * rank).to(type);
        comm.broadcast(values, root);
        expect(values.equal((base + 10 * root).to(type)), "broadcast");
        if (root == rank) expected.broadcast_bytes += 12 * bytes * (world - 1);
      }

      const at::Tensor all = at::empty({3 * world}, options.dtype(type));
      comm.all_gather(all, (at::arange(3, options) + 3 * rank).to(type));
      expect(all.equal(at::arange(3 * world, options).to(type)), "all-gather");
      expected.all_gather_bytes += 3 * bytes * (world - 1);
    }
    expect(comm.traffic() == expected, "counted bytes");
  });
}

TEST_CASE("strings are gathered, of any length and content") {
  const int world = GENERATE(1, 3);
  run_ranks(world, [&](Communicator& comm) {
    const auto text = [](int rank) {
      return std::string(static_cast<size_t>(rank) * 5, 'a') + std::string("\0x", 2);
    };
    const std::vector<std::string> all = comm.all_gather_strings(text(comm.rank()));
    for (int rank = 0; rank < world; ++rank)
      expect(all.at(static_cast<size_t>(rank)) == text(rank), "text");
    expect(comm.all_gather_strings("") == std::vector<std::string>(static_cast<size_t>(world)), "empty");
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

TEST_CASE("ranks that disagree are named") {
  run_ranks(4, [](Communicator& comm) {
    check_same_everywhere(comm, "The plan", "abc");
    const std::string text = comm.rank() % 2 == 1 ? "hash-" + std::to_string(comm.rank()) : "hash-0";
    const std::string message =
        message_of<UsageError>([&] { check_same_everywhere(comm, "The plan", text); });
    expect(message.find("The plan is not the same on all processes: rank 0 has hash-0, these ranks differ: "
                        "1 (hash-1), 3 (hash-3)") == 0,
           message);
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
    exchange(at::zeros({2 * world}).slice(0, 0, 2 * world, 2), fits, world == 1 ? Counts{2} : ones);
    exchange(fits, fits, Counts(static_cast<size_t>(world) + 1, 1));
    refused([&] { comm.broadcast(fits, world); });
    refused([&] { comm.all_gather(fits, at::zeros({2})); });
    refused([&] { comm.all_reduce_sum(at::zeros({4, 4}).t().slice(0, 0, 2)); });
    refused([&] { comm.all_reduce_sum(at::Tensor()); });
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
