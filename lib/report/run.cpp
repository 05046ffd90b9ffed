#include "report/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "experiment/spec/load.h"
#include "io/file.h"
#include "io/lines.h"
#include "spec/error.h"
#include "telemetry/run_folder.h"

namespace sdp {
namespace {

using nlohmann::json;

/// A number that JSON may not have: null and a key that is not there are NaN.
double number(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return std::numeric_limits<double>::quiet_NaN();
  return found->get<double>();
}

/// The same of a list; none where there is no such key.
std::vector<double> numbers(const json& object, const char* key) {
  std::vector<double> values;
  for (const json& value : object.value(key, json::array()))
    values.push_back(value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>());
  return values;
}

template <class T>
std::vector<T> list(const json& object, const char* group, const char* key) {
  const auto found = object.find(group);
  return found == object.end() ? std::vector<T>{} : found->value(key, std::vector<T>{});
}

TrainRecord train_record(const json& line) {
  TrainRecord record;
  record.step = line.at("step").get<int64_t>();
  record.epoch = number(line, "epoch");
  record.loss = number(line, "loss");
  record.samples_per_s = number(line, "samples_per_s");
  record.step_ms = number(line, "step_ms");
  record.peak_process_memory_bytes = line.value("peak_process_memory_bytes", int64_t{0});
  record.peak_tensor_memory_bytes = line.value("peak_tensor_memory_bytes", int64_t{0});
  record.exchange.reduce_bytes = list<int64_t>(line, "exchange", "reduce_bytes");
  record.exchange.publish_bytes = list<int64_t>(line, "exchange", "publish_bytes");
  record.memory = {.activations_bytes = list<int64_t>(line, "memory", "activations_bytes"),
                   .weights_bytes = list<int64_t>(line, "memory", "weights_bytes"),
                   .gradients_bytes = list<int64_t>(line, "memory", "gradients_bytes"),
                   .optimizer_bytes = list<int64_t>(line, "memory", "optimizer_bytes"),
                   .buckets_bytes = list<int64_t>(line, "memory", "buckets_bytes")};
  return record;
}

EvalRecord eval_record(const json& line) {
  EvalRecord record;
  record.step = line.at("step").get<int64_t>();
  record.loss = number(line, "loss");
  record.accuracy = number(line, "accuracy");
  if (line.contains("loss_uncorrected")) record.loss_uncorrected = number(line, "loss_uncorrected");
  if (line.contains("accuracy_uncorrected"))
    record.accuracy_uncorrected = number(line, "accuracy_uncorrected");
  record.subnetwork_loss = numbers(line, "subnetwork_loss");
  record.subnetwork_accuracy = numbers(line, "subnetwork_accuracy");
  return record;
}

/// Lines of other kinds are left to who knows them.
void add_line(Run& run, const json& line) {
  const auto kind = line.at("kind").get<std::string>();
  if (kind == "train") run.train.push_back(train_record(line));
  if (kind == "eval") run.evals.push_back(eval_record(line));
}

void read_metrics(Run& run, const std::filesystem::path& path) {
  for_each_line(path, [&](int64_t number, const std::string& line, bool is_whole) {
    if (!is_whole) return;  // it is being written, or was cut short
    try {
      add_line(run, json::parse(line));
    } catch (const json::exception& error) {
      throw DataError(
          fmt::format("{}, line {}: not a line of metrics ({}). Delete that line, or leave the run out.",
                      path.string(), number, error.what()));
    }
  });
}

PlanFigures read_plan(const std::filesystem::path& path) {
  const std::string text = read_text(path);
  try {
    PlanFigures plan = figures_from_json(text);
    // What divides by them does not look again.
    if (plan.workers < 1 || plan.owners_per_unit < 1 || plan.processes < 1 || plan.flops_share <= 0 ||
        plan.per_worker.empty())
      throw std::invalid_argument("it has no workers, owners, processes or FLOPs");
    return plan;
  } catch (const std::exception& error) {
    throw DataError(fmt::format("{}: not what sdp-train writes there ({})", path.string(), error.what()));
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
