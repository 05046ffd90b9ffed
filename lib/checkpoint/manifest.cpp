#include "checkpoint/manifest.h"

#include <cstdio>

#include "spec/error.h"

namespace sdp {
namespace {

using nlohmann::ordered_json;

/// The value of a key that has to be there, with the type that it has to have.
template <class Value>
Value required(const ordered_json& object, const char* key, const std::string& where) {
  if (!object.is_object() || !object.contains(key))
    throw DataError(where + ": the key \"" + key + "\" is missing");
  const ordered_json& value = object[key];
  bool fits = true;
  if constexpr (std::is_same_v<Value, std::string>)
    fits = value.is_string();
  else if constexpr (std::is_same_v<Value, int64_t>)
    fits = value.is_number_integer();
  if (!fits) throw DataError(where + ": \"" + key + "\" has the unexpected value " + value.dump());
  return value.get<Value>();
}

ManifestFile parse_file(const ordered_json& entry, const std::string& where) {
  const ManifestFile file = {required<std::string>(entry, "name", where),
                             required<int64_t>(entry, "bytes", where),
                             required<std::string>(entry, "xxh3_128", where)};
  if (file.name.empty() || file.name == ".." || file.name.find('/') != std::string::npos)
    throw DataError(where + ": \"" + file.name + "\" is not the name of a file in this folder");
  return file;
}

}  // namespace

std::string manifest_text(const Manifest& manifest) {
  ordered_json files = ordered_json::array();
  for (const ManifestFile& file : manifest.files)
    files.push_back({{"name", file.name}, {"bytes", file.bytes}, {"xxh3_128", file.xxh3_128}});
  ordered_json json;
  json["format_version"] = manifest.format_version;
  json["step"] = manifest.step;
  json["workers"] = manifest.workers;
  json["replicas"] = manifest.replicas;
  json["processes"] = manifest.processes;
  json["threads"] = manifest.threads;
  json["plan_hash"] = manifest.plan_hash;
  json["spec_hash"] = manifest.spec_hash;
  json["libtorch_version"] = manifest.libtorch_version;
  json["program_version"] = manifest.program_version;
  json["state"] = manifest.state;
  json["files"] = std::move(files);
  return json.dump(2) + "\n";
}

Manifest parse_manifest(const std::string& text, const std::string& where) {
  const ordered_json json = ordered_json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) throw DataError(where + ": not a JSON object");

  const auto version = required<int64_t>(json, "format_version", where);
  if (version != kManifestVersion)
    throw DataError(where + ": format_version is " + std::to_string(version) + ", this program reads " +
                    std::to_string(kManifestVersion));
  Manifest manifest;
  manifest.step = required<int64_t>(json, "step", where);
  manifest.workers = required<int64_t>(json, "workers", where);
  manifest.replicas = required<int64_t>(json, "replicas", where);
  manifest.processes = required<int64_t>(json, "processes", where);
  manifest.threads = required<int64_t>(json, "threads", where);
  manifest.plan_hash = required<std::string>(json, "plan_hash", where);
  manifest.spec_hash = required<std::string>(json, "spec_hash", where);
  manifest.libtorch_version = required<std::string>(json, "libtorch_version", where);
  manifest.program_version = required<std::string>(json, "program_version", where);
  manifest.state = required<ordered_json>(json, "state", where);
  const auto files = required<ordered_json>(json, "files", where);
  if (!files.is_array()) throw DataError(where + ": \"files\" is not a list");
  for (const ordered_json& file : files)
    manifest.files.push_back(parse_file(file, where));
  return manifest;
}

std::string process_file_name(int64_t process, int64_t processes) {
  char name[64];
  std::snprintf(name, sizeof name, "process-%05lld-of-%05lld.safetensors", static_cast<long long>(process),
                static_cast<long long>(processes));
  return name;
}

}  // namespace sdp
