#pragma once

// The forecast of one training method on a device. Plain values.

#include <cstdint>
#include <string>
#include <vector>

#include "forecast/step_time.h"
#include "memory/kinds.h"
#include "spec/field.h"

namespace sdp {

/// One method of training. Where processes differ, each number is that of the process with the largest.
struct StepForecast {
  std::string name;
  std::vector<std::string> settings = {};  ///< key=value, where it differs from this plan's spec
  std::string regime_file = {};            ///< of a baseline in this program: a file with such settings
  double coverage = 1;
  bool in_this_program = true;
  MemoryByKind peak;  ///< tensors by kind at the moment of the peak
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

/// This plan's run as a whole.
struct RunForecast {
  int64_t global_batch_samples = 1;
  int64_t tokens_per_sample = 0;  ///< 0: images
  double samples_per_s = 0;
  double utilization = 0;  ///< share of the devices' peak FLOP/s; 0: the peak is not known
  double hours = 0;        ///< 0: the length of the run depends on the size of the data set

  template <class Visitor>
  static void fields(Visitor& field) {
    field("global_batch_samples", &RunForecast::global_batch_samples);
    field("tokens_per_sample", &RunForecast::tokens_per_sample);
    field("samples_per_s", &RunForecast::samples_per_s);
    field("utilization", &RunForecast::utilization);
    field("hours", &RunForecast::hours);
  }
};

}  // namespace sdp
