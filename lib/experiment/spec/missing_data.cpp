#include "experiment/spec/missing_data.h"

namespace sdp {

std::string missing_data_advice(const ExperimentSpec& spec) {
  const MissingData missing =
      spec.data.set.visit([&](const auto& set) { return set.missing(spec.data, spec.model); });
  return "It is to hold " + missing.files + ". To get them:\n  " + missing.command + "\nTo train " +
         missing.other_data + " instead:\n" + missing.other_commands +
         (spec.train.precision == Precision::kBf16 && !spec.data.is_of_tokens()
              ? "\nOn a CPU add --set train.precision=fp32, which is several times as fast there as bf16."
              : "");
}

}  // namespace sdp
