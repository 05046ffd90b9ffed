#pragma once

// The kinds of memory that a training step uses, as counted (process/allocations.h), predicted
// (cost/peak.h) and reported. Does not include LibTorch.

#include <array>
#include <cstddef>
#include <cstdint>

namespace sdp {

enum class MemoryKind {
  kWeights,      ///< parameters that the forward pass uses, BatchNorm statistics
  kGradients,    ///< from autograd, accumulated, averaged
  kOptimizer,    ///< master weights and optimizer moments
  kActivations,  ///< all other memory of a step: saved activations, batches, workspace
  kBuckets,      ///< packed data to send and received data
};

struct MemoryByKind {
  int64_t weights = 0;
  int64_t gradients = 0;
  int64_t optimizer = 0;
  int64_t activations = 0;
  int64_t buckets = 0;

  bool operator==(const MemoryByKind&) const = default;
  int64_t total() const;
  int64_t& operator[](MemoryKind kind);
  int64_t operator[](MemoryKind kind) const;
  /// "total" and each kind (spec/json_fields.h).
  template <class Visitor>
  static void fields(Visitor& field);
};

struct MemoryKindInfo {
  const char* name;
  const char* bytes_key;  ///< with the unit, for objects that are not named "bytes"
  int64_t MemoryByKind::*bytes;
};
/// By MemoryKind.
inline constexpr std::array kMemoryKinds = {
    MemoryKindInfo{"weights", "weights_bytes", &MemoryByKind::weights},
    MemoryKindInfo{"gradients", "gradients_bytes", &MemoryByKind::gradients},
    MemoryKindInfo{"optimizer", "optimizer_bytes", &MemoryByKind::optimizer},
    MemoryKindInfo{"activations", "activations_bytes", &MemoryByKind::activations},
    MemoryKindInfo{"buckets", "buckets_bytes", &MemoryByKind::buckets}};

inline int64_t MemoryByKind::total() const {
  int64_t sum = 0;
  for (const MemoryKindInfo& kind : kMemoryKinds)
    sum += this->*kind.bytes;
  return sum;
}

inline int64_t& MemoryByKind::operator[](MemoryKind kind) {
  return this->*kMemoryKinds[static_cast<size_t>(kind)].bytes;
}

inline int64_t MemoryByKind::operator[](MemoryKind kind) const {
  return this->*kMemoryKinds[static_cast<size_t>(kind)].bytes;
}

template <class Visitor>
void MemoryByKind::fields(Visitor& field) {
  field("total", &MemoryByKind::total);
  for (const MemoryKindInfo& kind : kMemoryKinds)
    field(kind.name, kind.bytes);
}

}  // namespace sdp
