#pragma once

// The engines of a process: one for all its workers, whose gradients are averaged in every step, or with
// local steps (exchange.every_steps) one for each worker, and the exchange that ends a round.

#include <functional>
#include <memory>
#include <vector>

#include "engine/engine.h"
#include "engine/outer_exchange.h"
#include "experiment/experiment.h"
#include "experiment/local_plan.h"

namespace sdp {

/// Refers to the engines, which must outlive it. Slots are those of the process, in order.
class Engines {
 public:
  // NOLINTNEXTLINE(google-explicit-constructor): a single engine is the usual case
  Engines(Engine& engine) : all_{&engine} {}
  Engines(std::vector<Engine*> of_workers, OuterExchange& outer)
      : all_(std::move(of_workers)), outer_(&outer) {}

  const std::vector<Engine*>& all() const { return all_; }
  /// With local steps; else null.
  OuterExchange* outer() const { return outer_; }
  at::Device device() const { return all_.front()->device(); }

  struct Place {
    Engine* engine = nullptr;
    int local_slot = 0;  ///< in the engine
    Slot slot = {};

    const SlotTensors& tensors() const { return engine->store().slot(local_slot); }
    std::vector<BufferSlice> buffers() const { return engine->store().buffer_slices(local_slot); }
    bool is_last_of_engine() const {
      return local_slot + 1 == static_cast<int>(engine->store().slots().size());
    }
  };
  std::vector<Place> slots() const;

  /// Sets all parameter values. `full(i)` returns parameter i in the full model's shape; it is called for one
  /// parameter at a time.
  void set_values(const std::function<at::Tensor(int parameter)>& full) const;
  // As those of Engine.
  void initialize(uint64_t seed) const;
  void await_all_values() const;
  /// A unit's slice of a parameter; undefined if this process does not store it. With local steps, ask
  /// between rounds only: then all workers have the same values.
  at::Tensor find_slice(int parameter, int unit) const;
  bool has_average() const { return outer_ ? outer_->has_average() : all_.front()->has_average(); }
  void read_average(int parameter, int unit, const at::Tensor& flat) const;
  ExchangeTotals reduce_totals() const;
  ExchangeTotals gather_totals() const;

  /// As those of Engine. With local steps each worker's own values are part of the state only within a round.
  std::vector<StateRange> owned_state() const;
  void load_state(const std::function<void(const StateRange& range)>& read) const;
  void set_step_count(int64_t step_count) const;

 private:
  std::vector<Engine*> all_;
  OuterExchange* outer_ = nullptr;
};

/// Owns the engines of a run's process.
class OwnedEngines {
 public:
  OwnedEngines(const Experiment& experiment, Communicator& comm);
  ~OwnedEngines();
  Engines engines() const;

 private:
  std::unique_ptr<Communicator> alone_;  ///< of the engines of single workers
  std::vector<std::unique_ptr<const LocalPlan>> plans_;
  std::vector<std::unique_ptr<Engine>> engines_;
  std::unique_ptr<const ExchangePlan> outer_plan_;
  std::unique_ptr<OuterExchange> outer_;
};

}  // namespace sdp
