"""A sweep gives the results of its runs started one by one, however often it is killed; finished runs are not changed."""

import json
import os
import re
import signal
import subprocess

import numpy as np
import pytest

import harness

STEPS = 60
SMALL = {
    "train": {"max_steps": STEPS, "precision": "fp32", "log_every_steps": 5},
    "checkpoint": {"at_start": False, "every_steps": 10},
    "eval": {"recalibrate_batches": 0},
    "output": {"trace": False},
}

SEEDS = {"grid": {"seed": [0, 1]}}


def write_sweep(folder, data, experiment=SMALL, name="sweep", **keys):
    """A sweep over a small experiment, as JSON, which is YAML."""
    config = harness.write_config(folder, "base", data, **experiment)
    path = folder / f"{name}.yaml"
    path.write_text(json.dumps({"name": name, "configs": [config.name], **keys}))
    return path


def states(config, *more, expect=0):
    """Name of each run -> its state, as --dry-run lists them."""
    lines = harness.run("sweep", "--config", config, "--dry-run", *more, expect=expect).stdout.splitlines()
    begin, end = lines[1].index("state"), lines[1].index("steps")
    return {line[:begin].strip(): line[begin:end].strip() for line in lines[3:]}


def start_sweep(config):
    return harness.start("sweep", "--config", config, "--nproc", 2, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def snapshot(folder):
    """Every file's content and time of change."""
    return {path: (path.stat().st_mtime_ns, harness.sha256(path)) for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture(scope="module")
def whole(tmp_path_factory, data):
    """A sweep of two seeds that nothing interrupts."""
    folder = tmp_path_factory.mktemp("whole")
    config = write_sweep(folder, data, grid={"seed": [5, 6]})
    return config, harness.run("sweep", "--config", config, "--nproc", 2).stdout


def test_runs_are_those_of_the_settings(tmp_path, data, whole):
    config, output = whole
    folder = config.parent / "runs" / "sweep"
    assert "[1/2] seed=5: starts" in output and "[2/2] seed=6: done after" in output and "2 of 2 runs done" in output
    names = ["seed=5", "seed=6"]
    runs = [{"name": name, "folder": name, "label": "sweep", "values": {"seed": name[-1]}} for name in names]
    assert json.loads((folder / "sweep.json").read_text()) == {"name": "sweep", "runs": runs}
    alone = harness.train(tmp_path, "alone", data, 2, **SMALL, seed=6)
    assert harness.hashes(folder / "seed=6") == harness.hashes(alone)
    assert f"step {STEPS}: assembled full model" in (folder / "seed=6" / "output.txt").read_text()


def test_a_stopped_sweep_goes_on(tmp_path, data, whole):
    config = write_sweep(tmp_path, data, grid={"seed": [5, 6]})
    folder, expected = tmp_path / "runs" / "sweep", whole[0].parent / "runs" / "sweep"
    assert states(config) == {"seed=5": "to do", "seed=6": "to do"}
    assert not folder.exists()
    process = start_sweep(config)
    harness.await_checkpoint(folder / "seed=5", 10, process)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 75, output
    stopped_at = harness.saved_step(folder / "seed=5")
    assert 10 <= stopped_at < STEPS
    assert states(config) == {"seed=5": f"interrupted at step {stopped_at}", "seed=6": "to do"}
    assert "resumes from step" in harness.run("sweep", "--config", config, "--nproc", 2).stdout
    assert all(harness.hashes(folder / run) == harness.hashes(expected / run) for run in ("seed=5", "seed=6"))
    assert "resuming at step" in (folder / "seed=5" / "output.txt").read_text()
    assert (folder / "sweep.json").read_bytes() == (expected / "sweep.json").read_bytes()
    # Finished runs are not changed.
    before = snapshot(folder)
    assert states(config) == {"seed=5": "done", "seed=6": "done"}
    assert "2 of them done" in harness.run("sweep", "--config", config).stdout
    assert snapshot(folder) == before


def test_two_sweeps_share_the_runs_and_the_survivor_does_those_of_the_killed(tmp_path, data, whole, monkeypatch):
    for variable in ("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES"):  # that would divide the host
        monkeypatch.delenv(variable, raising=False)
    config = write_sweep(tmp_path, data, grid={"seed": [5, 6]})
    folder = tmp_path / "runs" / "sweep"
    killed = start_sweep(config)
    harness.await_checkpoint(folder / "seed=5", 10, killed)
    (run,) = harness.children_of(killed.pid)
    for rank in harness.children_of(run):
        os.kill(int(rank), signal.SIGSTOP)
    assert states(config)["seed=5"].startswith("running on ")
    survivor = start_sweep(config)
    harness.await_checkpoint(folder / "seed=6", 10, survivor)
    os.kill(killed.pid, signal.SIGKILL)
    survivors_output, _ = survivor.communicate(timeout=300)
    killed_output, _ = killed.communicate()
    assert survivor.returncode == 0, survivors_output
    assert "2 of 2 runs done" in survivors_output and ": done" not in killed_output
    assert "OMP_NUM_THREADS" in survivors_output and "OMP_NUM_THREADS" not in killed_output  # of runs that share the host
    assert set(states(config).values()) == {"done"}
    for run, starts in ((folder / "seed=5", 2), (folder / "seed=6", 1)):
        assert [record["step"] for record in harness.records(run, "train")] == list(range(5, STEPS + 1, 5))
        assert len(harness.records(run, "start")) == starts  # no run was executed twice
        assert harness.hashes(run) == harness.hashes(whole[0].parent / "runs" / "sweep" / run.name)


def test_runs_of_another_spec_are_not_mixed(whole):
    config, _ = whole
    before = snapshot(config.parent / "runs")
    message = harness.run("sweep", "--config", config, "--set", "optimizer.lr=0.01", expect=2).stderr
    assert "point seed=5" in message and "optimizer.lr (was 0.05, now 0.01)" in message
    assert states(config, "--set", "optimizer.lr=0.01", expect=2)["seed=5"] == "other spec"
    # How often a run logs and saves does not change its result.
    result = harness.run("sweep", "--config", config, "--dry-run", "--set", "train.log_every_steps=1").stdout
    assert re.search(r"seed=5: .*train\.log_every_steps \(was 5, now 1\)", result)
    assert snapshot(config.parent / "runs") == before


def test_a_run_that_fails_does_not_keep_the_others_from_running(tmp_path, data):
    experiment = {**SMALL, "train": {**SMALL["train"], "max_steps": 5}}
    config = write_sweep(tmp_path, data, experiment, grid={"optimizer.lr": [1e12, 0.05]})
    result = harness.run("sweep", "--config", config, "--nproc", 1, expect=1)
    assert "the run lr=1000000000000.0 failed (exit code 1)" in result.stderr
    assert "not finite" in result.stderr and "1 of 2 runs done" in result.stdout  # the end of its output
    assert states(config) == {"lr=1000000000000.0": "to do", "lr=0.05": "done"}


@pytest.mark.parametrize("length,steps", [({"max_steps": 30}, 30), ({"max_steps": None, "epochs": 4}, 50)])
def test_the_dry_run_tells_steps_flops_memory_and_hours_of_the_plan(tmp_path, data, length, steps):
    """An epoch of 200 samples is 12.5 steps of 4 workers of 4 samples. A dry run searches no owner sets."""
    experiment = {**SMALL, "train": {**SMALL["train"], **length}}
    config = write_sweep(tmp_path, data, experiment, grid={"subnetwork.coverage": ["2/4", 1]})
    where = ["--nproc", 2, "--device", "a100"]
    lines = harness.run("sweep", "--config", config, "--dry-run", *where).stdout.splitlines()
    sums = np.zeros(2)
    for line, coverage in zip(lines[3:], ("2/4", "1"), strict=True):
        settings = harness.sets(f"subnetwork.coverage={coverage}", "subnetwork.assignment=window")
        plan = harness.run_json("plan", "--config", tmp_path / "base.yaml", *where, *settings)
        flops = steps * sum(process["flops_per_sample"] * 2 * 4 for process in plan["per_process"])
        peak = max(process["peak_bytes"]["total"] for process in plan["per_process"])
        hours = steps * plan["forecast"]["methods"][0]["step_ms"] / 3.6e6
        assert line.split()[-5:-1] == [str(steps), f"{flops:.3g}", f"{peak / 2**30:.3g}", f"{hours:.3g}"]
        sums += flops, hours
    assert f"{2 * steps} steps, {sums[0]:.3g} FLOPs and {sums[1]:.3g} hours on a100 in all" in lines[0]


def test_equal_points_are_one_run(tmp_path, data):
    path = write_sweep(tmp_path, data, grid={"optimizer.lr": ["A", "B"], "subnetwork.coverage": ["2/4", "1/2"]})
    path.write_text(path.read_text().replace('"A"', "1e-1").replace('"B"', "0.1"))
    output = harness.run("sweep", "--config", path, "--dry-run").stdout
    assert "sweep: 1 run" in output and "lr=0.1,coverage=2-4: the same run as lr=1e-1,coverage=2-4" in output


def test_all_errors_of_all_points_come_at_once(tmp_path, data):
    keys = {"subnetwork.coverage": ["2/4", "1/3"], "optimizer.lr": ["fast", 0.1], "model.width": [4, 0]}
    config = write_sweep(tmp_path, data, grid=keys, also=[{"label": "lost", "configs": ["nowhere.yaml"]}])
    message = harness.run("sweep", "--config", config, expect=2).stderr
    for part in ("1/3", '"fast", expected a number', "model.width: found '0'", "point lost", "nowhere.yaml", "be read"):
        assert part in message, (part, message)
    places = re.findall(r"sweep\.yaml:1:(\d+): (\S+):", message)
    assert len(places) == len(set(places)) == 3  # each once, where it is written
    text = config.read_text()
    assert {text[int(column) - 1 :].split(",")[0].strip('"]}') for column, _ in places} == {"fast", "0", "1/3"}


ERRORS = {  # keys of the sweep, arguments, parts of the message
    "plan": ({"grid": {"subnetwork.construction": ["neuron"], "subnetwork.slices_per_branch": [2, 500]}}, [],
             ["point construction=neuron,slices_per_branch=500", "subnetwork.slices_per_branch"]),
    "processes": (SEEDS, ["--nproc", 3], ["point seed=0", "3"]),
    "no data": ({**SEEDS, "set": {"data.path": "nowhere"}}, [], ["point seed=0", "data.path", "nowhere"]),
    "label of another method": ({"also": [{"label": "DDP, lr 1", "set": {"subnetwork.coverage": 1}}]}, [],
                                ["point DDP-lr-1", "says DDP", "ZeRO-2"]),
    "override of an axis": (SEEDS, ["--set", "seed=3"], ["--set seed=3", "the axis seed"]),
}  # fmt: skip


@pytest.mark.parametrize("case", ERRORS)
def test_errors_come_before_the_first_run(tmp_path, data, case):
    keys, arguments, expected = ERRORS[case]
    config = write_sweep(tmp_path, data, **keys)
    message = harness.run("sweep", "--config", config, *arguments, expect=2).stderr
    assert all(part in message for part in expected), message
    assert not (tmp_path / "runs").exists()
