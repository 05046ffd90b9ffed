#include "run/manifest.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string_view>
#include <tuple>

#include "spec/error.h"
#include "spec/hash.h"
#include "spec/json_fields.h"

namespace sdp {
namespace {

using nlohmann::ordered_json;

/// Before version 5, weights of convolutions were stored in row-major order.
constexpr int kManifestVersion = 5;
constexpr const char* kOwnHash = "xxh3_128";
constexpr size_t kHashDigits = 32;

/// The text with the last `hash` in it, its own, replaced by zeros.
std::string without_own_hash(std::string text, std::string_view hash) {
  const size_t at = text.rfind(hash);
  if (at != std::string::npos) text.replace(at, hash.size(), hash.size(), '0');
  return text;
}

void check_version(const ordered_json& json, const std::string& where) {
  const ordered_json version = json.contains("format_version") ? json["format_version"] : ordered_json();
  if (version == kManifestVersion) return;
  std::string message = where + ": \"format_version\" is " + version.dump() + ", this program reads " +
                        std::to_string(kManifestVersion);
  if (version.is_number() && version < kManifestVersion)
    message +=
        ". An older program made the checkpoint: finish the run with that one, or `export` the model with it "
        "and `import` it here";
  throw DataError(message);
}

void check_own_hash(const ordered_json& json, const std::string& text, const std::string& where) {
  const bool has_hash = json.contains(kOwnHash) && json[kOwnHash].is_string();
  const std::string hash = has_hash ? json[kOwnHash].get<std::string>() : "";
  const std::string found = xxh3_128(without_own_hash(text, hash));
  if (found != hash)
    throw DataError(where + ": the file is damaged: its XXH3-128 hash is " + found +
                    ", but the file states " + hash);
}

}  // namespace

std::string manifest_text(const Manifest& manifest) {
  ordered_json json;
  json["format_version"] = kManifestVersion;
  put_fields(manifest, json);
  const std::string zeros(kHashDigits, '0');
  json[kOwnHash] = zeros;
  std::string text = json_text(json, 2) + "\n";
  const std::string hash = xxh3_128(text);
  return text.replace(text.rfind(zeros), zeros.size(), hash);
}

Manifest parse_manifest(const std::string& text, const std::string& where) {
  ordered_json json = ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) throw DataError(where + ": not a JSON object");
  check_version(json, where);
  check_own_hash(json, text, where);
  Manifest manifest;
  try {
    check_limits<Manifest>(json);
    manifest = struct_of<Manifest>(json);
  } catch (const FieldError& error) {
    throw DataError(where + ": " + error.what());
  }
  for (const auto& [name, bytes, hash] : manifest.files)
    if (name.empty() || name == ".." || name.find('/') != std::string::npos)
      throw DataError(
          fmt::format("{}, \"files\": \"{}\" is not the name of a file in this folder", where, name));
  check_numbers(manifest, where);
  return manifest;
}

void check_numbers(const Manifest& manifest, const std::string& where) {
  const auto require = [&](bool holds, const std::string& what) {
    if (!holds) throw DataError(fmt::format("{}: {}: these numbers contradict each other", where, what));
  };
  const auto& [step, updates, skipped_steps, batch_norm_updates, origin] = std::tie(
      manifest.step, manifest.updates, manifest.skipped_steps, manifest.batch_norm_updates, manifest.origin);
  require(
      updates <= step && updates == step - skipped_steps,
      fmt::format("updates {} and skipped_steps {} do not add up to step {}", updates, skipped_steps, step));
  require(
      origin.step <= step && origin.updates <= updates && origin.updates <= origin.step &&
          origin.batch_norm_updates <= batch_norm_updates,
      fmt::format("origin has step {}, updates {} and batch_norm_updates {}, the checkpoint {}, {} and {}",
                  origin.step, origin.updates, origin.batch_norm_updates, step, updates, batch_norm_updates));
  const auto& [workers, replicas, processes] =
      std::tie(manifest.workers, manifest.replicas, manifest.processes);
  require(workers >= 1 && replicas >= 1 && processes >= 1,
          fmt::format("workers {}, replicas {}, processes {}", workers, replicas, processes));
  const bool one_slot_each = processes % workers == 0 && processes / workers == replicas;
  require(one_slot_each || workers % processes == 0,
          fmt::format("processes {} cannot run workers {} with replicas {}", processes, workers, replicas));
  const auto files = static_cast<int64_t>(manifest.files.size());
  require(files >= processes, fmt::format("processes {} but files {}", processes, files));
  for (int64_t process = 0; process < processes; ++process) {
    const std::string name = process_file_name(process, processes);
    require(manifest.files[static_cast<size_t>(process)].name == name,
            fmt::format("file {} is not {}", process, name));
  }
}

std::string process_file_name(int64_t process, int64_t processes) {
  return fmt::format("process-{:05}-of-{:05}.safetensors", process, processes);
}

}  // namespace sdp
