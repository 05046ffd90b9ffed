#pragma once

#include "spec/field.h"

namespace sdp {

/// Backend of the collectives.
enum class BackendKind { kAuto, kNccl, kGloo };
SDP_ENUM_NAMES(BackendKind, {BackendKind::kAuto, "auto"}, {BackendKind::kNccl, "nccl"},
               {BackendKind::kGloo, "gloo"})

}  // namespace sdp
