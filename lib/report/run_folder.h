#pragma once

#include <filesystem>
#include <string>

namespace sdp {

/// The folder of a run and the names in it. Checkpoints are checkpoint/store.h's.
struct RunFolder {
  std::filesystem::path dir;

  std::filesystem::path spec() const { return dir / "spec.yaml"; }
  std::filesystem::path plan() const { return dir / "plan.json"; }
  std::filesystem::path metrics() const { return dir / "metrics.jsonl"; }
  std::filesystem::path trace() const { return dir / "trace.jsonl"; }
  std::filesystem::path profile(int rank) const {
    return dir / ("profile-rank-" + std::to_string(rank) + ".json");
  }
  std::filesystem::path log() const { return dir / "log.txt"; }
  /// What a run printed that a sweep started without a terminal.
  std::filesystem::path output() const { return dir / "output.txt"; }
  std::filesystem::path summary() const { return dir / "summary.json"; }
};

/// Makes output_dir/name. One that has metrics or checkpoints is refused without `resume`; with it, it is
/// taken as it is, or made. Throws UsageError: it exists, the name is not that of a folder, or it cannot be
/// made. For one process; the others use RunFolder{dir}.
RunFolder create_run_folder(const std::filesystem::path& output_dir, const std::string& name, bool resume);

}  // namespace sdp
