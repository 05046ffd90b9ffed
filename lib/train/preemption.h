#pragma once

namespace sdp {

/// While it exists, a first SIGTERM, SIGINT, SIGHUP or SIGUSR1 asks for a checkpoint and an orderly end
/// instead of ending the process; one that comes more than 2 s later ends it. A signal that was ignored
/// before (nohup) stays ignored. A signal's flag has to be static; everything else about a run is passed on.
class PreemptionSignals {
 public:
  PreemptionSignals();
  ~PreemptionSignals();
  PreemptionSignals(const PreemptionSignals&) = delete;
  PreemptionSignals& operator=(const PreemptionSignals&) = delete;

  bool requested() const;
};

}  // namespace sdp
