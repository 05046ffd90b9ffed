#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <tuple>
#include <utility>

#include "commands.h"
#include "cost/make_experiment.h"
#include "experiment/load.h"
#include "hub/import.h"
#include "hub/library_files.h"
#include "inputs.h"
#include "io/file.h"
#include "io/safetensors.h"
#include "model/model_spec.h"
#include "run/checkpoint_store.h"
#include "run/progress.h"
#include "run/run_history.h"
#include "run/save_checkpoint.h"
#include "spec/error.h"
#include "spec/text.h"
#include "train/run_rank.h"

namespace sdp {
namespace {

using Json = nlohmann::ordered_json;

/// An empty object if there is no such file.
Json beside(const std::filesystem::path& from, const char* name) {
  const std::filesystem::path path = config_beside(from).replace_filename(name);
  std::error_code ignored;
  return std::filesystem::exists(path, ignored) ? read_json_object(path) : Json::object();
}

/// By label: id2label of transformers, label_names of timm and of `export`.
std::vector<std::string> class_names_of(const Json& config) {
  std::vector<std::string> names;
  const Json none = Json::object();
  const Json& by_label = config.contains("id2label") ? config["id2label"] : none;
  const Json& list = config.contains("label_names") ? config["label_names"] : by_label;
  for (size_t label = 0; label < list.size(); ++label) {
    const std::string key = std::to_string(label);
    if (!list.is_array() && !list.contains(key)) return {};
    const Json& name = list.is_array() ? list[label] : list[key];
    if (!name.is_string()) return {};
    names.push_back(name.get<std::string>());
  }
  return names;
}

std::optional<std::string> difference_of_classes(const std::vector<std::string>& file,
                                                 const std::vector<std::string>& data) {
  if (file.empty() || data.empty()) return std::nullopt;
  constexpr const char* kAdvice =
      "Unless they are the same classes in the same order, import with --new-head";
  if (file.size() != data.size())
    return fmt::format("config.json names {} classes, the data has {}. {}", file.size(), data.size(),
                       kAdvice);
  for (size_t label = 0; label < file.size(); ++label)
    if (file[label] != data[label])
      return fmt::format("class {} is {:?} in config.json and {:?} in the data. {}", label, file[label],
                         data[label], kAdvice);
  return std::nullopt;
}

using Channels = std::vector<double>;

std::optional<Channels> channels_at(const Json& json, const char* pointer) {
  const Json::json_pointer at(pointer);
  if (!json.contains(at) || !json[at].is_array()) return std::nullopt;
  Channels values;
  for (const Json& value : json[at]) {
    if (!value.is_number()) return std::nullopt;
    values.push_back(value.get<double>());
  }
  return values;
}

std::optional<std::string> difference_of_pixels(const char* what, const Channels& file,
                                                const Channels& data) {
  constexpr double kRounding = 1e-3;
  bool is_same = file.size() == data.size();
  for (size_t channel = 0; is_same && channel < file.size(); ++channel)
    is_same = std::abs(file[channel] - data[channel]) <= kRounding;
  if (is_same || file.size() != data.size()) return std::nullopt;  // other channels show in a tensor's shape
  const std::string of_file = fmt::format("[{:.4g}]", fmt::join(file, ","));
  return fmt::format(
      "the model was trained on images with the {} {}, the data is normalized with [{:.4g}]. To have "
      "the model's: --set {}",
      what, of_file, fmt::join(data, ","),
      shell_word(fmt::format("data.normalization.{}={}", what, of_file)));
}

/// For several files, the hash of their hashes, one per line.
ImportSource import_source(const std::filesystem::path& path, ProgressLine& line) {
  ProgressTask task(line, "hashing the weights");
  ImportSource source{.path = std::filesystem::absolute(path).lexically_normal().string()};
  std::string hashes;
  const std::vector<std::filesystem::path> files = library_files(path);
  for (const std::filesystem::path& file : files) {
    const FileDigest digest = digest_file(file, task.on_progress());
    source.bytes += digest.bytes;
    source.xxh3_128 = digest.xxh3_128;
    hashes += digest.xxh3_128 + "\n";
  }
  if (files.size() > 1) source.xxh3_128 = xxh3_128(hashes);
  return source;
}

/// The spec of an import, with the values of config.json where it leaves the model's keys unset, and these
/// values.
std::pair<LoadedSpec, std::vector<std::string>> spec_for_import(const ImportArguments& arguments) {
  auto [configs, overrides] = arguments.spec;
  std::vector<std::string> taken;
  for (;;) {  // once more, as other defaults may follow from the values that were taken
    LoadedSpec loaded = load_run_spec(configs, overrides);
    Experiment sketch;
    sketch.spec = loaded.spec;
    sketch.plan.layout = structure_of(loaded.spec.model, loaded.spec.data.sequence_length());
    std::vector<std::string> values =
        library_config_values(sketch, arguments.from, arguments.new_head, /*must_fit=*/false);
    std::erase_if(values, [&](const std::string& value) {
      return loaded.positions.is_set(value.substr(0, value.find('=')));
    });
    if (values.empty()) return {std::move(loaded), std::move(taken)};
    overrides.insert(overrides.end(), values.begin(), values.end());
    taken.insert(taken.end(), values.begin(), values.end());
  }
}

/// What the files beside imported weights say of their data, where it differs from the spec's data: the names
/// of the classes (config.json of transformers and timm; not with `new_head`) and the normalization of images
/// (the same, or preprocessor_config.json). `from`: a file of weights, or its folder.
std::vector<std::string> differences_from_data(const ExperimentSpec& spec, const std::filesystem::path& from,
                                               bool new_head) {
  std::vector<std::string> differences;
  const auto add = [&](std::optional<std::string> difference) {
    if (difference) differences.push_back(std::move(*difference));
  };
  const std::optional<Normalization> data = spec.data.pixel_normalization();
  if (!data) return differences;  // tokens
  const Json config = beside(from, "config.json"), preprocessor = beside(from, "preprocessor_config.json");
  if (!new_head) add(difference_of_classes(class_names_of(config), spec.data.class_names()));
  for (const auto& [what, ours, theirs] :
       {std::tuple("mean", &data->mean, "image_mean"), std::tuple("std", &data->stddev, "image_std")})
    for (const auto& found : {channels_at(preprocessor, fmt::format("/{}", theirs).c_str()),
                              channels_at(config, fmt::format("/pretrained_cfg/{}", what).c_str())})
      if (found) {
        add(difference_of_pixels(what, *found, *ours));
        break;
      }
  return differences;
}

/// After a refusal: where the names of the tensors come from if they are those of an adapter, of timm or of
/// transformers' ViT, and what to do; else empty.
std::string advice_on_names(const std::filesystem::path& from) {
  const std::string adapter =
      "\nThese are the tensors of an adapter (PEFT), without the model that it adapts. Save what "
      "merge_and_unload() returns, and import that.";
  const std::string rename = fmt::format(
      "\nThese are names of timm or transformers, expected torchvision's. For a Vision Transformer: python3 "
      "scripts/vit_names.py {} --out torchvision.safetensors",
      shell_word(from.string()));
  const std::initializer_list<std::pair<const char*, std::string>> known = {
      {".lora_", adapter},
      {"base_model.model.", adapter},
      {"blocks.0.attn.qkv.", rename},
      {".attention.attention.query.", rename}};
  for (const std::filesystem::path& path : library_files(from)) {
    const SafetensorsFile file(path);
    for (const TensorView& view : file.entries())
      for (const auto& [part, advice] : known)
        if (view.entry.name.find(part) != std::string::npos) return advice;
  }
  return "";
}

}  // namespace

int import_command(const ImportArguments& arguments) {
  const auto [loaded, taken] = spec_for_import(arguments);
  const ExperimentSpec& spec = loaded.spec;
  print_warnings(loaded.warnings);
  const Experiment experiment = make_experiment(spec, /*processes=*/1);
  const NewFolders new_folders(run_folder_of(spec));
  const LockedRunFolder locked = create_and_lock(spec, /*resume=*/false);
  NewFiles new_files(locked.folder);
  const RunFolder& folder = locked.folder;
  ProgressLine line(STDERR_FILENO);
  std::string wrapper;
  {
    RunHistory history = new_history();
    history.imported = import_source(arguments.from, line);
    const RunDescription description = describe_run(experiment, history);
    ProgressTask task(line, "importing the model");
    try {
      wrapper = import_model(experiment, arguments.from, arguments.new_head, description, folder.dir,
                             task.on_progress());
    } catch (const DataError& error) {
      throw DataError(error.what() + advice_on_names(arguments.from));
    }
    write_description(description, folder.dir);
  }
  new_files.keep();
  std::printf("%s: checkpoint 0 has the %zu tensors of the model from %s\n", folder.dir.c_str(),
              experiment.plan.layout.parameters.size() + experiment.plan.layout.buffers.size(),
              arguments.from.c_str());
  if (!wrapper.empty())
    print_notice("The names of the tensors were read without \"" + wrapper +
                 "\", which a module around the model puts before them.");
  if (arguments.new_head)
    print_notice("The head was drawn anew (--new-head); all else has the weights of the files.");
  for (const std::string& difference : differences_from_data(spec, arguments.from, arguments.new_head))
    print_notice("warning: " + difference);
  if (!taken.empty())
    print_notice(
        fmt::format("The spec does not set these, so they are config.json's: {}", fmt::join(taken, " ")));
  print_notice(fmt::format("Train it: sdp-train --run {} --resume", shell_word(folder.dir.string())));
  if (has_subnetworks(experiment.plan))
    print_notice(
        "With subnetwork.masking: forward every worker lacks some of the branches that the weights were "
        "trained with, "
        "so training starts from a higher loss than the model's. Backward masking and coverage 1 start from "
        "its own.");
  return 0;
}

}  // namespace sdp
