#pragma once

// Checks the collectives that training uses against plain sums, and measures their rates.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "doctor/finding.h"

namespace sdp {

/// The Communicator's functions to check. Each behaves as documented there and has finished on return.
struct ExchangeCalls {
  std::function<void(const at::Tensor& recv, const at::Tensor& send, const std::vector<int64_t>& recv_splits,
                     const std::vector<int64_t>& send_splits)>
      all_to_all;
  std::function<void(const at::Tensor& tensor)> all_reduce_sum;
  std::function<void(const at::Tensor& tensor, int root)> broadcast;
  std::function<void(const at::Tensor& out, const at::Tensor& in)> all_gather;
};
ExchangeCalls calls_of(Communicator& comm);

/// Collective. Exchanges integers that every type represents exactly, with splits that differ between ranks
/// and are partly zero, and compares the results with what each rank computes by itself.
Finding check_exchange(const ExchangeCalls& calls, int rank, int size, at::Device device);

/// Rates at which a process sends to others in an all-to-all with equal splits: to the other processes of its
/// host, and to those of other hosts. 0: there are none.
struct LinkRates {
  double inside_bytes_per_s = 0;
  double between_bytes_per_s = 0;
};

/// Collective. `hosts`: the hosts of all ranks.
LinkRates measure_links(Communicator& comm, const std::vector<std::string>& hosts);

}  // namespace sdp
