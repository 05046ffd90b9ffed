#pragma once

namespace sdp {

/// Which checkpoint a run resumes from (--resume).
enum class Resume {
  kNo,          ///< none: a new run
  kLatest,      ///< the one named by `latest`; an error if there is none or it is damaged
  kLatestGood,  ///< the newest that verifies; an error if there is none
  kIfAny,       ///< as kLatest, but a run without a checkpoint starts from the beginning
};

}  // namespace sdp
