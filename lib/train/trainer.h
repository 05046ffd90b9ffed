#pragma once

#include "spec/error.h"

namespace sdp {

class Communicator;
class Logger;
enum class Resume;
struct Experiment;
struct SharedRunFolder;

/// The training loop of one process. Starts from new weights or, depending on `resume`, from a checkpoint of
/// the run folder; trains to the end, saves and evaluates, and returns kOk. If a process is asked to stop,
/// all processes stop after the same step, save a checkpoint and return kPreempted. A resumed run catches up
/// on an interrupted evaluation; without that and without steps left, it leaves the run folder and the log
/// file as they are, except that it writes a missing summary. Throws the errors of prepare_run() and of
/// training, which name the last checkpoint. Collective.
ExitCode train(const Experiment& experiment, Communicator& comm, const SharedRunFolder& run,
               const Logger& log, Resume resume);

}  // namespace sdp
