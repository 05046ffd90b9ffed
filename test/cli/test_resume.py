"""Killed and resumed runs end with the weights of the uninterrupted one; bad checkpoints are refused by name."""

import json
import os
import signal
import subprocess
import time

import pytest

import harness

SMALL = {
    "train": {"max_steps": 60, "precision": "fp32", "log_every_steps": 5},
    "checkpoint": {"at_start": False, "every_steps": 10, "keep_last": 2},
    "eval": {"recalibrate_batches": 0},
    "data": {"augment": ["crop", "flip"]},
    "output": {"trace": True},
}


def export_hash(run_dir):
    out = run_dir / "model.safetensors"
    harness.run("export", "--run", run_dir, "--out", out)
    return harness.sha256(out)


def start(config, processes, *more):
    return subprocess.Popen(
        [harness.BINARY, "--config", str(config), "--nproc", str(processes), *more],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )


def wait_for_checkpoint(run_dir, step, process):
    deadline = time.time() + 120
    while time.time() < deadline:
        latest = run_dir / "latest"
        if latest.exists() and int(latest.read_text().strip().removeprefix("step-")) >= step:
            return
        assert process.poll() is None, process.stdout.read()
        time.sleep(0.02)
    pytest.fail(f"no checkpoint at step {step}")


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory, data):
    return harness.train(tmp_path_factory.mktemp("whole"), "run", data, 2, **SMALL)


def test_killed_run_resumes_to_the_same_weights(tmp_path, data, uninterrupted):
    config = harness.write_config(tmp_path, "run", data, **SMALL)
    run_dir = tmp_path / "runs" / "run"
    process = start(config, 2)
    wait_for_checkpoint(run_dir, 20, process)
    os.killpg(process.pid, signal.SIGKILL)  # the launcher; its processes end with it
    process.wait()
    metrics = harness.json_lines(run_dir / "metrics.jsonl") if not torn(run_dir / "metrics.jsonl") else []
    assert not any(line["kind"] == "train" and line["step"] == 60 for line in metrics), "the run was over before the kill"

    harness.run("--config", config, "--nproc", 2, "--resume")
    assert export_hash(run_dir) == export_hash(uninterrupted)
    for name in ("metrics.jsonl", "trace.jsonl"):
        resumed, whole = (harness.json_lines(folder / name) for folder in (run_dir, uninterrupted))
        key = lambda line: (line.get("kind"), line["step"], line.get("worker"))
        assert [key(line) for line in resumed] == [key(line) for line in whole], name
    assert harness.trace_losses(run_dir) == harness.trace_losses(uninterrupted)


def torn(path):
    return not path.read_text().endswith("\n")


def test_resume_with_another_number_of_processes(tmp_path, data):
    sections = {**SMALL, "train": {**SMALL["train"], "precision": "fp64", "max_steps": 20}}
    whole = harness.train(tmp_path, "whole", data, 4, **sections)
    first = {**sections, "train": {**sections["train"], "max_steps": 10}}
    harness.train(tmp_path, "parts", data, 4, **first)
    config = harness.write_config(tmp_path, "parts", data, **sections)
    harness.run("--config", config, "--nproc", 1, "--resume")
    expected = harness.trace_losses(whole)
    actual = harness.trace_losses(tmp_path / "runs" / "parts")
    assert actual.keys() == expected.keys()
    assert all(actual[key] == pytest.approx(loss, rel=0, abs=1e-9) for key, loss in expected.items())


def test_signal_saves_and_exits_75(tmp_path, data, uninterrupted):
    config = harness.write_config(tmp_path, "run", data, **SMALL)
    run_dir = tmp_path / "runs" / "run"
    process = start(config, 2)
    wait_for_checkpoint(run_dir, 10, process)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 75, output
    assert "--resume" in output
    harness.run("--config", config, "--nproc", 2, "--resume")
    assert export_hash(run_dir) == export_hash(uninterrupted)


def test_lost_process_ends_the_others(tmp_path, data):
    config = harness.write_config(tmp_path, "run", data, **{**SMALL, "train": {**SMALL["train"], "max_steps": 5000}})
    process = start(config, 4)
    wait_for_checkpoint(tmp_path / "runs" / "run", 10, process)
    children = [int(pid) for pid in open(f"/proc/{process.pid}/task/{process.pid}/children").read().split()]
    assert len(children) == 4
    os.kill(children[2], signal.SIGKILL)
    began = time.time()
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 4, output
    assert time.time() - began < 12
    assert "rank 2" in output


def test_existing_run_folder_is_refused(tmp_path, data, uninterrupted):
    config = harness.write_config(tmp_path, "run", data, **SMALL)
    (tmp_path / "runs" / "run").mkdir(parents=True)
    (tmp_path / "runs" / "run" / "metrics.jsonl").write_text("precious\n")
    result = harness.run("--config", config, "--nproc", 1, expect=2)
    assert "--resume" in result.stderr
    assert (tmp_path / "runs" / "run" / "metrics.jsonl").read_text() == "precious\n"


def test_resume_of_nothing_starts_fresh_and_of_a_finished_run_does_nothing(tmp_path, data, uninterrupted):
    config = harness.write_config(tmp_path, "run", data, **SMALL)
    harness.run("--config", config, "--nproc", 2, "--resume")
    run_dir = tmp_path / "runs" / "run"
    assert export_hash(run_dir) == export_hash(uninterrupted)
    before = (run_dir / "metrics.jsonl").read_bytes()
    harness.run("--config", config, "--nproc", 2, "--resume")
    assert (run_dir / "metrics.jsonl").read_bytes() == before


@pytest.mark.parametrize("damage", ["flip", "truncate", "plan"])
def test_damaged_or_foreign_checkpoint_is_an_error(tmp_path, data, damage):
    sections = {**SMALL, "train": {**SMALL["train"], "max_steps": 10}}
    run_dir = harness.train(tmp_path, "run", data, 2, **sections)
    file = sorted((run_dir / "checkpoints" / "step-00000010").glob("*.safetensors"))[0]
    content = bytearray(file.read_bytes())
    if damage == "flip":
        content[-5] ^= 1
        file.write_bytes(content)
    if damage == "truncate":
        file.write_bytes(content[:-5])
    if damage == "plan":
        sections["subnetwork"] = {"coverage": "3/4"}
    sections["train"] = {**sections["train"], "max_steps": 20}
    config = harness.write_config(tmp_path, "run", data, **sections)
    result = harness.run("--config", config, "--nproc", 2, "--resume", expect=3)
    assert ("plan" if damage == "plan" else file.name) in result.stderr
