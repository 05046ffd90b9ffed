#include "engine/engines.h"

#include "layers/tensors.h"

namespace sdp {

std::vector<Engines::Place> Engines::slots() const {
  std::vector<Place> places;
  for (Engine* engine : all_)
    for (const Slot& slot : engine->store().slots())
      places.push_back({engine, static_cast<int>(&slot - engine->store().slots().data()), slot});
  return places;
}

void Engines::set_values(const std::function<at::Tensor(int parameter)>& full) const {
  for (int p = 0; p < static_cast<int>(all_.front()->layout().parameters.size()); ++p) {
    const at::Tensor values = full(p);
    for (Engine* engine : all_)
      engine->set_parameter(p, values);
  }
  if (outer_) outer_->set_anchors();
}

void Engines::initialize(uint64_t seed) const {
  set_values([&](int parameter) {
    return draw_parameter(all_.front()->layout().parameters[static_cast<size_t>(parameter)], seed);
  });
}

void Engines::await_all_values() const {
  for (Engine* engine : all_)
    engine->await_all_values();
}

at::Tensor Engines::find_slice(int parameter, int unit) const {
  for (const Engine* engine : all_)
    if (engine->store().slices().contains({parameter, unit})) return engine->store().slice(parameter, unit);
  return {};
}

void Engines::read_average(int parameter, int unit, const at::Tensor& flat) const {
  if (outer_)
    outer_->read_average(parameter, unit, flat);
  else
    all_.front()->read_average(parameter, unit, flat);
}

ExchangeTotals Engines::reduce_totals() const {
  return outer_ ? outer_->reduce_totals() : all_.front()->reduce_totals();
}

ExchangeTotals Engines::gather_totals() const {
  return outer_ ? outer_->gather_totals() : all_.front()->gather_totals();
}

std::vector<StateRange> Engines::owned_state() const {
  if (!outer_) return all_.front()->owned_state();
  std::vector<StateRange> state = outer_->owned_state();
  for (Engine* engine : all_)
    for (StateRange& range : engine->owned_state(/*with_values=*/!outer_->is_between_rounds())) {
      range.worker = engine->store().slots().front().worker;
      state.push_back(std::move(range));
    }
  return state;
}

void Engines::load_state(const std::function<void(const StateRange& range)>& read) const {
  if (outer_) outer_->load_state(read);
  for (Engine* engine : all_)
    engine->load_state([&](StateRange range) {
      if (outer_) range.worker = engine->store().slots().front().worker;
      read(range);
    });
}

void Engines::set_step_count(int64_t step_count) const {
  for (Engine* engine : all_)
    engine->set_step_count(step_count);
}

OwnedEngines::OwnedEngines(const Experiment& experiment, Communicator& comm) {
  if (!experiment.spec.exchange.is_local()) {
    engines_.push_back(
        std::make_unique<Engine>(experiment.plan, experiment.exchanges, experiment.spec.optimizer, comm));
    return;
  }
  alone_ = connect(Ranks(), comm.device(), {.backend = BackendKind::kGloo});
  const auto& [spec, plan_of_all, exchanges, nodes] = experiment;
  std::vector<Engine*> all;
  for (const int worker : exchanges.slot_map.workers_of(comm.rank())) {
    const LocalPlan& plan = *plans_.emplace_back(
        std::make_unique<const LocalPlan>(local_plan(spec.optimizer, plan_of_all, exchanges, worker)));
    all.push_back(
        engines_.emplace_back(std::make_unique<Engine>(plan.plan, plan.exchanges, plan.optimizer, *alone_))
            .get());
  }
  outer_plan_ = std::make_unique<const ExchangePlan>(outer_exchanges(plan_of_all, exchanges));
  outer_ = std::make_unique<OuterExchange>(plan_of_all, *outer_plan_, spec.exchange, spec.optimizer.ema_decay,
                                           all, comm);
}

OwnedEngines::~OwnedEngines() = default;

Engines OwnedEngines::engines() const {
  if (!outer_) return *engines_.front();
  std::vector<Engine*> all;
  for (const auto& engine : engines_)
    all.push_back(engine.get());
  return {std::move(all), *outer_};
}

}  // namespace sdp
