// Begins and ends exchanges in the order that subnet/exchange_order.h determines.

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <utility>

#include "engine/bucket_state.h"

namespace sdp {

void Engine::run(const ExchangeEvents& events) {
  const at::NoGradGuard no_grad;
  for (const ExchangeEvent& event : events) {
    const PhaseScope phase(comm_, event.kind == ExchangeKind::kGatherValues ? "gather" : "reduce");
    if (event.what == ExchangeEvent::What::kBegin) {
      in_flight_.push_back(event.kind == ExchangeKind::kReduceGradients
                               ? begin_reduce(event.bucket)
                               : begin_gather(event.bucket, event.kind));
      continue;
    }
    const auto flight = std::find_if(in_flight_.begin(), in_flight_.end(), [&](const InFlight& candidate) {
      return candidate.kind == event.kind && candidate.bucket == event.bucket;
    });
    InFlight ended = std::move(*flight);
    in_flight_.erase(flight);
    end(std::move(ended));
  }
}

void Engine::end(InFlight flight) {
  clock_of(flight.kind).wait(std::move(flight.start), flight.pending);
  switch (flight.kind) {
    case ExchangeKind::kReduceGradients:
      return finish_reduce(flight);
    case ExchangeKind::kGatherGradients:
      return finish_gradients(flight);
    case ExchangeKind::kGatherValues:
      return finish_values(flight);
  }
}

ExchangeClock& Engine::clock_of(ExchangeKind kind) {
  return kind == ExchangeKind::kGatherValues ? gather_clock_ : reduce_clock_;
}

Engine::InFlight Engine::prepare(int bucket, ExchangeKind kind) const {
  const Exchange exchange(schedule_, bucket, kind);
  InFlight flight;
  flight.bucket = bucket;
  flight.kind = kind;
  int64_t sent = 0;
  int64_t received = 0;
  for (int other = 0; other < comm_.size(); ++other) {
    sent += flight.send_splits.emplace_back(exchange.elements(comm_.rank(), other));
    received += flight.receive_splits.emplace_back(exchange.elements(other, comm_.rank()));
  }
  const at::TensorOptions wire = at::TensorOptions(scalar_type(exchange.type())).device(comm_.device());
  flight.send = at::empty({sent}, wire);
  flight.receive = at::empty({received}, wire);
  return flight;
}

void Engine::send_off(InFlight& flight) {
  flight.start = clock_of(flight.kind).start(static_cast<int64_t>(flight.send.nbytes()));
  flight.pending = comm_.all_to_all(flight.receive, flight.send, flight.receive_splits, flight.send_splits);
}

}  // namespace sdp
