#pragma once

// The section `train` of a spec.

#include <cstdint>
#include <optional>

#include "comm/ranks.h"
#include "spec/field.h"
#include "spec/visit.h"
#include "subnet/element_type.h"
#include "subnet/exchange_plan.h"

namespace sdp {

enum class Budget { kEpochs, kFlops, kCoverage };
enum class DeviceKind { kAuto, kCpu, kCuda };
enum class OnNonfinite { kStop, kSkip };

SDP_ENUM_NAMES(Budget, {Budget::kEpochs, "epochs"}, {Budget::kFlops, "flops"},
               {Budget::kCoverage, "coverage"})
SDP_ENUM_NAMES(DeviceKind, {DeviceKind::kAuto, "auto"}, {DeviceKind::kCpu, "cpu"},
               {DeviceKind::kCuda, "cuda"})
SDP_ENUM_NAMES(OnNonfinite, {OnNonfinite::kStop, "stop"}, {OnNonfinite::kSkip, "skip"})

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
  bool cuda_graph = false;
  int64_t profile_steps = 0;
  int64_t log_every_steps = 10;
  int64_t collective_timeout_s = 600;
  double label_smoothing = 0;
  OnNonfinite on_nonfinite = OnNonfinite::kStop;
  int64_t max_consecutive_skips = 10;
  std::optional<int64_t> audit_every = {};

  bool operator==(const TrainSpec&) const = default;

  template <class Visitor>
  static void fields(Visitor& field) {
    field("epochs", &TrainSpec::epochs, "passes over the training set, before scaling by `budget`",
          OnResume::kRestOfRun, InReport::kCompared, more_than_and_at_most(0, 1e6), "epochs",
          advise_when<TrainSpec>([](const TrainSpec& s) { return s.max_steps.has_value(); },
                                 "has no effect: max_steps is set and replaces it"));
    field("max_steps", &TrainSpec::max_steps, "number of steps, which is never scaled; replaces epochs",
          OnResume::kRestOfRun, InReport::kCompared, in_range(1, kMostSteps), "steps");
    field(
        "budget", &TrainSpec::budget,
        "how the number of epochs is scaled: epochs: not at all; flops: by the full model's FLOPs divided by "
        "the workers' mean FLOPs; coverage: by 1/C",
        OnResume::kRestOfRun, InReport::kCompared,
        advise_when<TrainSpec>([](const TrainSpec& s) { return s.max_steps.has_value(); },
                               "has no effect: max_steps is set, and it is never scaled"));
    field("batch_size_per_worker", &TrainSpec::batch_size_per_worker, "samples per worker and micro-batch",
          OnResume::kRestOfRun, InReport::kCompared, in_range(1, 1 << 20), "samples");
    field("accumulate_steps", &TrainSpec::accumulate_steps, "micro-batches per step", OnResume::kRestOfRun,
          InReport::kCompared, in_range(1, 1 << 20), "micro-batches");
    field(
        "precision", &TrainSpec::precision,
        "type of weights, activations and gradients; with bf16, gradient sums, master weights and optimizer "
        "state are fp32",
        OnResume::kRestOfRun, InReport::kCompared);
    field("device", &TrainSpec::device, "auto: cuda if a GPU is available, otherwise cpu", OnResume::kFree,
          InReport::kCompared);
    field("backend", &TrainSpec::backend,
          "backend of the collectives: nccl (one process per GPU), or gloo, which on CUDA exchanges through "
          "host memory and lets processes share a GPU; auto: nccl on CUDA, gloo on a CPU",
          OnResume::kFree, InReport::kCompared);
    field("bucket_megabytes", &TrainSpec::bucket_megabytes, "largest size of a gradient bucket",
          OnResume::kFree, InReport::kCompared, more_than_and_at_most(0, 1e6), "MB");
    field("reduce_dtype", &TrainSpec::reduce_dtype,
          "type in which gradients are sent (they are summed in fp32); unset: the type of the gradients",
          OnResume::kRestOfRun, InReport::kCompared);
    field(
        "reduce_every", &TrainSpec::reduce_every,
        "with accumulate_steps > 1: whether gradients are reduced once per step, or after each micro-batch, "
        "which sends accumulate_steps times as much and keeps only the process's shard of them",
        OnResume::kRestOfRun, InReport::kFollowsRegime);
    field("release_gradients", &TrainSpec::release_gradients,
          "send each bucket as soon as the backward pass has computed its gradients, and free their memory; "
          "with "
          "several workers per process or accumulate_steps > 1, accumulate each gradient as soon as it is "
          "computed; false: after the backward pass",
          OnResume::kFree, InReport::kFollowsRegime);
    field("checkpoint_activations", &TrainSpec::checkpoint_activations,
          "save only the input of every residual branch for the backward pass, and recompute the branch",
          OnResume::kFree, InReport::kCompared);
    field("deterministic", &TrainSpec::deterministic,
          "on CUDA, use only deterministic kernels, which may be slower; on a CPU results are always "
          "deterministic",
          OnResume::kFree, InReport::kNotCompared);
    field(
        "cuda_graph", &TrainSpec::cuda_graph,
        "on a GPU with one process: launch the passes of a step as one CUDA graph, which saves the time that "
        "the host takes for small kernels; without dropout, stochastic depth and mixed images",
        OnResume::kFree, InReport::kNotCompared);
    field("profile_steps", &TrainSpec::profile_steps,
          "number of steps, from the sixth on, to record in profile-rank-N.json (Chrome trace format) in "
          "the run "
          "folder",
          OnResume::kFree, InReport::kNotCompared, in_range(0, kMostSteps), "steps");
    field("log_every_steps", &TrainSpec::log_every_steps, "interval between training records in the metrics",
          OnResume::kFree, InReport::kNotCompared, in_range(1, kMostSteps), "steps");
    field(
        "collective_timeout_s", &TrainSpec::collective_timeout_s,
        "how long a process waits for the others at startup and in every collective; a process that does not "
        "respond within this time counts as lost",
        OnResume::kFree, InReport::kNotCompared, in_range(1, 1e6), "s");
    field("label_smoothing", &TrainSpec::label_smoothing, "cross-entropy label smoothing",
          OnResume::kRestOfRun, InReport::kCompared, in_range(0, 1));
    field(
        "on_nonfinite", &TrainSpec::on_nonfinite,
        "stop: end the run if a loss is not finite; skip: do not apply a step whose loss or gradient is not "
        "finite, which exchanges a flag per worker in every step",
        OnResume::kRestOfRun, InReport::kCompared);
    field("max_consecutive_skips", &TrainSpec::max_consecutive_skips,
          "on_nonfinite skip: consecutive steps that may be skipped; one more ends the run",
          OnResume::kRestOfRun, InReport::kCompared, in_range(0, kMostSteps), "steps",
          advise_when<TrainSpec>([](const TrainSpec& s) { return s.on_nonfinite == OnNonfinite::kStop; },
                                 "has no effect: only on_nonfinite skip uses it"));
    field("audit_every", &TrainSpec::audit_every,
          "compare the copies of all values on all processes after every so many steps, and end the run if "
          "they differ (faulty memory); unset: never",
          OnResume::kFree, InReport::kNotCompared, in_range(1, kMostSteps), "steps");
  }
};

}  // namespace sdp
