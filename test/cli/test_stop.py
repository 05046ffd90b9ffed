"""Runs that are asked to stop, in every phase and whichever of their processes gets the signal, and runs whose processes hang: a run
that goes on ends as if it had not been stopped. What the processes say to each other: test/comm.

Phases are recognized from outside. One rank is suspended (SIGSTOP), so that the others wait for it where they are; then the signal
is sent, and the rank is continued. SIGINT and SIGHUP, which a parent of the tests may ignore, are tested in test/comm."""

import json
import os
import re
import signal
import time
from pathlib import Path

import harness

STEPS = 40
SECTIONS = {
    # No logging interval ends within the run, so the stop cannot wait for one.
    "train": {"max_steps": STEPS, "precision": "fp32", "log_every_steps": 100000},
    # 200 images, 16 per step: an evaluation every 20 steps.
    "eval": {"every_epochs": 1.6, "recalibrate_batches": 100},
    "checkpoint": {"at_start": False, "every_steps": 30, "keep_last": 10},
    "data": {"augment": ["crop", "flip"]},
    "output": {"trace": True},
}


def rank_of(pid):
    """None before the process has the variables of its rank, and after its end."""
    try:
        found = re.search(rb"\0RANK=(\d+)\0", b"\0" + Path(f"/proc/{pid}/environ").read_bytes())
    except (FileNotFoundError, ProcessLookupError):
        return None
    return found and int(found[1])


def ranks_of(launcher, world=2):
    """Process ids of the launcher's ranks, in order."""

    def found():
        pids = {rank_of(pid): int(pid) for pid in harness.children_of(launcher.pid)}
        return set(pids) == set(range(world)) and [pids[rank] for rank in range(world)]

    return harness.await_(found, "ranks", launcher)


def traced_steps(run_dir):
    path = run_dir / "trace.jsonl"
    return path.read_text().count("\n") // 4 if path.exists() else 0  # one line per worker


def evaluated(run_dir):
    return [line["step"] for line in harness.records(run_dir, "eval")]


def output_until(process, pattern):
    """The process's output up to the line with a match of the pattern, while it runs."""
    text = ""
    while not re.search(pattern, text):
        line = process.stdout.readline()
        assert line, f"no {pattern} in {text}"
        text += line
    return text


def stop_in_step(config, run_dir, step, signal_number, receiver):
    """Starts or resumes the run. After `step` steps, and before the next one ends, sends a signal to the launcher, or to the
    rank of this number. Rank 0, unless only the suspended rank has the signal, says at once which steps a second signal
    would lose. Returns the step that was saved last."""
    launcher = harness.start_run(config, "--nproc", 2, "--resume=if-any")
    harness.await_(lambda: traced_steps(run_dir) >= step, f"step {step}", launcher)
    ranks = ranks_of(launcher)
    os.kill(ranks[1], signal.SIGSTOP)  # the others wait for it in the next exchange
    assert step not in evaluated(run_dir)
    os.kill(launcher.pid if receiver == "launcher" else ranks[receiver], signal_number)
    output = ""
    if receiver == 1:
        time.sleep(0.2)
    else:
        output = output_until(launcher, r"since step \d+")
        assert re.search(rf"since step {harness.saved_step(run_dir) or 0}\b", output), output
    assert launcher.poll() is None
    os.kill(ranks[1], signal.SIGCONT)
    output += launcher.communicate()[0]
    assert launcher.returncode == 75 and "--resume" in output, output
    return harness.saved_step(run_dir)


def test_a_run_that_is_stopped_in_every_phase_ends_as_one_that_never_was(tmp_path, data):
    whole = harness.train(tmp_path, "whole", data, 2, **SECTIONS)
    config = harness.write_config(tmp_path, "run", data, **SECTIONS)
    run_dir = tmp_path / "runs" / "run"

    # Start-up, while the program is being loaded.
    launcher = harness.start_run(config, "--nproc", 2)
    harness.await_(run_dir.is_dir, "run folder", launcher)
    launcher.send_signal(signal.SIGUSR1)
    output, _ = launcher.communicate(timeout=300)
    assert launcher.returncode == 75 and "same command" in output, output
    assert harness.saved_step(run_dir) is None

    # A rank is at most one step ahead here, as the trace is gathered in every step. An evaluation is abandoned, the step
    # is saved, and no further step is begun. A checkpoint is finished. In the last evaluation the trained weights are
    # saved, and a resume only evaluates.
    for step, signal_number, receiver, expected, evaluations in [
        (2, signal.SIGTERM, "launcher", range(2, 20), []), (7, signal.SIGUSR1, 1, range(7, 20), []),
        (20, signal.SIGUSR1, 0, [20], []), (30, signal.SIGTERM, 1, [30, 31], [20]),
        (STEPS, signal.SIGTERM, "launcher", [STEPS], [20]),
    ]:  # fmt: skip
        saved = stop_in_step(config, run_dir, step, signal_number, receiver)
        assert saved in expected and evaluated(run_dir) == evaluations
        assert traced_steps(run_dir) == saved and not (run_dir / "summary.json").exists()
    harness.run("--config", config, "--nproc", 2, "--resume")
    assert evaluated(run_dir) == [20, STEPS]
    assert harness.hashes(run_dir, STEPS) == harness.hashes(whole, STEPS)
    assert harness.trace_losses(run_dir) == harness.trace_losses(whole)
    summaries = [harness.without_times(json.loads((folder / "summary.json").read_text())) for folder in (run_dir, whole)]
    assert summaries[0] == summaries[1]


HANGS = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static int is_of_torch(const void* code) {
  Dl_info info;
  return dladdr(code, &info) && (strstr(info.dli_fname, "libtorch") || strstr(info.dli_fname, "libc10"));
}
void* _Znwm(size_t size) {  // operator new; never of the launcher
  while (getpid() == gettid() && getenv("RANK") && access(getenv("HANGS_WHEN"), F_OK) == 0 &&
         is_of_torch(__builtin_return_address(0)))
    usleep(10000);
  void* result = malloc(size);
  if (!result) abort();
  return result;
}
"""


def test_a_step_that_hangs_in_a_library_is_reported_and_ends_at_a_second_signal(tmp_path, data):
    """The main threads of these processes do not return from LibTorch, which allocates in every step: of both ranks of
    the launcher, and of rank 1 of two, which rank 0 waits for."""
    sections = {**SECTIONS, "model": {"name": "mlp", "width": 16, "hidden_width": 32, "depth": 2},
                "optimizer": {"lr": 1e-6}, "train": {**SECTIONS["train"], "max_steps": 100000000},
                # Nothing but steps, however many a run does before the others have begun.
                "checkpoint": {"at_start": False, "every_steps": 100000000}, "eval": {"every_epochs": 1e9}}  # fmt: skip
    launched, apart = (harness.write_config(tmp_path, name, data, **sections) for name in ("launched", "apart"))
    env = {"LD_PRELOAD": harness.shared_object(tmp_path, "hangs", HANGS), "HANGS_WHEN": os.fspath(tmp_path / "now")}
    port = harness.free_port()
    (first,), (second,) = (harness.by_hand(apart, rank, port=port, env=env if rank else None) for rank in (0, 1))
    runs = {"launched": harness.start_run(launched, "--nproc", 2, env=env), "apart": first}
    with harness.ending(*runs.values(), second):
        for name, process in runs.items():
            harness.await_(lambda: traced_steps(tmp_path / "runs" / name) > 2, "step", process)
        (tmp_path / "now").touch()
        for name, process in runs.items():
            log = tmp_path / "runs" / name / "log.txt"
            said = lambda: re.search(r"step \d+ is running: 10 s.*", log.read_text())
            line = harness.await_(said, "line of the step", process)[0]
            assert name != "apart" or "reduce" in line or "gather" in line, line  # it waits for the other rank
            process.send_signal(signal.SIGTERM)
        time.sleep(2.5)
        assert [process.poll() for process in [*runs.values(), second]] == [None] * 3
        for process in runs.values():
            process.send_signal(signal.SIGUSR1)
        for (name, process), code in zip(runs.items(), [4, -signal.SIGUSR1]):
            output = process.communicate(timeout=60)[0]
            assert process.returncode == code, (name, output)
            assert "second signal" in output and re.search(r"step \d+ is running", output), (name, output)
        # The rank that hangs sees that the other is gone.
        assert second.wait(60) == 4


def is_suspended(pid):
    """All threads of a process. In the file, the state follows the program's name in parentheses."""
    threads = Path(f"/proc/{pid}/task").glob("*/stat")
    return all(thread.read_text().rpartition(")")[2].split()[0] == "T" for thread in threads)


def test_a_process_that_hangs_is_named_at_the_time_out(tmp_path, data):
    sections = {**SECTIONS, "train": {**SECTIONS["train"], "max_steps": 100000, "collective_timeout_s": 8}}
    ranks = harness.by_hand(harness.write_config(tmp_path, "run", data, **sections), 0, 1)
    with harness.ending(ranks[1]):
        harness.await_(lambda: harness.saved_step(tmp_path / "runs" / "run"), "checkpoint", ranks[0])
        ranks[1].send_signal(signal.SIGSTOP)
        harness.await_(lambda: is_suspended(ranks[1].pid), "suspended rank 1", ranks[0])
        output, _ = ranks[0].communicate(timeout=300)
        assert ranks[0].returncode == 4 and "rank 1" in output and "not answer" in output, output
        assert harness.saved_step(tmp_path / "runs" / "run") % 30 == 0


def test_who_waits_for_others_says_so_and_stops_at_once(tmp_path, data):
    """Long before the time-out, which a run with variables of another program otherwise waits for in silence."""
    numbers = {"RANK": "0", "SIZE": "4", "LOCAL_RANK": "0", "LOCAL_SIZE": "4"}
    variables = {f"OMPI_COMM_WORLD_{name}": number for name, number in numbers.items()}
    waiting = harness.start_run(harness.write_config(tmp_path, "run", data, **SECTIONS), env=variables)
    with harness.ending(waiting):
        said = output_until(waiting, "wait")
        assert waiting.poll() is None and str(tmp_path) in said  # those that share a folder meet in it
        assert "OMPI_COMM_WORLD_RANK" in said and "OMPI_COMM_WORLD_SIZE" in said
        waiting.send_signal(signal.SIGUSR1)
        assert waiting.wait(300) == 75
