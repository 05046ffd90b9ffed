#pragma once

#include <cstdint>

#include "spec/field.h"

namespace sdp {

enum class Precision { kFp64, kFp32, kBf16 };
enum class WireType { kFp32, kBf16 };

SDP_ENUM_NAMES(Precision, {Precision::kFp64, "fp64"}, {Precision::kFp32, "fp32"}, {Precision::kBf16, "bf16"})
SDP_ENUM_NAMES(WireType, {WireType::kFp32, "fp32"}, {WireType::kBf16, "bf16"})

/// Type of a parameter's elements, from which plans count bytes. Does not depend on LibTorch: model/ maps it
/// to a scalar type.
enum class ElementType { kF64, kF32, kBf16 };

constexpr int64_t bytes_of(ElementType type) {
  return type == ElementType::kF64 ? 8 : type == ElementType::kF32 ? 4 : 2;
}

/// Type of weights, activations and gradients in a run of this precision.
constexpr ElementType compute_type(Precision precision) {
  return precision == Precision::kFp64   ? ElementType::kF64
         : precision == Precision::kFp32 ? ElementType::kF32
                                         : ElementType::kBf16;
}

/// Type of gradient sums, master values and optimizer state: fp64 in an fp64 run, else fp32.
constexpr ElementType sum_type(Precision precision) {
  return precision == Precision::kFp64 ? ElementType::kF64 : ElementType::kF32;
}

/// Whether the optimizer keeps master values, in the sum type, for parameters of this type.
constexpr bool has_master_values(ElementType type, Precision precision) {
  return bytes_of(type) < bytes_of(sum_type(precision));
}

}  // namespace sdp
