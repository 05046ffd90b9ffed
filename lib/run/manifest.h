#pragma once

// manifest.json of a checkpoint: its contents and its origin. It is written last, so that a folder with a
// manifest is a complete checkpoint.
//
// Its last key, xxh3_128, is the XXH3-128 hash of the file itself, computed with zeros in place of these 32
// digits: a change of any byte is detected.

#include <cstdint>
#include <string>
#include <vector>

#include "data/data_identity.h"
#include "experiment/step_origin.h"
#include "spec/field.h"

namespace sdp {

struct ManifestFile {
  std::string name;  ///< within the checkpoint's folder
  int64_t bytes = 0;
  std::string xxh3_128;

  bool operator==(const ManifestFile&) const = default;

  template <class Visitor>
  static void fields(Visitor& field) {
    field("name", &ManifestFile::name);
    field("bytes", &ManifestFile::bytes, at_least(0));
    field("xxh3_128", &ManifestFile::xxh3_128);
  }
};

struct Manifest {
  int64_t step = 0;                ///< steps of the run, including skipped ones
  int64_t updates = 0;             ///< optimizer updates: step - skipped_steps
  int64_t skipped_steps = 0;       ///< train.on_nonfinite: skip
  int64_t batch_norm_updates = 0;  ///< torchvision's num_batches_tracked
  StepOrigin origin = {};
  int64_t metrics_lines = 0;  ///< lines of metrics.jsonl when this checkpoint was saved
  DataIdentity training_data = {};
  DataIdentity test_data = {};
  int64_t workers = 1;
  int64_t replicas = 1;
  int64_t processes = 1;
  int64_t threads = 0;  ///< per process; 0: an imported model
  std::string plan_hash = {};
  std::string libtorch_version = {};
  std::string program_version = {};
  /// The processes' files in rank order, then all others.
  std::vector<ManifestFile> files = {};

  bool operator==(const Manifest&) const = default;

  /// All keys between the format version and the file's own hash.
  template <class Visitor>
  static void fields(Visitor& field) {
    field("step", &Manifest::step, at_least(0));
    field("updates", &Manifest::updates, at_least(0));
    field("skipped_steps", &Manifest::skipped_steps, at_least(0));
    field("batch_norm_updates", &Manifest::batch_norm_updates, at_least(0));
    field("origin", &Manifest::origin);
    field("metrics_lines", &Manifest::metrics_lines, at_least(0));
    field("training_data", &Manifest::training_data);
    field("test_data", &Manifest::test_data);
    field("workers", &Manifest::workers, at_least(0));
    field("replicas", &Manifest::replicas, at_least(0));
    field("processes", &Manifest::processes, at_least(0));
    field("threads", &Manifest::threads, at_least(0));
    field("plan_hash", &Manifest::plan_hash);
    field("libtorch_version", &Manifest::libtorch_version);
    field("program_version", &Manifest::program_version);
    field("files", &Manifest::files);
  }
};

std::string manifest_text(const Manifest& manifest);

/// Throws DataError, prefixed with `where`, for text that is not JSON, another format version, a wrong hash,
/// a missing key, a value of the wrong type or out of range, a file name that leaves the folder, and numbers
/// that contradict each other (check_numbers).
Manifest parse_manifest(const std::string& text, const std::string& where);

/// Throws DataError, prefixed with `where`, unless the numbers are consistent: updates and skipped steps add
/// up to the steps, the processes can run the workers and replicas, and there is a file per process.
void check_numbers(const Manifest& manifest, const std::string& where);

/// Name of a process's file: process-00000-of-00004.safetensors.
std::string process_file_name(int64_t process, int64_t processes);

}  // namespace sdp
