#include "comm/communicator.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <future>
#include <numeric>
#include <stdexcept>
#include <thread>

#include "comm/connection.h"
#include "spec/error.h"

namespace sdp {
namespace {

constexpr std::chrono::seconds kLeaveTimeout{10};
constexpr std::chrono::milliseconds kLeaveTimeoutAfterError{500};
constexpr std::chrono::milliseconds kStorePoll{5};
/// Limits NCCL's abort, which may wait for a device that does not answer.
constexpr std::chrono::seconds kAbortTimeout{10};
/// How long the watch may take to see which ranks are lost after a collective has failed.
constexpr std::chrono::seconds kBlameTimeout{1};
/// How long the others may take to report where they are.
constexpr std::chrono::seconds kWhereTimeout{2};

/// The elements of a contiguous tensor as bytes, [bytes]: one path for every type.
at::Tensor bytes_of(const at::Tensor& tensor) {
  return tensor.detach().view({tensor.numel()}).view(at::kByte);
}

std::vector<int64_t> times(std::vector<int64_t> counts, int64_t factor) {
  for (int64_t& count : counts)
    count *= factor;
  return counts;
}

int64_t sum(const std::vector<int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

void check(bool condition, const char* operation, const std::string& expected) {
  if (!condition) throw std::logic_error(std::string(operation) + ": expected " + expected);
}

void wait_for(c10d::Work& work) {
  if (!work.wait()) throw std::runtime_error("the operation was aborted");
}

/// Returns when the counter has reached the number of ranks, or at the time-out.
void wait_for_all(c10d::Store& store, const std::string& counter, int size,
                  std::chrono::milliseconds timeout = kLeaveTimeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (store.add(counter, 0) < size && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(kStorePoll);
}

/// Gives up at the time-out: this process is about to end, which also ends the abort.
void abort_within(const c10::intrusive_ptr<c10d::Backend>& backend, std::chrono::seconds timeout) {
  const auto aborted = std::make_shared<std::promise<void>>();
  std::thread([backend, aborted] {
    try {
      backend->abort();
    } catch (const std::exception&) {
      // The backend is aborted because it has failed; another error adds nothing.
    }
    aborted->set_value();
  }).detach();
  aborted->get_future().wait_for(timeout);
}

}  // namespace

struct Pending::Exchange {
  const Communicator* comm = nullptr;
  at::Tensor recv;
  at::Tensor send;
  c10::intrusive_ptr<c10d::Work> work;
};

Communicator::Communicator(std::unique_ptr<Connection> connection)
    : connection_(std::move(connection)), exceptions_at_start_(std::uncaught_exceptions()) {}

Communicator::~Communicator() {
  try {
    leave();
  } catch (const std::exception&) {
    // Nothing to report: the work is done, or another error is already being reported.
  }
}

void Communicator::leave() {
  c10d::Store& store = *connection_->store;
  c10::intrusive_ptr<c10d::Backend>& backend = connection_->backend;
  std::unique_ptr<PeerWatch>& watch = connection_->watch;
  const bool own_error = abandoned_ || std::uncaught_exceptions() > exceptions_at_start_;
  const bool clean = !failed_ && !own_error;
  if (watch && !clean) watch->leave(Departure::kError);  // no effect if it has reported a lost peer
  // Closing a connection while its peer still reads from it would be an error on that peer.
  if (!failed_ && size() > 1) {
    store.add("finished", 1);
    wait_for_all(store, "finished", size(), clean ? kLeaveTimeout : kLeaveTimeoutAfterError);
  }
  if (watch && clean) watch->leave(Departure::kFinished);
  if (backend && is_stream_ordered()) clean ? backend->shutdown() : abort_within(backend, kAbortTimeout);
  // ~ProcessGroupGloo waits for the exchanges in flight, and Gloo does not always notice that their peers are
  // gone. Leak the backend instead: this process ends soon, which closes its connections.
  if (!clean && connection_->is_process) {
    end_without_destructors();
    backend.release();
  }
  backend.reset();
  watch.reset();
  if (clean && size() > 1) {
    store.add("left", 1);
    if (connection_->serves_store) wait_for_all(store, "left", size());
  }
}

int Communicator::rank() const {
  return connection_->rank;
}
int Communicator::size() const {
  return connection_->size;
}
at::Device Communicator::device() const {
  return connection_->device;
}
bool Communicator::is_stream_ordered() const {
  return connection_->is_stream_ordered;
}

template <class Operation>
auto Communicator::guarded(const char* name, Operation&& operation) const {
  const PhaseScope operation_scope(connection_->operation, name);
  try {
    if (is_stream_ordered() && connection_->backend &&
        connection_->backend->getError() != c10d::ErrorType::SUCCESS)
      throw std::runtime_error("NCCL reported an earlier failure; its message is in the log");
    return operation();
  } catch (const std::exception& error) {
    failed_ = true;
    if (!may_come_from_peers(error, size())) throw;
    ProcessLoss loss = describe_process_loss({});
    if (PeerWatch* watch = connection_->watch.get()) {
      const std::vector<Departure> departures = watch->after_failure(kBlameTimeout);
      const bool somebody_left = std::any_of(departures.begin(), departures.end(),
                                             [](Departure how) { return how != Departure::kNone; });
      loss = somebody_left ? describe_process_loss(departures)
                           : describe_delay(watch->ask_status(kWhereTimeout), rank());
      watch->leave(Departure::kPeerLost);
    }
    connection_->threw_loss = true;
    throw PeerLostError(fmt::format("Rank {} lost {}{}: {}. {}", rank(), loss.who,
                                    during(connection_->phase, name), readable_part(error), loss.why));
  }
}

bool Communicator::stops_here() {
  return connection_->watch && connection_->watch->stops_here();
}

std::string Communicator::place() const {
  return place_of(connection_->phase, connection_->operation);
}

void Communicator::set_stop_notice(const std::string& notice) {
  const std::lock_guard lock(connection_->notice_mutex);
  connection_->stop_notice = notice;
}

void Communicator::set_failure_hint(const std::string& words) {
  const std::lock_guard lock(connection_->notice_mutex);
  connection_->failure_hint = words;
}

bool Communicator::stops_within() {
  return connection_->watch && connection_->watch->stops_within();
}

void Pending::wait() {
  if (!exchange_) return;
  const std::shared_ptr<Exchange> exchange = std::move(exchange_);
  exchange->comm->guarded("all-to-all", [&] { wait_for(*exchange->work); });
  if (exchange->comm->is_stream_ordered())
    duration_ms_ = [work = exchange->work] { return static_cast<double>(work->getDuration()); };
}

std::optional<double> Pending::duration_ms() const {
  try {
    return duration_ms_ ? std::optional<double>(duration_ms_()) : std::nullopt;
  } catch (const std::exception&) {
    return std::nullopt;  // TORCH_NCCL_ENABLE_TIMING=0 in the environment
  }
}

std::optional<std::chrono::steady_clock::time_point> Pending::completed_at() const {
  const Clock::rep ticks = completed_ ? completed_->load() : 0;
  if (ticks == 0) return std::nullopt;
  return Clock::time_point(Clock::duration(ticks));
}

void Communicator::check_tensor(const char* name, const at::Tensor& tensor) const {
  check(tensor.defined() && tensor.is_contiguous(), name, "a contiguous tensor");
  check(tensor.device() == device(), name, "a tensor on " + device().str());
}

Pending Communicator::all_to_all(const at::Tensor& recv, const at::Tensor& send,
                                 const std::vector<int64_t>& recv_splits,
                                 const std::vector<int64_t>& send_splits) {
  constexpr const char* kName = "all-to-all";
  check_tensor(kName, recv);
  check_tensor(kName, send);
  check(recv.scalar_type() == send.scalar_type(), kName, "tensors of one type");
  const auto world = static_cast<size_t>(size());
  check(recv_splits.size() == world && send_splits.size() == world, kName, "one split per rank");
  check(recv.dim() == 1 && recv.numel() == sum(recv_splits), kName,
        "recv with the sum of its splits as size");
  check(send.dim() == 1 && send.numel() == sum(send_splits), kName,
        "send with the sum of its splits as size");
  const auto own = static_cast<size_t>(rank());
  check(recv_splits[own] == send_splits[own], kName, "equal send and receive splits for the own rank");
  const auto negative = [](int64_t count) { return count < 0; };
  check(std::none_of(recv_splits.begin(), recv_splits.end(), negative), kName, "no negative splits");
  check(std::none_of(send_splits.begin(), send_splits.end(), negative), kName, "no negative splits");

  const int64_t element_bytes = send.element_size();
  traffic_.all_to_all_bytes += (send.numel() - send_splits[own]) * element_bytes;
  Pending pending;
  if (!connection_->backend) {
    recv.copy_(send);
    return pending;
  }
  auto exchange = std::make_shared<Pending::Exchange>();
  exchange->comm = this;
  exchange->recv = bytes_of(recv);
  exchange->send = bytes_of(send);
  std::vector<int64_t> recv_bytes = times(recv_splits, element_bytes);
  std::vector<int64_t> send_bytes = times(send_splits, element_bytes);
  connection_->collectives += 1;
  exchange->work = guarded(kName, [&] {
    return connection_->backend->alltoall_base(exchange->recv, exchange->send, recv_bytes, send_bytes);
  });
  if (!is_stream_ordered()) {
    pending.completed_ = std::make_shared<std::atomic<Pending::Clock::rep>>(0);
    exchange->work->getFuture()->addCallback([completed = pending.completed_](c10::ivalue::Future&) {
      completed->store(Pending::Clock::now().time_since_epoch().count());
    });
  }
  pending.exchange_ = std::move(exchange);
  return pending;
}

void Communicator::all_reduce_sum(const at::Tensor& tensor) {
  constexpr const char* kName = "all-reduce";
  check_tensor(kName, tensor);
  traffic_.all_reduce_bytes += static_cast<int64_t>(tensor.nbytes()) * 2 * (size() - 1) / size();
  if (!connection_->backend || tensor.numel() == 0) return;
  std::vector<at::Tensor> tensors = {tensor.detach()};
  connection_->collectives += 1;
  guarded(kName, [&] { wait_for(*connection_->backend->allreduce(tensors)); });
}

void Communicator::broadcast(const at::Tensor& tensor, int root) {
  constexpr const char* kName = "broadcast";
  check_tensor(kName, tensor);
  check(root >= 0 && root < size(), kName, "a root in 0..W-1");
  if (rank() == root) traffic_.broadcast_bytes += static_cast<int64_t>(tensor.nbytes()) * (size() - 1);
  if (!connection_->backend || tensor.numel() == 0) return;
  std::vector<at::Tensor> tensors = {bytes_of(tensor)};
  c10d::BroadcastOptions options;
  options.rootRank = root;
  connection_->collectives += 1;
  guarded(kName, [&] { wait_for(*connection_->backend->broadcast(tensors, options)); });
}

void Communicator::all_gather(const at::Tensor& out, const at::Tensor& in) {
  constexpr const char* kName = "all-gather";
  check_tensor(kName, out);
  check_tensor(kName, in);
  check(out.scalar_type() == in.scalar_type(), kName, "tensors of one type");
  check(out.dim() == 1 && in.dim() == 1 && out.numel() == size() * in.numel(), kName, "out: [W k], in: [k]");
  traffic_.all_gather_bytes += static_cast<int64_t>(in.nbytes()) * (size() - 1);
  if (!connection_->backend) {
    out.copy_(in);
    return;
  }
  if (in.numel() == 0) return;
  at::Tensor out_bytes = bytes_of(out);
  at::Tensor in_bytes = bytes_of(in);
  connection_->collectives += 1;
  guarded(kName, [&] { wait_for(*connection_->backend->_allgather_base(out_bytes, in_bytes)); });
}

void Communicator::barrier() {
  if (!connection_->backend && device().is_cpu()) return;
  std::vector<at::Tensor> tensors = {at::ones({1}, at::TensorOptions(at::kLong).device(device()))};
  if (connection_->backend) {
    connection_->collectives += 1;
    guarded("barrier", [&] { wait_for(*connection_->backend->allreduce(tensors)); });
  }
  if (device().is_cuda()) to_host(tensors.front());
}

void Communicator::patient_barrier() {
  if (size() == 1) return;
  const std::string name = fmt::format("barrier {}", ++connection_->collectives);
  guarded("barrier", [&] {
    c10d::Store& store = *connection_->store;
    if (store.add(name, 1) == size()) store.set(name + " is complete", "");
    while (!store.check({name + " is complete"}))
      std::this_thread::sleep_for(kStorePoll);
  });
}

at::Tensor Communicator::to_host(const at::Tensor& tensor) const {
  at::Tensor host = guarded("reading results", [&] { return tensor.cpu(); });
  // Reports failures that occurred while the host waited.
  guarded("reading results", [] {});
  return host;
}

std::vector<std::string> Communicator::all_gather_strings(const std::string& text) {
  const at::Tensor length = at::full({1}, static_cast<int64_t>(text.size()), at::kLong).to(device());
  const at::Tensor device_lengths = at::empty({size()}, length.options());
  all_gather(device_lengths, length);
  const at::Tensor lengths = to_host(device_lengths);
  const int64_t longest = lengths.max().item<int64_t>();

  const at::Tensor own = at::zeros({longest}, at::kByte);
  if (!text.empty()) std::memcpy(own.data_ptr(), text.data(), text.size());
  const at::Tensor device_all = at::empty({size() * longest}, own.options().device(device()));
  all_gather(device_all, own.to(device()));
  const at::Tensor all = to_host(device_all);
  std::vector<std::string> texts;
  for (int r = 0; r < size(); ++r)
    texts.emplace_back(static_cast<const char*>(all.const_data_ptr()) + r * longest,
                       static_cast<size_t>(lengths[r].item<int64_t>()));
  return texts;
}

PhaseScope::PhaseScope(const Communicator& comm, const char* name)
    : PhaseScope(comm.connection_->phase, name) {}

void check_same_everywhere(Communicator& comm, const std::string& what, const std::string& value) {
  const std::vector<std::string> values = comm.all_gather_strings(value);
  std::string different;
  for (size_t r = 1; r < values.size(); ++r)
    if (values[r] != values.front())
      different += (different.empty() ? "" : ", ") + std::to_string(r) + " (" + values[r] + ")";
  if (different.empty()) return;
  throw UsageError(what + " is not the same on all processes: rank 0 has " + values.front() +
                   ", these ranks differ: " + different +
                   ". Start every process with the same configuration file, the same options and the same "
                   "version of sdp-train.");
}

}  // namespace sdp
