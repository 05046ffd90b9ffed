#pragma once

// The section `schedule` of a spec: the learning rate over the run.

#include <cstdint>
#include <optional>
#include <vector>

#include "spec/field.h"
#include "spec/visit.h"

namespace sdp {

enum class ScheduleName { kConstant, kCosine, kStep, kLinear };

SDP_ENUM_NAMES(ScheduleName, {ScheduleName::kConstant, "constant"}, {ScheduleName::kCosine, "cosine"},
               {ScheduleName::kStep, "step"}, {ScheduleName::kLinear, "linear"})

struct ScheduleSpec {
  ScheduleName name = ScheduleName::kCosine;
  double warmup_epochs = 0;
  std::optional<int64_t> warmup_steps;
  std::vector<double> milestones = {0.5, 0.75};
  double gamma = 0.1;
  double final_lr_factor = 0;

  bool operator==(const ScheduleSpec&) const = default;

  template <class Visitor>
  static void fields(Visitor& field) {
    field("name", &ScheduleSpec::name, "how the learning rate changes over the run", OnResume::kRestOfRun,
          InReport::kCompared);
    field("warmup_epochs", &ScheduleSpec::warmup_epochs, "length of the linear warm-up from 0",
          OnResume::kRestOfRun, InReport::kCompared, in_range(0, 1e6), "epochs",
          advise_when<ScheduleSpec>([](const ScheduleSpec& s) { return s.warmup_steps.has_value(); },
                                    "has no effect: warmup_steps is set and replaces it"));
    field("warmup_steps", &ScheduleSpec::warmup_steps,
          "length of the warm-up in steps; replaces warmup_epochs", OnResume::kRestOfRun, InReport::kCompared,
          in_range(0, kMostSteps), "steps");
    field("milestones", &ScheduleSpec::milestones,
          "step: fractions of the run, increasing, after which the learning rate is multiplied by gamma",
          OnResume::kRestOfRun, InReport::kCompared, strictly_between(0, 1),
          advise_when<ScheduleSpec>([](const ScheduleSpec& s) { return s.name != ScheduleName::kStep; },
                                    "has no effect: only the schedule step uses it"));
    field("gamma", &ScheduleSpec::gamma, "step: factor on the learning rate at each milestone",
          OnResume::kRestOfRun, InReport::kCompared, positive(),
          advise_when<ScheduleSpec>([](const ScheduleSpec& s) { return s.name != ScheduleName::kStep; },
                                    "has no effect: only the schedule step uses it"));
    field("final_lr_factor", &ScheduleSpec::final_lr_factor,
          "cosine, linear: final learning rate divided by the peak learning rate", OnResume::kRestOfRun,
          InReport::kCompared, in_range(0, 1),
          advise_when<ScheduleSpec>(
              [](const ScheduleSpec& s) {
                return s.name != ScheduleName::kCosine && s.name != ScheduleName::kLinear;
              },
              "has no effect: only the schedules cosine and linear use it"));
  }
};

}  // namespace sdp
