#include "run/manifest.h"

#include <cstdio>
#include <nlohmann/json.hpp>
#include <string_view>

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

void take(const ordered_json& object, const char* key, int64_t& number, const std::string& where) {
  const ordered_json& value = value_of(object, key, where);
  number = value.is_number_integer() ? value.get<int64_t>() : -1;
  if (number < 0) refuse(where, key, value, "a non-negative integer");
}

void take(const ordered_json& object, const char* key, std::string& text, const std::string& where) {
  const ordered_json& value = value_of(object, key, where);
  if (!value.is_string()) refuse(where, key, value, "a string");
  text = value.get<std::string>();
}

void take(const ordered_json& object, const char* key, double& number, const std::string& where) {
  const ordered_json& value = value_of(object, key, where);
  number = value.is_number() ? value.get<double>() : -1;
  if (!(number >= 0)) refuse(where, key, value, "a non-negative number");
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
    if (!holds) throw DataError(where + ": " + what + ": these numbers contradict each other");
  };
  const auto text = [](int64_t number) { return std::to_string(number); };
  require(manifest.updates <= manifest.step && manifest.updates == manifest.step - manifest.skipped_steps,
          "updates " + text(manifest.updates) + " and skipped_steps " + text(manifest.skipped_steps) +
              " do not add up to step " + text(manifest.step));
  const StepOrigin& origin = manifest.origin;
  require(origin.step <= manifest.step && origin.updates <= manifest.updates &&
              origin.updates <= origin.step && origin.batch_norm_updates <= manifest.batch_norm_updates,
          "origin has step " + text(origin.step) + ", updates " + text(origin.updates) +
              " and batch_norm_updates " + text(origin.batch_norm_updates) + ", the checkpoint " +
              text(manifest.step) + ", " + text(manifest.updates) + " and " +
              text(manifest.batch_norm_updates));
  require(manifest.workers >= 1 && manifest.replicas >= 1 && manifest.processes >= 1,
          "workers " + text(manifest.workers) + ", replicas " + text(manifest.replicas) + ", processes " +
              text(manifest.processes));
  const bool one_slot_each = manifest.processes % manifest.workers == 0 &&
                             manifest.processes / manifest.workers == manifest.replicas;
  require(one_slot_each || manifest.workers % manifest.processes == 0,
          "processes " + text(manifest.processes) + " cannot run workers " + text(manifest.workers) +
              " with replicas " + text(manifest.replicas));
  const auto files = static_cast<int64_t>(manifest.files.size());
  require(files >= manifest.processes, "processes " + text(manifest.processes) + " but files " + text(files));
  for (int64_t process = 0; process < manifest.processes; ++process) {
    const std::string name = process_file_name(process, manifest.processes);
    require(manifest.files[static_cast<size_t>(process)].name == name,
            "file " + text(process) + " is not " + name);
  }
}

std::string process_file_name(int64_t process, int64_t processes) {
  char name[64];
  std::snprintf(name, sizeof name, "process-%05lld-of-%05lld.safetensors", static_cast<long long>(process),
                static_cast<long long>(processes));
  return name;
}

}  // namespace sdp
