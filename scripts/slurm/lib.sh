# shellcheck shell=bash
# Sourced by the batch scripts of this folder, in the repository's root.

set -euo pipefail

# What was built here, or what is installed.
SDP_TRAIN=$(command -v build/sdp-train || command -v sdp-train) ||
  { echo "error: neither build/sdp-train nor an installed sdp-train was found" >&2 && exit 2; }

# Exit code of sdp-train: stopped by a signal after a checkpoint was saved.
STOPPED=75

# train CONFIG [ARGUMENT...]: trains in a step of this job, and ends the job with sdp-train's exit code. Only the job of a
# stopped run is requeued; the run continues when the job starts again. In arguments, %a stands for the number of the array
# task, as in sbatch's file names, and %g for the number of GPUs, which may be another one when the job starts again.
train() {
  local arguments=("${@//\%a/${SLURM_ARRAY_TASK_ID:-}}") code=0
  arguments=("${arguments[@]//\%g/$((${SLURM_GPUS_ON_NODE:-1} * ${SLURM_JOB_NUM_NODES:-1}))}")
  # Only a restarted job resumes automatically; without a checkpoint, it starts from the beginning. A new job refuses an
  # existing run folder, which another job may be writing, unless --resume is among the arguments.
  if [[ ${SLURM_RESTART_COUNT:-0} -gt 0 && " ${arguments[*]}" != *" --resume"* ]]; then arguments+=(--resume=if-any); fi

  # SLURM sends stop signals to the processes of a step. This shell may get them too, but must wait for the checkpoint.
  trap : TERM USR1

  # --mpi=none: the processes connect without MPI.
  # --cpu-bind=none: each process sees all cores of the job on its node, which sdp-train divides.
  # --kill-on-bad-exit=0: srun must not kill the other processes when the first one has saved and exits with 75. sdp-train
  # itself ends all processes when one is lost.
  srun --mpi=none --cpu-bind=none --kill-on-bad-exit=0 "$SDP_TRAIN" --config "${arguments[@]}" || code=$?

  if [[ $code -eq $STOPPED ]]; then requeue; fi
  exit "$code"
}

# Requeues this job, because SLURM ignores the exit code unless its RequeueExit is set. Does nothing if SLURM is already
# ending the job, whose state is then no longer RUNNING: after scancel and at the time limit it must end, and after a
# preemption without a grace time or `scontrol requeue` it is already in the queue.
requeue() {
  # An array's id stands for all of its tasks, and is also the SLURM_JOB_ID of one of them.
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
