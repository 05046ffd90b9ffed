#pragma once

// The section `output` of a spec.

#include <string>

#include "spec/visit.h"

namespace sdp {

struct OutputSpec {
  static constexpr Treatment treatment{OnResume::kFree, InReport::kNotCompared};

  std::string dir = "runs";
  bool trace = false;

  bool operator==(const OutputSpec&) const = default;

  template <class Visitor>
  static void fields(Visitor& field) {
    field("dir", &OutputSpec::dir, "folder in which run folders are created");
    field("trace", &OutputSpec::trace, "write trace.jsonl: loss and sample indices of every step and worker");
  }
};

}  // namespace sdp
