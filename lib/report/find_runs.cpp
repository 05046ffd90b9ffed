#include "report/find_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "experiment/spec/regime.h"
#include "io/file.h"
#include "io/listing.h"
#include "spec/error.h"
#include "telemetry/run_folder.h"

namespace sdp {
namespace {

namespace fs = std::filesystem;

/// Labels of run folders by canonical path.
using Labels = std::map<fs::path, std::string>;

class Search {
 public:
  /// Returns the number of run folders, including those already known.
  int visit(const fs::path& folder) {
    const fs::path canonical = fs::weakly_canonical(folder);
    if (!above_.insert(canonical).second) return 0;  // a link to a parent folder
    int found = 0;
    if (fs::exists(RunFolder{folder}.spec())) {
      found = 1;
      if (known_.insert(canonical).second) folders_.push_back(folder);
    } else {
      read_sweep(folder);
      for (const FolderEntry& entry : list_folder(folder))
        if (entry.is_folder) found += visit(folder / entry.name);
    }
    above_.erase(canonical);
    return found;
  }

  FoundRuns read() const {
    FoundRuns found;
    for (const fs::path& folder : folders_) {
      try {
        found.runs.push_back(read_run(folder));
      } catch (const Error& error) {
        found.unreadable.push_back({folder, error.what()});
        continue;
      }
      if (const auto label = labels_.find(fs::weakly_canonical(folder)); label != labels_.end())
        add_label(found.runs.back(), label->second);
    }
    set_copies_apart(found);
    return found;
  }

 private:
  static bool is_further(const Run& run, const Run& other) {
    return std::pair(run.is_finished(), run.step()) > std::pair(other.is_finished(), other.step());
  }

  /// A copy that was continued separately has other changes, and counts as a run of its own.
  static void set_copies_apart(FoundRuns& found) {
    std::vector<Run> counted;
    for (Run& run : found.runs) {
      const auto same = std::find_if(counted.begin(), counted.end(), [&](const Run& other) {
        return !run.history.id.empty() && run.history.id == other.history.id &&
               run.history.changes == other.history.changes;
      });
      if (same == counted.end()) {
        counted.push_back(std::move(run));
        continue;
      }
      if (is_further(run, *same)) std::swap(run, *same);
      for (CopiedRun& copy : found.copies)
        if (copy.counted == run.dir) copy.counted = same->dir;
      found.copies.push_back({.dir = run.dir, .counted = same->dir});
    }
    found.runs = std::move(counted);
  }

  static void add_label(Run& run, const std::string& label) {
    if (const auto method = contradicted_method(label, run.spec))
      throw UsageError(fmt::format(
          "{}: the label '{}' in its sweep.json says {}, but the run is {} ({}). Change the label there, "
          "or leave the run out.",
          run.dir.string(), label, *method, method_of(run.spec), method_settings(run.spec)));
    run.sweep_label = label;
  }

  void read_sweep(const fs::path& folder) {
    const fs::path path = folder / "sweep.json";
    if (!fs::exists(path)) return;
    const std::string text = read_text(path);
    try {
      const nlohmann::json sweep = nlohmann::json::parse(text);
      for (const auto& run : sweep.at("runs")) {
        const fs::path named = run.at("folder").get<std::string>();
        const fs::path of_run = fs::exists(folder / named) ? folder / named : named;
        labels_[fs::weakly_canonical(of_run)] = run.value("label", "");
      }
    } catch (const nlohmann::json::exception& error) {
      throw DataError(fmt::format("{}: not a list of runs, each with folder and label ({})", path.string(),
                                  error.what()));
    }
  }

  std::vector<fs::path> folders_;
  std::set<fs::path> known_;
  std::set<fs::path> above_;
  Labels labels_;
};

}  // namespace

FoundRuns find_runs(const std::vector<fs::path>& paths) {
  Search search;
  for (const fs::path& path : paths) {
    if (!fs::is_directory(path))
      throw UsageError(
          fmt::format("{}: expected a run folder or a folder that contains some; there is no such folder",
                      path.string()));
    if (search.visit(path) == 0)
      throw UsageError(
          fmt::format("{}: contains no run. A run folder has a spec.yaml; runs are under "
                      "output.dir/name.",
                      path.string()));
  }
  return search.read();
}

}  // namespace sdp
