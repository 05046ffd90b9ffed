#include "hub/import.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "experiment/experiment.h"
#include "hub/library_files.h"
#include "hub/model_config.h"
#include "io/file.h"
#include "layers/tensors.h"
#include "model/model_spec.h"
#include "run/checkpoint_store.h"
#include "run/checkpoint_tensors.h"
#include "run/save_checkpoint.h"
#include "spec/error.h"
#include "spec/text.h"

namespace sdp {
namespace {

void add_parameter(TensorFile& out, const Experiment& experiment, const LibraryTensors& from,
                   const ParameterLayout& parameter, at::ScalarType type) {
  const SubnetPlan& plan = experiment.plan;
  const std::vector<int> units = plan.units_of(parameter);
  for (int unit : units) {
    const int64_t elements = plan.elements_of(parameter, unit);
    const auto add = [&](const std::string& kind, std::function<at::Tensor()> source) {
      out.add(range_name(key_of(plan, kind, parameter.name, unit), 0, elements), dtype_of(type), {elements},
              std::move(source));
    };
    add(kValueKind, [&from, &parameter, &plan, units, unit, type, seed = experiment.spec.seed] {
      const at::Tensor whole = from.has(parameter.name)
                                   ? from.read(parameter.name)
                                   : draw_parameter(parameter, static_cast<uint64_t>(seed)).to(type);
      return slice_view(whole, parameter.slice, plan, units, unit).reshape({-1});
    });
    for (const std::string& moment : experiment.spec.optimizer.state_names())
      add(moment, [elements, type] { return at::zeros({elements}, type); });
  }
}

/// Names of the parameters whose shape depends on the number of classes or tokens.
std::set<std::string> head_parameters(const ExperimentSpec& spec) {
  const auto layout_with = [&](int64_t more) {
    ModelSpec model = spec.model;
    model.kind.visit([&](auto& own) {
      if constexpr (requires { own.num_classes; }) own.num_classes += more;
      if constexpr (requires { own.vocab_size; })
        if (own.vocab_size) *own.vocab_size += more;
    });
    return structure_of(model, spec.data.is_of_tokens() ? spec.data.sequence_length() : 1);
  };
  const ModelLayout as_is = layout_with(0);
  const ModelLayout larger = layout_with(1);
  std::set<std::string> head;
  for (size_t i = 0; i < as_is.parameters.size(); ++i)
    if (as_is.parameters[i].shape != larger.parameters[i].shape) head.insert(as_is.parameters[i].name);
  return head;
}

/// Every slot starts with the file's statistics.
void add_buffer(TensorFile& out, const Experiment& experiment, const LibraryTensors& from, int index,
                at::ScalarType type) {
  const SubnetPlan& plan = experiment.plan;
  const BufferLayout& buffer = plan.layout.buffers[index];
  const std::vector<int> units = plan.units_of(buffer);
  const auto slice_of = [&from, &buffer, &plan, units](int unit) {
    return slice_view(from.read(buffer.name), buffer.slice, plan, units, unit).reshape({-1});
  };
  for (int worker = 0; worker < plan.workers; ++worker)
    for (const BranchPart& part : plan.parts_of(worker, buffer))
      for (int unit : part.units)
        for (int replica = 0; replica < experiment.exchanges.slot_map.replicas; ++replica)
          out.add(buffer_name(buffer_key(plan, index, unit), {worker, replica}), dtype_of(type),
                  {slice_of(unit).numel()}, [slice_of, unit] { return slice_of(unit); });
}

/// config.json, the settings of generation, and what transformers' AutoTokenizer reads.
void keep_files_beside(const std::filesystem::path& from, const std::filesystem::path& kept) {
  for (const char* name : {"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json",
                           "special_tokens_map.json", "added_tokens.json", "vocab.json", "merges.txt",
                           "tokenizer.model", "chat_template.jinja"}) {
    const std::filesystem::path file = config_beside(from).replace_filename(name);
    std::error_code ignored;
    if (!std::filesystem::exists(file, ignored)) continue;
    const std::string text = read_text(file);
    std::filesystem::create_directories(kept);
    write_file_atomically(kept / name, text);
  }
}

using Json = nlohmann::ordered_json;

/// Keys, each between spaces, that say nothing about the model's values: where the file is from, what the
/// library returns, how it generates, draws weights and drops out, and heads for other tasks.
/// rope_parameters: a table that LibraryFormat::normalized checks.
constexpr std::string_view kHarmlessKeys =
    " sdp_train rope_parameters _name_or_path _commit_hash _attn_implementation"
    " _attn_implementation_autoset attn_implementation transformers_version transformers.js_config"
    " unsloth_fixed unsloth_version is_llama_config dtype use_bfloat16 tf_legacy_loss torchscript"
    " return_dict use_return_dict output_hidden_states output_attentions output_past use_cache"
    " gradient_checkpointing keys_to_ignore_at_inference chunk_size_feed_forward pretraining_tp"
    " reorder_and_upcast_attn is_decoder initializer_range attention_dropout resid_pdrop embd_pdrop"
    " attn_pdrop n_ctx max_sequence_length max_position_embeddings id2label label2id num_labels"
    " _num_labels problem_type finetuning_task task_specific_params tokenizer_class prefix summary_type"
    " summary_use_proj summary_activation summary_first_dropout summary_proj_to_labels bos_token_id"
    " pad_token_id eos_token_id sep_token_id decoder_start_token_id max_length max_new_tokens min_length"
    " do_sample early_stopping num_beams num_beam_groups diversity_penalty temperature top_k top_p"
    " typical_p repetition_penalty length_penalty no_repeat_ngram_size encoder_no_repeat_ngram_size"
    " bad_words_ids num_return_sequences output_scores return_dict_in_generate forced_bos_token_id"
    " forced_eos_token_id remove_invalid_values exponential_decay_length_penalty suppress_tokens"
    " begin_suppress_tokens ";

/// Collects the differences, and the options that adapt the spec.
class Differences {
 public:
  explicit Differences(bool new_head) : new_head_(new_head) {}

  void compare(const Json& found, const Json& expected, const std::string& file_key, const char* model_key,
               bool is_absent = false) {
    const bool is_size_of_head = model_key && (std::string_view(model_key) == "vocab_size" ||
                                               std::string_view(model_key) == "num_classes");
    if (found == expected || (new_head_ && is_size_of_head)) return;
    if (model_key && !found.is_null()) {
      lines_.push_back(fmt::format("{} is {}{}, model.{} is {}", file_key,
                                   is_absent ? "absent, by default " : "", found.dump(), model_key,
                                   expected.dump()));
      values_.push_back(
          fmt::format("model.{}={}", model_key, found.is_string() ? found.get<std::string>() : found.dump()));
      repairs_.push_back("--set " + shell_word(values_.back()));
      if (is_size_of_head) of_head_ = repairs_.back();
    } else {
      refuse(file_key, found, expected.dump());
    }
  }
  void refuse(const std::string& file_key, const Json& found, const std::string& supported) {
    lines_.push_back(fmt::format("{} is {}, but only {} is supported", file_key, found.dump(), supported));
    is_supported_ = false;
  }
  const std::vector<std::string>& values() const { return values_; }
  void fail_if_any(const std::filesystem::path& path) const {
    if (lines_.empty()) return;
    const std::string advice =
        !is_supported_
            ? "This model cannot be imported."
            : fmt::format("Change `model` of the spec to match the file: {}{}", fmt::join(repairs_, " "),
                          of_head_.empty()
                              ? ""
                              : ". For other classes or tokens: --new-head in place of " + of_head_);
    throw DataError(fmt::format("{}: the model differs from the spec's:\n  {}\n{}", path.string(),
                                fmt::join(lines_, "\n  "), advice));
  }

 private:
  std::vector<std::string> lines_;
  std::vector<std::string> values_;  ///< "model.depth=3"
  std::vector<std::string> repairs_;
  bool is_supported_ = true;
  std::string of_head_;  ///< the repair of the head's size
  bool new_head_;
};

/// The names of our models of that architecture: "gpt2, gpt2_medium"; empty if there is none.
std::string models_of_type(std::string_view model_type) {
  std::string names;
  for_each_kind<ModelKind>([&]<class Kind>() {
    const auto format = library_format_of(model_named(Kind::names[0]));
    if (format && format->model_type() == model_type) names = names_of_kind<Kind>(", ");
  });
  return names;
}

/// Throws DataError for a file of another architecture that this program has under another model.name.
void check_type(const LibraryFormat& format, const Json& config, const ModelSpec& spec,
                const std::filesystem::path& path) {
  if (!config.contains("model_type") || !config["model_type"].is_string()) return;
  const auto found = config["model_type"].get<std::string>();
  if (found == format.model_type()) return;
  if (const std::string models = models_of_type(found); !models.empty())
    throw DataError(fmt::format("{}: model_type is {}, but model.name is {}. Set model.name to one of {}",
                                path.string(), found, spec.name(), models));
}

void compare_with_library(Differences& differences, const LibraryFormat& format, const Json& config,
                          const Experiment& experiment) {
  const Json expected = format.normalized(library_config_of(experiment, format, {}), [](auto&&...) {});
  if (config.contains("model_type"))
    differences.compare(config["model_type"], std::string(format.model_type()), "model_type", nullptr);
  const Json given =
      format.normalized(config, [&](const std::string& key, const Json& value, const std::string& supported) {
        differences.refuse(key, value, supported);
      });
  for (const auto& [key, value] : given.items()) {
    const bool switches_nothing_on = value.empty() || value == false || value == "";  // null is empty
    const bool is_harmless = kHarmlessKeys.find(" " + key + " ") != std::string_view::npos;
    if (!expected.contains(key) && !switches_nothing_on && !is_harmless)
      differences.refuse(key, value, "its absence (if the library ignores it, remove the key)");
  }
  Json found = Json::object();
  for (const ConfigKey& key : format.compared_keys())
    found[key.library] = key.absent;
  found.update(given);
  format.derive(found);
  for (const ConfigKey& key : format.compared_keys())
    differences.compare(found[key.library], expected[key.library], key.library, key.model,
                        !given.contains(key.library));
}

void compare_own(Differences& differences, const Json& config, const ModelSpec& spec) {
  const Json expected = model_json(spec);
  const Json& found = config["sdp_train"]["model"];
  for (const auto& [key, value] : found.items())
    // Convolutions take images of any size.
    if (expected.contains(key) && !value.is_null() && !(key == "image_size" && spec.has_batch_norm()))
      differences.compare(value, expected[key], key, key.c_str());
}

}  // namespace

std::string import_model(const Experiment& experiment, const std::filesystem::path& from, bool new_head,
                         const RunDescription& description, const std::filesystem::path& run_dir,
                         const OnProgress& on_progress) {
  const ModelLayout& layout = experiment.plan.layout;
  library_config_values(experiment, from, new_head, /*must_fit=*/true);
  const at::ScalarType type = scalar_type(sum_type(experiment.spec.train.precision));
  const LibraryTensors tensors(from, layout, library_format_of(experiment.spec.model), type,
                               library_tensors(experiment.spec.model, layout, 0),
                               head_parameters(experiment.spec), /*reads_head=*/!new_head);
  TensorFile out;
  for (const ParameterLayout& parameter : layout.parameters)
    add_parameter(out, experiment, tensors, parameter, type);
  for (int b = 0; b < static_cast<int>(layout.buffers.size()); ++b)
    add_buffer(out, experiment, tensors, b, type);

  if (library_format_of(experiment.spec.model) && !new_head)
    keep_files_beside(from, run_dir / kImportedFolder);
  const CheckpointStore store(run_dir);
  const std::filesystem::path folder = store.begin(0);
  Manifest manifest =
      manifest_of(experiment, {.origin = {.batch_norm_updates = tensors.batch_norm_updates()}});
  manifest.files = {write_process_file(out, folder, /*process=*/0, /*processes=*/1, on_progress)};
  for (ManifestFile& saved : write_description(description, folder))
    manifest.files.push_back(std::move(saved));
  store.commit(0, manifest, experiment.spec.checkpoint.keep_last);
  return tensors.wrapper();
}

std::vector<std::string> library_config_values(const Experiment& experiment,
                                               const std::filesystem::path& from, bool new_head,
                                               bool must_fit) {
  const std::filesystem::path path = config_beside(from);
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return {};
  const Json config = read_json_object(path);
  Differences differences(new_head);
  const bool has_own = config.contains("sdp_train") && config["sdp_train"].is_object() &&
                       config["sdp_train"].contains("model") && config["sdp_train"]["model"].is_object();
  const ModelSpec& model = experiment.spec.model;
  if (const auto format = library_format_of(model)) {
    if (has_own && config.size() == 1) return {};  // of a subnetwork that the library cannot express
    check_type(*format, config, model, path);
    compare_with_library(differences, *format, config, experiment);
  } else if (has_own && !config["sdp_train"].contains("worker")) {  // a subnetwork has other sizes
    compare_own(differences, config, model);
  }
  if (must_fit) differences.fail_if_any(path);
  return differences.values();
}

}  // namespace sdp
