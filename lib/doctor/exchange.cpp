#include "doctor/checks.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "process/stopwatch.h"

namespace sdp {
namespace {

using Splits = std::vector<int64_t>;

/// Elements that rank `from` sends to rank `to`: uneven, and zero for some pairs in every world.
int64_t uneven_split(int from, int to, int round) {
  return (3 * from + 5 * to + round) % 4 * 7;
}

/// The elements that `from` sends to `to`. Below 256, where bf16 represents all integers.
at::Tensor values_of(int from, int to, int64_t elements) {
  return (at::arange(elements, at::kLong) + (17 * from + 31 * to)).remainder(251);
}

/// Runs collectives among `size` ranks and notes the first wrong element of each.
class ExchangeTrial {
 public:
  ExchangeTrial(const ExchangeCalls& calls, int rank, int size, at::Device device)
      : calls_(calls), rank_(rank), size_(size), device_(device) {}

  void all_to_all(at::ScalarType type, int round) {
    Splits send_splits, recv_splits;
    std::vector<at::Tensor> sent, expected;
    for (int other = 0; other < size_; ++other) {
      send_splits.push_back(uneven_split(rank_, other, round));
      recv_splits.push_back(uneven_split(other, rank_, round));
      sent.push_back(values_of(rank_, other, send_splits.back()));
      expected.push_back(values_of(other, rank_, recv_splits.back()));
    }
    const at::Tensor send = at::cat(sent).to(device_, type);
    const at::Tensor recv = at::full(at::cat(expected).sizes(), 255, send.options());
    calls_.all_to_all(recv, send, recv_splits, send_splits);
    compare(fmt::format("all-to-all with uneven splits (round {})", round), recv, at::cat(expected));
  }

  void all_reduce(at::ScalarType type) {
    constexpr int64_t kElements = 1001;  // no multiple of anything
    at::Tensor expected = at::zeros({kElements}, at::kLong);
    for (int other = 0; other < size_; ++other)
      expected += values_of(other, 0, kElements);
    const at::Tensor tensor = values_of(rank_, 0, kElements).to(device_, type);
    calls_.all_reduce_sum(tensor);
    compare("all-reduce", tensor, expected);
  }

  void broadcast(int root) {
    const at::Tensor tensor = values_of(rank_, 1, 33).to(device_, at::kFloat);
    calls_.broadcast(tensor, root);
    compare(fmt::format("broadcast from rank {}", root), tensor, values_of(root, 1, 33));
  }

  void all_gather() {
    std::vector<at::Tensor> expected;
    for (int other = 0; other < size_; ++other)
      expected.push_back(values_of(other, 2, 5));
    const at::Tensor in = values_of(rank_, 2, 5).to(device_);
    const at::Tensor out = at::zeros({size_ * in.numel()}, in.options());
    calls_.all_gather(out, in);
    compare("all-gather", out, at::cat(expected));
  }

  const std::vector<std::string>& problems() const { return problems_; }

 private:
  void compare(const std::string& operation, const at::Tensor& found, const at::Tensor& expected) {
    const at::Tensor values = found.cpu().to(at::kLong);
    const at::Tensor wrong = values.ne(expected).nonzero();
    if (wrong.numel() == 0) return;
    const int64_t i = wrong[0].item<int64_t>();
    problems_.push_back(fmt::format("{} of {}: element {} is {}, expected {}", operation,
                                    c10::toString(found.scalar_type()), i, values[i].item<int64_t>(),
                                    expected[i].item<int64_t>()));
  }

  const ExchangeCalls& calls_;
  const int rank_, size_;
  const at::Device device_;
  std::vector<std::string> problems_;
};

/// Rate at which each rank sends to `others` of it, in the fastest of a few all-to-alls. All ranks call it,
/// including those that send nothing, and begin together; each measures with its own clock.
double rate_to(Communicator& comm, const std::vector<bool>& others, int64_t bytes_in_all) {
  constexpr int kTimes = 4;
  // Both ends of a pair derive the size from the world, not from the number of others that each has.
  const int64_t each = std::max<int64_t>(1, bytes_in_all / static_cast<int64_t>(others.size()));
  Splits splits;
  for (const bool is_receiver : others)
    splits.push_back(is_receiver ? each : 0);
  const int64_t elements = std::accumulate(splits.begin(), splits.end(), int64_t{0});
  const at::Tensor send = at::zeros({elements}, at::TensorOptions(at::kByte).device(comm.device()));
  const at::Tensor recv = at::empty_like(send);
  double most = 0;
  for (int i = 0; i <= kTimes; ++i) {
    comm.barrier();
    const Stopwatch stopwatch;
    comm.all_to_all(recv, send, splits, splits).wait();
    comm.to_host(recv.narrow(0, 0, std::min<int64_t>(elements, 1)));  // makes the host wait for the device
    if (i > 0) most = std::max(most, static_cast<double>(elements) / stopwatch.seconds());  // 0 is a warm-up
  }
  return most;
}

}  // namespace

ExchangeCalls calls_of(Communicator& comm) {
  return {.all_to_all =
              [&comm](const at::Tensor& recv, const at::Tensor& send, const Splits& recv_splits,
                      const Splits& send_splits) {
                comm.all_to_all(recv, send, recv_splits, send_splits).wait();
              },
          .all_reduce_sum = [&comm](const at::Tensor& tensor) { comm.all_reduce_sum(tensor); },
          .broadcast = [&comm](const at::Tensor& tensor, int root) { comm.broadcast(tensor, root); },
          .all_gather = [&comm](const at::Tensor& out, const at::Tensor& in) { comm.all_gather(out, in); }};
}

Finding check_exchange(const ExchangeCalls& calls, int rank, int size, at::Device device) {
  constexpr const char* kCheck = "exchange";
  constexpr const char* kAdvice =
      "The network or its libraries lose or change data, so training results would be wrong. Try another "
      "NCCL or LibTorch; NCCL_P2P_DISABLE=1 or NCCL_IB_DISABLE=1 help to find the faulty link.";
  ExchangeTrial trial(calls, rank, size, device);  // all ranks run all operations, whatever they find
  for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kBFloat16})
    for (const int round : {0, 1, 2, 3})
      trial.all_to_all(type, round);
  for (const at::ScalarType type : {at::kDouble, at::kFloat})
    trial.all_reduce(type);
  for (const int root : {0, size - 1})
    trial.broadcast(root);
  trial.all_gather();
  const std::vector<std::string>& problems = trial.problems();
  if (problems.empty())
    return pass(kCheck, fmt::format("all-to-all, all-reduce, broadcast and all-gather of {} rank{} are exact",
                                    size, size == 1 ? "" : "s"));
  const std::string more = problems.size() == 1 ? "" : fmt::format("; and {} more", problems.size() - 1);
  return failed(kCheck, problems.front() + more, kAdvice);
}

LinkRates measure_links(Communicator& comm, const std::vector<std::string>& hosts) {
  const auto own = static_cast<size_t>(comm.rank());
  const bool several_hosts =
      std::any_of(hosts.begin(), hosts.end(), [&](const std::string& host) { return host != hosts.front(); });
  std::vector<bool> inside, between;
  for (size_t r = 0; r < hosts.size(); ++r) {
    inside.push_back(r != own && hosts[r] == hosts[own]);
    between.push_back(hosts[r] != hosts[own]);
  }
  const int64_t bytes = comm.device().is_cuda() ? int64_t{256} << 20 : int64_t{16} << 20;
  return {.inside_bytes_per_s = comm.size() > 1 ? rate_to(comm, inside, bytes) : 0,
          .between_bytes_per_s = several_hosts ? rate_to(comm, between, bytes) : 0};
}

}  // namespace sdp
