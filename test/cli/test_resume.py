"""Killed and resumed runs end with the weights and curves of whole ones; bad checkpoints are refused by name."""

import json
import shutil

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader
from tensorboard.plugins.hparams import plugin_data_pb2

import harness

SMALL = {
    "train": {"max_steps": 40, "precision": "fp32", "log_every_steps": 5},
    "checkpoint": {"at_start": False, "every_steps": 10, "keep_last": 2},
    "eval": {"recalibrate_batches": 0, "every_steps": 20},
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
    assert min(expected.values()) > 0 and {key: summary[key] for key in expected} == pytest.approx(expected)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory, data):
    return harness.train(tmp_path_factory.mktemp("whole"), "run", data, 2, **SMALL)


@pytest.fixture(scope="module")
def ten_steps(tmp_path_factory, data):
    """A finished run of ten steps; tests work on copies of its folder."""
    return harness.train(tmp_path_factory.mktemp("ten"), "run", data, 2, **TEN)


TIMES = ["forward_ms", "backward_ms", "optimizer_ms"]  # by rank
SUBNETWORKS = ["subnetwork_loss", "subnetwork_accuracy"]


def expected_scalars(run_dir):
    """tag -> [(step, value)] by metrics.jsonl, in single precision; TensorBoard shows means over ranks and workers.
    Which of them are shown is declared with each (lib/run/records.h)."""
    expected = {}
    for line in harness.json_lines(run_dir / "metrics.jsonl"):
        values = line.get("times", {}) | line
        lists = [key for key in TIMES + SUBNETWORKS if key in values]
        for key, value in (line | {key: np.mean(values[key]) for key in lists}).items():
            if isinstance(value, (int, float)):
                expected.setdefault(f"{line['kind']}/{key}", []).append((line["step"], np.float32(value)))
    return expected


def shown_scalars(run_dir):
    """The same, read as TensorBoard shows it."""
    accumulator = EventAccumulator(str(run_dir), size_guidance={"scalars": 0})
    accumulator.Reload()
    points = lambda tag: [(event.step, np.float32(event.value)) for event in accumulator.Scalars(tag)]
    return {tag: points(tag) for tag in accumulator.Tags()["scalars"]}


KILLED = {
    "sgd": {},
    "unsharded-average-replicas-accumulated": {
        "optimizer": {"shard": False, "ema_decay": 0.9, "groups": [{"match": "*bias", "lr_factor": 0.5}]},
        "subnetwork": {"replicas": 2}, "train": {"precision": "bf16", "accumulate_steps": 2, "max_steps": 20},
    },
    "rules-and-capacities": {
        "subnetwork": {"coverage": "1", "capacities": ["1", "1", "1/2", "1/4"], "construction": "neuron",
                       "rules": [{"match": "layer[12].*", "masking": "backward"}]},
    },
}


@pytest.mark.parametrize("case", KILLED)
def test_killed_run_resumes_to_the_same_weights(tmp_path, data, uninterrupted, case):
    sections = {**SMALL, **KILLED[case], "train": {**SMALL["train"], **KILLED[case].get("train", {})}}
    whole = harness.train(tmp_path, "whole", data, 2, **sections) if KILLED[case] else uninterrupted
    config = harness.write_config(tmp_path, "run", data, **sections)
    run_dir = tmp_path / "runs" / "run"
    process = harness.start_run(config, "--nproc", 2, start_new_session=True)
    harness.await_checkpoint(run_dir, 10, process)
    harness.kill_run(process)
    event_files = lambda: sorted(run_dir.glob("events.out.tfevents.*"))
    (first,) = event_files()
    written, resumed_at = first.read_bytes(), harness.saved_step(run_dir)
    assert resumed_at != sections["train"]["max_steps"], "the run was over before the kill"
    assert "resuming at step" in harness.run("--config", config, "--nproc", 2, "--resume").stdout
    assert harness.hashes(run_dir) == harness.hashes(whole)
    key = lambda line: (line.get("kind"), line["step"], line.get("worker"), line.get("replica"))
    for name in ("metrics.jsonl", "trace.jsonl"):
        resumed, expected = (
            [key(line) for line in harness.json_lines(folder / name) if line.get("kind") not in ("start", "checkpoint")]
            for folder in (run_dir, whole)
        )
        assert resumed == expected, name
    check_times(run_dir, parts=2)
    assert harness.trace_losses(run_dir) == harness.trace_losses(whole)

    # TensorBoard's own reader finds the values of metrics.jsonl, each step once.
    shown, expected = shown_scalars(run_dir), expected_scalars(run_dir)
    assert shown == {tag: expected[tag] for tag in shown}
    assert {"train/loss", "train/forward_ms", "eval/accuracy", "eval/subnetwork_loss", "checkpoint/save_s"} <= {*shown}
    harness.run("--config", config, "--nproc", 1, "--resume")  # nothing is left to train, so nothing is written
    _, second = event_files()
    assert first.read_bytes() == written
    of_first, events = ([*LegacyEventFileLoader(str(file)).Load()] for file in (first, second))  # up to a wrong CRC
    assert len(events) == 3 + sum(line["step"] > resumed_at for line in harness.json_lines(run_dir / "metrics.jsonl"))
    assert events[0].file_version == "brain.Event:2"
    assert events[1].session_log.status == events[1].session_log.START
    assert events[1].step == resumed_at + 1  # TensorBoard drops this step and those after it
    times = [event.wall_time for event in events]
    assert times == sorted(times) and abs(times[-1] - second.stat().st_mtime) < 60
    (settings,) = [value for event in of_first for value in event.summary.value if value.HasField("metadata")]
    content = plugin_data_pb2.HParamsPluginData.FromString(settings.metadata.plugin_data.content)
    hparams = content.session_start_info.hparams.items()
    values = {key: getattr(value, value.WhichOneof("kind")) for key, value in hparams}
    assert (values["optimizer.lr"], values["optimizer.shard"], values["seed"]) == (0.05, not case.startswith("unsharded"), 3)
    assert values["subnetwork.masking"] == "forward" and "output.dir" not in values


def test_resume_if_any_starts_a_run_without_a_checkpoint(tmp_path, data, ten_steps):
    """And --resume does not: test/run/test_resumed_run.cpp."""
    config = harness.write_config(tmp_path, "run", data, **TEN)
    run_dir = tmp_path / "runs" / "run"
    run_dir.mkdir(parents=True)
    # Of a part of the run that saved nothing.
    (run_dir / "metrics.jsonl").write_text('{"kind":"start","step":0}\n{"kind":"train","step":1}\n')
    assert "--resume=if-any" in harness.run("--config", config, "--nproc", 1, expect=2).stderr
    harness.run("--config", config, "--nproc", 2, "--resume=if-any")
    assert harness.hashes(run_dir) == harness.hashes(ten_steps)
    check_times(run_dir, parts=1)


@pytest.fixture
def copy(tmp_path, ten_steps):
    return shutil.copytree(ten_steps, tmp_path / "runs" / "run")


def resume(copy, data, processes, expect, steps=20, **changes):
    sections = {**SMALL, **changes, "train": {**SMALL["train"], "max_steps": steps}}
    config = harness.write_config(copy.parents[1], "run", data, **sections)
    return harness.run("--config", config, "--nproc", processes, "--resume", expect=expect)


def test_summary_of_a_finished_run(data, ten_steps, copy):
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
    resume(copy, data, 2, 1, optimizer={"lr": 1e12})
    assert not (copy / "summary.json").exists()
    resume(copy, data, 1, 0)
    assert [summary_of(copy)[key] for key in ("step", "total_steps", "epochs", "processes")] == [20, 20, 1.6, 1]


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


def test_run_folder_that_lost_files_goes_on_with_those_of_the_checkpoint(tmp_path, data, copy):
    """The checkpoint has owner sets and spec, too. Warnings name missing metrics and changed data; training data of
    another size are refused."""
    checkpoint = copy / "checkpoints" / "step-00000010"
    plan = (copy / "plan.json").read_text()
    assert all((checkpoint / name).read_bytes() == (copy / name).read_bytes() for name in ("plan.json", "spec.yaml"))
    (copy / "plan.json").write_text(plan[:100])
    (copy / "spec.yaml").write_bytes(b"\0" * 50)
    lines = (copy / "metrics.jsonl").read_text().splitlines(keepends=True)
    (copy / "metrics.jsonl").write_text("".join(lines[:-3]))  # also a line from before the checkpoint
    other_data = harness.write_cifar10(tmp_path / "other")
    images, labels = harness.read_arrays(other_data / "train.safetensors")
    harness.write_arrays(other_data / "val.safetensors", images[:40], labels[:40], harness.CIFAR10)
    said = resume(copy, other_data, 2, 0).stderr
    assert f"{copy}/metrics.jsonl has {len(lines) - 3} lines" in said
    assert "the test data has changed" in said and "training data" not in said
    assert (copy / "plan.json").read_text() == plan
    harness.run("export", "--run", copy, "--out", tmp_path / "model.safetensors")
    for steps, count, code, part in [(22, 200, 0, "the training data has changed"), (24, 199, 3, "has 199 samples")]:
        images[83, 0, 0, 5] ^= 1
        harness.write_arrays(other_data / "train.safetensors", images[:count], labels[:count], harness.CIFAR10)
        assert part in resume(copy, other_data, 1, code, steps).stderr


def test_a_resume_that_is_refused_or_has_nothing_to_do_changes_nothing(data, ten_steps, copy):
    """Another experiment; a finished run, which is not ended early by a shorter length in its file. Which keys are
    fixed: test/experiment/resume_test.cpp."""
    read = lambda path: path.is_dir() or path.read_bytes()
    contents = lambda folder: {path.relative_to(folder): read(path) for path in folder.rglob("*")}
    changed = {"optimizer": {"lr": 0.9}, "output": {"trace": False}}
    for processes, code, steps, changes, said in [
        (2, 2, 20, {"model": {"width": 8}}, "model.width (was 4, now 8)"), (2, 0, 10, changed, "nothing to do"),
        (1, 2, 4, changed, "train.max_steps"),
    ]:
        result = resume(copy, data, processes, code, steps, **changes)
        assert said in result.stdout + result.stderr
        assert contents(copy) == contents(ten_steps)


def test_resume_with_another_learning_rate_says_so(tmp_path, data, ten_steps, copy):
    result = resume(copy, data, 2, 0, optimizer={"lr": 0.01})
    assert "optimizer.lr (was 0.05, now 0.01)" in result.stderr
    assert any("0.01" in line and "0.05" in line for line in result.stdout.splitlines())  # of the next step
    before, after = (json.loads((folder / "run.json").read_text()) for folder in (ten_steps, copy))
    after["changes"] = [change for change in after["changes"] if change["key"] != "output.dir"]
    assert after == before | {"changes": [
        {"step": 10, "key": "optimizer.lr", "was": "0.05", "now": "0.01"},
        {"step": 10, "key": "train.max_steps", "was": "10", "now": "20"},
    ]}
    assert (copy / "checkpoints" / "step-00000020" / "run.json").read_bytes() == (copy / "run.json").read_bytes()
    assert [line.get("checkpoint") for line in harness.records(copy, "start")] == [None, "step-00000010"]
    assert harness.json_lines(copy / "metrics.jsonl")[-1]["step"] == 20


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


# ---- the best checkpoint ----

LAST = 12


def steps_saved(run_dir):
    return sorted(int(folder.name.removeprefix("step-")) for folder in (run_dir / "checkpoints").iterdir())


def best_of(records, by):
    """The earliest of equals."""
    return min(records, key=lambda record: -record[by] if by == "accuracy" else record[by])


@pytest.mark.parametrize("by,masking,construction", [("accuracy", "forward", "block"), ("loss", "backward", "neuron")])
def test_the_best_checkpoint_is_kept_across_a_resume(tmp_path, data, by, masking, construction):
    run_dir = harness.train(
        tmp_path, "run", data, 2, subnetwork={"masking": masking, "construction": construction},
        optimizer={"lr": 0.3},  # high: the last evaluation is rarely the best
        train={"max_steps": LAST, "log_every_steps": 4}, eval={"every_steps": 3},
        checkpoint={"at_start": False, "keep_last": 1, "keep_best": by},
    )
    records = harness.records(run_dir, "eval")
    assert [record["step"] for record in records] == list(range(3, LAST + 1, 3))
    best = best_of(records, by)
    # If the last evaluation is the best, the best before it goes with the next checkpoint, of which there is none.
    expected = {best["step"], LAST} | ({best_of(records[:-1], by)["step"]} if best["step"] == LAST else set())
    assert steps_saved(run_dir) == sorted(expected)
    evaluate = lambda *more: harness.run_json("eval", "--run", run_dir, *more)
    again = evaluate("--checkpoint", "best")
    assert again["step"] == best["step"] and again["loss"] == pytest.approx(best["loss"], abs=1e-9)
    assert evaluate("--checkpoint", LAST)["loss"] == pytest.approx(records[-1]["loss"], abs=1e-9) == evaluate()["loss"]
    refused = harness.run("eval", "--run", run_dir, "--checkpoint", 7, expect=2).stderr
    assert "7" in refused and str(LAST) in refused

    # Continued from the best checkpoint, the run finds the same evaluations and keeps the same checkpoints.
    if best["step"] < LAST:
        shutil.rmtree(run_dir / "checkpoints" / f"step-{LAST:08d}")
        run_dir = run_dir.rename(tmp_path / "moved")
        said = harness.run("--run", run_dir, "--nproc", 2, "--resume=latest-good")
        assert "warning" not in said.stdout + said.stderr
        again = harness.records(run_dir, "eval")
        assert list(map(harness.without_times, again)) == list(map(harness.without_times, records))
        assert steps_saved(run_dir) == sorted({best["step"], LAST})


def test_scores_of_other_samples_or_corrections_are_not_compared(tmp_path, data):
    """Parts of a run of 4 steps each, all but the last with another measure than the part before. The best of each measure
    keeps its checkpoint, and `best` is that of the last measure."""
    other = shutil.copytree(data, tmp_path / "other")
    images, labels = harness.read_arrays(other / "val.safetensors")
    harness.write_arrays(other / "val.safetensors", images[1:], labels[1:], harness.CIFAR10)
    parts = ["eval.max_samples=7", "eval.branch_scale=survival", "checkpoint.keep_best=loss", f"data.path={other}",
             "optimizer.lr=0.01"]
    run_dir = harness.train(
        tmp_path, "run", data, 1, model={"name": "mlp", "width": 4, "depth": 4, "hidden_width": 16},
        train={"max_steps": 4}, eval={"every_steps": 1},
        checkpoint={"at_start": False, "keep_last": 1, "keep_best": "accuracy"},
    )
    for i, change in enumerate(parts, 2):
        said = harness.run("--run", run_dir, "--resume", *harness.sets(f"train.max_steps={4 * i}", change))
        assert ("measure" in said.stdout) == (i <= len(parts)), change
    records = harness.records(run_dir, "eval")
    spans = [range(1, 5), range(5, 9), range(9, 13), range(13, 17), range(17, 25)]
    measured = [[record for record in records if record["step"] in span] for span in spans]
    best = [best_of(group, "accuracy" if i < 3 else "loss")["step"] for i, group in enumerate(measured)]
    assert set(best) <= set(steps_saved(run_dir))

    evaluate = lambda **more: harness.run("eval", "--run", run_dir, "--json", "--checkpoint", "best", **more)
    found = evaluate()
    assert json.loads(found.stdout)["step"] == best[-1] and f"step {best[-1]}" in found.stderr
    shutil.rmtree(run_dir / "checkpoints" / f"step-{best[-1]:08d}")
    is_left = any(record["step"] in steps_saved(run_dir) for record in measured[-1])
    assert f"step {best[-1]}" in evaluate(expect=0 if is_left else 2).stderr
