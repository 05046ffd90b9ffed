#pragma once

namespace sdp {

/// While it exists, SIGTERM and SIGUSR1 ask for a checkpoint and an orderly end instead of ending the
/// process. A signal's flag has to be static; everything else about a run is passed on.
class PreemptionSignals {
 public:
  PreemptionSignals();
  ~PreemptionSignals();
  PreemptionSignals(const PreemptionSignals&) = delete;
  PreemptionSignals& operator=(const PreemptionSignals&) = delete;

  bool requested() const;
};

}  // namespace sdp
