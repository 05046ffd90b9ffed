#include "run/manifest.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string_view>
#include <tuple>
#include <type_traits>

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

const ordered_json& value_of(const ordered_json& object, const char* key, const std::string& where) {
  if (!object.is_object() || !object.contains(key))
    throw DataError(where + ": the key \"" + key + "\" is missing");
  return object[key];
}

[[noreturn]] void refuse(const std::string& where, const char* key, const ordered_json& value,
                         const char* expected) {
  throw DataError(where + ": \"" + key + "\" is " + value.dump() + ", expected " + expected);
}

template <class T>
void take(const ordered_json& object, const char* key, T& target, const std::string& where) {
  constexpr bool is_text = std::is_same_v<T, std::string>;
  constexpr bool is_whole = std::is_same_v<T, int64_t>;
  const ordered_json& value = value_of(object, key, where);
  bool fits = is_text ? value.is_string() : is_whole ? value.is_number_integer() : value.is_number();
  if (fits) target = value.get<T>();
  if constexpr (!is_text) fits = fits && target >= 0;
  if (!fits)
    refuse(where, key, value,
           is_text    ? "a string"
           : is_whole ? "a non-negative integer"
                      : "a non-negative number");
}

/// Takes all keys of a struct but lists.
template <HasFields Struct>
void take_all(const ordered_json& object, Struct& value, const std::string& where) {
  for_each_field<Struct>([&]<class T>(const Field<Struct>& field, T Struct::*member) {
    const std::string key(field.key);
    if (field.or_default && !object.contains(key)) return;
    if constexpr (HasFields<T>)
      take_all(value_of(object, key.c_str(), where), value.*member, where + ", \"" + key + "\"");
    else if constexpr (!detail::is_vector<T>)
      take(object, key.c_str(), value.*member, where);
  });
}

ManifestFile parse_file(const ordered_json& entry, const std::string& where) {
  ManifestFile file;
  take_all(entry, file, where);
  if (file.name.empty() || file.name == ".." || file.name.find('/') != std::string::npos)
    throw DataError(where + ": \"" + file.name + "\" is not the name of a file in this folder");
  return file;
}

void check_version(const ordered_json& json, const std::string& where) {
  int64_t version = 0;
  take(json, "format_version", version, where);
  if (version == kManifestVersion) return;
  std::string message = where + ": format_version is " + std::to_string(version) + ", this program reads " +
                        std::to_string(kManifestVersion);
  if (version < kManifestVersion)
    message +=
        ". An older program made the checkpoint: finish the run with that one, or `export` the model with it "
        "and `import` it here";
  throw DataError(message);
}

void check_own_hash(const ordered_json& json, const std::string& text, const std::string& where) {
  std::string hash;
  take(json, kOwnHash, hash, where);
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
  take_all(json, manifest, where);
  const ordered_json& files = value_of(json, "files", where);
  if (!files.is_array()) refuse(where, "files", files, "a list");
  for (const ordered_json& file : files)
    manifest.files.push_back(parse_file(file, where + ", \"files\""));
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
