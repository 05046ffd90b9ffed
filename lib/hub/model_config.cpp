#include "hub/model_config.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string_view>

#include "spec/json_fields.h"

namespace sdp {
namespace {

using Json = nlohmann::ordered_json;

Json config_of(const LibraryFormat& format, const BlockShape& shape, const ExperimentSpec& spec,
               const ExportOrigin& origin) {
  Json config = format.config(shape, spec.data.sequence_length());
  if (config.empty()) return config;
  // Without these keys, transformers assumes tokens of its own (50256 for GPT-2, 1 and 2 for LLaMA), and
  // generation stops there. One token separates documents: it is both their beginning and their end.
  const std::optional<int64_t>& end_of_text = origin.tokens.end_of_text;
  for (const char* key : {"bos_token_id", "eos_token_id"})
    config[key] = end_of_text ? Json(*end_of_text) : Json();
  config["torch_dtype"] = spec.train.precision == Precision::kFp64 ? "float64" : "float32";
  if (origin.imported_config.is_null()) return config;
  for (const char* key : {"bos_token_id", "eos_token_id", "max_position_embeddings"})
    config.erase(key);
  Json merged = format.normalized(origin.imported_config, [](auto&&...) {});
  merged.erase("dtype");  // the newer name of torch_dtype
  merged.update(config);
  return merged;
}

Json description_of(const Experiment& experiment, const Manifest& manifest) {
  const ExperimentSpec& spec = experiment.spec;
  Json description = {{"model", model_json(spec.model)}};
  if (const auto normalization = spec.data.pixel_normalization())
    description["normalization"] = {{"mean", normalization->mean}, {"std", normalization->stddev}};
  description["step"] = manifest.step;
  description["plan_hash"] = manifest.plan_hash;
  return description;
}

/// timm resizes the shorter side to floor(size / crop_pct).
double crop_pct_of(int64_t size, int64_t resize) {
  const double share = static_cast<double>(size) / static_cast<double>(resize);
  return std::floor(static_cast<double>(size) / share) < static_cast<double>(resize)
             ? std::nextafter(share, 0)
             : share;
}

/// What timm reads: model and transform for evaluation.
Json timm_config(const ExperimentSpec& spec, const ExportOrigin& origin) {
  const ModelSpec& model = spec.model;
  Json config = Json::object();
  if (model.reads_tokens()) return config;  // a network of the user's own, which no library has
  const int64_t size = model.image_size();
  const std::string_view architecture = model.timm_architecture();
  if (!architecture.empty()) config["architecture"] = architecture;  // a ResNet, whose layers are named below
  config["num_classes"] = model.num_classes();
  if (model.image_channels() != kColorChannels) config["model_args"] = {{"in_chans", model.image_channels()}};
  if (static_cast<int64_t>(origin.class_names.size()) == model.num_classes())
    config["label_names"] = origin.class_names;
  const Normalization normalization = spec.data.pixel_normalization().value();
  config["pretrained_cfg"] = {{"input_size", {model.image_channels(), size, size}},
                              {"interpolation", "bilinear"},
                              {"crop_pct", crop_pct_of(size, spec.data.eval_resize_of(size))},
                              {"crop_mode", "center"},
                              {"mean", normalization.mean},
                              {"std", normalization.stddev}};
  if (!architecture.empty()) config["pretrained_cfg"].update({{"first_conv", "conv1"}, {"classifier", "fc"}});
  return config;
}

/// [begin, end) ranges of a branch's hidden width that the worker owns, adjacent ranges merged.
std::vector<std::pair<int64_t, int64_t>> owned_ranges(const SubnetPlan& plan, int worker, int branch) {
  std::vector<std::pair<int64_t, int64_t>> ranges;
  for (const BranchPart& part : plan.parts_of(worker, branch)) {
    for (int unit : part.units) {
      const auto [begin, end] = std::pair(plan.units[unit].begin, plan.units[unit].end);
      if (!ranges.empty() && ranges.back().second == begin) {
        ranges.back().second = end;
      } else {
        ranges.emplace_back(begin, end);
      }
    }
  }
  return ranges;
}

}  // namespace

Json model_json(const ModelSpec& model) {
  Json json = {{"name", model.name()}};
  model.kind.visit([&]<class Kind>(const Kind& kind) {
    for_each_field<Kind>(
        [&](const FieldInfo& field, auto member) { json[std::string(field.key)] = json_of(kind.*member); });
  });
  return json;
}

std::unique_ptr<LibraryFormat> library_format_of(const ModelSpec& model) {
  return model.kind.visit([](const auto& kind) { return library_format(kind); });
}

Json library_config_of(const Experiment& experiment, const LibraryFormat& format,
                       const ExportOrigin& origin) {
  BlockShape shape;
  for (const BranchLayout& branch : experiment.plan.layout.branches) {
    if (branch.block == 0) shape.hidden_widths.push_back(branch.hidden_width);
    shape.blocks = branch.block + 1;
  }
  return config_of(format, shape, experiment.spec, origin);
}

Json full_model_config(const Experiment& experiment, const Manifest& manifest, const ExportOrigin& origin) {
  const auto format = library_format_of(experiment.spec.model);
  Json config =
      format ? library_config_of(experiment, *format, origin) : timm_config(experiment.spec, origin);
  config["sdp_train"] = description_of(experiment, manifest);
  return config;
}

SubnetworkConfig subnetwork_config(const Experiment& experiment, const Manifest& manifest,
                                   const ExportOrigin& origin, int worker) {
  const SubnetPlan& plan = experiment.plan;
  SubnetworkConfig result{.config = Json::object(), .layer_names = {}};
  Json hidden = Json::object();
  std::map<int, std::vector<int64_t>> widths_of_block;  // widths of the block's branches
  for (int b = 0; b < static_cast<int>(plan.layout.branches.size()); ++b) {
    hidden[plan.layout.branches[b].name] = owned_ranges(plan, worker, b);
    widths_of_block[plan.layout.branches[b].block].push_back(plan.owned_width(worker, b));
  }
  if (const auto format = library_format_of(experiment.spec.model)) {
    std::map<std::string, std::string> names;
    std::set<std::vector<int64_t>> shapes;
    for (const auto& [block, widths] : widths_of_block) {
      if (std::all_of(widths.begin(), widths.end(), [](int64_t width) { return width == 0; })) continue;
      shapes.insert(widths);
      names[format->block_name(block)] = format->block_name(static_cast<int64_t>(names.size()));
    }
    const bool are_alike = shapes.size() == 1 && std::all_of(shapes.begin()->begin(), shapes.begin()->end(),
                                                             [](int64_t width) { return width > 0; });
    if (are_alike)
      result.config =
          config_of(*format, {.blocks = static_cast<int64_t>(names.size()), .hidden_widths = *shapes.begin()},
                    experiment.spec, origin);
    if (!result.config.empty()) result.layer_names = std::move(names);
  }
  result.config["sdp_train"] = description_of(experiment, manifest);
  result.config["sdp_train"]["worker"] = worker;
  result.config["sdp_train"]["construction"] = name_of(plan.construction);
  result.config["sdp_train"]["hidden"] = hidden;
  return result;
}

}  // namespace sdp
