"""One run folder has one writer, and all processes of a run see the same one."""

import json
import signal
import socket
import subprocess
import time

import harness

SMALL = {
    "model": {"name": "mlp", "width": 4, "depth": 4, "hidden_width": 16},
    "optimizer": {"lr": 1e-6},
    "train": {"max_steps": 1000000, "log_every_steps": 5},
    "checkpoint": {"at_start": False, "every_minutes": 1e-9},  # every logging interval
    "eval": {"recalibrate_batches": 0},
    "output": {"trace": False},
}
REFUSED = 2
STOPPED = 75


def start_ranks(config, *more, folders=(None, None)):
    """Two ranks with the variables that torchrun sets, each in its own folder."""
    place = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(harness.free_port())}
    return [
        harness.start("--config", config, *more, env=place | {"RANK": str(rank)}, cwd=folder,
                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for rank, folder in enumerate(folders)
    ]


def outputs_of(processes, expect):
    outputs = [process.communicate(timeout=300)[0] for process in processes]
    assert [process.returncode for process in processes] == [expect] * len(processes), outputs
    return outputs


def test_a_second_start_is_refused_and_harms_nothing(tmp_path, data):
    config = harness.write_config(tmp_path, "run", data, **SMALL)
    run_dir = tmp_path / "runs" / "run"
    first = harness.start("--config", config, "--nproc", 2, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    deadline = time.time() + 120
    while not (run_dir / "latest").exists():
        assert first.poll() is None and time.time() < deadline, first.stdout.read()
        time.sleep(0.02)
    lock = json.loads((run_dir / "run.lock").read_text())
    assert lock["pid"] != first.pid  # rank 0, which writes the folder

    other = ["--set", "optimizer.lr=0.5", "--set", "train.max_steps=20"]
    refusals = [
        harness.run("--config", config, "--nproc", 2, *other, expect=REFUSED).stderr,
        harness.run("--config", config, "--nproc", 2, *other, "--resume", expect=REFUSED).stderr,
        harness.run("--config", config, *other, "--resume", env={"RANK": "0", "WORLD_SIZE": "1"}, expect=REFUSED).stderr,
        *outputs_of(start_ranks(config, *other, "--resume"), REFUSED),
    ]
    for refusal in refusals:
        assert f"process {lock['pid']} on host {socket.gethostname()}" in refusal

    assert first.poll() is None
    first.send_signal(signal.SIGTERM)
    assert first.wait(120) == STOPPED, first.stdout.read()
    assert "max_steps: 1000000" in (run_dir / "spec.yaml").read_text()
    lines = harness.json_lines(run_dir / "metrics.jsonl")
    steps = [line["step"] for line in lines if line["kind"] == "train"]
    # Every fifth step, and the one after which the signal stopped the run.
    assert steps == sorted({*range(5, steps[-1] + 1, 5), steps[-1]})
    assert [line["step"] for line in lines if line["kind"] == "checkpoint"] == steps
    starts = [line for line in lines if line["kind"] == "start"]
    assert [line["hosts"] for line in starts] == [[socket.gethostname()] * 2]
    assert (run_dir / "latest").read_text().strip() == f"step-{steps[-1]:08d}"
    assert len(list(run_dir.glob("events.out.tfevents.*"))) == 1
    assert not list(run_dir.glob("run.lock*"))


def test_a_folder_that_a_process_does_not_see_is_an_error_at_the_start(tmp_path, data):
    """One path that leads each process to its own folder, as on the local disks of two hosts."""
    config = harness.write_config(tmp_path, "run", data, **SMALL)
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
    for output in outputs_of(start_ranks(config, "--set", "output.dir=/proc/self/cwd/runs", folders=folders), REFUSED):
        assert f"host {socket.gethostname()} (rank 1)" in output and "output.dir" in output
    assert not list((folders[0] / "runs" / "run").glob("*"))
