#include "run_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "report/run_folder.h"
#include "spec/error.h"
#include "spec/load.h"

namespace sdp {

/// Its warnings are idle: a saved spec sets every key.
ExperimentSpec spec_of(const RunArguments& run) {
  const std::filesystem::path saved = RunFolder{run.run_dir}.spec();
  if (!std::filesystem::exists(saved))
    throw UsageError(
        "--run " + run.run_dir.string() +
        ": expected the folder of a run, which has a spec.yaml. Runs are under output.dir/name.");
  check_run_files(RunFolder{run.run_dir}, /*to_write=*/false);
  constexpr auto kFree =
      std::to_array<std::string_view>({"eval.", "data.path=", "data.index_dir=", "data.loader_threads=",
                                       "data.location=", "data.on_error=", "train.device="});
  for (const std::string& assignment : run.overrides)
    if (std::none_of(kFree.begin(), kFree.end(),
                     [&](std::string_view key) { return assignment.starts_with(key); }))
      throw UsageError(
          fmt::format("--set {}: a finished run is what it is; expected a key of eval, data.path, "
                      "data.index_dir, data.loader_threads, data.location, data.on_error or train.device",
                      assignment));
  return load_spec({saved}, run.overrides, NamedFiles::kNotNeeded).spec;
}

Experiment experiment_of(const ExperimentSpec& spec, const RunArguments& run) {
  return make_experiment(spec, /*processes=*/1, RunFolder{run.run_dir}.plan());
}

}  // namespace sdp
