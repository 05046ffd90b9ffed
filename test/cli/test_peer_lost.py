"""A process that is killed, in every phase of a run: the others end with exit code 4 at once, not at the
collectives' time-out of 10 minutes, and name it.

Phases are recognized from outside. A process that is suspended (SIGSTOP) stays in its phase while the test finds out which
one it is; then it is killed. Reduce-scatter and all-gather are told apart by the bytes that the process has written
(/proc/PID/io) since the last line of metrics.jsonl: at coverage 1, both send the same number."""

import contextlib
import json
import os
import re
import resource
import signal
import subprocess
import time
from pathlib import Path

import pytest

import harness

WORLD = 3
LIMIT_S = 60  # for slow and busy machines
WIDE = {"name": "mlp", "width": 64, "hidden_width": 65536, "depth": 3}
TRAFFIC = {
    "model": WIDE,
    "subnetwork": {"workers": WORLD, "coverage": 1},
    "optimizer": {"shard": True},
    "train": {"max_steps": 100000, "batch_size_per_worker": 1, "precision": "fp32", "log_every_steps": 1},
    "eval": {"recalibrate_batches": 0},
    "output": {"trace": False},
}
CHECKPOINTS = TRAFFIC | {
    "train": TRAFFIC["train"] | {"precision": "fp64"},
    "checkpoint": {"at_start": False, "every_steps": 1},
}
EVALUATION = TRAFFIC | {
    "model": {"name": "resnet18", "width": 16},
    "train": TRAFFIC["train"] | {"batch_size_per_worker": 16},
    "eval": {"every_epochs": 0.1, "recalibrate_batches": 1000},
}


def await_(condition, what, limit_s=300):
    """Waits until the condition is true; returns its value."""
    deadline = time.monotonic() + limit_s
    while not (result := condition()):
        assert time.monotonic() < deadline, f"no {what} within {limit_s} s"
        time.sleep(0.001)
    return result


def is_running(pid):
    """Whether the process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def environment_of(pid):
    try:
        entries = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError):
        return {}
    return dict(entry.decode().split("=", 1) for entry in entries if b"=" in entry)


class Launched:
    """Ranks of sdp-train's own launcher."""

    def __init__(self, config, run_dir):
        self.run_dir = run_dir
        self.console = run_dir.parent.parent / "console.txt"
        with self.console.open("w") as console:
            self.launcher = harness.start("--config", config, "--nproc", WORLD, stdout=console, stderr=console)
        self.pids = await_(self.find_ranks, "ranks")

    def find_ranks(self):
        assert self.launcher.poll() is None, self.console.read_text()
        children = Path(f"/proc/{self.launcher.pid}/task/{self.launcher.pid}/children").read_text().split()
        ranks = {environment_of(pid).get("RANK"): int(pid) for pid in children}
        ranks.pop(None, None)  # not started yet
        return [ranks[str(rank)] for rank in range(WORLD)] if len(ranks) == WORLD else None

    def log(self, rank):
        return (self.run_dir / f"rank-{rank}.txt" if rank else self.console).read_text()

    def check_codes(self, lost):
        """The launcher's exit code is that of the run."""
        assert self.launcher.wait(LIMIT_S) == 4
        console = self.console.read_text()
        assert f"sdp-train: rank {lost} was killed by signal 9 (Killed)" in console
        assert "still runs" not in console

    def stop(self):
        self.launcher.kill()
        self.launcher.wait()


class ByHand:
    """Ranks with the variables that torchrun sets."""

    def __init__(self, config, run_dir):
        folder = run_dir.parent.parent
        place = {"WORLD_SIZE": str(WORLD), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(harness.free_port())}
        self.logs = [folder / f"by-hand-{rank}.txt" for rank in range(WORLD)]
        self.ranks = []
        for rank, path in enumerate(self.logs):
            with path.open("w") as log:
                env = place | {"RANK": str(rank)}
                self.ranks.append(harness.start("--config", config, env=env, stdout=log, stderr=log))
        self.pids = [rank.pid for rank in self.ranks]

    def log(self, rank):
        return self.logs[rank].read_text()

    def check_codes(self, lost):
        for rank, process in enumerate(self.ranks):
            assert process.wait(LIMIT_S) == (-signal.SIGKILL if rank == lost else 4), self.log(rank)

    def stop(self):
        for process in self.ranks:
            process.kill()
            process.wait()


@contextlib.contextmanager
def running(start, config, run_dir):
    ranks = start(config, run_dir)
    try:
        yield ranks
    finally:
        ranks.stop()


def lines(run_dir, kind):
    path = run_dir / "metrics.jsonl"
    return [line for line in harness.json_lines(path) if line["kind"] == kind] if path.exists() else []


def written_bytes(pid):
    return int(re.search(r"wchar: (\d+)", Path(f"/proc/{pid}/io").read_text())[1])


def stop_in_exchange(pid, run_dir, first_share, last_share):
    """Suspends a process when it has sent a fraction of the step's bytes between these bounds. If a step passes unseen, the
    next one is tried."""
    await_(lambda: lines(run_dir, "train"), "step")
    rank = int(environment_of(pid)["RANK"])
    per_step = json.loads((run_dir / "plan.json").read_text())["per_process"][rank]["bytes_sent_per_step"]
    for _ in range(50):
        step = len(lines(run_dir, "train"))
        step = await_(lambda: (now := len(lines(run_dir, "train"))) > step and now, "step")
        before = written_bytes(pid)
        share = lambda: (written_bytes(pid) - before) / per_step
        await_(lambda: share() >= first_share, "traffic")
        os.kill(pid, signal.SIGSTOP)
        if share() <= last_share and len(lines(run_dir, "train")) == step:
            return
        os.kill(pid, signal.SIGCONT)
    raise AssertionError("never seen in that exchange")


def stop_in_reduce(pid, run_dir):
    stop_in_exchange(pid, run_dir, 0.05, 0.45)


def stop_in_gather(pid, run_dir):
    stop_in_exchange(pid, run_dir, 0.55, 0.95)


def stop_in_evaluation(pid, run_dir):
    """The evaluation follows the step's line."""
    await_(lambda: lines(run_dir, "train"), "step")
    time.sleep(0.5)
    os.kill(pid, signal.SIGSTOP)
    assert not lines(run_dir, "eval")


def stop_in_checkpoint(pid, run_dir):
    """While its own file is being written; the checkpoint is complete only when all files are."""
    await_(run_dir.is_dir, "run folder")
    partial = run_dir / "checkpoints" / ".step-00000001.partial"
    own = f"process-{int(environment_of(pid)['RANK']):05d}-of-{WORLD:05d}.safetensors"
    await_((partial / own).exists, "checkpoint")
    os.kill(pid, signal.SIGSTOP)
    time.sleep(0.5)  # so that the others write theirs
    assert partial.is_dir(), "the checkpoint was complete before"


PHASES = {
    "reduce": (TRAFFIC, stop_in_reduce, "reduce"),
    "gather": (TRAFFIC, stop_in_gather, "gather"),
    "evaluation": (EVALUATION, stop_in_evaluation, "evaluation"),
    "checkpoint": (CHECKPOINTS, stop_in_checkpoint, "saving a checkpoint"),
}


# Which process it is makes no difference to the phase; every one of them is lost in test/comm/test_peer_watch.cpp.
@pytest.mark.parametrize("phase, start, lost", [
    ("reduce", Launched, 1), ("reduce", Launched, 0), ("gather", ByHand, 2), ("evaluation", Launched, 1), ("checkpoint", ByHand, 0),
])
def test_a_killed_process_ends_all(tmp_path, data, phase, start, lost):
    sections, stop, name = PHASES[phase]
    config = harness.write_config(tmp_path, "run", data, **sections)
    run_dir = tmp_path / "runs" / "run"
    with running(start, config, run_dir) as ranks:
        stop(ranks.pids[lost], run_dir)
        began = time.monotonic()
        os.kill(ranks.pids[lost], signal.SIGKILL)
        await_(lambda: not any(map(is_running, ranks.pids)), "end of all ranks", LIMIT_S)
        ranks.check_codes(lost)
        assert time.monotonic() - began < LIMIT_S
        survivors = [rank for rank in range(WORLD) if rank != lost]
        saved = [int(folder.name.removeprefix("step-")) for folder in run_dir.glob("checkpoints/step-*")]
        for rank in survivors if start is ByHand else [0]:
            said = re.findall(r"checkpoint is of step (\d+); --resume", ranks.log(rank))
            assert set(said) == ({str(max(saved))} if saved else set())
        for rank in survivors:
            found = re.findall(rf"Rank {rank} lost .*", ranks.log(rank))
            assert len(found) == 1 and found[0].startswith(f"Rank {rank} lost rank {lost} during {name}"), found


@pytest.mark.parametrize("processes", [1, 2])
def test_output_that_cannot_grow_ends_with_the_last_checkpoint(tmp_path, data, processes):
    """A limit for the size of files, as a full disk: the metrics still fit, a process's file does not."""
    sections = {"model": {"width": 8}, "train": {"max_steps": 3}, "checkpoint": {"at_start": False, "every_steps": 2}}
    config = harness.write_config(tmp_path, "run", data, **sections)
    harness.run("--config", config, "--nproc", processes)
    (size,) = {file.stat().st_size for file in (tmp_path / "runs/run/checkpoints/step-00000003").glob("process-00000-*")}
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size // 2, size // 2))
    command = [harness.BINARY, "--config", config, "--nproc", str(processes), "--resume", "--set", "train.max_steps=5"]
    # Python's own setting: a write beyond the limit is an error, not a signal.
    options = {"preexec_fn": limit, "restore_signals": False, "capture_output": True, "text": True}
    result = subprocess.run(command, env=harness.environment(), **options)
    assert result.returncode == 3, result
    assert "too large" in result.stderr and "The last checkpoint is of step 3; --resume" in result.stderr


def test_a_process_stopped_in_a_checkpoint_ends_when_it_goes_on(tmp_path, data):
    config = harness.write_config(tmp_path, "run", data, **CHECKPOINTS)
    run_dir = tmp_path / "runs" / "run"
    with running(Launched, config, run_dir) as ranks:
        stop_in_checkpoint(ranks.pids[2], run_dir)
        os.kill(ranks.pids[1], signal.SIGKILL)
        await_(lambda: not is_running(ranks.pids[0]), "end of rank 0", LIMIT_S)
        began = time.monotonic()
        os.kill(ranks.pids[2], signal.SIGCONT)
        ranks.check_codes(lost=1)
        assert time.monotonic() - began < LIMIT_S
        for rank in (0, 2):
            assert f"Rank {rank} lost rank 1" in ranks.log(rank)


def test_out_of_memory_says_what_did_not_fit_and_what_needs_less(tmp_path, data):
    """A memory limit for the process that is enough for the libraries and too low for the model's 8 GiB."""
    limit = 6 << 30
    config = harness.write_config(
        tmp_path, "large", data, model={"name": "mlp", "width": 16384, "hidden_width": 65536, "depth": 1},
        subnetwork={"workers": 1, "coverage": 1}, train={"precision": "fp32"},
    )
    process = harness.start(
        "--config", config, "--nproc", 1, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (limit, limit)),
    )
    said = "".join(process.communicate(timeout=300))
    assert process.returncode == 1
    assert "out of memory" in said and "train.batch_size_per_worker" in said
    planned = json.loads(harness.run("plan", "--config", config, "--json").stdout)["per_process"][0]["peak_bytes"]
    assert f"{planned['total'] / 2**30:.1f} GiB" in said
    assert "out of memory" in (tmp_path / "runs" / "large" / "log.txt").read_text()


EXHAUSTED = """
#define _GNU_SOURCE
#include <errno.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
extern void* __libc_malloc(size_t);
extern void* __libc_memalign(size_t, size_t);
static long left = -1;
static int takes(size_t size) {
  if (left < 0) return 1;
  if ((long)size > left) return 0;
  left -= (long)size;
  return 1;
}
void* malloc(size_t size) {
  if (takes(size)) return __libc_malloc(size);
  errno = ENOMEM;
  return NULL;
}
void* mmap(void* address, size_t size, int protection, int flags, int file, off_t offset) {
  if (file < 0 && protection == (PROT_READ | PROT_WRITE) && size >= LARGE) {
    errno = ENOMEM;
    return MAP_FAILED;
  }
  return (void*)syscall(SYS_mmap, address, size, protection, flags, file, offset);
}
int posix_memalign(void** result, size_t alignment, size_t size) {
  if (size >= LARGE) left = 1 << 18;
  if (size >= LARGE || !takes(size)) return ENOMEM;
  *result = __libc_memalign(alignment, size);
  return 0;
}
"""


def test_out_of_memory_is_said_with_little_memory_left(tmp_path, data):
    """The first tensor of 8 MiB does not fit, and 256 KiB are left after it."""
    library = tmp_path / "exhausted.so"
    (tmp_path / "exhausted.c").write_text(EXHAUSTED)
    subprocess.run(["cc", "-shared", "-fPIC", f"-DLARGE={8 << 20}", "-o", library, tmp_path / "exhausted.c"], check=True)
    for processes, depth in [(1, 4), (2, 8)]:
        name = f"deep{depth}"
        config = harness.write_config(
            tmp_path, name, data, model={"name": "mlp", "width": 256, "hidden_width": 8192, "depth": depth},
            subnetwork={"workers": processes, "coverage": 1}, train={"precision": "fp32"},
        )
        result = harness.run("--config", config, "--nproc", processes, env={"LD_PRELOAD": os.fspath(library)}, expect=1)
        assert "is out of memory" in result.stderr, result.stderr
        planned = json.loads(harness.run("plan", "--config", config, "--json").stdout)["per_process"][0]["peak_bytes"]
        assert f"predicts {planned['total'] / 2**20:.0f} MiB" in result.stderr, result.stderr
        assert "out of memory" in (tmp_path / "runs" / name / "log.txt").read_text()
