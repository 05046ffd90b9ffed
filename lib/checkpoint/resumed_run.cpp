#include "checkpoint/resumed_run.h"

#include <fmt/format.h>

#include "experiment/spec/load.h"
#include "spec/error.h"

namespace sdp {

bool finds_checkpoint(const std::filesystem::path& run_dir, Resume resume) {
  if (resume == Resume::kNo) return false;
  const CheckpointStore store(run_dir);
  if (store.latest_step()) return true;
  if (!store.steps().empty())
    throw DataError(
        fmt::format("{}: none of the checkpoints is complete. Restore the missing files, or "
                    "remove the checkpoints and start the run with --resume=if-any.",
                    run_dir.string()));
  if (resume == Resume::kIfAny) return false;
  throw UsageError(
      fmt::format("--resume: there is no checkpoint in the run folder {}. Start the run without --resume, or "
                  "with --resume=if-any, which starts from the beginning if there is none.",
                  run_dir.string()));
}

SavedRun read_saved_run(const CheckpointStore& store, int64_t step) {
  SavedRun saved{.spec = load_saved_spec(store.verified_file(step, kSavedSpec)), .history = new_history()};
  if (store.has_file(step, kSavedHistory))
    saved.history = read_history(store.verified_file(step, kSavedHistory)).value();
  return saved;
}

}  // namespace sdp
