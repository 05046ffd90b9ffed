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
    plan = harness.plan_of(run)
    ends = [0] + [line["step"] for line in train]
    quiet = [line for begin, line in zip(ends, train) if not any(begin <= record["step"] < line["step"] for record in evals)]
    held = {
        line["step"]: [sum(line["memory"][f"{kind}_bytes"][rank] for kind in KINDS) for rank in (0, 1)]
        for line in quiet or train
    }
    flops = [worker["flops_per_sample"] for worker in plan["per_worker"]]
    after_the_first = lambda value: statistics.median(map(value, train[1:]))  # intervals
    over_ranks = lambda *keys: lambda line: np.mean(np.sum([line["exchange"][key] for key in keys], axis=0))
    expected = {
        "accuracy": evals[-1]["accuracy"],
        "loss_nats": evals[-1]["loss"],
        "steps": STEPS,
        "epochs": STEPS * 4 * 2 / 200,
        "training_flops": STEPS * 4 * sum(flops),
        "peak_tensor_memory_bytes": max(max(of_line) for of_line in held.values()),
        "training_accuracy": train[-1]["accuracy"],
        "flops_per_s": after_the_first(lambda line: line["samples_per_s"] * statistics.mean(flops)),
        "exchange_wait_ms": after_the_first(over_ranks("reduce_wait_ms", "publish_wait_ms")),
        "sent_bytes_per_step": after_the_first(over_ranks("reduce_bytes", "publish_bytes")),
        "largest_worker_parameters": max(worker["parameters"] for worker in plan["per_worker"]),
    }
    expected |= {key: after_the_first(lambda line: line[key]) for key in ("step_ms", "samples_per_s", "data_wait_ms")}
    if "accuracy_uncorrected" in evals[-1]:
        expected["accuracy_uncorrected"] = evals[-1]["accuracy_uncorrected"]
    if single := evals[-1].get("subnetwork_accuracy"):
        of = {"mean": statistics.mean, "min": min, "max": max}
        expected |= {f"subnetwork_accuracy_{name}": function(single) for name, function in of.items()}
    return expected


def test_csv_has_the_statistics_of_the_metrics(runs):
    said = harness.run("report", runs, "--baseline", "DDP", "--format", "csv").stdout
    rows = {row["label"]: row for row in csv.DictReader(io.StringIO(said))}
    assert list(rows) == ["B-SDP 1/2", "DDP"]
    both, ddp = [measures(runs / "b_0"), measures(runs / "b_1")], measures(runs / "ddp")
    assert rows["B-SDP 1/2"]["seeds"] == "0 1" and rows["B-SDP 1/2"]["device"] == harness.DEVICE.upper()
    assert [row["unfinished_runs"] for row in rows.values()] == ["0", "1"]
    assert len(both[0]) >= 13
    for key, value in both[0].items():
        values = [value, both[1][key]]
        assert float(rows["B-SDP 1/2"][key]) == pytest.approx(statistics.mean(values), rel=1e-12), key
        assert float(rows["B-SDP 1/2"][f"{key}_std"]) == pytest.approx(statistics.stdev(values), rel=1e-9, abs=1e-12), key
    for key, value in ddp.items():
        assert float(rows["DDP"][key]) == pytest.approx(value, rel=1e-12), key
        assert rows["DDP"][f"{key}_std"] == ""
    for key in ("training_flops", "peak_tensor_memory_bytes", "step_ms", "sent_bytes_per_step"):
        ratio = statistics.mean(one[key] for one in both) / ddp[key]
        assert float(rows["B-SDP 1/2"][f"{key}_over_baseline"]) == pytest.approx(ratio, rel=1e-12)
    difference = statistics.mean(one["accuracy"] for one in both) - ddp["accuracy"]
    assert float(rows["B-SDP 1/2"]["accuracy_minus_baseline"]) == pytest.approx(difference, abs=1e-12)


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
    config = harness.write_config(tmp_path, "base", data)
    for command in (["report", tmp_path], ["plan", "--config", config, "--out", tmp_path / "plan"]):
        message = harness.run(*command, env=harness.without_packages(tmp_path), expect=2).stderr
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
    config = harness.write_config(tmp_path, "base", data)
    sweep = tmp_path / "sweep.yaml"
    sweep.write_text(json.dumps({"name": "s", "configs": ["base.yaml"], "grid": {"seed": [0, 1]}}))
    found = {}
    for place, env in ((plain, {}), (hostile, HOSTILE)):
        place.mkdir()
        if env:
            for module in MODULES:
                (place / f"{module}.py").write_text("import os\nos._exit(9)\n")
            (place / "matplotlibrc").write_text("text.usetex: true\nfont.size: 40\nsavefig.format: png\n")

        def lab(*arguments):
            command = [str(Path(harness.BINARY).resolve()), *map(str, arguments)]
            return subprocess.check_output(command, cwd=place, env=harness.environment(env), timeout=300).decode()

        found[place] = [
            lab("report", runs, "--out", "out", "--baseline", "coverage=1", "--format", "text"),
            lab("plan", "--config", config, "--out", "plan"),
            lab("draw", "plan"),
            lab("sweep", "--config", sweep, "--dry-run"),
            {path.name: path.read_bytes() for folder in ("out", "plan") for path in (place / folder).iterdir()},
        ]
    assert "×" in found[plain][0]
    assert found[hostile] == found[plain]
    # Started by itself, by a relative path.
    launcher = Path(harness.BINARY).resolve().with_name("sdp-train-report")
    shutil.copytree(launcher.parent, tmp_path / "build", ignore=lambda _, names: [n for n in names if n != launcher.name])
    command = ["build/sdp-train-report", str(runs)]
    env = harness.environment({"SDP_TRAIN": str(harness.BINARY), "CDPATH": "/:."})
    subprocess.run(command, cwd=tmp_path, env=env, check=True, capture_output=True)


def test_own_figure(runs, tmp_path):
    """The example of docs/runs.md."""
    root = Path(__file__).parents[2]
    lab = {**os.environ, "PYTHONPATH": str(root / "python"), "SDP_TRAIN": str(harness.BINARY)}
    subprocess.run([sys.executable, root / "docs" / "own_figure.py", runs, tmp_path / "own.pdf"], env=lab, check=True)
    assert (tmp_path / "own.pdf").stat().st_size > 1000


def test_watch_without_a_terminal_shows_the_runs_once(runs):
    view = harness.run("report", runs, "--watch").stdout.splitlines()
    assert view[0].split() == ["3", "runs,", "2", "finished"]
    row = next(line for line in view if line.startswith("ddp"))
    accuracy = 100 * measures(runs / "ddp")["accuracy"]
    assert row.split()[:4] == ["ddp", "6/6", "100", "%"] and f" {accuracy:.2f} % " in row


def read_until(descriptor, wanted, seconds=60):
    text = b""
    deadline = time.monotonic() + seconds
    while wanted.encode() not in text and time.monotonic() < deadline:
        if select.select([descriptor], [], [], 0.2)[0]:
            try:
                text += os.read(descriptor, 65536)
            except OSError:  # the other side is closed
                break
    return text.decode(errors="replace")


def test_watch_on_a_terminal(runs, tmp_path):
    """Ends on Ctrl-C while a run goes on, and by itself once all runs are finished."""
    shutil.copytree(runs / "ddp", tmp_path / "ddp")

    def start():
        """The process and a reader of its terminal. Every process has a terminal of its own."""
        ours, theirs = pty.openpty()
        return harness.start("report", tmp_path, "--watch", stdout=theirs, start_new_session=True), ours

    process, ours = start()
    assert "1 run, 0 finished" in read_until(ours, "ddp")
    assert "0 finished" in read_until(ours, "0 finished")  # drawn again
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 0

    process, ours = start()
    read_until(ours, "ddp")
    shutil.copy(runs / "b_0" / "summary.json", tmp_path / "ddp")
    assert "1 run, 1 finished" in read_until(ours, "1 finished")
    assert process.wait(60) == 0
