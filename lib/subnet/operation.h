#pragma once

// The operations that the layers of a model compute, with their shapes. FLOPs and step times
// (forecast/operation_time.h) follow from them.

#include <compare>
#include <cstdint>

namespace sdp {

enum class OperationKind {
  kLinear,              ///< [rows, in] times a weight [out, in]
  kConvolution,         ///< rows output pixels, `in` to `out` channels, kernel x kernel
  kWindowAttention,     ///< rows of `in` elements in windows of `span` rows (Swin)
  kCausalAttention,     ///< like kWindowAttention with span = rows, fused (LLaMA, GPT-2)
  kLinearCrossEntropy,  ///< product with the head's weight [out, in], and the loss
                        ///< (model/linear_cross_entropy.h)
  // The following operations have no products; they act on `rows` vectors of `in` elements.
  kBatchNorm,
  kLayerNorm,
  kRmsNorm,
  kRelu,
  kGelu,
  kSwiGlu,
  kRotary,
  kAdd,           ///< to the residual stream
  kCopy,          ///< in a different order: windows, merged patches
  kMaxPool,       ///< to a quarter of the rows
  kMean,          ///< over the rows
  kEmbedding,     ///< looks up rows in a table of `out` vectors
  kCrossEntropy,  ///< of `in` classes
};

/// Which of an operation's sizes is the hidden width of its branch, or a multiple of it.
enum class SlicedSize { kNone, kIn, kOut };

/// One layer's operation on one sample.
struct Operation {
  OperationKind kind = OperationKind::kLinear;
  int64_t rows = 1;                ///< per sample: tokens, pixels, positions
  int64_t in = 1;                  ///< elements of an input row
  int64_t out = 1;                 ///< elements of an output row, if the kind has this size
  int64_t kernel = 1, stride = 1;  ///< of a convolution
  int64_t span = 1;                ///< number of rows that a row of an attention attends to
  int64_t head_size = 1;           ///< of an attention or a rotary embedding
  SlicedSize sliced = SlicedSize::kNone;
  bool bias = false;                  ///< of a linear layer
  bool input_needs_gradient = true;   ///< false: the input is the model's input
  bool recomputed_if_frozen = false;  ///< a frozen part recomputes it in the backward pass

  auto operator<=>(const Operation&) const = default;

  /// The part of this operation that belongs to `width` of the branch's hidden width.
  Operation slice(int64_t width, int64_t hidden_width) const;
};

/// Which part of an operation is computed.
enum class Pass {
  kForward,
  kBackward,        ///< gradients of weights and input
  kFrozenBackward,  ///< gradient of the input only
};

/// Floating-point operations per sample (a multiply-add counts as two). Only convolutions and matrix products
/// are counted, as in PyTorch's FlopCounterMode.
struct Flops {
  double forward = 0;
  double weight_gradient = 0;
  double input_gradient = 0;
  double frozen_recompute = 0;  ///< recomputation of values that a frozen slice does not save

  double training() const { return forward + weight_gradient + input_gradient; }
  double training_frozen() const { return forward + input_gradient + frozen_recompute; }
  /// Without recomputation.
  double of(Pass pass) const;
  Flops& operator+=(const Flops& other);
  Flops operator-(const Flops& other) const;
  Flops operator*(double factor) const;
};

/// FLOPs of the operation's products on one sample.
Flops flops_of(const Operation& operation);

/// Whether the kind has products, and therefore FLOPs.
bool has_product(OperationKind kind);

}  // namespace sdp
