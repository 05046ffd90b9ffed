"""Reports over runs: the numbers against statistics of metrics.jsonl and plan.json, files, bad input, the live view."""

import csv
import io
import json
import os
import pty
import select
import shutil
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import harness

STEPS = 6
KINDS = ("activations", "weights", "gradients", "optimizer", "buckets")
RUNS = {"b_0": (0, "1/2"), "b_1": (1, "1/2"), "ddp": (0, "1")}


@pytest.fixture(scope="module")
def runs(tmp_path_factory, data):
    """Two seeds of B-SDP and one run of data parallelism, which is made to look unfinished."""
    folder = tmp_path_factory.mktemp("report")
    for name, (seed, coverage) in RUNS.items():
        run = harness.train(
            folder, name, data, 2, seed=seed, subnetwork={"workers": 2, "coverage": coverage}, optimizer={"shard": False},
            train={"max_steps": STEPS, "log_every_steps": 2},
            eval={"every_epochs": 0.1, "recalibrate_batches": 1 if coverage != "1" else 0}, output={"trace": False},
        )
        if name == "ddp":
            (run / "summary.json").unlink()
    return folder / "runs"


def measures(run):
    """The expected row of a run, computed from its files."""
    train, evals = harness.records(run, "train"), harness.records(run, "eval")
    workers, last = harness.plan_of(run)["per_worker"], evals[-1]
    ends = [0] + [line["step"] for line in train]
    quiet = [line for begin, line in zip(ends, train) if not any(begin <= record["step"] < line["step"] for record in evals)]
    of_kinds = lambda line: np.sum([line["memory"][f"{kind}_bytes"] for kind in KINDS], axis=0)  # by rank
    flops = [worker["flops_per_sample"] for worker in workers]
    after_the_first = lambda value: statistics.median(map(value, train[1:]))  # intervals
    over_ranks = lambda *keys: lambda line: np.mean(np.sum([line["exchange"][key] for key in keys], axis=0))
    expected = {
        "accuracy": last["accuracy"], "loss_nats": last["loss"], "steps": STEPS, "epochs": STEPS * 4 * 2 / 200,
        "training_flops": STEPS * 4 * sum(flops), "training_accuracy": train[-1]["accuracy"],
        "peak_tensor_memory_bytes": max(int(of_kinds(line).max()) for line in quiet or train),
        "flops_per_s": after_the_first(lambda line: line["samples_per_s"] * statistics.mean(flops)),
        "exchange_wait_ms": after_the_first(over_ranks("reduce_wait_ms", "publish_wait_ms")),
        "sent_bytes_per_step": after_the_first(over_ranks("reduce_bytes", "publish_bytes")),
        "largest_worker_parameters": max(worker["parameters"] for worker in workers),
    }  # fmt: skip
    expected |= {key: after_the_first(lambda line: line[key]) for key in ("step_ms", "samples_per_s", "data_wait_ms")}
    if "accuracy_uncorrected" in last:
        expected["accuracy_uncorrected"] = last["accuracy_uncorrected"]
    if single := last.get("subnetwork_accuracy"):
        of = {"mean": statistics.mean, "min": min, "max": max}
        expected |= {f"subnetwork_accuracy_{name}": function(single) for name, function in of.items()}
    return expected


def test_csv_has_the_statistics_of_the_metrics(runs):
    said = harness.run("report", runs, "--baseline", "DDP", "--format", "csv").stdout
    rows = {row["label"]: row for row in csv.DictReader(io.StringIO(said))}
    assert list(rows) == ["B-SDP 1/2", "DDP"]
    both, ddp = [measures(runs / "b_0"), measures(runs / "b_1")], measures(runs / "ddp")
    row = rows["B-SDP 1/2"]
    assert row["seeds"] == "0 1" and row["device"] == harness.DEVICE.upper()
    assert [of_label["unfinished_runs"] for of_label in rows.values()] == ["0", "1"]
    assert len(both[0]) >= 13
    for key in both[0]:
        values = [one[key] for one in both]
        assert float(row[key]) == pytest.approx(statistics.mean(values), rel=1e-12), key
        assert float(row[f"{key}_std"]) == pytest.approx(statistics.stdev(values), rel=1e-9, abs=1e-12), key
    for key, value in ddp.items():
        assert float(rows["DDP"][key]) == pytest.approx(value, rel=1e-12) and rows["DDP"][f"{key}_std"] == "", key
    for key in ("training_flops", "peak_tensor_memory_bytes", "step_ms", "sent_bytes_per_step"):
        assert float(row[f"{key}_over_baseline"]) == pytest.approx(float(row[key]) / ddp[key], rel=1e-12)
    assert float(row["accuracy_minus_baseline"]) == pytest.approx(float(row["accuracy"]) - ddp["accuracy"], abs=1e-12)


def test_a_resumed_run_has_the_flops_of_both_parts_and_says_what_changed(runs, tmp_path):
    run = shutil.copytree(runs / "b_0", tmp_path / "run")
    changed = harness.sets("subnetwork.coverage=1", f"train.max_steps={2 * STEPS}")
    harness.run("--run", run, "--nproc", 1, "--resume", *changed)
    flops = lambda folder: sum(worker["flops_per_sample"] for worker in harness.plan_of(folder)["per_worker"])
    expected = STEPS * 4 * (flops(run / "checkpoints" / f"step-{STEPS:08}") + flops(run))
    table = harness.run("report", run, "--format", "csv").stdout.splitlines()
    assert float(next(csv.DictReader(table))["training_flops"]) == pytest.approx(expected, rel=1e-6)
    text = harness.run("report", run).stdout
    assert f"subnetwork.coverage 1/2, 1 from step {STEPS}" in text and "run (changed *)" in text


def test_bad_input(runs, tmp_path):
    """Of what test/lab does not read: the folders, and a run among others that cannot be read."""
    broken = shutil.copytree(runs / "b_0", tmp_path / "broken")
    metrics = broken / "metrics.jsonl"
    metrics.write_text(metrics.read_text().replace("\n", "\n{broken\n", 1))
    (tmp_path / "empty").mkdir()
    where = f"{metrics}, line 2:"
    for arguments, code, parts in [
        ([tmp_path / "empty"], 2, ["no run"]), ([tmp_path / "none"], 2, [tmp_path / "none"]),
        ([runs, "--format", "pdf"], 2, ["pdf"]), ([runs, "--baseline", "N-SDP"], 2, ["B-SDP 1/2", "DDP"]),
        ([broken], 3, [where]), ([broken, runs / "ddp"], 0, [where]),
    ]:
        said = harness.run("report", *arguments, expect=code).stderr
        assert all(str(part) in said for part in parts), said


def test_without_the_lab_one_line_says_what_to_install(tmp_path, data):
    """A binary alone; and an interpreter without the packages. The plan is there without its pictures."""
    alone = shutil.copy(harness.BINARY, tmp_path)
    result = subprocess.run([alone, "report", tmp_path], capture_output=True, text=True)
    assert result.returncode == 2 and "scripts/setup" in result.stderr and result.stderr.count("\n") == 1
    config, python = harness.write_config(tmp_path, "base", data), tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    for command in (["report", tmp_path], ["plan", "--config", config, "--out", tmp_path / "plan"]):
        message = harness.run(*command, env={"SDP_PYTHON": str(python)}, expect=2).stderr
        assert "requirements-lab.txt" in message and message.count("\n") == 1
    assert [path.name for path in (tmp_path / "plan").iterdir()] == ["plan.json"]


# What a notebook, a cluster's modules, another locale or a folder of one's own scripts change for programs in Python.
HOSTILE = {
    "MPLBACKEND": "module://matplotlib_inline.backend_inline", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "LC_ALL": "C",
    "PYTHONCOERCECLOCALE": "0", "PYTHONPATH": ":.", "PYTHONHOME": "/nonexistent", "PYTHONWARNINGS": "error", "CDPATH": "/:.",
    "PYTHONOPTIMIZE": "2", "PYTHONPLATLIBDIR": "elsewhere", "PYTHONSTARTUP": "random.py", "MATPLOTLIBRC": "matplotlibrc",
}  # fmt: skip
MODULES = ("types", "random", "pandas", "yaml", "matplotlib", "json", "sdp_lab", "sitecustomize", "argparse", "wandb")


def test_the_lab_does_the_same_wherever_it_is_started(runs, tmp_path, data):
    """A folder with modules of the names that it imports and with a matplotlibrc; and variables of Python and matplotlib."""
    hostile, plain = tmp_path / "hostile", tmp_path / "plain"
    config, sweep = harness.write_config(tmp_path, "base", data), tmp_path / "sweep.yaml"
    program = Path(harness.BINARY).resolve()
    sweep.write_text(json.dumps({"name": "s", "configs": ["base.yaml"], "grid": {"seed": [0, 1]}}))
    found = {}
    for place, env in ((plain, {}), (hostile, HOSTILE)):
        place.mkdir()
        if env:
            for module in MODULES:
                (place / f"{module}.py").write_text("import os\nos._exit(9)\n")
            (place / "matplotlibrc").write_text("text.usetex: true\nfont.size: 40\nsavefig.format: png\n")
        commands = [
            ["report", runs, "--out", "out", "--baseline", "coverage=1", "--format", "text"],
            ["plan", "--config", config, "--out", "plan"], ["draw", "plan"], ["sweep", "--config", sweep, "--dry-run"],
        ]  # fmt: skip
        options = {"cwd": place, "env": harness.environment(env), "timeout": 300}
        found[place] = [subprocess.check_output([program, *words], **options) for words in commands]
        files = [path for folder in ("out", "plan") for path in (place / folder).iterdir()]
        found[place].append({path.name: path.read_bytes() for path in files})
    assert "×" in found[plain][0].decode()
    assert found[hostile] == found[plain]
    # Started by itself, by a relative path.
    launcher = program.with_name("sdp-train-report")
    shutil.copytree(launcher.parent, tmp_path / "build", ignore=lambda _, names: [n for n in names if n != launcher.name])
    env = harness.environment({"SDP_TRAIN": str(harness.BINARY), "CDPATH": "/:."})
    subprocess.run(["build/sdp-train-report", str(runs)], cwd=tmp_path, env=env, check=True, capture_output=True)


def test_watch_without_a_terminal_shows_the_runs_once(runs):
    view = harness.run("report", runs, "--watch").stdout.splitlines()
    assert view[0].split() == ["3", "runs,", "2", "finished"]
    row = next(line for line in view if line.startswith("ddp"))
    accuracy = 100 * measures(runs / "ddp")["accuracy"]
    assert row.split()[:4] == ["ddp", "6/6", "100", "%"] and f" {accuracy:.2f} % " in row


def test_watch_on_a_terminal(runs, tmp_path):
    """Ends on Ctrl-C while a run goes on, and by itself once all runs are finished."""
    shutil.copytree(runs / "ddp", tmp_path / "ddp")

    def start():
        """The process, and a reader of its terminal up to a text. Every process has a terminal of its own."""
        ours, theirs = pty.openpty()

        def read_until(wanted):
            text, deadline = "", time.monotonic() + 60
            while wanted not in text:
                assert time.monotonic() < deadline, text
                if select.select([ours], [], [], 0.2)[0]:
                    text += os.read(ours, 65536).decode(errors="replace")
            return text

        return harness.start("report", tmp_path, "--watch", stdout=theirs, start_new_session=True), read_until

    process, read_until = start()
    assert "1 run, 0 finished" in read_until("ddp")
    read_until("0 finished")  # drawn again
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 0
    process, read_until = start()
    read_until("ddp")
    shutil.copy(runs / "b_0" / "summary.json", tmp_path / "ddp")
    assert "1 run, 1 finished" in read_until("1 finished")
    assert process.wait(60) == 0
