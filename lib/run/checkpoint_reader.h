#pragma once

// Reads the state of a run from a checkpoint's files. State is found by parameter and elements, so that it
// can be read by another number of processes and by another plan of the same model.

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "io/on_progress.h"
#include "io/safetensors.h"
#include "run/checkpoint_store.h"
#include "run/checkpoint_tensors.h"
#include "run/state_matrix.h"

namespace sdp {

/// A checkpoint's files, memory-mapped. Any process can read any range.
class CheckpointReader {
 public:
  /// Opens the newest checkpoint of the run folder, or that of `step`. Throws DataError if there is none or
  /// it is damaged. `on_progress` reports the verification of hashes.
  CheckpointReader(const std::filesystem::path& run_dir, std::optional<int64_t> step, bool verify_hashes,
                   const OnProgress& on_progress = ignore_progress);

  const Manifest& manifest() const { return manifest_; }
  const std::filesystem::path& folder() const { return folder_; }
  /// Step and content, to compare between processes.
  std::string identity() const;
  /// Fills `range.values` (flat, any type and device). `plan` says which elements the range has; the
  /// checkpoint may be of another plan. Throws DataError if elements are missing or not finite.
  void read(const SubnetPlan& plan, const StateRange& range) const;
  /// The same as the mean over the workers, in any plan, that have elements of the range as their own state.
  void read_mean(const SubnetPlan& plan, const StateRange& range) const;
  /// Whether there is state of this kind (kind_of).
  bool has(const std::string& kind) const;
  /// A unit's part of one slot's BatchNorm buffer, flat, by the checkpoint's own plan. Throws DataError if it
  /// is not there or not finite.
  at::Tensor buffer(const SubnetPlan& plan, int buffer, int unit, Slot slot) const;

 private:
  struct SavedRange {
    int64_t hidden_begin = 0;
    int64_t hidden_end = 0;
    int64_t begin = 0;
    int64_t end = 0;
    const TensorView* view = nullptr;
  };
  /// Returns the number of elements that are missing.
  template <class Visit>
  int64_t visit_overlaps(const SubnetPlan& plan, const StateRange& range, Visit visit) const;
  void require_finite(const at::Tensor& values, const std::string& name) const;
  void index_file(int process);

  std::filesystem::path folder_;
  Manifest manifest_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::pair<std::string, std::string>, std::vector<SavedRange>> ranges_;  ///< by kind and parameter
  std::map<std::pair<StateKey, Slot>, const TensorView*> buffers_;                 ///< kind "buffer"
};

}  // namespace sdp
