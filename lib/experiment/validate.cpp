#include "experiment/load.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <functional>

#include "optim/registry.h"
#include "spec/advice.h"
#include "spec/error.h"
#include "spec/text.h"
#include "spec/value_text.h"
#include "spec/visit.h"

namespace sdp {
namespace {

/// A warning that is printed if the key was set and `applies` holds, where `applies` depends on several
/// sections. Advice within one section is in the field lists.
struct AdviceAcross {
  const char* key;
  bool (*applies)(const ExperimentSpec&);
  const char* message;
};

constexpr auto kAdviceAcross = std::to_array<AdviceAcross>({
    {"subnetwork.unit",
     [](const ExperimentSpec& s) {
       return s.subnetwork.unit == UnitKind::kBranch && s.model.branches_per_block() == 1;
     },
     "has no effect: a block of this model is one branch"},
    {"train.budget",
     [](const ExperimentSpec& s) { return s.train.budget != Budget::kEpochs && s.subnetwork.is_dense(); },
     "has no effect: with coverage 1 the number of epochs is not scaled"},
    {"train.reduce_dtype", [](const ExperimentSpec& s) { return s.exchange.is_local(); },
     "has no effect: with local steps (exchange.every_steps) no gradients are sent"},
    {"optimizer.shard", [](const ExperimentSpec& s) { return s.exchange.is_local(); },
     "has no effect: with local steps (exchange.every_steps) every worker has an optimizer of its own"},
    {"eval.recalibrate_batches",
     [](const ExperimentSpec& s) {
       return !s.model.has_batch_norm() && s.eval.recalibrate_batches.value_or(0) > 0;
     },
     "has no effect: this model has no BatchNorm"},
    {"eval.max_samples_per_subnetwork",
     [](const ExperimentSpec& s) { return !s.subnetwork.may_lack_units(); },
     "has no effect: every worker has the full model, so there are no smaller subnetworks to evaluate"},
    {"eval.branch_scale",
     [](const ExperimentSpec& s) {
       return s.eval.branch_scale == BranchScale::kSurvival && !s.subnetwork.may_lack_units();
     },
     "has no effect: with coverage 1 or backward masking no worker lacks a branch"},
    {"eval.branch_scale",
     [](const ExperimentSpec& s) {
       return s.eval.branch_scale == BranchScale::kSurvival && s.model.normalizes_branch_output() &&
              s.subnetwork.construction == Construction::kNeuron;
     },
     "has no effect: the BatchNorm after a branch's slices cancels any factor"},
});

void check_name(const ExperimentSpec& spec, const Positions& positions) {
  const std::string& name = spec.name;
  const bool has_control =
      std::any_of(name.begin(), name.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; });
  constexpr size_t kMostBytes = 255;  // length limit of a file name on common file systems
  if (name.size() > kMostBytes || name.empty() || name.front() == '.' || has_control ||
      name.find('/') != std::string::npos || name.find("..") != std::string::npos)
    fail_at(positions.of("name"), "name",
            "found '" + shortened(name) +
                "', expected a folder name: not empty, at most 255 bytes, no leading '.', no '/', no '..'");
}

void check_coverage(const Coverage& coverage, const std::string& key, const ExperimentSpec& spec,
                    const Positions& positions) {
  try {
    owners_of(coverage, spec.subnetwork.workers);
  } catch (const UsageError& error) {
    fail_at(positions.of(key), key, error.what());
  }
}

void check_rule(const ExperimentSpec& spec, const Positions& positions, size_t index) {
  const SubnetworkRule& rule = spec.subnetwork.rules[index];
  const std::string key = fmt::format("subnetwork.rules[{}]", index);
  if (rule.coverage) check_coverage(*rule.coverage, key + ".coverage", spec, positions);
  if (rule.coverage && !spec.subnetwork.capacities.empty())
    fail_at(positions.of(key + ".coverage"), key + ".coverage",
            "found a coverage beside subnetwork.capacities, expected one of them: capacities determine the "
            "number of owners");
}

/// Checks that the model has what is divided.
void check_construction(const ExperimentSpec& spec, const Positions& positions) {
  if (!spec.model.has_slices() && spec.subnetwork.construction == Construction::kNeuron)
    fail_at(positions.of("subnetwork.construction"), "subnetwork.construction",
            "found neuron, expected block: the branches of a network in Python are not divided into slices");
}

void check_branch_scale(const ExperimentSpec& spec, const Positions& positions) {
  if (spec.subnetwork.branch_scale == TrainingScale::kInverse &&
      spec.eval.branch_scale == BranchScale::kSurvival)
    fail_at(
        positions.of("eval.branch_scale"), "eval.branch_scale",
        "found survival beside subnetwork.branch_scale inverse, expected auto or none: branches that were "
        "scaled in training have factor 1 in the assembled model");
}

void check_capacities(const ExperimentSpec& spec, const Positions& positions) {
  const SubnetworkSpec& subnetwork = spec.subnetwork;
  const std::string key = "subnetwork.capacities";
  if (subnetwork.capacities.empty()) return;
  const auto refuse = [&](const std::string& why) { fail_at(positions.of(key), key, why); };
  if (std::ssize(subnetwork.capacities) != subnetwork.workers)
    refuse(fmt::format("found {} capacities, expected one for each of the {} workers",
                       subnetwork.capacities.size(), subnetwork.workers));
  if (subnetwork.construction != Construction::kNeuron)
    refuse(
        "found capacities, expected none: only construction neuron divides branches into slices, of which "
        "workers can own different numbers");
  if (value_of(subnetwork.coverage) != 1)
    refuse("found capacities beside subnetwork.coverage " + subnetwork.coverage.text +
           ", expected one of them. With capacities, C is their mean");
  if (subnetwork.assignment != Assignment::kBalanced && subnetwork.assignment != Assignment::kFile)
    refuse(fmt::format("found capacities with assignment {}, expected balanced or file",
                       name_of(subnetwork.assignment)));
}

void check_assignment_file(const ExperimentSpec& spec, const Positions& positions, NamedFiles named_files) {
  const std::string key = "subnetwork.assignment_file";
  const std::string& file = spec.subnetwork.assignment_file;
  const bool is_used = spec.subnetwork.assignment == Assignment::kFile;
  if (is_used && file.empty())
    fail_at(positions.of(key), key, "missing, expected a plan.json, which 'assignment: file' reads");
  if (!is_used && !file.empty())
    fail_at(positions.of(key), key,
            "found '" + shortened(file) + "', expected no file: only 'assignment: file' reads one");
  std::error_code ignored;
  if (is_used && named_files == NamedFiles::kMustExist && !std::filesystem::is_regular_file(file, ignored))
    fail_at(positions.of(key), key, "found '" + shortened(file) + "', expected a file that exists");
}

/// Checks products of numbers. Each number alone is within its limits.
void check_products(const ExperimentSpec& spec, const Positions& positions) {
  constexpr int64_t kMostSlots = 1 << 14;
  constexpr int64_t kMostSamples = 1 << 30;
  const int64_t slots = spec.subnetwork.workers * spec.subnetwork.replicas;
  if (slots > kMostSlots)
    fail_at(positions.of("subnetwork.replicas"), "subnetwork.replicas",
            "found " + std::to_string(spec.subnetwork.workers) + " workers x " +
                std::to_string(spec.subnetwork.replicas) + " replicas, expected a product of at most " +
                std::to_string(kMostSlots));
  const int64_t samples_per_slot = spec.train.batch_size_per_worker * spec.train.accumulate_steps;
  if (samples_per_slot * slots > kMostSamples)
    fail_at(positions.of("train.batch_size_per_worker"), "train.batch_size_per_worker",
            "found " + std::to_string(spec.train.batch_size_per_worker) + " samples x " +
                std::to_string(spec.train.accumulate_steps) + " micro-batches x " + std::to_string(slots) +
                " workers x replicas, expected at most " + std::to_string(kMostSamples) +
                " samples per step");
}

void check_optimizer(const ExperimentSpec& spec, const Positions& positions) {
  spec.optimizer.check(positions);
}

void check_model_sizes(const ExperimentSpec& spec, const Positions& positions) {
  ModelSpec model = spec.model;
  resolve_model(model);
  check_model(model, positions);
}

void check_milestones(const ExperimentSpec& spec, const Positions& positions) {
  const auto& milestones = spec.schedule.milestones;
  if (std::adjacent_find(milestones.begin(), milestones.end(), std::greater_equal()) != milestones.end())
    fail_at(positions.of("schedule.milestones"), "schedule.milestones",
            "found a share below the previous one or equal to it, expected increasing shares, such as [0.5, "
            "0.75]");
}

/// Checks that an image model has images and a language model has tokens.
void check_data_kind(const ExperimentSpec& spec, const Positions& positions) {
  const bool has_tokens = spec.data.is_of_tokens();
  if (has_tokens != spec.model.reads_tokens())
    fail_at(positions.of("data.name"), "data.name",
            "found " + std::string(spec.data.name()) + ", expected " +
                (spec.model.reads_tokens() ? "tokens" : "images") + ": model.name is " +
                std::string(spec.model.name()));
  const std::optional<int64_t> most_tokens = has_tokens ? spec.model.most_tokens() : std::nullopt;
  if (most_tokens && spec.data.sequence_length() > *most_tokens)
    fail_at(positions.of("data.sequence_length"), "data.sequence_length",
            "found " + std::to_string(spec.data.sequence_length()) + ", expected at most " +
                std::to_string(*most_tokens) + ", the number of positions that " +
                std::string(spec.model.name()) + " has");
  const auto refuse_mixing = [&](const char* key, double alpha) {
    if (has_tokens && alpha > 0)
      fail_at(positions.of(key), key,
              "found " + yaml_text(alpha) + ", expected 0: tokens cannot be mixed, only images can");
  };
  refuse_mixing("data.mixup_alpha", spec.data.mixup_alpha);
  refuse_mixing("data.cutmix_alpha", spec.data.cutmix_alpha);
}

/// Checks that the data set's images allow the kind of crop.
void check_augmentation(const ExperimentSpec& spec, const Positions& positions) {
  if (!spec.data.augment) return;
  const bool is_streamed = spec.data.kind() == DataKind::kStreamedImages;
  const Augmentation refused = is_streamed ? Augmentation::kCrop : Augmentation::kResizedCrop;
  const auto& steps = *spec.data.augment;
  if (std::find(steps.begin(), steps.end(), refused) != steps.end())
    fail_at(positions.of("data.augment"), "data.augment",
            "found " + yaml_text(steps) + ", expected " +
                (is_streamed ? "resized_crop instead of crop: the images differ in size"
                             : "crop instead of resized_crop, which is for imagenet"));
}

/// Checks that only images have a normalization, with a value per channel.
void check_normalization(const ExperimentSpec& spec, const Positions& positions) {
  DataSpec with_own = spec.data;
  with_own.normalization = {};
  const std::optional<Normalization> own = with_own.pixel_normalization();
  const auto check = [&](const std::string& key, const std::optional<std::vector<double>>& values) {
    if (values && (!own || values->size() != own->mean.size()))
      fail_at(positions.of(key), key,
              "found " + yaml_text(*values) + ", expected " +
                  (own ? std::to_string(own->mean.size()) + " in all, one per channel of "
                       : std::string("none: only images have pixels, not ")) +
                  std::string(spec.data.name()));
  };
  check("data.normalization.mean", spec.data.normalization.mean);
  check("data.normalization.std", spec.data.normalization.stddev);
}

/// Checks that NCCL is only chosen for GPUs.
void check_backend(const ExperimentSpec& spec, const Positions& positions) {
  if (spec.train.backend == BackendKind::kNccl && spec.train.device == DeviceKind::kCpu)
    fail_at(positions.of("train.backend"), "train.backend",
            "found nccl, expected gloo or auto: train.device is cpu");
}

/// Checks that a step is the same kernels every time.
void check_cuda_graph(const ExperimentSpec& spec, const Positions& positions) {
  if (!spec.train.cuda_graph) return;
  const auto fail = [&](const std::string& found) {
    fail_at(positions.of("train.cuda_graph"), "train.cuda_graph", "found true, expected false: " + found);
  };
  if (spec.train.device == DeviceKind::kCpu) fail("train.device is cpu");
  if (spec.model.draws_random_numbers())
    fail("the model draws random numbers (model.dropout, model.stochastic_depth, a network in Python)");
  if (spec.data.mixup_alpha > 0 || spec.data.cutmix_alpha > 0) fail("mixed images have a share of their own");
}

/// Checks that nothing contradicts local steps.
void check_local_steps(const ExperimentSpec& spec, const Positions& positions) {
  if (!spec.exchange.is_local()) return;
  if (spec.train.cuda_graph)
    fail_at(positions.of("train.cuda_graph"), "train.cuda_graph",
            "found true with local steps (exchange.every_steps), expected false");
  const OuterSpec& outer = spec.exchange.outer;
  check_nesterov(outer.nesterov, outer.momentum, "exchange.outer.nesterov", positions);
}

/// Checks that only images that are held in memory are to be kept on the device.
void check_location(const ExperimentSpec& spec, const Positions& positions) {
  const bool fits = spec.data.kind() == DataKind::kHeldImages;
  if (spec.data.location == DataLocation::kDevice && !fits)
    fail_at(positions.of("data.location"), "data.location",
            "found device, expected host or auto: " + std::string(spec.data.name()) +
                " is read from its files during training");
}

/// Where a relative path starts, so that a run started in the wrong directory shows as one.
std::string starting_point(const std::filesystem::path& path) {
  if (path.is_absolute()) return "";
  std::error_code error;
  const auto directory = std::filesystem::current_path(error);
  return error ? "" : " (relative to the working directory, '" + directory.string() + "')";
}

/// The files that the data set consists of, the command that fetches them, and how to train on data in the
/// source tree instead: the 5,000 images of CIFAR-10 in examples/data, or tokens made from the documentation.
/// The commands are to be run in the root of the source tree.
std::string missing_data_advice(const ExperimentSpec& spec) {
  const MissingData missing = spec.data.set.visit([&](const auto& set) { return set.missing(); });
  return "It must contain " + missing.files + ". To get them, run:\n  " + missing.command + " " +
         shell_word(spec.data.path) + "\nTo train " + missing.other_data + " instead, run:\n" +
         missing.other_commands +
         (spec.train.precision == Precision::kBf16 && !spec.data.is_of_tokens()
              ? "\nOn a CPU, add --set train.precision=fp32, which is several times as fast as bf16 there."
              : "");
}

void check_data_folder(const ExperimentSpec& spec, const Positions& positions) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(spec.data.path, ignored))
    fail_at(positions.of("data.path"), "data.path",
            "found '" + shortened(spec.data.path) + "'" + starting_point(spec.data.path) +
                ", expected a folder that exists. " + missing_data_advice(spec));
}

/// A test set of images is small compared with the training set. A test set of tokens may be larger than all
/// the tokens that a run trains on, so the length of an evaluation is given in training steps. The size of
/// the test set is not known here.
void resolve_eval_samples(ExperimentSpec& spec) {
  constexpr int64_t kEvalImages = 100;
  constexpr int64_t kEvalSequences = 4;
  constexpr int64_t kEvalSteps = 20;
  constexpr int64_t kEvalStepsPerSubnetwork = 5;
  const bool is_of_tokens = spec.data.is_of_tokens();
  EvalSpec& eval = spec.eval;
  if (!eval.batch_size) eval.batch_size = is_of_tokens ? kEvalSequences : kEvalImages;
  if (!is_of_tokens) return;
  if (!eval.max_samples) eval.max_samples = kEvalSteps * samples_per_step(spec);
  if (!eval.max_samples_per_subnetwork)
    eval.max_samples_per_subnetwork = kEvalStepsPerSubnetwork * samples_per_step(spec);
}

}  // namespace

void check_across_keys(const ExperimentSpec& spec, const Positions& positions, NamedFiles named_files,
                       UsageErrors& errors) {
  using Check = std::function<void(const ExperimentSpec&, const Positions&)>;
  const auto check = [&](std::initializer_list<const char*> keys, const Check& of_keys) {
    if (std::any_of(keys.begin(), keys.end(), [&](const char* key) { return errors.concern(key); })) return;
    errors.collect(positions.of(*keys.begin()), *keys.begin(), [&] { of_keys(spec, positions); });
  };
  check({"name"}, check_name);
  check({"subnetwork.coverage", "subnetwork.workers"}, [](const auto& s, const auto& at) {
    check_coverage(s.subnetwork.coverage, "subnetwork.coverage", s, at);
  });
  for (size_t i = 0; i < spec.subnetwork.rules.size(); ++i)
    check({"subnetwork.rules", "subnetwork.workers"},
          [i](const auto& s, const auto& at) { check_rule(s, at, i); });
  check({"subnetwork.capacities", "subnetwork.workers"}, check_capacities);
  check({"eval.branch_scale", "subnetwork.branch_scale"}, check_branch_scale);
  check({"subnetwork.assignment_file", "subnetwork.assignment"},
        [&](const auto&, const auto&) { check_assignment_file(spec, positions, named_files); });
  check(
      {"train.batch_size_per_worker", "train.accumulate_steps", "subnetwork.workers", "subnetwork.replicas"},
      check_products);
  check({"optimizer"}, check_optimizer);
  check({"schedule.milestones"}, check_milestones);
  check({"data.name", "model.name", "data.sequence_length", "model.context_length"}, check_data_kind);
  check({"data.augment", "data.name"}, check_augmentation);
  check({"data.location", "data.name"}, check_location);
  check({"data.normalization", "data.name"}, check_normalization);
  check({"subnetwork.construction", "model.name"}, check_construction);
  check({"train.backend", "train.device"}, check_backend);
  check({"train.cuda_graph", "train.device", "model", "data"}, check_cuda_graph);
  check({"exchange", "train.cuda_graph"}, check_local_steps);
  check({"model"}, check_model_sizes);
  if (named_files == NamedFiles::kMustExist) check({"data.path", "data.name"}, check_data_folder);
}

std::vector<std::string> find_warnings(const ExperimentSpec& spec, const Positions& positions) {
  std::vector<std::string> warnings;
  collect_advice(spec, "", positions, warnings);
  for (const auto& [key, applies, message] : kAdviceAcross)
    if (positions.is_set(key) && applies(spec))
      warnings.push_back(positions.of(key).prefix() + key + ": " + message);
  return warnings;
}

void resolve(ExperimentSpec& spec) {
  constexpr int64_t kRecalibrateBatches = 100;
  resolve_model(spec.model);
  resolve_eval_samples(spec);
  spec.data.set.visit([&]<class Set>(Set& set) {
    if (!spec.data.augment) spec.data.augment = Set::usual_augmentation();
    set.resolve(spec.model);
  });
  if (auto normalization = spec.data.pixel_normalization())
    spec.data.normalization = {.mean = normalization->mean, .stddev = normalization->stddev};
  const bool misses_branches = spec.subnetwork.may_lack_units();
  if (!spec.eval.recalibrate_batches)
    spec.eval.recalibrate_batches = spec.model.has_batch_norm() && misses_branches ? kRecalibrateBatches : 0;
}

void unset_defaults(ExperimentSpec& spec) {
  ExperimentSpec defaults = spec;
  defaults.eval = {};
  resolve(defaults);
  for (const auto key :
       {&EvalSpec::max_samples, &EvalSpec::max_samples_per_subnetwork, &EvalSpec::recalibrate_batches})
    if (spec.eval.*key == defaults.eval.*key) (spec.eval.*key).reset();
}

}  // namespace sdp
