#pragma once

// Messages about a run: its plan and its evaluations, a step whose loss or gradient is not finite, and memory
// that does not suffice.

#include <c10/core/Device.h>

#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <string_view>

#include "engine/train_step.h"
#include "experiment/experiment.h"
#include "experiment/run_steps.h"
#include "run/metrics.h"
#include "run/records.h"
#include "run/run_summary.h"

namespace sdp {

/// The assembled model's accuracy and loss, with and without corrections, those of the single subnetworks,
/// and the evaluated part of the test set if it is not all of it. For language models: loss and perplexity.
/// Separate lines say how the branch scale was chosen, and whether a subnetwork is better than the assembled
/// model.
std::string describe(const EvalRecord& record);
/// One line: the losses with both branch scales, and which one was chosen.
std::string describe(const BranchScaleTrial& trial, double branch_scale);
/// The end of a run: its last and its best result, times, and the most bytes of a process's tensors in
/// training (0: unknown) and in evaluation.
std::string describe_end(const EvalRecord& last, const EvalRecord& best, const RunTimes& times,
                         int64_t training_bytes, int64_t evaluation_bytes);

/// A few lines printed at the start of a run: model, workers, coverage, processes, device.
std::string describe_start(const Experiment& experiment, const std::string& device);

/// Number of steps and epochs, and how they follow from the budget.
std::string describe_length(const Experiment& experiment, const RunSteps& steps);

/// A warning with the measured rates if products on a CPU are slower in bf16 than in fp32; otherwise
/// std::nullopt.
std::optional<std::string> slow_precision_warning(Precision precision, c10::Device device);

/// A warning if steps wait for their batches for a fifth of their time or more; otherwise std::nullopt.
std::optional<std::string> slow_data_warning(double step_ms, double wait_ms, const DataSpec& data);

inline constexpr std::string_view kNonfiniteRemedies =
    "Lower optimizer.lr, lengthen the warm-up or set optimizer.clip_norm; look at the samples with `data "
    "check`.";

NonfiniteRecord nonfinite_record(const Experiment& experiment, const RunSteps& steps, int64_t step,
                                 const NonfiniteStep& found, bool skipped);

/// "the loss of step 3 is not finite: worker 1, replica 0 (rank 0) on samples 4, 5".
std::string text_of(const NonfiniteRecord& record);

/// Whether the error is a failed tensor allocation, on the device or on the host.
bool is_out_of_memory(const std::exception& error);

/// Message for the user: what `rank` could not allocate, the peak of its tensors in total and by kind, what
/// the plan predicts, and which settings reduce memory. Needs little memory itself.
std::string describe_out_of_memory(const std::exception& error, int rank, int64_t planned_bytes,
                                   c10::Device device);

}  // namespace sdp
