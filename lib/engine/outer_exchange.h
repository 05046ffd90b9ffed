#pragma once

// The exchange that ends a round of local steps (exchange.every_steps). Every worker k has values of its own,
// theta_k, of the units that it owns; the anchor Theta is the same on all. With the outer learning rate eta
// and momentum mu, an exchange does the following for each unit with owners S_u (DiLoCo, arXiv 2311.08105,
// algorithm 1, for parts of a model):
//
//   Delta = mean over k in S_u of Theta - theta_k
//   B     = mu B + Delta
//   Theta = Theta - eta (Delta + mu B) with Nesterov momentum, else Theta - eta B
//   theta_k = Theta, for all owners; frozen copies of other workers too
//
// The mean is a reduce-scatter to the holders of the unit, each of which has a shard of B; new anchors return
// by an all-gather. Both are in the sum type. Means are summed in the order of workers, so the number of
// processes does not change a bit: a process sends a message for each of its workers.

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "engine/clocks.h"
#include "engine/engine.h"
#include "experiment/exchange_spec.h"
#include "subnet/exchange_plan.h"

namespace sdp {

/// The state tensor B.
inline constexpr const char* kOuterMomentumName = "outer_momentum";

class OuterExchange {
 public:
  /// `exchanges`: outer_exchanges(). `engines`: of this process's workers, in their order. Everything must
  /// outlive it.
  OuterExchange(const SubnetPlan& plan, const ExchangePlan& exchanges, const ExchangeSpec& spec,
                double ema_decay, const std::vector<Engine*>& engines, Communicator& comm);
  ~OuterExchange();

  /// Begins with the engines' values, which must be equal on all owners, as anchors.
  void set_anchors();
  /// Ends the round. Collective.
  void run();
  /// Whether no step has followed the last exchange, so that all values are those of the anchors.
  bool is_between_rounds() const { return is_between_rounds_; }
  /// Call this before a step.
  void begin_round() { is_between_rounds_ = false; }

  /// Of the last exchange, on this process's device: the sums of squares of Theta - theta_k over its workers,
  /// and of Delta and the update of Theta over its shards. [3], fp64.
  const at::Tensor& squares() const { return squares_; }

  const ExchangeTotals& reduce_totals() { return reduce_clock_.totals(); }
  const ExchangeTotals& gather_totals() { return gather_clock_.totals(); }

  bool has_average() const { return ema_decay_ > 0; }
  // As those of Engine. The moving average is that of the anchors, beginning with the first ones.
  void read_average(int parameter, int unit, const at::Tensor& flat) const;
  std::vector<StateRange> owned_state() const;
  void load_state(const std::function<void(const StateRange& range)>& read);

 private:
  class Bucket;

  const ExchangeSpec spec_;
  const double ema_decay_;
  const std::vector<std::string> inner_states_;
  Communicator& comm_;
  ExchangeClock reduce_clock_;
  ExchangeClock gather_clock_;
  std::vector<std::unique_ptr<Bucket>> buckets_;
  at::Tensor squares_;
  bool is_between_rounds_ = true;
};

}  // namespace sdp
