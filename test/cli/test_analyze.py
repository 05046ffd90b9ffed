"""sdp-train analyze against gradients of plain PyTorch (oracle.py, oracle_transformers.py): cosines of every layer and
worker, and the deviation of every unit against its bound."""

import csv
import json
import math
import re

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import harness
import oracle
import oracle_transformers
from test_transformers import SWIN

WORKERS = 4
STEPS = 3  # of the runs that tell which samples make which batch
BATCH = 4
TOLERANCE = 1e-9
REGIMES = {"N": ("neuron", "forward"), "B": ("block", "forward"), "B_b": ("block", "backward"), "N_b": ("neuron", "backward")}
MODELS = {
    "resnet": ({"name": "resnet18", "width": 4}, lambda: oracle.ResNet18(4)),
    "mlp": ({"name": "mlp", "width": 16, "depth": 3, "hidden_width": 24}, lambda: oracle.Mlp(16, 3, 24)),
    "swin": (SWIN, lambda: oracle_transformers.swin(24, 3, 4, 4)),  # a fused qkv weight: three stacked blocks
}


class Experiment:
    """A model's configuration, its values after every saved step of a run, and the batches of its first steps."""

    def __init__(self, folder, data, model, batch_size=BATCH, **subnetwork):
        self.folder, self.data = folder, data
        sizes, self.make = MODELS[model]
        self.subnetwork = {"workers": WORKERS, "coverage": "2/4", "unit": "branch", **subnetwork}
        self.sections = {
            "model": sizes,
            "subnetwork": self.subnetwork,
            "train": {"batch_size_per_worker": batch_size, "max_steps": STEPS},
            "checkpoint": {"at_start": True, "every_steps": 1, "keep_last": STEPS + 1},
            "eval": {"recalibrate_batches": 0},
        }
        self.run_dir = harness.train(folder, "run", data, 2, **self.sections)
        self.config = folder / "run.yaml"
        images, self.labels = harness.read_cifar10(data, "train")
        self.images = images.double()

    def plan(self, regime):
        construction, masking = REGIMES[regime]
        keys = [f"subnetwork.construction={construction}", f"subnetwork.masking={masking}"]
        return json.loads(harness.run("plan", "--config", self.config, "--json", *overrides(keys)).stdout)

    def model(self, step):
        model = self.make().to(torch.float64)
        harness.load_values(model, harness.checkpoint_values(self.run_dir, step, model))
        return model

    def batch(self, step, worker):
        """steps from 0"""
        samples = torch.tensor(harness.trace_samples(self.run_dir)[step + 1, worker, 0])
        return self.images[samples], self.labels[samples]


def overrides(assignments):
    return [word for assignment in assignments for word in ("--set", assignment)]


def read_csv(path):
    with open(path) as file:
        return list(csv.DictReader(file))


def analyze(folder, *arguments):
    out = folder / "out"
    printed = harness.run("analyze", *arguments, "--out", out).stdout
    return read_csv(out / "similarity.csv"), read_csv(out / "deviation.csv"), printed


def gradients_of(model, batch, masks, construction):
    """By name, with BatchNorm in training mode."""
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    loss = F.cross_entropy(model.run(buffers, batch[0], masks, construction), batch[1])
    parameters = dict(model.named_parameters())
    gradients = torch.autograd.grad(loss, parameters.values(), allow_unused=True)
    return {
        name: torch.zeros_like(parameter) if gradient is None else gradient
        for (name, parameter), gradient in zip(parameters.items(), gradients)
    }


def is_layer(name, parameter):
    return parameter.ndim > 1 and name.endswith("weight")


def unit_vector(model, plan, unit, gradients):
    """What a gradient has of one unit, flat; zeros elsewhere."""
    owners = lambda other: [0] if other is unit else []
    alone = oracle.Regime({**plan, "workers": 1, "units": [{**other, "owners": owners(other)} for other in plan["units"]]})
    parts = []
    for name, gradient in gradients.items():
        divided = plan["construction"] == "block" or model.slice_of(name) is not None
        if model.branch_of(name) == unit["branch"] and divided:
            parts.append((gradient * alone.gradient_mask(model, name, gradient.shape, 0)).flatten())
    return torch.cat(parts).numpy()


def expected(experiment, plan, step, batches=1):
    """(layer, worker) -> (cosine, elements), unit -> (deviation squared, bound), at the values of a step and the batches
    that follow it."""
    model = experiment.model(step)
    regime = oracle.Regime(plan)
    n, p = plan["workers"], plan["owners_per_unit"]
    cosines, elements = {}, {}
    deviations = np.zeros((len(plan["units"]), 2))
    for number in range(batches):
        full, own = [], []
        for worker in range(n):
            batch = experiment.batch(step + number, worker)
            full.append(gradients_of(model, batch, {}, plan["construction"]))
            masks = regime.forward_masks(worker, torch.float64)
            own.append(gradients_of(model, batch, masks, plan["construction"]))
            for name, parameter in model.named_parameters():
                mask = regime.gradient_mask(model, name, parameter.shape, worker).expand(parameter.shape)
                if not is_layer(name, parameter) or mask.sum() == 0:
                    continue
                a, b = (gradient[worker][name][mask > 0].numpy() for gradient in (own, full))
                cosines.setdefault((name, worker), []).append(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))
                elements[name, worker] = int(mask.sum())
        for index, unit in enumerate(plan["units"]):
            g = np.stack([unit_vector(model, plan, unit, gradients) for gradients in full])
            estimate = np.mean([unit_vector(model, plan, unit, own[k]) for k in unit["owners"]], axis=0)
            deviations[index, 0] += np.sum((estimate - g.mean(0)) ** 2) / batches
            deviations[index, 1] += (1 - p / n) / p * np.sum((g - g.mean(0)) ** 2) / batches
    return {key: (np.mean(values), elements[key]) for key, values in cosines.items()}, deviations


def compare(similarity, deviation, experiment, plan, regime, step, batches=1):
    cosines, deviations = expected(experiment, plan, step, batches)
    rows = [row for row in similarity if row["regime"] == regime]
    assert {(row["layer"], int(row["worker"])) for row in rows} == cosines.keys()
    assert len(rows) == len(cosines)
    layers = [name for name, parameter in experiment.model(step).named_parameters() if is_layer(name, parameter)]
    assert {(row["layer"], int(row["depth"])) for row in rows} == {(name, i) for i, name in enumerate(layers)}
    for row in rows:
        cosine, elements = cosines[row["layer"], int(row["worker"])]
        assert float(row["cosine"]) == pytest.approx(cosine, rel=0, abs=TOLERANCE), row
        assert int(row["elements"]) == elements, row
    rows = [row for row in deviation if row["regime"] == regime]
    assert len(rows) == len(plan["units"])
    for number, (row, unit, (squared, bound)) in enumerate(zip(rows, plan["units"], deviations)):
        assert (row["branch"], int(row["begin"]), int(row["end"])) == (unit["branch"], unit["begin"], unit["end"])
        assert row["owners"].split() == [str(owner) for owner in unit["owners"]]
        assert int(row["unit"]) == number
        assert float(row["deviation_squared"]) == pytest.approx(squared, rel=TOLERANCE)
        assert float(row["bound"]) == pytest.approx(bound, rel=TOLERANCE)
        assert float(row["ratio"]) == pytest.approx(squared / bound, rel=TOLERANCE)


@pytest.fixture(scope="module", params=MODELS)
def experiment(request, tmp_path_factory, data):
    return Experiment(tmp_path_factory.mktemp("analyze"), data, request.param)


def test_every_regime_at_initialisation(tmp_path, experiment):
    similarity, deviation, _ = analyze(tmp_path, "--config", experiment.config, "--batches", 2)
    assert {row["regime"] for row in similarity} == {row["regime"] for row in deviation} == set(REGIMES)
    for regime in REGIMES:
        compare(similarity, deviation, experiment, experiment.plan(regime), regime, step=0, batches=2)
    for row in similarity:
        # The gradients of the full forward pass, and of another one.
        error = abs(float(row["cosine"]) - 1)
        assert error < 1e-12 if row["regime"] in ("B_b", "N_b") else error > 1e-9, row
    assert all(float(row["ratio"]) <= 1 for row in deviation if row["regime"] in ("B_b", "N_b"))
