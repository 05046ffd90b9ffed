#pragma once

// The figures of methods of training on a device, and what to train with. Accuracy is not predicted. The
// highest coverage that fits is preferred, because in docs/results/evidence a lower one has at best been
// level with it at equal FLOPs; the fastest method at equal FLOPs is named beside it.

#include <cstdint>
#include <string>
#include <vector>

#include "cost/step_time.h"
#include "process/memory_kinds.h"
#include "spec/field.h"

namespace sdp {

/// One method of training. Where processes differ, each number is that of the process with the largest.
struct StepForecast {
  std::string name;
  std::vector<std::string> settings = {};  ///< key=value, where it differs from this plan's spec
  std::string regime_file = {};            ///< of a baseline in this program: a file with such settings
  double coverage = 1;
  bool in_this_program = true;
  bool has_local_steps = false;  ///< then its accuracy is not that of its coverage: it is not recommended
  MemoryByKind peak;             ///< tensors by kind at the moment of the peak
  int peak_process = 0;
  int64_t most_activations = 0;  ///< largest bytes of activations at any moment, of the same process
  double flops_share = 1;        ///< mean FLOPs per sample over those of the full model
  int64_t bytes_sent = 0;        ///< per step
  double compute_ms = 0;         ///< forward and backward
  double exchange_ms = 0;        ///< on the links, hidden by computation or not
  double waiting_ms = 0;         ///< the part of the exchange that computation does not hide
  double step_ms = 0;            ///< compute, waiting, update
  StepSeconds slowest = {};      ///< the parts of step_ms: of the process with the longest step
  bool fits = true;              ///< in the device's memory, including the allowance
  int64_t largest_batch = 0;     ///< samples per worker that fit; 0: not even one

  /// Time of a full model's FLOPs.
  double equal_flops_ms() const { return step_ms / flops_share; }

  template <class Visitor>
  static void fields(Visitor& field) {
    field("name", &StepForecast::name);
    field("settings", &StepForecast::settings);
    field("regime_file", &StepForecast::regime_file);
    field("coverage", &StepForecast::coverage);
    field("in_this_program", &StepForecast::in_this_program);
    field("peak_bytes", &StepForecast::peak);
    field("peak_process", &StepForecast::peak_process);
    field("most_activation_bytes", &StepForecast::most_activations);
    field("flops_share", &StepForecast::flops_share);
    field("bytes_sent_per_step", &StepForecast::bytes_sent);
    field("compute_ms", &StepForecast::compute_ms);
    field("exchange_ms", &StepForecast::exchange_ms);
    field("waiting_ms", &StepForecast::waiting_ms);
    field("step_ms", &StepForecast::step_ms);
    field("slowest_process", &StepForecast::slowest);
    field("fits", &StepForecast::fits);
    field("largest_batch_size_per_worker", &StepForecast::largest_batch);
  }
};

/// Methods are given by name; their settings and figures are in the forecast. "": none.
struct Verdict {
  std::vector<std::string> fit = {};  ///< the methods that fit, in the forecast's order
  std::string recommended;       ///< the simplest of the fastest methods with the highest coverage that fits
  std::string recommended_here;  ///< likewise of the methods in this program
  std::string fastest;           ///< the method that fits with the least time at equal FLOPs
  std::string fastest_here;      ///< likewise of the methods in this program
  double fastest_over_recommended = 1;  ///< ratio of their times at equal FLOPs
  std::string change = {};              ///< the best form of this plan that fits, if it does not fit as it is
  /// Step time per FLOP over that of data parallelism: the ratio of training times if both get the same FLOPs
  /// (`train.budget: flops`).
  double time_at_equal_flops = 1;
  double memory_share = 1;  ///< this plan's peak over that of data parallelism

  template <class Visitor>
  static void fields(Visitor& field) {
    field("fit", &Verdict::fit);
    field("recommended", &Verdict::recommended);
    field("recommended_here", &Verdict::recommended_here);
    field("fastest", &Verdict::fastest);
    field("fastest_here", &Verdict::fastest_here);
    field("fastest_over_recommended", &Verdict::fastest_over_recommended);
    field("change", &Verdict::change);
    field("time_at_equal_flops_over_ddp", &Verdict::time_at_equal_flops);
    field("peak_over_ddp", &Verdict::memory_share);
  }
};

/// Of the methods that fit and are accepted, those of the highest coverage; of these the first one whose time
/// is within 5 % of the shortest, as the methods are in order of simplicity. nullptr if there is none.
const StepForecast* best_of(
    const std::vector<StepForecast>& methods,
    bool (*accepts)(const StepForecast&) = [](const StepForecast& method) {
      return !method.has_local_steps;
    });

/// `methods`: this plan, then DDP and the others.
Verdict verdict_of(const std::vector<StepForecast>& methods);

}  // namespace sdp
