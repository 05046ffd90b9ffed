#include "experiment/spec/missing_data.h"

#include "spec/text.h"

namespace sdp {

std::string missing_data_advice(const ExperimentSpec& spec) {
  const MissingData missing = spec.data.set.visit([&](const auto& set) { return set.missing(); });
  return "It must contain " + missing.files + ". To get them, run:\n  " + missing.command + " " +
         shell_word(spec.data.path) + "\nTo train " + missing.other_data + " instead, run:\n" +
         missing.other_commands +
         (spec.train.precision == Precision::kBf16 && !spec.data.is_of_tokens()
              ? "\nOn a CPU, add --set train.precision=fp32, which is several times as fast as bf16 there."
              : "");
}

}  // namespace sdp
