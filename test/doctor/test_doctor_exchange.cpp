// The check of the collectives finds every wrong one, and ranks agree on a finding of one of them.

#include <ATen/ATen.h>

#include "catch.h"
#include "comm/communicator.h"
#include "comm/thread_ranks.h"
#include "doctor/checks.h"
#include "spec/error.h"
#include "temp_folder.h"

using namespace sdp;

TEST_CASE("correct collectives pass, in worlds of any size") {
  for (const int world : {1, 2, 3, 5})
    run_thread_ranks(world, [&](Communicator& comm) {
      const Finding finding = check_exchange(calls_of(comm), comm.rank(), world, comm.device());
      if (finding.status != Status::kPass) throw std::runtime_error(finding.detail);
    });
}

TEST_CASE("every wrong collective is found") {
  const auto all_to_all_with = [](const std::function<void(const at::Tensor& received)>& change) {
    return [=](ExchangeCalls& calls) {
      calls.all_to_all = [change, right = calls.all_to_all](const at::Tensor& recv, const auto&... rest) {
        right(recv, rest...);
        if (recv.numel() > 0) change(recv);
      };
    };
  };
  const std::vector<std::pair<std::function<void(ExchangeCalls&)>, const char*>> changes = {
      {all_to_all_with([](const at::Tensor& recv) { recv.copy_(recv.flip(0).contiguous()); }), "all-to-all"},
      {all_to_all_with([](const at::Tensor& recv) { recv[-1].fill_(0); }), "all-to-all"},
      {[](ExchangeCalls& calls) {
         calls.all_reduce_sum = [right = calls.all_reduce_sum](const at::Tensor& tensor) {
           right(tensor);
           tensor[500] += 1;
         };
       },
       "element 500"},
      {[](ExchangeCalls& calls) {
         calls.broadcast = [right = calls.broadcast](const at::Tensor& tensor, int root) {
           const at::Tensor before = tensor.clone();
           right(tensor, root);
           if (root == 2) tensor.copy_(before);
         };
       },
       "broadcast from rank 2"},
      {[](ExchangeCalls& calls) {
         calls.all_gather = [right = calls.all_gather](const at::Tensor& out, const at::Tensor& in) {
           right(out, in);
           out.zero_();
         };
       },
       "all-gather"}};
  for (const auto& [change, named] : changes) {
    // Of rank 1 of three, whose calls are changed.
    run_thread_ranks(3, [&, change = change, named = named](Communicator& comm) {
      ExchangeCalls calls = calls_of(comm);
      if (comm.rank() == 1) change(calls);
      const Finding found = check_exchange(calls, comm.rank(), comm.size(), comm.device());
      if (comm.rank() == 1 && (found.status != Status::kFail || !contains(found.detail, named)))
        throw std::logic_error(std::string(named) + ": " + found.detail);
    });
  }
}

TEST_CASE("findings and exceptions of one rank are reported by all ranks") {
  run_thread_ranks(3, [](Communicator& comm) {
    const Agreed agreed = agree(comm, "memory", [&]() -> Finding {
      if (comm.rank() == 2) throw std::runtime_error("out of memory\nand a call stack");
      return pass("memory", "fine");
    });
    if (!agreed.threw || agreed.finding != failed("memory", "rank 2: out of memory"))
      throw std::logic_error(agreed.finding.detail);
  });
}

TEST_CASE("a rank that leaves an exchange does not prevent agreement") {
  Ranks ranks;
  ranks.single_host = true;
  run_thread_ranks(3, [&](Communicator& control) {
    // Also limits connecting, which takes longer on a busy machine.
    const std::chrono::milliseconds timeout{5000};
    const std::unique_ptr<Communicator> comm = connect_beside(control, ranks, at::kCPU, timeout);
    const Agreed agreed = agree(control, "exchange", [&]() -> Finding {
      if (comm->rank() == 1) throw std::runtime_error("the device failed");
      comm->all_reduce_sum(at::ones({4}));
      return pass("exchange", "");
    });
    comm->abandon();
    if (!agreed.threw || agreed.finding.status != Status::kFail ||
        agreed.finding.detail.find("rank 1: the device failed") == std::string::npos)
      throw std::logic_error(agreed.finding.detail);
  });
}

TEST_CASE("rates between hosts are measured if there are several") {
  run_thread_ranks(3, [](Communicator& comm) {
    const LinkRates one_host = measure_links(comm, {"a", "a", "a"});
    const LinkRates two_hosts = measure_links(comm, {"a", "a", "b"});
    const bool is_alone = comm.rank() == 2;  // the only rank on its host
    if (!(one_host.inside_bytes_per_s > 0) || one_host.between_bytes_per_s != 0)
      throw std::logic_error("one host");
    if ((two_hosts.inside_bytes_per_s == 0) != is_alone || !(two_hosts.between_bytes_per_s > 0))
      throw std::logic_error("two hosts");
  });
}
