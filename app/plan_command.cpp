#include <cstdio>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "spec/load.h"
#include "spec/print.h"
#include "subnet/plan_json.h"
#include "train/run_text.h"

namespace sdp {

int plan_command(const PlanArguments& arguments) {
  const LoadedSpec loaded =
      load_spec(arguments.spec.configs, arguments.spec.overrides, NamedFiles::kNotNeeded);
  const SubnetworkSpec& subnetwork = loaded.spec.subnetwork;
  const Experiment experiment =
      make_experiment(loaded.spec, arguments.processes.value_or(subnetwork.workers * subnetwork.replicas),
                      /*saved_plan=*/std::nullopt, arguments.processes_per_node);
  const std::string text =
      arguments.json
          ? plan_json(experiment.plan, experiment.schedule, experiment.nodes, experiment.spec).dump(2) + "\n"
          : describe_plan(experiment);
  std::fputs(text.c_str(), stdout);
  return 0;
}

int spec_command(bool schema) {
  std::fputs((schema ? json_schema() + "\n" : describe_fields()).c_str(), stdout);
  return 0;
}

}  // namespace sdp
