#include "doctor/exchange.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <optional>

namespace sdp {
namespace {

using Splits = std::vector<int64_t>;

/// Elements that rank `from` sends to rank `to`: uneven, and zero for some pairs in every world.
int64_t uneven_split(int from, int to, int round) {
  return (3 * from + 5 * to + round) % 4 * 7;
}

/// Element i that `from` sends to `to`. Below 256, where bf16 represents all integers.
int64_t value_of(int from, int to, int64_t i) {
  return (17 * from + 31 * to + i) % 251;
}

at::Tensor tensor_of(const std::vector<int64_t>& values, at::ScalarType type, at::Device device) {
  return at::tensor(values, at::kLong).to(type).to(device);
}

/// A description of the first difference, or std::nullopt.
std::optional<std::string> difference(const std::string& operation, const at::Tensor& found,
                                      const std::vector<int64_t>& expected) {
  const at::Tensor values = found.cpu().to(at::kLong).contiguous();
  for (size_t i = 0; i < expected.size(); ++i) {
    const int64_t value = values.const_data_ptr<int64_t>()[i];
    if (value != expected[i])
      return fmt::format("{} of {}: element {} is {}, expected {}", operation,
                         c10::toString(found.scalar_type()), i, value, expected[i]);
  }
  return std::nullopt;
}

std::optional<std::string> wrong_all_to_all(const ExchangeCalls& calls, int rank, int size, at::Device device,
                                            at::ScalarType type, int round) {
  Splits send_splits, recv_splits;
  std::vector<int64_t> sent, expected;
  for (int other = 0; other < size; ++other) {
    send_splits.push_back(uneven_split(rank, other, round));
    recv_splits.push_back(uneven_split(other, rank, round));
    for (int64_t i = 0; i < send_splits.back(); ++i)
      sent.push_back(value_of(rank, other, i));
    for (int64_t i = 0; i < recv_splits.back(); ++i)
      expected.push_back(value_of(other, rank, i));
  }
  const at::Tensor send = tensor_of(sent, type, device);
  const at::Tensor recv = at::full({static_cast<int64_t>(expected.size())}, 255, send.options());
  calls.all_to_all(recv, send, recv_splits, send_splits);
  return difference(fmt::format("all-to-all with uneven splits (round {})", round), recv, expected);
}

std::optional<std::string> wrong_all_reduce(const ExchangeCalls& calls, int rank, int size, at::Device device,
                                            at::ScalarType type) {
  constexpr int64_t kElements = 1001;  // no multiple of anything
  std::vector<int64_t> own, expected;
  for (int64_t i = 0; i < kElements; ++i) {
    own.push_back(value_of(rank, 0, i));
    int64_t sum = 0;
    for (int other = 0; other < size; ++other)
      sum += value_of(other, 0, i);
    expected.push_back(sum);
  }
  const at::Tensor tensor = tensor_of(own, type, device);
  calls.all_reduce_sum(tensor);
  return difference("all-reduce", tensor, expected);
}

std::optional<std::string> wrong_broadcast(const ExchangeCalls& calls, int rank, int root,
                                           at::Device device) {
  std::vector<int64_t> own, expected;
  for (int64_t i = 0; i < 33; ++i) {
    own.push_back(value_of(rank, 1, i));
    expected.push_back(value_of(root, 1, i));
  }
  const at::Tensor tensor = tensor_of(own, at::kFloat, device);
  calls.broadcast(tensor, root);
  return difference(fmt::format("broadcast from rank {}", root), tensor, expected);
}

std::optional<std::string> wrong_all_gather(const ExchangeCalls& calls, int rank, int size,
                                            at::Device device) {
  constexpr int64_t kElements = 5;
  std::vector<int64_t> own, expected;
  for (int64_t i = 0; i < kElements; ++i)
    own.push_back(value_of(rank, 2, i));
  for (int other = 0; other < size; ++other)
    for (int64_t i = 0; i < kElements; ++i)
      expected.push_back(value_of(other, 2, i));
  const at::Tensor in = tensor_of(own, at::kLong, device);
  const at::Tensor out = at::zeros({size * kElements}, in.options());
  calls.all_gather(out, in);
  return difference("all-gather", out, expected);
}

/// Seconds of the fastest of a few exchanges with these splits, which are equal for all ranks. Measured with
/// this process's clock; all ranks begin together.
double fastest_s(Communicator& comm, const Splits& splits) {
  constexpr int kTimes = 4;
  const int64_t elements = std::accumulate(splits.begin(), splits.end(), int64_t{0});
  const auto options = at::TensorOptions(at::kByte).device(comm.device());
  const at::Tensor send = at::zeros({elements}, options);
  const at::Tensor recv = at::empty_like(send);
  double fastest = 0;
  for (int i = 0; i <= kTimes; ++i) {  // the first one is a warm-up
    comm.barrier();
    const auto began = std::chrono::steady_clock::now();
    comm.all_to_all(recv, send, splits, splits).wait();
    comm.to_host(recv.narrow(0, 0, std::min<int64_t>(elements, 1)));  // makes the host wait for the device
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    if (i == 1 || (i > 1 && seconds < fastest)) fastest = seconds;
  }
  return fastest;
}

/// Rate at which each rank sends to `others_of` it. All ranks call it, including those that send nothing.
double rate_to(Communicator& comm, const std::vector<bool>& others, int64_t bytes_in_all) {
  const auto receivers = std::count(others.begin(), others.end(), true);
  Splits splits(others.size(), 0);
  // Both ends of a pair derive the size from the world, not from the number of others that each has.
  const int64_t each = std::max<int64_t>(1, bytes_in_all / static_cast<int64_t>(others.size()));
  for (size_t r = 0; r < others.size(); ++r)
    if (others[r]) splits[r] = each;
  const double seconds = fastest_s(comm, splits);
  return receivers == 0 ? 0 : static_cast<double>(receivers * each) / seconds;
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
  // All ranks run all operations, whatever they find.
  std::vector<std::string> problems;
  const auto note = [&](const std::optional<std::string>& problem) {
    if (problem) problems.push_back(*problem);
  };
  for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kBFloat16})
    for (const int round : {0, 1, 2, 3})
      note(wrong_all_to_all(calls, rank, size, device, type, round));
  for (const at::ScalarType type : {at::kDouble, at::kFloat})
    note(wrong_all_reduce(calls, rank, size, device, type));
  for (const int root : {0, size - 1})
    note(wrong_broadcast(calls, rank, root, device));
  note(wrong_all_gather(calls, rank, size, device));
  if (!problems.empty())
    return failed(kCheck,
                  problems.size() == 1
                      ? problems.front()
                      : fmt::format("{}; and {} more", problems.front(), problems.size() - 1),
                  kAdvice);
  return pass(kCheck,
              fmt::format("all-to-all with uneven and zero splits, all-reduce, broadcast and all-gather "
                          "among {} rank{} are exact",
                          size, size == 1 ? "" : "s"));
}

ExchangeRates measure_exchange(Communicator& comm, const std::vector<std::string>& hosts) {
  const auto own = static_cast<size_t>(comm.rank());
  const bool several_hosts =
      std::any_of(hosts.begin(), hosts.end(), [&](const std::string& host) { return host != hosts.front(); });
  std::vector<bool> inside, between;
  for (size_t r = 0; r < hosts.size(); ++r) {
    inside.push_back(r != own && hosts[r] == hosts[own]);
    between.push_back(hosts[r] != hosts[own]);
  }
  const int64_t bytes = comm.device().is_cuda() ? int64_t{256} << 20 : int64_t{16} << 20;
  ExchangeRates rates;
  if (comm.size() == 1) return rates;
  rates.small_s = fastest_s(comm, Splits(hosts.size(), 1));
  rates.inside_bytes_per_s = rate_to(comm, inside, bytes);
  if (several_hosts) rates.between_bytes_per_s = rate_to(comm, between, bytes);
  return rates;
}

}  // namespace sdp
