#include "train/run_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "report/units.h"

namespace sdp {

std::string describe(const EvalRecord& record) {
  std::string text = fmt::format("step {}: assembled full model: accuracy {}, loss {:.4f}", record.step,
                                 format_percent(record.accuracy), record.loss);
  if (record.accuracy_uncorrected)
    text += fmt::format(" (uncorrected: {}, {:.4f})", format_percent(*record.accuracy_uncorrected),
                        *record.loss_uncorrected);
  if (!record.subnetwork_accuracy.empty()) {
    const auto [low, high] =
        std::minmax_element(record.subnetwork_accuracy.begin(), record.subnetwork_accuracy.end());
    text += fmt::format("; single subnetworks {} to {}", format_percent(*low), format_percent(*high));
  }
  if (record.skipped_samples > 0) text += fmt::format("; without {} damaged images", record.skipped_samples);
  return text;
}

std::string describe_start(const Experiment& experiment, const std::string& device) {
  const SubnetPlan& plan = experiment.plan;
  const Placement& placement = experiment.schedule.placement;
  const NodeMap& nodes = experiment.nodes;
  const std::string on_nodes = nodes.nodes() == 1
                                   ? ""
                                   : fmt::format(", {} nodes of {} (placement {}),", nodes.nodes(),
                                                 nodes.processes_per_node, name_of(nodes.placement));
  return fmt::format(
      "{}: {} parameters, {} workers of coverage {}/{} ({} construction, {} masking), {} FLOPs of the full "
      "model\n"
      "{} process{}{} on {}, {} worker{} each, {} replica{}, {}",
      plan.layout.name, format_count(static_cast<double>(plan.layout.parameter_count())), plan.workers,
      plan.owners_per_unit, plan.workers, name_of(plan.construction), name_of(plan.masking),
      format_percent(flops_share(plan)), placement.processes, placement.processes == 1 ? "" : "es", on_nodes,
      device, placement.slots_per_process(), placement.slots_per_process() == 1 ? "" : "s",
      placement.replicas, placement.replicas == 1 ? "" : "s", name_of(experiment.spec.train.precision));
}

std::string describe_length(const Experiment& experiment, const RunSteps& steps) {
  const TrainSpec& train = experiment.spec.train;
  std::string text = fmt::format("{} steps of {} samples, {:.4g} epochs", steps.length.total_steps,
                                 steps.samples_per_step, steps.epochs);
  if (!train.max_steps && train.budget != Budget::kEpochs)
    text += fmt::format(" (budget {}: {:.4g} times {:.4g})", name_of(train.budget),
                        steps.epochs / train.epochs, train.epochs);
  return text;
}

}  // namespace sdp
