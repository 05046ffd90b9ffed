#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "cost/layouts.h"
#include "subnet/exchange.h"
#include "subnet/plan.h"

namespace sdp::test {

/// A residual MLP of a few thousand parameters.
inline ModelSpec mlp_spec(int64_t depth = 6) {
  return {.kind = MlpSpec{.width = 20, .depth = depth, .hidden_width = 36, .image_size = 4}};
}
/// Its layout, whose FLOPs are counted once.
inline const ModelLayout& mlp(int64_t depth) {
  static std::map<int64_t, ModelLayout> known;
  const auto [entry, is_new] = known.try_emplace(depth);
  if (is_new) entry->second = layout_of(mlp_spec(depth));
  return entry->second;
}

/// A plan with random owners of its branches, or of their slices.
inline SubnetPlan plan_of(int64_t workers, int64_t owners, uint64_t seed,
                          Construction construction = Construction::kBlock,
                          Masking masking = Masking::kForward, int64_t depth = 6) {
  SubnetworkSpec spec;
  spec.construction = construction;
  spec.masking = masking;
  spec.workers = workers;
  spec.coverage.text = std::to_string(owners) + "/" + std::to_string(workers);
  spec.assignment = Assignment::kRandom;
  return make_plan(mlp(depth), spec, seed);
}

/// Elements of the message that `from` sends to `to`.
inline int64_t message_elements(const Exchange& exchange, int from, int to) {
  int64_t sum = 0;
  exchange.for_each_range(from, to, [&](size_t, int64_t, int64_t elements) { sum += elements; });
  return sum;
}

}  // namespace sdp::test
