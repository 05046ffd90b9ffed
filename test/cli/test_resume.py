"""Killed and resumed runs end with the weights of the uninterrupted run; bad checkpoints are refused by name."""

import json
import shutil

import numpy as np
import pytest

import harness

SMALL = {
    "train": {"max_steps": 40, "precision": "fp32", "log_every_steps": 5},
    "checkpoint": {"at_start": False, "every_steps": 10, "keep_last": 2},
    "eval": {"recalibrate_batches": 0},
    "data": {"augment": ["crop", "flip"]},
    "output": {"trace": True},
}
TEN = {**SMALL, "train": {**SMALL["train"], "max_steps": 10}}


def summary_of(run_dir):
    return json.loads((run_dir / "summary.json").read_text())


def check_times(run_dir, parts):
    """The summary's times are sums over the metrics of all parts of a run."""
    assert len(harness.records(run_dir, "start")) == parts
    lines, train = harness.json_lines(run_dir / "metrics.jsonl"), harness.records(run_dir, "train")
    expected = {key: sum(line.get(key, 0) for line in lines) for key in ("eval_s", "save_s", "data_s")}
    steps = np.diff([line["step"] for line in train], prepend=0)
    expected["train_s"] = np.dot(steps, [line["step_ms"] / 1000 for line in train])
    summary = summary_of(run_dir)
    for key, seconds in expected.items():
        assert seconds > 0 and summary[key] == pytest.approx(seconds), key


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory, data):
    return harness.train(tmp_path_factory.mktemp("whole"), "run", data, 2, **SMALL)


@pytest.fixture(scope="module")
def ten_steps(tmp_path_factory, data):
    """A finished run of ten steps; tests work on copies of its folder."""
    return harness.train(tmp_path_factory.mktemp("ten"), "run", data, 2, **TEN)


KILLED = {
    "sgd": {},
    "unsharded-average-replicas-accumulated": {
        "optimizer": {"shard": False, "ema_decay": 0.9, "groups": [{"match": "*bias", "lr_factor": 0.5}]},
        "subnetwork": {"replicas": 2}, "train": {"precision": "bf16", "accumulate_steps": 2, "max_steps": 20},
    },
}


@pytest.mark.parametrize("case", KILLED)
def test_killed_run_resumes_to_the_same_weights(tmp_path, data, uninterrupted, case):
    sections = {**SMALL, **KILLED[case], "train": {**SMALL["train"], **KILLED[case].get("train", {})}}
    whole = uninterrupted
    if KILLED[case]:
        (tmp_path / "whole").mkdir()
        whole = harness.train(tmp_path / "whole", "run", data, 2, **sections)
    config = harness.write_config(tmp_path, "run", data, **sections)
    run_dir = tmp_path / "runs" / "run"
    process = harness.start_run(config, "--nproc", 2, start_new_session=True)
    harness.await_checkpoint(run_dir, 10, process)
    harness.kill_run(process)
    last = sections["train"]["max_steps"]
    assert harness.saved_step(run_dir) != last, "the run was over before the kill"

    assert "resuming at step" in harness.run("--config", config, "--nproc", 2, "--resume").stdout
    assert harness.hashes(run_dir) == harness.hashes(whole)
    for name in ("metrics.jsonl", "trace.jsonl"):
        key = lambda line: (line.get("kind"), line["step"], line.get("worker"), line.get("replica"))
        resumed, expected = (
            [key(line) for line in harness.json_lines(folder / name) if line.get("kind") not in ("start", "checkpoint")]
            for folder in (run_dir, whole)
        )
        assert resumed == expected, name
    check_times(run_dir, parts=2)
    assert harness.trace_losses(run_dir) == harness.trace_losses(whole)


def test_resume_without_a_checkpoint_is_refused_and_if_any_starts_the_run(tmp_path, data, ten_steps):
    config = harness.write_config(tmp_path, "run", data, **TEN)
    run_dir = tmp_path / "runs" / "run"
    for arguments in (["--nproc", 2, "--resume"], ["--nproc", 1, "--resume=latest-good"]):
        refused = harness.run("--config", config, *arguments, expect=2).stderr
        assert str(run_dir) in refused and "without --resume" in refused
        assert not run_dir.parent.exists()
    run_dir.mkdir(parents=True)
    # Of a part of the run that saved nothing.
    (run_dir / "metrics.jsonl").write_text('{"kind":"start","step":0}\n{"kind":"train","step":1}\n')
    assert "--resume=if-any" in harness.run("--config", config, "--nproc", 1, expect=2).stderr
    harness.run("--config", config, "--nproc", 2, "--resume=if-any")
    assert harness.hashes(run_dir) == harness.hashes(ten_steps)
    check_times(run_dir, parts=1)


def resume_copy(tmp_path, data, ten_steps, processes, expect, steps=20, **changes):
    run_dir = tmp_path / "runs" / "run"
    if not run_dir.exists():
        shutil.copytree(ten_steps, run_dir)
    sections = {**SMALL, "train": {**SMALL["train"], "max_steps": steps}}
    for section, values in changes.items():
        sections[section] = {**sections.get(section, {}), **values} if isinstance(values, dict) else values
    config = harness.write_config(tmp_path, "run", data, **sections)
    return harness.run("--config", config, "--nproc", processes, "--resume", expect=expect)


def test_summary_of_a_finished_run(tmp_path, data, ten_steps):
    """200 images, 4 workers with 4 images per step."""
    version = harness.run("--version").stdout.split()[-1]
    threads = json.loads((ten_steps / "checkpoints" / "step-00000010" / "manifest.json").read_text())["threads"]
    expected = {"step": 10, "total_steps": 10, "skipped_steps": 0, "samples_per_step": 16, "epochs": 0.8, "processes": 2,
                "threads_per_process": threads, "device": harness.DEVICE.upper(), "version": version}
    expected |= {key: harness.last_eval(ten_steps)[key] for key in ("loss", "accuracy")}
    assert harness.without_times(summary_of(ten_steps)) == expected
    log = (ten_steps / "log.txt").read_text()
    assert "step 1/10" in log and "step 10/10" in log, "the progress lines are in the log"
    # With more steps, the finished run is unfinished again.
    resume_copy(tmp_path, data, ten_steps, 2, 1, optimizer={"lr": 1e12})
    assert not (tmp_path / "runs" / "run" / "summary.json").exists()
    resume_copy(tmp_path, data, ten_steps, 1, 0)
    longer = summary_of(tmp_path / "runs" / "run")
    assert [longer[key] for key in ("step", "total_steps", "epochs", "processes")] == [20, 20, 1.6, 1]


def test_latest_good_passes_over_what_is_damaged(tmp_path, data, uninterrupted):
    run_dir = tmp_path / "runs" / "run"
    shutil.copytree(uninterrupted, run_dir)
    file = run_dir / "checkpoints" / "step-00000040" / "process-00001-of-00002.safetensors"
    content = bytearray(file.read_bytes())
    content[-5] ^= 1
    file.write_bytes(content)
    config = harness.write_config(tmp_path, "run", data, **SMALL)
    refused = harness.run("--config", config, "--nproc", 2, "--resume", expect=3).stderr
    assert str(file) in refused and "--resume=latest-good" in refused and "step-00000030" in refused
    result = harness.run("--config", config, "--nproc", 2, "--resume=latest-good")
    assert "skipped the checkpoint step-00000040" in result.stderr and file.name in result.stderr
    assert "resuming at step 30" in result.stdout
    assert harness.hashes(run_dir) == harness.hashes(uninterrupted)


def test_run_folder_that_lost_files_goes_on_with_those_of_the_checkpoint(tmp_path, data, ten_steps):
    """The checkpoint has owner sets and spec, too. Warnings name missing metrics and changed data; training data of
    another size are refused."""
    run_dir = tmp_path / "runs" / "run"
    shutil.copytree(ten_steps, run_dir)
    checkpoint = run_dir / "checkpoints" / "step-00000010"
    plan = (run_dir / "plan.json").read_text()
    assert (checkpoint / "plan.json").read_text() == plan
    assert (checkpoint / "spec.yaml").read_text() == (run_dir / "spec.yaml").read_text()
    (run_dir / "plan.json").write_text(plan[:100])
    (run_dir / "spec.yaml").write_bytes(b"\0" * 50)
    lines = (run_dir / "metrics.jsonl").read_text().splitlines(keepends=True)
    (run_dir / "metrics.jsonl").write_text("".join(lines[:-3]))  # also a line from before the checkpoint
    other_data = harness.write_cifar10(tmp_path / "other")
    images, labels = harness.read_arrays(other_data / "train.safetensors")
    harness.write_arrays(other_data / "val.safetensors", images[:40], labels[:40], harness.CIFAR10)
    result = resume_copy(tmp_path, other_data, ten_steps, 2, 0)
    assert f"{run_dir}/metrics.jsonl has {len(lines) - 3} lines" in result.stderr
    assert "the test data has changed" in result.stderr and "training data" not in result.stderr
    assert (run_dir / "plan.json").read_text() == plan
    harness.run("export", "--run", run_dir, "--out", tmp_path / "model.safetensors")
    for steps, count, code, said in [(22, 200, 0, "the training data has changed"), (24, 199, 3, "has 199 samples")]:
        images[83, 0, 0, 5] ^= 1
        harness.write_arrays(other_data / "train.safetensors", images[:count], labels[:count], harness.CIFAR10)
        assert said in resume_copy(tmp_path, other_data, ten_steps, 1, code, steps).stderr


def test_a_resume_that_is_refused_or_has_nothing_to_do_changes_nothing(tmp_path, data, ten_steps):
    """Another experiment; a finished run, which is not ended early by a shorter length in its file. Which keys are
    fixed: test/experiment/resume_test.cpp."""

    def contents(folder):
        return {path.relative_to(folder): path.is_dir() or path.read_bytes() for path in folder.rglob("*")}

    changed = {"optimizer": {"lr": 0.9}, "output": {"trace": False}}
    for processes, code, steps, changes, said in [
        (2, 2, 20, {"model": {"width": 8}}, "model.width (was 4, now 8)"), (2, 0, 10, changed, "nothing to do"),
        (1, 2, 4, changed, "train.max_steps"),
    ]:
        result = resume_copy(tmp_path, data, ten_steps, processes, code, steps, **changes)
        assert said in result.stdout + result.stderr
        assert contents(tmp_path / "runs" / "run") == contents(ten_steps)


def test_resume_with_another_learning_rate_says_so(tmp_path, data, ten_steps):
    result = resume_copy(tmp_path, data, ten_steps, 2, 0, optimizer={"lr": 0.01})
    assert "optimizer.lr (was 0.05, now 0.01)" in result.stderr
    assert any("0.01" in line and "0.05" in line for line in result.stdout.splitlines())  # of the next step
    run_dir = tmp_path / "runs" / "run"
    before, after = (json.loads((folder / "run.json").read_text()) for folder in (ten_steps, run_dir))
    after["changes"] = [change for change in after["changes"] if change["key"] != "output.dir"]
    assert after == before | {"changes": [
        {"step": 10, "key": "optimizer.lr", "was": "0.05", "now": "0.01"},
        {"step": 10, "key": "train.max_steps", "was": "10", "now": "20"},
    ]}
    assert (run_dir / "checkpoints" / "step-00000020" / "run.json").read_bytes() == (run_dir / "run.json").read_bytes()
    starts = harness.records(run_dir, "start")
    assert [line.get("checkpoint") for line in starts] == [None, "step-00000010"]
    copy = shutil.copytree(run_dir, tmp_path / "runs" / "copy")
    report = harness.run("report", ten_steps, tmp_path / "runs")
    for part in ("B-SDP 2/4", "optimizer.lr 0.05, 0.01 from step 10", "train.max_steps 10, 20 from step 10"):
        assert part in report.stdout
    for folder in (run_dir, ten_steps):
        assert f"{folder}: the same run as {copy}" in report.stderr
    assert len([line for line in report.stdout.splitlines() if line.startswith("run (changed *)")]) == 1
    assert harness.json_lines(tmp_path / "runs" / "run" / "metrics.jsonl")[-1]["step"] == 20


def test_more_skipped_steps_in_a_row_than_allowed_end_the_run(tmp_path, data):
    """The reported batches are those of the trace whose loss is not finite."""
    train = {**SMALL["train"], "on_nonfinite": "skip", "max_consecutive_skips": 3}
    config = harness.write_config(tmp_path, "run", data, **SMALL | {"optimizer": {"lr": 1e18}, "train": train})
    assert "train.max_consecutive_skips" in harness.run("--config", config, "--nproc", 2, expect=1).stderr
    run_dir = tmp_path / "runs" / "run"
    losses, samples = harness.trace_losses(run_dir), harness.trace_samples(run_dir)
    events = harness.records(run_dir, "nonfinite")
    assert [event["step"] - events[0]["step"] for event in events] == [0, 1, 2, 3]
    for event in events:
        step = event["step"]
        batches = {(step, batch["worker"], batch["replica"]): batch["samples"] for batch in event["batches"]}
        assert batches == {key: samples[key] for key, loss in losses.items() if key[0] == step and loss is None}
        assert all(batch["rank"] == batch["worker"] // 2 and not batch["loss_is_finite"] for batch in event["batches"])
        assert event["skipped"]
