#include "comm/connect_beside.h"

#include <fmt/format.h>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "comm/connection.h"
#include "spec/error.h"

namespace sdp {

std::unique_ptr<Communicator> connect_beside(const Communicator& met, const Ranks& ranks, at::Device device,
                                             std::chrono::milliseconds timeout) {
  const auto store = c10::make_intrusive<c10d::PrefixStore>("beside", met.connection_->store);
  try {
    return std::make_unique<Communicator>(connect_over(store, {.rank = met.rank(),
                                                               .size = met.size(),
                                                               .device = device,
                                                               .timeout = timeout,
                                                               .single_host = ranks.single_host,
                                                               .master_address = ranks.master_address,
                                                               .is_process = false}));
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    if (!may_come_from_peers(error, met.size())) throw;
    throw PeerLostError(fmt::format("Rank {} could not connect its device to the other ranks' devices: {}",
                                    met.rank(), readable_part(error)));
  }
}

}  // namespace sdp
