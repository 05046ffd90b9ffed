#include "report/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "experiment/spec/load.h"
#include "io/file.h"
#include "spec/error.h"
#include "telemetry/run_folder.h"

namespace sdp {
namespace {

using nlohmann::json;

void read_metrics(Run& run, const std::filesystem::path& path) {
  for_each_record(path, "Delete that line, or leave the run out.", [&](const MetricsRecord& record) {
    if (const auto* const train = std::get_if<TrainRecord>(&record)) run.train.push_back(*train);
    if (const auto* const eval = std::get_if<EvalRecord>(&record)) run.evals.push_back(*eval);
  });
}

PlanFigures read_plan(const std::filesystem::path& path) {
  const std::string text = read_text(path);
  try {
    PlanFigures plan = figures_from_json(text);
    // Later code divides by them without a check.
    if (plan.workers < 1 || plan.owners_per_unit < 1 || plan.processes < 1 || plan.flops_share <= 0 ||
        plan.per_worker.empty())
      throw std::invalid_argument("it has no workers, owners, processes or FLOPs");
    return plan;
  } catch (const std::exception& error) {
    throw DataError(fmt::format("{}: not written by sdp-train ({})", path.string(), error.what()));
  }
}

}  // namespace

int64_t Run::step() const {
  return std::max(train.empty() ? 0 : train.back().step, evals.empty() ? 0 : evals.back().step);
}

std::optional<int64_t> Run::total_steps() const {
  if (is_finished()) return end->total_steps;
  if (spec.train.max_steps) return spec.train.max_steps;
  if (epochs_per_step() <= 0) return std::nullopt;
  double epochs = spec.train.epochs;
  if (spec.train.budget == Budget::kFlops) epochs /= plan.flops_share;
  if (spec.train.budget == Budget::kCoverage)
    epochs *= static_cast<double>(plan.workers) / static_cast<double>(plan.owners_per_unit);
  return std::max<int64_t>(1, std::llround(epochs / epochs_per_step()));
}

int64_t Run::samples_per_step() const {
  return spec.train.batch_size_per_worker * spec.train.accumulate_steps * plan.workers *
         spec.subnetwork.replicas;
}

double Run::flops_per_step() const {
  double all_workers = 0;
  for (const ProcessFigures& worker : plan.per_worker)
    all_workers += worker.flops_per_sample;
  return static_cast<double>(spec.train.batch_size_per_worker * spec.train.accumulate_steps *
                             spec.subnetwork.replicas) *
         all_workers;
}

double Run::epochs_per_step() const {
  if (train.empty() || train.back().step == 0 || !std::isfinite(train.back().epoch)) return 0;
  return train.back().epoch / static_cast<double>(train.back().step);
}

Run read_run(const std::filesystem::path& dir) {
  const RunFolder folder{dir};
  check_run_files(folder, /*to_write=*/false);
  Run run{.dir = dir, .spec = load_saved_spec(folder.spec())};
  run.history = read_history(folder.history()).value_or(RunHistory{});
  run.plan = read_plan(folder.plan());
  read_metrics(run, folder.metrics());
  run.end = read_summary(folder.summary());
  return run;
}

}  // namespace sdp
