"""Runs that go on with another division of the network, another batch or another precision, compared with plain PyTorch
that switches its masks at the same step (oracle.py); the samples that they read; what they tell and refuse."""

import csv
import json
import math
import shutil
from collections import Counter

import pytest
import torch
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import harness
import oracle
from comparison import OPTIMIZERS, TOLERANCE, compare_buffers, compare_values, make_optimizer
from library_models import library_model
from small_models import RESNET18

STEPS = 2  # of each part of a run


def part(workers, coverage, construction="block", masking="forward", processes=2, **more):
    regime = {"workers": workers, "coverage": coverage, "construction": construction, "masking": masking}
    return {"processes": processes, **regime, "replicas": 1, "slices_per_branch": 4, **more}


# A run's optimizer, and its parts, each of which differs from the next one in another way.
RUNS = {
    "sgd": [
        part(8, "4/8"), part(6, "3/6", processes=3), part(1, "1", processes=1), part(4, "2/4", "neuron"),
        part(4, "1/4", processes=1), part(4, "3/4", "neuron", "backward"), part(4, "2/4", masking="backward"),
        part(4, "2/4", assignment="window", processes=1), part(4, "2/4", assignment="random", unit="branch"),
        part(2, "1/2", replicas=2, processes=4), part(1, "1", processes=1),
    ],
    "adamw_smooth": [
        part(3, "2/3", "neuron", replicas=2, processes=3), part(8, "1", processes=1), part(8, "4/8", "neuron"),
        part(8, "4/8", "neuron", slices_per_branch=2, processes=1), part(4, "2/4"),
    ],
    "nesterov": [part(8, "4/8", masking="backward"), part(8, "1")],
    "plain_sgd": [part(4, "2/4", "neuron"), part(4, "2/4", "neuron", processes=1)],
}


def train_parts(folder, data, parts, optimizer):
    """Trains every part by STEPS more steps."""
    for i, own in enumerate(parts):
        regime = {key: value for key, value in own.items() if key != "processes"}
        config = harness.write_config(
            folder, "run", data, subnetwork=regime, optimizer=optimizer, eval={"recalibrate_batches": 0},
            train={"batch_size_per_worker": 2, "max_steps": (i + 1) * STEPS}, checkpoint={"keep_last": len(parts) + 1},
        )
        harness.run("--config", config, "--nproc", own["processes"], *(["--resume"] if i else []))
    return folder / "runs" / "run"


def owners_average(model, regime, buffers, workers):
    """Of BatchNorm statistics, by hidden unit: what every worker of the next part begins with."""
    means = {}
    for name, values in buffers[0].items():
        if name.endswith(".num_batches_tracked"):
            means[name] = values
            continue
        masks = [regime.gradient_mask(model, name, values.shape, worker) for worker in range(regime.workers)]
        means[name] = sum(own[name] * mask for own, mask in zip(buffers, masks)) / sum(masks)
    return [{name: mean.clone() for name, mean in means.items()} for _ in range(workers)]


@pytest.mark.parametrize("rule", RUNS)
def test_another_division_is_the_oracle_that_switches_its_masks(tmp_path, data, rule):
    parts = RUNS[rule]
    optimizer = {**OPTIMIZERS[rule], "ema_decay": 0.7}
    run_dir = train_parts(tmp_path, data, parts, optimizer)
    samples, losses = harness.trace_samples(run_dir), harness.trace_losses(run_dir)
    images, labels = harness.read_cifar10(data, "train")
    images = images.double()
    model = library_model(RESNET18).double()
    harness.load_values(model, harness.checkpoint_values(run_dir, 0, model))
    torch_optimizer = make_optimizer(model, optimizer)
    average = AveragedModel(model.net, multi_avg_fn=get_ema_multi_avg_fn(0.7))
    torch_optimizer.register_step_post_hook(lambda *_: average.update_parameters(model.net))
    compared = 0
    for i in range(len(parts)):
        done = (i + 1) * STEPS
        regime = oracle.Regime(harness.plan_of(run_dir / "checkpoints" / f"step-{done:08d}"))

        def batches(step, worker):
            indices = torch.tensor(samples[step + i * STEPS, *divmod(worker, regime.replicas)])
            return [(images[indices], labels[indices])]

        is_same = i > 0 and vars(regime) == vars(before)
        if i > 0 and not is_same:
            buffers = owners_average(model, before, buffers, regime.workers)
        expected, _, buffers = oracle.train(
            model, torch_optimizer, regime, batches, STEPS, buffers=buffers if i > 0 else None
        )
        for (step, worker), loss in expected.items():
            actual = losses[step + i * STEPS, *divmod(worker, regime.replicas)]
            assert actual == pytest.approx(loss, rel=0, abs=TOLERANCE["fp64"]), (step, worker)
        compared += len(expected)
        compare_state(run_dir, done, model, torch_optimizer, average)
        compare_buffers(harness.checkpoint_buffer_pieces(run_dir, done), buffers, model, regime, "fp64")
        before = regime
    assert compared == len(losses)


def compare_state(run_dir, step, model, optimizer, average):
    expected = {"value": dict(model.named_parameters()), "ema": dict(average.module.named_parameters())}
    for kind in next(iter(optimizer.state.values()), {}).keys() - {"step"}:
        states = {name: optimizer.state[parameter][kind] for name, parameter in model.named_parameters()}
        if None not in states.values():
            expected[kind] = states
    for kind, values in expected.items():
        compare_values(harness.checkpoint_values(run_dir, step, model, kind), values, "fp64")


MLP = {"name": "mlp", "width": 4, "depth": 4, "hidden_width": 16}


def test_every_sample_is_read_once_per_epoch_whatever_changes(tmp_path, data):
    """200 images; steps of 16, 15, 24 and again 16 samples, by other numbers of processes."""
    sections = {"model": MLP, "optimizer": {"lr": 1e-4}, "train": {"precision": "fp32", "log_every_steps": 1}}
    parts = [part(4, "2/4"), part(3, "2/3", "neuron", processes=3), part(6, "3/6", processes=1),
             part(2, "1/2", replicas=2)]
    changes = [(4, 1), (5, 1), (2, 2), (4, 1)]
    for i, (own, (batch, accumulate)) in enumerate(zip(parts, changes)):
        sections["train"] |= {"batch_size_per_worker": batch, "accumulate_steps": accumulate, "max_steps": 10 * (i + 1)}
        regime = {key: value for key, value in own.items() if key != "processes"}
        config = harness.write_config(tmp_path, "run", data, **sections, subnetwork=regime)
        result = harness.run("--config", config, "--nproc", own["processes"], *(["--resume"] if i else []))
        if i:
            assert "optimizer.lr" in result.stderr and f"after {read} samples" in result.stdout
        steps = harness.samples_by_step(tmp_path / "runs" / "run")
        read = sum(map(len, steps))
    sizes = [len(samples) for samples in steps]
    assert sizes == [16] * 10 + [15] * 10 + [24] * 10 + [16] * 10
    counts, total = Counter(range(200)), 0
    for samples in steps:
        counts.update(samples)
        total += len(samples)
        times = [counts[sample] - 1 for sample in range(200)]
        assert min(times) == total // 200 and max(times) == math.ceil(total / 200)
    epochs = [line["epoch"] for line in harness.records(tmp_path / "runs" / "run", "train")]
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
    # Reports mark the row.
    flops = [harness.plan_of(folder)["per_worker"] for folder in
             (run_dir / "checkpoints" / "step-00000010", run_dir)]
    samples = (10 * 4, 10 * 8)  # of a worker in each part
    table = harness.run("report", run_dir, "--format", "csv").stdout.splitlines()
    expected = sum(count * sum(worker["flops_per_sample"] for worker in of_part) for count, of_part in zip(samples, flops))
    assert float(next(csv.DictReader(table))["training_flops"]) == pytest.approx(expected, rel=1e-6)
    report = harness.run("report", run_dir).stdout
    assert "changed *" in report
    assert "workers 4, 2 from step 10" in report and "coverage 2/4, 1 from step 10" in report


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
    again = harness.run_json("plan", "--run", run_dir, "--nproc", 2)
    assert again["units"] == resumed["units"]
    for step in (2, 4):
        harness.run("eval", "--run", run_dir, "--checkpoint", step, "--set", f"data.path={data}")


def test_another_precision_keeps_the_master_values(tmp_path, data):
    """With a learning rate of 0, values are those of the checkpoint, bit for bit."""
    adamw = {"name": "adamw", "lr": 1e-3, "weight_decay": 0.01, "ema_decay": 0.9}
    sections = {"model": MLP, "optimizer": adamw, "checkpoint": {"keep_last": 10}}
    run_dir = harness.train(tmp_path, "run", data, 1, **sections, train={"precision": "bf16", "max_steps": 5})
    model = library_model(MLP)
    before = harness.checkpoint_values(run_dir, 5, model)
    assert any(not torch.equal(values, values.bfloat16().float()) for values in before.values())
    sections["optimizer"] = {**adamw, "groups": [{"match": "*", "lr_factor": 0}]}
    for step, precision, construction, processes in ((6, "fp32", "neuron", 2), (7, "bf16", "block", 1)):
        train = {"precision": precision, "max_steps": step}
        config = harness.write_config(tmp_path, "run", data, **sections, train=train, subnetwork={"construction": construction})
        harness.run("--config", config, "--nproc", processes, "--resume")
        after = harness.checkpoint_values(run_dir, step, model)
        assert before.keys() == after.keys()
        for name, values in before.items():
            assert values.dtype == torch.float32 and torch.equal(values, after[name]), name
