"""Processes that are killed, run out of memory, disk or files, or do not belong together; and two nodes of two ranks.

A process that is suspended (SIGSTOP) stays in its phase while the others come to where they wait for it; then it is
killed."""

import json
import os
import re
import resource
import signal
import socket
import time

import pytest

import harness
from test_stop import ranks_of

# ---- a process is killed ----

WORLD = 3
LIMIT_S = 60  # for slow and busy machines
TRAFFIC = {
    "model": {"name": "mlp", "width": 64, "hidden_width": 65536, "depth": 3},
    "subnetwork": {"workers": WORLD, "coverage": 1},
    "train": {"max_steps": 100000, "batch_size_per_worker": 1, "precision": "fp32", "log_every_steps": 1},
    "eval": {"recalibrate_batches": 0},
    "checkpoint": {"at_start": False},
    "output": {"trace": False},
}
EVALUATION = TRAFFIC | {
    "model": {"width": 16}, "checkpoint": {}, "train": TRAFFIC["train"] | {"batch_size_per_worker": 16},
    "eval": {"every_epochs": 0.1, "recalibrate_batches": 1000},
}
CHECKPOINTS = TRAFFIC | {
    "train": TRAFFIC["train"] | {"precision": "fp64"}, "checkpoint": {"at_start": False, "every_steps": 1},
}
step_is_done = lambda run_dir, _: harness.records(run_dir, "train")
its_file_is_begun = lambda run_dir, rank: list(run_dir.glob(f"checkpoints/.step-00000001.partial/process-{rank:05d}-*"))
# What is trained, when the process that is lost is suspended, and seconds until then: after a step, the others come to
# the next exchange, or all to the evaluation; a checkpoint is complete only when all files are.
PHASES = {
    "(reduce|gather)": (TRAFFIC, step_is_done, 0, 1), "evaluation": (EVALUATION, step_is_done, 0.5, 0),
    "saving a checkpoint": (CHECKPOINTS, its_file_is_begun, 0, 1),
}  # fmt: skip


@pytest.mark.parametrize("phase", PHASES)
def test_a_killed_process_ends_all(tmp_path, data, phase):
    """With exit code 4, at once and not at the collectives' time-out of 10 minutes; the others name it. Each of them is lost in
    test/comm/test_peer_watch.cpp."""
    sections, is_reached, seconds, lost = PHASES[phase]
    run_dir, console = tmp_path / "runs" / "run", tmp_path / "console.txt"
    with console.open("w") as file:
        config = harness.write_config(tmp_path, "run", data, **sections)
        launcher = harness.start("--config", config, "--nproc", WORLD, stdout=file, stderr=file)
    with harness.ending(launcher):
        pids = ranks_of(launcher, WORLD)
        harness.await_(lambda: is_reached(run_dir, lost), phase, launcher)
        time.sleep(seconds)
        os.kill(pids[lost], signal.SIGSTOP)
        time.sleep(2)  # so that the others wait for it
        began = time.monotonic()
        os.kill(pids[lost], signal.SIGKILL)
        harness.await_(lambda: not any(map(harness.is_running, pids)), "end of all ranks", limit_s=LIMIT_S)
        assert launcher.wait(LIMIT_S) == 4 and time.monotonic() - began < LIMIT_S
    said = console.read_text()
    assert f"sdp-train: rank {lost} was killed by signal 9 (Killed)" in said and "still runs" not in said
    saved = [int(folder.name.removeprefix("step-")) for folder in run_dir.glob("checkpoints/step-*")]
    assert set(re.findall(r"checkpoint is of step (\d+); --resume", said)) == ({str(max(saved))} if saved else set())
    for rank in set(range(WORLD)) - {lost}:
        log = (run_dir / f"rank-{rank}.txt").read_text() if rank else said
        found = re.findall(rf"Rank {rank} lost .*", log)
        assert found and re.match(f"Rank {rank} lost rank {lost} during {phase}", found[0]), found


def test_output_that_cannot_grow_ends_with_the_last_checkpoint(tmp_path, data):
    """A limit for the size of files, as a full disk: the metrics still fit, a process's file does not."""
    sections = {"model": {"width": 8}, "train": {"max_steps": 3}, "checkpoint": {"at_start": False, "every_steps": 2}}
    config = harness.write_config(tmp_path, "run", data, **sections)
    harness.run("--config", config, "--nproc", 2)
    (size,) = {file.stat().st_size for file in (tmp_path / "runs/run/checkpoints/step-00000003").glob("process-00000-*")}
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size // 2, size // 2))
    # Python's own setting of signals: a write beyond the limit is an error.
    options = {"preexec_fn": limit, "restore_signals": False}
    process = harness.start_run(config, "--nproc", 2, "--resume", "--set", "train.max_steps=5", **options)
    said = process.communicate(timeout=300)[0]
    assert process.returncode == 3 and "too large" in said, said
    assert "The last checkpoint is of step 3; --resume" in said


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
  if (left >= 0 && (long)size > left) return 0;
  if (left >= 0) left -= (long)size;
  return 1;
}
void* malloc(size_t size) {
  return takes(size) ? __libc_malloc(size) : (errno = ENOMEM, NULL);
}
void* mmap(void* address, size_t size, int protection, int flags, int file, off_t offset) {
  if (file < 0 && protection == (PROT_READ | PROT_WRITE) && size >= LARGE) return errno = ENOMEM, MAP_FAILED;
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
    env = {"LD_PRELOAD": harness.shared_object(tmp_path, "exhausted", EXHAUSTED, f"-DLARGE={8 << 20}")}
    for processes, depth in [(1, 4), (2, 8)]:
        config = harness.write_config(
            tmp_path, f"deep{depth}", data, model={"name": "mlp", "width": 256, "hidden_width": 8192, "depth": depth},
            subnetwork={"workers": processes, "coverage": 1}, train={"precision": "fp32"},
        )
        said = harness.run("--config", config, "--nproc", processes, env=env, expect=1).stderr
        planned = harness.run_json("plan", "--config", config)["per_process"][0]["peak_bytes"]["total"]
        for part in ("is out of memory", "train.batch_size_per_worker", f"predicts {planned / 2**20:.0f} MiB"):
            assert part in said, said
        assert "out of memory" in (tmp_path / "runs" / config.stem / "log.txt").read_text()


def test_too_many_open_files_is_named_with_its_remedy(tmp_path, data):
    """At limits that some part of the program finds too low: files of the run folder, logs, sockets."""
    config = harness.write_config(tmp_path, "run", data, train={"max_steps": 1, "collective_timeout_s": 5})
    for limit in (6, 11, 16):
        lower = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
        process = harness.start_run(config, "--nproc", 2, "--set", f"name=run{limit}", preexec_fn=lower)
        said = process.communicate(timeout=120)[0]
        assert process.returncode in (2, 3, 4) and "ulimit -n" in said, said
        assert "disk" not in said and "MASTER_PORT" not in said


# ---- processes that do not belong together ----

def outputs_of(expect, config, *ranks, **options):
    """What ranks that are started by hand say until all end with the exit code."""
    processes = harness.by_hand(config, *ranks, **options)
    with harness.ending(*processes):
        outputs = [process.communicate(timeout=300)[0] for process in processes]
    assert [process.returncode for process in processes] == [expect] * len(processes), outputs
    return outputs


def test_a_second_start_is_refused_and_harms_nothing(tmp_path, data):
    config = harness.write_config(
        tmp_path, "run", data, model={"name": "mlp", "width": 4, "depth": 4, "hidden_width": 16},
        optimizer={"lr": 1e-6}, train={"max_steps": 1000000, "log_every_steps": 5}, output={"trace": False},
        checkpoint={"at_start": False, "every_minutes": 1e-9},  # every logging interval
    )
    run_dir = tmp_path / "runs" / "run"
    first = harness.start_run(config, "--nproc", 2)
    harness.await_((run_dir / "latest").exists, "checkpoint", first)
    lock = json.loads((run_dir / "run.lock").read_text())
    assert lock["pid"] != first.pid  # rank 0, which writes the folder
    other = harness.sets("optimizer.lr=0.5", "train.max_steps=20")
    refusals = [
        harness.run("--config", config, "--nproc", 2, *other, expect=2).stderr,
        *outputs_of(2, config, 0, 1, more=lambda rank: [*other, "--resume"]),
    ]
    for refusal in refusals:
        assert f"process {lock['pid']} on host {socket.gethostname()}" in refusal
    assert first.poll() is None
    first.send_signal(signal.SIGTERM)
    assert first.wait(120) == 75, first.stdout.read()
    assert "max_steps: 1000000" in (run_dir / "spec.yaml").read_text()
    steps_of = lambda kind: [line["step"] for line in harness.records(run_dir, kind)]
    # Every fifth step, and the one after which the signal stopped the run.
    steps = steps_of("train")
    assert steps == steps_of("checkpoint") == sorted({*range(5, steps[-1] + 1, 5), steps[-1]})
    assert [line["hosts"] for line in harness.records(run_dir, "start")] == [[socket.gethostname()] * 2]
    assert harness.saved_step(run_dir) == steps[-1]
    assert len(list(run_dir.glob("events.out.tfevents.*"))) == 1 and not list(run_dir.glob("run.lock*"))


# ---- two nodes of two ranks ----


def published(folder, workers, sets):
    """The section of owner sets in which no worker shares a unit with its neighbor by number."""
    subnetwork = {"workers": workers, "coverage": f"{len(sets[0])}/{workers}"}
    plan = harness.run_json("plan", "--config", harness.write_config(folder, "plan", folder, subnetwork=subnetwork))
    for number, unit in enumerate(plan["units"]):
        unit["owners"] = sets[number % len(sets)]
    path = folder / "published.json"
    path.write_text(json.dumps(plan))
    return subnetwork | {"assignment": "file", "assignment_file": str(path)}


def test_placement_does_not_change_the_experiment(tmp_path, data):
    """Traces and checkpoints are the same bit by bit for every placement. Process i has the workers 2 i and 2 i + 1."""
    subnetwork = published(tmp_path, 8, [[0, 1, 4, 5], [2, 3, 6, 7]])
    files = {}
    for placement, nodes in (("in_order", [0, 0, 1, 1]), ("pack", [0, 1, 0, 1])):
        config = harness.write_config(
            tmp_path, placement, data, subnetwork={**subnetwork, "placement": placement},
            train={"max_steps": 3, "precision": "fp32"},
        )
        texts = outputs_of(0, config, *range(4), world=4)
        run_dir = tmp_path / "runs" / placement
        plan = harness.plan_of(run_dir)
        assert [process["node"] for process in plan["per_process"]] == nodes
        assert plan["nodes"]["placement"] == placement and plan["nodes"]["processes_per_node"] == 2
        assert "assembled full model" in texts[0]
        checkpoints = sorted((run_dir / "checkpoints").glob("*/*.safetensors"))
        assert len(checkpoints) == 2 * 4
        files[placement] = {path.relative_to(run_dir): harness.sha256(path) for path in checkpoints}
        files[placement]["trace"] = harness.sha256(run_dir / "trace.jsonl")
    assert files["in_order"] == files["pack"]


def test_ranks_that_do_not_fit_are_refused(tmp_path, data):
    """With different specs, named by the processes that they become: rank 1, on the first node, runs process 2 under
    pack. And not numbered node by node."""
    subnetwork = {**published(tmp_path, 4, [[0, 2], [1, 3]]), "placement": "pack"}
    config = harness.write_config(tmp_path, "run", data, subnetwork=subnetwork)
    odd = lambda rank: ["--set", "optimizer.lr=0.04"] if rank == 1 else []
    for text in outputs_of(2, config, *range(4), world=4, more=odd):
        assert "spec" in text and "differ: 2 (" in text
    config = harness.write_config(tmp_path, "run", data, subnetwork={"placement": "pack"})
    (text,) = outputs_of(2, config, 1, world=4, env={"LOCAL_RANK": "0"})
    assert "subnetwork.placement: found pack, but rank 1 of 4 is number 0 of 2 on its node" in text
