# shellcheck shell=bash
# Sourced by the batch scripts of this folder, in the repository's root and with SDP_TRAIN set to the program.

set -euo pipefail

# Exit code of sdp-train: stopped by a signal after a checkpoint was saved.
STOPPED=75

# train CONFIG [ARGUMENT...]: trains in a step of this job, and ends the job with sdp-train's exit code. A run that was
# stopped goes back into the queue and continues when the job starts again; nothing else is requeued here. In arguments %a
# stands for the number of the array task, as in sbatch's file names.
train() {
  local arguments=("${@//\%a/${SLURM_ARRAY_TASK_ID:-}}") code=0
  # Only a job that starts again continues by itself. A new one is refused a run folder that exists, as another job may be
  # writing it, unless --resume is among the arguments. One that was stopped before its first checkpoint starts again.
  if [[ ${SLURM_RESTART_COUNT:-0} -gt 0 && " ${arguments[*]}" != *" --resume"* ]]; then arguments+=(--resume=if-any); fi

  # SLURM sends the signals that stop a run to the processes of a step. This shell, which may get them too, waits for the
  # checkpoint.
  trap : TERM USR1

  # --mpi=none: the processes meet without MPI.
  # --cpu-bind=none: each process sees all cores of the job on its node, which sdp-train divides.
  # --kill-on-bad-exit=0: srun must not kill the others when the first process has saved and ends with 75. sdp-train itself
  # ends all processes when one is lost.
  srun --mpi=none --cpu-bind=none --kill-on-bad-exit=0 "$SDP_TRAIN" --config "${arguments[@]}" || code=$?

  if [[ $code -eq $STOPPED ]]; then requeue; fi
  exit "$code"
}

# Puts this job back into the queue, as SLURM goes by no exit code unless its RequeueExit is set. Leaves alone a job that SLURM
# is ending already, whose state is no longer RUNNING: after scancel and at the time limit it is to end, and after a preemption
# without a grace time or `scontrol requeue` it is in the queue.
requeue() {
  # An array's id names all of its tasks, and one of them has it as SLURM_JOB_ID.
  local job=${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID} state
  job=${job:-$SLURM_JOB_ID}
  state=$(squeue --noheader --format=%T --jobs="$job") || state=UNKNOWN
  if [[ $state == RUNNING ]]; then
    echo "requeueing job $job, which was stopped after a checkpoint"
    scontrol requeue "$job" || echo "job $job could not be requeued; submit it again with --resume"
  else
    echo "job $job is left to SLURM: its state is $state"
  fi
}
