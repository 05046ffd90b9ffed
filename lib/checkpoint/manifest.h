#pragma once

// manifest.json of a checkpoint: what it holds and what made it. It is written last, so that a folder with a
// manifest is a complete checkpoint.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace sdp {

inline constexpr int kManifestVersion = 2;

struct ManifestFile {
  std::string name;  ///< within the checkpoint's folder
  int64_t bytes = 0;
  std::string xxh3_128;

  bool operator==(const ManifestFile&) const = default;
};

struct Manifest {
  int format_version = kManifestVersion;
  int64_t step = 0;
  std::vector<ManifestFile> files;
  std::string plan_hash;
  std::string spec_hash;
  int64_t workers = 0;
  int64_t replicas = 0;
  int64_t processes = 0;
  int64_t threads = 0;
  std::string libtorch_version;
  std::string program_version;
  nlohmann::ordered_json state =
      nlohmann::ordered_json::object();  ///< the loop's own: sample position and the like

  bool operator==(const Manifest&) const = default;
};

std::string manifest_text(const Manifest& manifest);

/// Throws DataError that starts with `where` and says what is missing or wrong: text that is not JSON, an
/// unknown format version, a missing key, a value of another type, a file name that leaves the folder.
Manifest parse_manifest(const std::string& text, const std::string& where);

/// Name of a process's file: process-00000-of-00004.safetensors.
std::string process_file_name(int64_t process, int64_t processes);

}  // namespace sdp
