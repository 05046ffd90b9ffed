#pragma once

// What a training step of a subnetwork allocates and computes, as plain values. cost/step_captures.h makes
// them.

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

namespace sdp {

/// A size that depends on the number of samples in the batch.
struct BatchSize {
  double fixed = 0;
  double per_sample = 0;

  double of(double samples) const { return fixed + per_sample * samples; }
  /// From its values for a batch and for another of twice as many samples.
  static BatchSize between(double of_batch, double of_twice, double batch) {
    return {2 * of_batch - of_twice, (of_twice - of_batch) / batch};
  }
};

/// A moment of the step at which its memory changes.
struct CaptureEvent {
  enum class What : uint8_t {
    kTensor,       ///< a tensor is allocated, or freed (negative bytes)
    kCopies,       ///< a CPU kernel copies its arguments to another type or layout, and frees the copies
    kConvolution,  ///< the same in a convolution, for which GPUs have a workspace of their own
    kGradient,  ///< the gradient of `parameter` is complete; its tensor (negative bytes) is counted elsewhere
  };
  What what = What::kTensor;
  /// The tensor has the rows that a language model's loss computes at a time (layers/loss.h).
  bool is_of_rows_at_once = false;
  int parameter = -1;  ///< counted from the branch's first parameter
  BatchSize bytes;
};

/// `count` products [m, k] x [k, n]; a convolution and each of its gradients is one.
struct Product {
  BatchSize m, k, n, count;
  double computed = 1;  ///< share that a kernel computes: causal attention skips the masked half
};

/// A call of an operator that computes values: one kernel on a CPU.
struct CapturedCall {
  std::string op;
  std::vector<Product> products;
  BatchSize bytes;  ///< read and written: every argument and result once
};

struct PassCapture {
  std::vector<CaptureEvent> events;
  std::vector<CapturedCall> calls;
};

/// A layer group of a model: a branch and the layers between it and the next one, the layers before the first
/// branch, or the loss.
struct LayerGroupCapture {
  PassCapture forward;
  PassCapture backward;  ///< the part of the backward pass that follows from `forward`
};

/// A layer group in its place in a model.
struct PlacedLayerGroup {
  std::shared_ptr<const LayerGroupCapture> capture;
  int first_parameter = 0;  ///< of its branch

  const LayerGroupCapture* operator->() const { return capture.get(); }
};

struct StepCapture {
  /// In order of the forward pass: the layers before the first branch, one per branch, the loss.
  std::vector<PlacedLayerGroup> layer_groups;
  /// Samples whose rows the loss computes at a time.
  double samples_at_once = std::numeric_limits<double>::infinity();

  double bytes_of(const CaptureEvent& event, double samples) const {
    return event.bytes.of(event.is_of_rows_at_once ? std::min(samples, samples_at_once) : samples);
  }
  /// Bytes that the forward pass and the loss leave for the backward pass, the batch included.
  double kept_bytes(double samples) const {
    double kept = 0;
    for (const PlacedLayerGroup& layer_group : layer_groups)
      for (const CaptureEvent& event : layer_group->forward.events)
        if (event.what == CaptureEvent::What::kTensor) kept += bytes_of(event, samples);
    return kept;
  }
};

}  // namespace sdp
