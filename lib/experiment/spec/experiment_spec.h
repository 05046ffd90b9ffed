#pragma once

// The experiment as its YAML file says it: one struct per owner, every default written once, in its
// initialiser. The `fields` list of a struct is the only place that knows its keys; parsing, `sdp-train
// spec`, the JSON Schema, the saved spec.yaml, `--resume` and `report` all walk it (spec/visit.h).
//
// Plain values: no tensor, no rank, no file handle.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/model_spec.h"
#include "spec/field.h"
#include "spec/limits.h"
#include "spec/visit.h"

namespace sdp {

enum class DatasetName { kCifar10, kCifar100, kSvhn, kImageNet, kTokens };
enum class Augmentation { kCrop, kResizedCrop, kFlip };
enum class DataLocation { kAuto, kHost, kDevice };
enum class OnError { kError, kSkip };
enum class Construction { kBlock, kNeuron };
enum class Masking { kForward, kBackward };
enum class UnitKind { kBlock, kBranch };
enum class Assignment { kBalanced, kEqualUnits, kWindow, kRandom, kFile };
enum class NodePlacement { kInOrder, kPack, kSpread };
enum class OptimizerName { kSgd, kAdamW };
enum class ScheduleName { kConstant, kCosine, kStep, kLinear };
enum class Budget { kEpochs, kFlops, kCoverage };
enum class Precision { kFp64, kFp32, kBf16 };
enum class WireType { kFp32, kBf16 };
enum class DeviceKind { kAuto, kCpu, kCuda };
enum class BackendKind { kAuto, kNccl, kGloo };
enum class EvalMode { kFull, kStreamed };
enum class ReduceEvery { kStep, kMicroBatch };
enum class OnNonfinite { kStop, kSkip };
enum class BranchScale { kAuto, kNone, kSurvival };

SDP_ENUM_NAMES(DatasetName, {DatasetName::kCifar10, "cifar10"}, {DatasetName::kCifar100, "cifar100"},
               {DatasetName::kSvhn, "svhn"}, {DatasetName::kImageNet, "imagenet"},
               {DatasetName::kTokens, "tokens"})
SDP_ENUM_NAMES(Augmentation, {Augmentation::kCrop, "crop"}, {Augmentation::kResizedCrop, "resized_crop"},
               {Augmentation::kFlip, "flip"})
SDP_ENUM_NAMES(DataLocation, {DataLocation::kAuto, "auto"}, {DataLocation::kHost, "host"},
               {DataLocation::kDevice, "device"})
SDP_ENUM_NAMES(OnError, {OnError::kError, "error"}, {OnError::kSkip, "skip"})
SDP_ENUM_NAMES(Construction, {Construction::kBlock, "block"}, {Construction::kNeuron, "neuron"})
SDP_ENUM_NAMES(Masking, {Masking::kForward, "forward"}, {Masking::kBackward, "backward"})
SDP_ENUM_NAMES(UnitKind, {UnitKind::kBlock, "block"}, {UnitKind::kBranch, "branch"})
SDP_ENUM_NAMES(Assignment, {Assignment::kBalanced, "balanced"}, {Assignment::kEqualUnits, "equal_units"},
               {Assignment::kWindow, "window"}, {Assignment::kRandom, "random"}, {Assignment::kFile, "file"})
SDP_ENUM_NAMES(NodePlacement, {NodePlacement::kInOrder, "in_order"}, {NodePlacement::kPack, "pack"},
               {NodePlacement::kSpread, "spread"})
SDP_ENUM_NAMES(OptimizerName, {OptimizerName::kSgd, "sgd"}, {OptimizerName::kAdamW, "adamw"})
SDP_ENUM_NAMES(ScheduleName, {ScheduleName::kConstant, "constant"}, {ScheduleName::kCosine, "cosine"},
               {ScheduleName::kStep, "step"}, {ScheduleName::kLinear, "linear"})
SDP_ENUM_NAMES(Budget, {Budget::kEpochs, "epochs"}, {Budget::kFlops, "flops"},
               {Budget::kCoverage, "coverage"})
SDP_ENUM_NAMES(Precision, {Precision::kFp64, "fp64"}, {Precision::kFp32, "fp32"}, {Precision::kBf16, "bf16"})
SDP_ENUM_NAMES(WireType, {WireType::kFp32, "fp32"}, {WireType::kBf16, "bf16"})
SDP_ENUM_NAMES(DeviceKind, {DeviceKind::kAuto, "auto"}, {DeviceKind::kCpu, "cpu"},
               {DeviceKind::kCuda, "cuda"})
SDP_ENUM_NAMES(BackendKind, {BackendKind::kAuto, "auto"}, {BackendKind::kNccl, "nccl"},
               {BackendKind::kGloo, "gloo"})
SDP_ENUM_NAMES(EvalMode, {EvalMode::kFull, "full"}, {EvalMode::kStreamed, "streamed"})
SDP_ENUM_NAMES(BranchScale, {BranchScale::kAuto, "auto"}, {BranchScale::kNone, "none"},
               {BranchScale::kSurvival, "survival"})

SDP_ENUM_NAMES(ReduceEvery, {ReduceEvery::kStep, "step"}, {ReduceEvery::kMicroBatch, "micro_batch"})
SDP_ENUM_NAMES(OnNonfinite, {OnNonfinite::kStop, "stop"}, {OnNonfinite::kSkip, "skip"})

/// Keys that are unset here get the data set's own value; a loaded spec has them all but the file names.
struct DataSpec {
  DatasetName name = DatasetName::kCifar10;
  std::string path;
  std::optional<std::string> train_files = {};
  std::optional<std::string> test_files = {};
  std::optional<std::string> index_dir = {};
  bool svhn_extra = false;
  std::optional<std::vector<Augmentation>> augment = {};
  std::optional<int64_t> eval_resize = {};
  bool scaled_decoding = true;
  int64_t max_image_pixels = 50'000'000;
  double mixup_alpha = 0;
  double cutmix_alpha = 0;
  int64_t sequence_length = 1024;
  int64_t loader_threads = 1;
  int64_t prefetch_batches = 4;
  DataLocation location = DataLocation::kAuto;
  OnError on_error = OnError::kError;

  bool operator==(const DataSpec&) const = default;

  template <class Visitor>
  static void fields(Visitor& field) {
    field("name", &DataSpec::name, "data set", OnResume::kFixed, InReport::kNotCompared);
    field("path", &DataSpec::path, "folder of the data set, in its official format (docs/data.md)",
          OnResume::kFree, InReport::kNotCompared, kRequired);
    field("train_files", &DataSpec::train_files,
          "tokens, imagenet's shards: names of the training files in `path`, with * and ?; unset: "
          "*train*.bin and "
          "*train*.tar",
          OnResume::kFixed, InReport::kNotCompared);
    field("test_files", &DataSpec::test_files,
          "the same of the files that are evaluated on; unset: *val*.bin or *test*.bin, *val*.tar and "
          "*test*.tar",
          OnResume::kRestOfRun, InReport::kCompared);
    field("index_dir", &DataSpec::index_dir,
          "imagenet: folder for the list of its files, which saves reading it anew; unset: `path`",
          OnResume::kFree, InReport::kNotCompared);
    field("svhn_extra", &DataSpec::svhn_extra, "svhn: train on the set `extra` too", OnResume::kFixed,
          InReport::kNotCompared);
    field(
        "augment", &DataSpec::augment,
        "training augmentations: crop (4 pixels of zeros around, random position), resized_crop (random area "
        "and aspect ratio), flip (horizontal); unset: [crop, flip], svhn [crop], imagenet [resized_crop, "
        "flip]",
        OnResume::kFixed, InReport::kCompared);
    field("eval_resize", &DataSpec::eval_resize,
          "imagenet: shorter side before the centre crop in evaluation; unset: 8/7 of model.image_size",
          OnResume::kRestOfRun, InReport::kCompared, in_range(1, 2 * kMostImageSize), "pixels");
    field("scaled_decoding", &DataSpec::scaled_decoding,
          "imagenet: decode JPEGs at a fraction of their size where the crop is larger than needed",
          OnResume::kRestOfRun, InReport::kCompared);
    field(
        "max_image_pixels", &DataSpec::max_image_pixels,
        "imagenet: an image of more pixels counts as damaged and is not decoded; decoding a progressive JPEG "
        "takes up to 6 bytes per pixel in each loader thread",
        OnResume::kRestOfRun, InReport::kCompared, in_range(1, 1 << 28), "pixels");
    field("mixup_alpha", &DataSpec::mixup_alpha,
          "mixup (Zhang et al. 2018): images of a batch are mixed in a share out of Beta(alpha, alpha); 0: "
          "none",
          OnResume::kFixed, InReport::kCompared, at_least(0));
    field(
        "cutmix_alpha", &DataSpec::cutmix_alpha,
        "cutmix (Yun et al. 2019): a box of an image is another's; with mixup, each has half of the batches; "
        "0: none",
        OnResume::kFixed, InReport::kCompared, at_least(0));
    field("sequence_length", &DataSpec::sequence_length, "tokens: length of a training sample",
          OnResume::kFixed, InReport::kCompared, in_range(1, 1 << 20), "tokens");
    field("loader_threads", &DataSpec::loader_threads, "threads per process that prepare batches",
          OnResume::kFree, InReport::kCompared, in_range(1, 1024));
    field("prefetch_batches", &DataSpec::prefetch_batches, "batches prepared ahead", OnResume::kFree,
          InReport::kCompared, in_range(1, 1 << 16), "batches");
    field(
        "location", &DataSpec::location,
        "where images are kept and augmented: host, or all of them on the device (cifar10, cifar100, svhn); "
        "auto: device on CUDA, up to 1 GiB of pixels",
        OnResume::kFree, InReport::kCompared);
    field(
        "on_error", &DataSpec::on_error,
        "imagenet: a damaged image is an error, or skipped and counted: in training another takes its place",
        OnResume::kRestOfRun, InReport::kCompared);
  }
};

struct SubnetworkSpec {
  int64_t workers = 1;
  int64_t replicas = 1;
  Coverage coverage;
  Construction construction = Construction::kBlock;
  Masking masking = Masking::kForward;
  UnitKind unit = UnitKind::kBlock;
  std::optional<int64_t> slices_per_branch;
  Assignment assignment = Assignment::kBalanced;
  std::string assignment_file;
  NodePlacement placement = NodePlacement::kInOrder;

  bool operator==(const SubnetworkSpec&) const = default;

  /// Every worker owns everything. Throws UsageError as owners_of.
  bool is_dense() const { return owners_of(coverage, workers) == workers; }

  template <class Visitor>
  static void fields(Visitor& field) {
    field("workers", &SubnetworkSpec::workers, "n, the number of subnetworks; n times R: at most 16384",
          OnResume::kFixed, InReport::kCompared, in_range(1, 1024));
    field("replicas", &SubnetworkSpec::replicas, "R, data-parallel copies of every worker", OnResume::kFixed,
          InReport::kCompared, in_range(1, 16384));
    field("coverage", &SubnetworkSpec::coverage,
          "C = p/n, the share of workers that hold a unit, as 4/8 or 0.5", OnResume::kFixed,
          InReport::kInRegime);
    field("construction", &SubnetworkSpec::construction,
          "unit: a whole residual branch (block) or a slice of its hidden width (neuron)", OnResume::kFixed,
          InReport::kInRegime);
    field("masking", &SubnetworkSpec::masking,
          "units not owned are absent (forward) or present and frozen (backward)", OnResume::kFixed,
          InReport::kInRegime);
    field(
        "unit", &SubnetworkSpec::unit,
        "branches of a block are assigned together (block) or each (branch); with construction neuron: their "
        "slices of the same number",
        OnResume::kFixed, InReport::kFollowsRegime);
    field("slices_per_branch", &SubnetworkSpec::slices_per_branch,
          "construction neuron: slices of a branch's hidden width, at most its heads in attention; unset: n",
          OnResume::kFixed, InReport::kFollowsRegime, in_range(1, 1 << 20), "slices",
          advise_when<SubnetworkSpec>(
              [](const SubnetworkSpec& s) { return s.construction == Construction::kBlock; },
              "has no effect: only the construction neuron slices branches"));
    field("assignment", &SubnetworkSpec::assignment,
          "how owner sets are chosen; balanced: even FLOPs, then even memory, then good mixing; equal_units: "
          "the same among those where the workers' numbers of units differ by at most one (units assigned "
          "together count once; balanced gives that too in construction neuron with a multiple of n slices); "
          "window: unit i to workers i to i+p-1, modulo n; random: drawn for each unit; file: read from "
          "assignment_file",
          OnResume::kFixed, InReport::kCompared,
          advise_when<SubnetworkSpec>(
              [](const SubnetworkSpec& s) { return s.assignment != Assignment::kBalanced && s.is_dense(); },
              "has no effect: with coverage 1 every worker holds everything"));
    field("assignment_file", &SubnetworkSpec::assignment_file, "assignment file: a plan.json with owner sets",
          OnResume::kFixed, InReport::kCompared);
    field("placement", &SubnetworkSpec::placement,
          "which processes share a node, where there are several: neighbours by worker (in_order), workers "
          "that own the same units, so that the fewest bytes pass between nodes (pack), or workers that do "
          "not, so that a unit's owners sit in different nodes (spread); results are the same",
          OnResume::kFree, InReport::kCompared,
          advise_when<SubnetworkSpec>(
              [](const SubnetworkSpec& s) { return s.placement != NodePlacement::kInOrder && s.is_dense(); },
              "has no effect: with coverage 1 all workers own the same"));
  }
};

struct OptimizerSpec {
  OptimizerName name = OptimizerName::kSgd;
  double lr = 0.1;
  double momentum = 0.9;
  bool nesterov = false;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 5e-4;
  bool decay_norms_and_biases = true;
  double clip_norm = 0;
  bool shard = true;

  bool operator==(const OptimizerSpec&) const = default;

  template <class Visitor>
  static void fields(Visitor& field) {
    field("name", &OptimizerSpec::name, "update rule", OnResume::kFixed, InReport::kCompared);
    field("lr", &OptimizerSpec::lr, "peak learning rate", OnResume::kRestOfRun, InReport::kCompared,
          positive());
    field("momentum", &OptimizerSpec::momentum, "sgd: momentum", OnResume::kFixed, InReport::kCompared,
          at_least_and_below(0, 1));
    field("nesterov", &OptimizerSpec::nesterov, "sgd: Nesterov's form of momentum", OnResume::kRestOfRun,
          InReport::kCompared);
    field("beta1", &OptimizerSpec::beta1, "adamw: decay of the first moment", OnResume::kRestOfRun,
          InReport::kCompared, at_least_and_below(0, 1));
    field("beta2", &OptimizerSpec::beta2, "adamw: decay of the second moment", OnResume::kRestOfRun,
          InReport::kCompared, at_least_and_below(0, 1));
    field("eps", &OptimizerSpec::eps, "adamw: added to the root of the second moment", OnResume::kRestOfRun,
          InReport::kCompared, positive());
    field("weight_decay", &OptimizerSpec::weight_decay, "sgd: L2 term; adamw: decoupled decay",
          OnResume::kRestOfRun, InReport::kCompared, at_least(0));
    field("decay_norms_and_biases", &OptimizerSpec::decay_norms_and_biases,
          "apply weight_decay to normalisation parameters and biases too", OnResume::kRestOfRun,
          InReport::kCompared,
          advise_when<OptimizerSpec>([](const OptimizerSpec& s) { return s.weight_decay == 0; },
                                     "has no effect: weight_decay is 0"));
    field("clip_norm", &OptimizerSpec::clip_norm, "largest global gradient norm; 0: no clipping",
          OnResume::kRestOfRun, InReport::kCompared, at_least(0));
    field("shard", &OptimizerSpec::shard,
          "split optimizer state over the owners; false: every holder keeps all of it", OnResume::kFree,
          InReport::kFollowsRegime);
  }
};

struct ScheduleSpec {
  ScheduleName name = ScheduleName::kCosine;
  double warmup_epochs = 0;
  std::optional<int64_t> warmup_steps;
  std::vector<double> milestones = {0.5, 0.75};
  double gamma = 0.1;
  double final_lr_factor = 0;

  bool operator==(const ScheduleSpec&) const = default;

  template <class Visitor>
  static void fields(Visitor& field) {
    field("name", &ScheduleSpec::name, "learning rate over the run", OnResume::kRestOfRun,
          InReport::kCompared);
    field("warmup_epochs", &ScheduleSpec::warmup_epochs, "linear warm-up from 0", OnResume::kRestOfRun,
          InReport::kCompared, in_range(0, 1e6), "epochs",
          advise_when<ScheduleSpec>([](const ScheduleSpec& s) { return s.warmup_steps.has_value(); },
                                    "has no effect: warmup_steps is set and replaces it"));
    field("warmup_steps", &ScheduleSpec::warmup_steps, "the same in steps; replaces warmup_epochs",
          OnResume::kRestOfRun, InReport::kCompared, in_range(0, kMostSteps), "steps");
    field("milestones", &ScheduleSpec::milestones,
          "step: shares of the run after which lr is multiplied by gamma, increasing", OnResume::kRestOfRun,
          InReport::kCompared, strictly_between(0, 1),
          advise_when<ScheduleSpec>([](const ScheduleSpec& s) { return s.name != ScheduleName::kStep; },
                                    "has no effect: only the schedule step uses it"));
    field("gamma", &ScheduleSpec::gamma, "step: factor at each milestone", OnResume::kRestOfRun,
          InReport::kCompared, positive(),
          advise_when<ScheduleSpec>([](const ScheduleSpec& s) { return s.name != ScheduleName::kStep; },
                                    "has no effect: only the schedule step uses it"));
    field("final_lr_factor", &ScheduleSpec::final_lr_factor,
          "cosine, linear: last learning rate over the peak", OnResume::kRestOfRun, InReport::kCompared,
          in_range(0, 1),
          advise_when<ScheduleSpec>(
              [](const ScheduleSpec& s) {
                return s.name != ScheduleName::kCosine && s.name != ScheduleName::kLinear;
              },
              "has no effect: only the schedules cosine and linear use it"));
  }
};

struct TrainSpec {
  double epochs = 10;
  std::optional<int64_t> max_steps;
  Budget budget = Budget::kEpochs;
  int64_t batch_size_per_worker = 64;
  int64_t accumulate_steps = 1;
  Precision precision = Precision::kFp32;
  DeviceKind device = DeviceKind::kAuto;
  BackendKind backend = BackendKind::kAuto;
  double bucket_megabytes = 25;
  std::optional<WireType> reduce_dtype;
  ReduceEvery reduce_every = ReduceEvery::kStep;
  bool release_gradients = true;
  bool checkpoint_activations = false;
  bool deterministic = false;
  int64_t profile_steps = 0;
  int64_t log_every_steps = 10;
  int64_t collective_timeout_s = 600;
  double label_smoothing = 0;
  OnNonfinite on_nonfinite = OnNonfinite::kStop;
  int64_t max_consecutive_skips = 10;

  bool operator==(const TrainSpec&) const = default;

  template <class Visitor>
  static void fields(Visitor& field) {
    field("epochs", &TrainSpec::epochs, "passes over the training set before `budget` scales them",
          OnResume::kRestOfRun, InReport::kCompared, more_than_and_at_most(0, 1e6), "epochs",
          advise_when<TrainSpec>([](const TrainSpec& s) { return s.max_steps.has_value(); },
                                 "has no effect: max_steps is set and replaces it"));
    field("max_steps", &TrainSpec::max_steps, "stop after so many steps; never scaled", OnResume::kRestOfRun,
          InReport::kCompared, in_range(1, kMostSteps), "steps");
    field("budget", &TrainSpec::budget,
          "length of the run: epochs as given; flops: times dense FLOPs over the plan's mean; coverage: "
          "times 1/C",
          OnResume::kRestOfRun, InReport::kCompared,
          advise_when<TrainSpec>([](const TrainSpec& s) { return s.max_steps.has_value(); },
                                 "has no effect: max_steps is set and never scaled"));
    field("batch_size_per_worker", &TrainSpec::batch_size_per_worker, "samples per micro-batch",
          OnResume::kFixed, InReport::kCompared, in_range(1, 1 << 20), "samples");
    field("accumulate_steps", &TrainSpec::accumulate_steps, "micro-batches per step", OnResume::kFixed,
          InReport::kCompared, in_range(1, 1 << 20), "micro-batches");
    field("precision", &TrainSpec::precision,
          "weights, activations and gradients; bf16 keeps sums, master values and moments in fp32",
          OnResume::kFixed, InReport::kCompared,
          advise_when<TrainSpec>(
              [](const TrainSpec& s) {
                return s.precision == Precision::kBf16 && s.device == DeviceKind::kCpu;
              },
              "bf16 is several times slower than fp32 on a CPU; use fp32 there"));
    field("device", &TrainSpec::device, "auto: CUDA where there is one", OnResume::kFree,
          InReport::kCompared);
    field("backend", &TrainSpec::backend,
          "of the collectives: nccl (one process per GPU), or gloo, which on CUDA exchanges through host "
          "memory and lets processes share a GPU; auto: nccl on CUDA, gloo on a CPU",
          OnResume::kFree, InReport::kCompared);
    field("bucket_megabytes", &TrainSpec::bucket_megabytes, "largest gradient bucket", OnResume::kFree,
          InReport::kCompared, more_than_and_at_most(0, 1e6), "MB");
    field("reduce_dtype", &TrainSpec::reduce_dtype,
          "type in which gradients are sent (sums are fp32); unset: the gradients' own", OnResume::kRestOfRun,
          InReport::kCompared);
    field("reduce_every", &TrainSpec::reduce_every,
          "with accumulate_steps: gradients are added up over the micro-batches and reduced once (step), or "
          "reduced after each (micro_batch), which sends accumulate_steps times as much and keeps only the "
          "own share of the sum",
          OnResume::kRestOfRun, InReport::kFollowsRegime);
    field("release_gradients", &TrainSpec::release_gradients,
          "exchange a bucket as soon as the backward pass has its gradients, and free their memory; with "
          "several workers per process or accumulate_steps, accumulate each gradient at once",
          OnResume::kFree, InReport::kFollowsRegime);
    field("checkpoint_activations", &TrainSpec::checkpoint_activations,
          "keep only the input of every residual branch for the backward pass, and compute the branch again",
          OnResume::kFree, InReport::kCompared);
    field(
        "deterministic", &TrainSpec::deterministic,
        "on CUDA use only kernels that give the same bits each time, which may be slower; a CPU's always do",
        OnResume::kFree, InReport::kNotCompared);
    field("profile_steps", &TrainSpec::profile_steps,
          "steps to record as profile-rank-N.json (Chrome's trace format) in the run's folder, from the "
          "fourth step on",
          OnResume::kFree, InReport::kNotCompared, in_range(0, kMostSteps), "steps");
    field("log_every_steps", &TrainSpec::log_every_steps, "interval between training lines in the metrics",
          OnResume::kFree, InReport::kCompared, in_range(1, kMostSteps), "steps");
    field(
        "collective_timeout_s", &TrainSpec::collective_timeout_s,
        "how long a process waits for the others at the start and in every exchange; one that does not come "
        "within it counts as lost",
        OnResume::kFree, InReport::kNotCompared, in_range(1, 1e6), "s");
    field("label_smoothing", &TrainSpec::label_smoothing, "cross-entropy label smoothing",
          OnResume::kRestOfRun, InReport::kCompared, in_range(0, 1));
    field("on_nonfinite", &TrainSpec::on_nonfinite,
          "a loss that is not finite ends the run (stop), or the step is not applied (skip), nor one whose "
          "gradient is not finite; skip exchanges a flag per worker in every step",
          OnResume::kRestOfRun, InReport::kCompared);
    field("max_consecutive_skips", &TrainSpec::max_consecutive_skips,
          "on_nonfinite skip: one more step in a row than so many ends the run", OnResume::kRestOfRun,
          InReport::kCompared, in_range(0, kMostSteps), "steps",
          advise_when<TrainSpec>([](const TrainSpec& s) { return s.on_nonfinite == OnNonfinite::kStop; },
                                 "has no effect: only on_nonfinite skip uses it"));
  }
};

struct CheckpointSpec {
  static constexpr Treatment treatment{OnResume::kFree, InReport::kNotCompared};

  double every_epochs = 10;
  std::optional<int64_t> every_steps;
  double every_minutes = 0;
  int64_t keep_last = 2;
  bool at_start = false;

  bool operator==(const CheckpointSpec&) const = default;

  template <class Visitor>
  static void fields(Visitor& field) {
    field("every_epochs", &CheckpointSpec::every_epochs, "interval between checkpoints; 0: only at the end",
          at_least(0), "epochs",
          advise_when<CheckpointSpec>([](const CheckpointSpec& s) { return s.every_steps.has_value(); },
                                      "has no effect: every_steps is set and replaces it"));
    field("every_steps", &CheckpointSpec::every_steps, "the same in steps; replaces every_epochs",
          in_range(1, kMostSteps), "steps");
    field("every_minutes", &CheckpointSpec::every_minutes,
          "also at the first logging interval that is at least this long after the last checkpoint; 0: not "
          "by time",
          at_least(0), "minutes");
    field("keep_last", &CheckpointSpec::keep_last, "checkpoints kept", in_range(1, kMostSteps));
    field("at_start", &CheckpointSpec::at_start, "save step 0 as well");
  }
};

struct EvalSpec {
  double every_epochs = 1;
  EvalMode mode = EvalMode::kFull;
  std::optional<int64_t> recalibrate_batches;
  BranchScale branch_scale = BranchScale::kAuto;
  std::optional<int64_t> batch_size;
  std::optional<int64_t> max_samples;
  std::optional<int64_t> max_samples_per_subnetwork;

  bool operator==(const EvalSpec&) const = default;

  template <class Visitor>
  static void fields(Visitor& field) {
    field("every_epochs", &EvalSpec::every_epochs, "interval between evaluations; 0: only at the end",
          OnResume::kFree, InReport::kNotCompared, at_least(0), "epochs");
    field("mode", &EvalSpec::mode, "assemble the full model on every process, or stream it branch by branch",
          OnResume::kFree, InReport::kFollowsRegime);
    field("recalibrate_batches", &EvalSpec::recalibrate_batches,
          "training batches that re-estimate BatchNorm statistics of the assembled model; 0: none; unset: "
          "100 under "
          "forward masking with C < 1, else 0",
          OnResume::kFree, InReport::kFollowsRegime, in_range(0, kMostSteps), "batches");
    field(
        "branch_scale", &EvalSpec::branch_scale,
        "factor on every branch's output in the assembled model: none, survival (its coverage), or auto: of "
        "these two the one whose loss on a few training batches is lower",
        OnResume::kFree, InReport::kFollowsRegime);
    field("batch_size", &EvalSpec::batch_size, "samples of an evaluation batch; unset: 100, of tokens 4",
          OnResume::kFree, InReport::kCompared, in_range(1, 1 << 20), "samples");
    field("max_samples", &EvalSpec::max_samples,
          "samples that the assembled model is evaluated on, evenly spread over the test set; more than it "
          "has: all; unset: all, of tokens as many as 20 training steps use",
          OnResume::kFree, InReport::kNotCompared, in_range(1, kMostEvalSamples), "samples");
    field("max_samples_per_subnetwork", &EvalSpec::max_samples_per_subnetwork,
          "samples that each single subnetwork is evaluated on, evenly spread over max_samples; 0: none; "
          "unset: as max_samples, of tokens as many as 5 training steps use",
          OnResume::kFree, InReport::kNotCompared, in_range(0, kMostEvalSamples), "samples");
  }
};

struct OutputSpec {
  static constexpr Treatment treatment{OnResume::kFree, InReport::kNotCompared};

  std::string dir = "runs";
  bool trace = false;

  bool operator==(const OutputSpec&) const = default;

  template <class Visitor>
  static void fields(Visitor& field) {
    field("dir", &OutputSpec::dir, "folder of run folders");
    field("trace", &OutputSpec::trace, "write trace.jsonl: loss and sample indices of every step and worker");
  }
};

struct ExperimentSpec {
  std::string name;
  int64_t seed = 0;
  ModelSpec model;
  DataSpec data;
  SubnetworkSpec subnetwork;
  OptimizerSpec optimizer;
  ScheduleSpec schedule;
  TrainSpec train;
  CheckpointSpec checkpoint;
  EvalSpec eval;
  OutputSpec output;

  bool operator==(const ExperimentSpec&) const = default;

  template <class Visitor>
  static void fields(Visitor& field) {
    field("name", &ExperimentSpec::name, "name of the run folder", OnResume::kFree, InReport::kNotCompared,
          kRequired);
    field("seed", &ExperimentSpec::seed, "seed of every random choice", OnResume::kFixed,
          InReport::kNotCompared, at_least(0));
    field("model", &ExperimentSpec::model, "the network");
    field("data", &ExperimentSpec::data, "the data set");
    field("subnetwork", &ExperimentSpec::subnetwork, "how the network is divided over workers");
    field("optimizer", &ExperimentSpec::optimizer, "the update rule");
    field("schedule", &ExperimentSpec::schedule, "the learning-rate schedule");
    field("train", &ExperimentSpec::train, "the training loop");
    field("checkpoint", &ExperimentSpec::checkpoint, "saving");
    field("eval", &ExperimentSpec::eval, "evaluation of the assembled full model");
    field("output", &ExperimentSpec::output, "the run folder");
  }
};

}  // namespace sdp
