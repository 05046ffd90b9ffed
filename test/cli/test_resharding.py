"""Runs that go on with another division of the network, another batch or another precision, compared with plain PyTorch
that switches its masks at the same step (oracle.py); the samples that they read; what they tell and refuse."""

import json
import math
import shutil

import numpy as np
import pytest

import harness
from comparison import OPTIMIZERS, compare_run

STEPS = 2  # of each part of a run


def part(workers, coverage, construction="block", masking="forward", processes=2, **more):
    regime = {"workers": workers, "coverage": coverage, "construction": construction, "masking": masking}
    return {"processes": processes, **regime, "replicas": 1, "slices_per_branch": 4, **more}


RULES = [{"match": "strided", "coverage": "1/4", "masking": "backward"}, {"match": "layer1.*", "coverage": "1"}]
CAPACITIES = {"capacities": ["1", "1/2", "1/2", "1/4"], "rules": [{"match": "layer4.*", "masking": "backward"}]}
# A run's optimizer, and its parts, each of which differs from the next one in another way.
RUNS = {
    "sgd": [
        part(8, "4/8"), part(6, "3/6", processes=3), part(1, "1", processes=1), part(4, "2/4", "neuron"),
        part(4, "1/4", processes=1), part(4, "3/4", "neuron", "backward"), part(4, "2/4", masking="backward"),
        part(4, "2/4", assignment="window", processes=1), part(4, "2/4", assignment="random", unit="branch"),
        part(2, "1/2", replicas=2, processes=4), part(1, "1", processes=1), part(4, "2/4", rules=RULES),
        part(4, "2/4", masking="backward", rules=RULES[:1], capacities=[]), part(4, "1", "neuron", **CAPACITIES, processes=4),
    ],
    "adamw_smooth": [
        part(3, "2/3", "neuron", replicas=2, processes=3), part(8, "1", processes=1), part(8, "4/8", "neuron"),
        part(8, "4/8", "neuron", slices_per_branch=2, processes=1), part(4, "1", "neuron", **CAPACITIES),
        part(4, "2/4", "neuron", rules=RULES, capacities=[], processes=4), part(4, "2/4", rules=[]),
    ],
    "nesterov": [part(8, "4/8", masking="backward"), part(8, "1")],
    "plain_sgd": [part(4, "2/4", "neuron"), part(4, "2/4", "neuron", processes=1)],
}


def train_part(folder, data, parts, i, steps, **sections):
    """Goes on with part `i` up to this step; what the program says."""
    own = dict(parts[i])
    processes = own.pop("processes")
    sections["train"] = {"max_steps": steps} | sections["train"]
    sections |= {"eval": {"recalibrate_batches": 0}, "checkpoint": {"keep_last": len(parts) + 1}}
    config = harness.write_config(folder, "run", data, subnetwork=own, **sections)
    return harness.run("--config", config, "--nproc", processes, *(["--resume"] if i else []))


@pytest.mark.parametrize("rule", RUNS)
def test_another_division_is_the_oracle_that_switches_its_masks(tmp_path, data, rule):
    parts, optimizer = RUNS[rule], {**OPTIMIZERS[rule], "ema_decay": 0.7}
    ends = [(i + 1) * STEPS for i in range(len(parts))]
    for i, end in enumerate(ends):
        train_part(tmp_path, data, parts, i, end, optimizer=optimizer, train={"batch_size_per_worker": 2})
    compare_run(tmp_path / "runs" / "run", data, ends=ends)


MLP = {"name": "mlp", "width": 4, "depth": 4, "hidden_width": 16}


def test_every_sample_is_read_once_per_epoch_whatever_changes(tmp_path, data):
    """200 images; steps of 16, 15, 24 and again 16 samples, by other numbers of processes."""
    parts = [part(4, "2/4"), part(3, "2/3", "neuron", processes=3), part(6, "3/6", processes=1),
             part(2, "1/2", replicas=2)]
    run_dir = tmp_path / "runs" / "run"
    for i, (batch, accumulate) in enumerate([(4, 1), (5, 1), (2, 2), (4, 1)]):
        train = {"precision": "fp32", "log_every_steps": 1}
        train |= {"batch_size_per_worker": batch, "accumulate_steps": accumulate}
        result = train_part(tmp_path, data, parts, i, 10 * (i + 1), model=MLP, optimizer={"lr": 1e-4}, train=train)
        if i:
            assert "optimizer.lr" in result.stderr and f"after {read} samples" in result.stdout
        steps = harness.samples_by_step(run_dir)
        read = sum(map(len, steps))
    sizes = [len(samples) for samples in steps]
    assert sizes == [16] * 10 + [15] * 10 + [24] * 10 + [16] * 10
    counts = np.zeros(200, int)
    for samples in steps:
        np.add.at(counts, samples, 1)
        assert (counts.min(), counts.max()) == (counts.sum() // 200, math.ceil(counts.sum() / 200))
    epochs = [line["epoch"] for line in harness.records(run_dir, "train")]
    assert epochs == pytest.approx([sum(sizes[: i + 1]) / 200 for i in range(40)])


def test_the_same_global_batch_reads_the_same_samples(tmp_path, data):
    sections = {"model": MLP, "train": {"precision": "fp32", "batch_size_per_worker": 4}}
    whole = harness.train(tmp_path, "whole", data, 1, **sections)
    sections["train"]["max_steps"] = 10
    run_dir = harness.train(tmp_path, "run", data, 1, **sections)
    changed = ["subnetwork.workers=2", "subnetwork.coverage=1", "train.batch_size_per_worker=8", "train.max_steps=20"]
    result = harness.run("--run", run_dir, "--nproc", 1, "--resume", *harness.sets(*changed))
    assert harness.samples_by_step(run_dir) == harness.samples_by_step(whole)
    assert "unread" not in result.stdout and "optimizer.lr" not in result.stderr


def test_plan_of_a_run_that_goes_on(tmp_path, data):
    """What it shows is what the resumed run then has. It refuses and warns like the run, and changes nothing. The data are
    elsewhere when the run goes on. A checkpoint of each division can be evaluated."""
    first_data = harness.write_cifar10(tmp_path / "data")
    run_dir = harness.train(tmp_path, "run", first_data, 1, train={"max_steps": 2, "precision": "fp32"})
    shutil.rmtree(first_data)
    changes = harness.sets("subnetwork.workers=6", "subnetwork.coverage=1/3")
    contents = lambda: {path: path.read_bytes() for path in run_dir.rglob("*") if path.is_file()}
    before = contents()
    shown = harness.run("plan", "--run", run_dir, *changes, "--nproc", 2, "--json")
    planned = json.loads(shown.stdout)
    assert "optimizer.lr" in shown.stderr
    assert "model.width" in harness.run("plan", "--run", run_dir, "--set", "model.width=8", expect=2).stderr
    assert contents() == before
    elsewhere = harness.sets("train.max_steps=4", f"data.path={data}")
    harness.run("--run", run_dir, "--resume", *changes, *elsewhere, "--nproc", 2)
    resumed = harness.plan_of(run_dir)
    assert planned["hash"] == resumed["hash"] and planned["units"] == resumed["units"]
    assert [len(unit["owners"]) for unit in resumed["units"]] == [2] * len(resumed["units"])
    # Without changes it keeps its owners, and only the processes matter.
    assert harness.run_json("plan", "--run", run_dir, "--nproc", 2)["units"] == resumed["units"]
    for step in (2, 4):
        harness.run("eval", "--run", run_dir, "--checkpoint", step, "--set", f"data.path={data}")
