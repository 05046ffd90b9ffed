"""sdp-train analyze against gradients of the library's models: cosines of every layer and
worker, and the deviation of every unit against its bound."""

import csv
import functools
import math
import re

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import harness
import oracle
from library_models import library_model
from small_models import MODELS, VARIANTS, reads_tokens

WORKERS = 4
STEPS = 3  # of the runs whose traces tell the samples of each batch
BATCH = 4
TOLERANCE = 1e-9
REGIMES = {
    "N-SDP": ("neuron", "forward"), "B-SDP": ("block", "forward"),
    "N_b-SDP": ("neuron", "backward"), "B_b-SDP": ("block", "backward"),
}  # fmt: skip
IMAGE_MODELS = [name for name, model in MODELS.items() if not reads_tokens(model) and name not in VARIANTS]


class Experiment:
    """A model's configuration, and a run that gives the values after every step and the order of samples."""

    def __init__(self, folder, data, model):
        self.sections = {
            "model": MODELS[model], "subnetwork": {"unit": "branch"}, "eval": {"recalibrate_batches": 0},
            "train": {"batch_size_per_worker": BATCH, "max_steps": STEPS},
            "checkpoint": {"at_start": True, "every_steps": 1, "keep_last": STEPS + 1},
        }  # fmt: skip
        self.run_dir = harness.train(folder, "run", data, 1, **self.sections)
        self.config = folder / "run.yaml"
        images, self.labels = harness.read_cifar10(data, "train")
        self.images = images.double()

    def plan(self, regime):
        construction, masking = REGIMES[regime]
        keys = [f"subnetwork.construction={construction}", f"subnetwork.masking={masking}"]
        return harness.run_json("plan", "--config", self.config, *harness.sets(*keys))

    def model(self, step, run_dir=None):
        model = library_model(self.sections["model"]).double()
        harness.load_values(model, harness.checkpoint_values(run_dir or self.run_dir, step, model))
        return model

    def batches(self, step, size=BATCH):
        """For every worker: the first batches of this size that `steps` steps of training have not used."""
        trace = harness.trace_samples(self.run_dir)
        order = [sample for s in range(STEPS) for k in range(WORKERS) for sample in trace[s + 1, k, 0]]
        first = -(-step * BATCH // size)
        begins = [(first * WORKERS + worker) * size for worker in range(WORKERS)]
        samples = [torch.tensor(order[begin : begin + size]) for begin in begins]
        assert all(len(part) == size for part in samples)
        return [(self.images[part], self.labels[part]) for part in samples]


def read_csv(path):
    with open(path) as file:
        return list(csv.DictReader(file))


def analyze(folder, *arguments):
    out = folder / "out"
    printed = harness.run("analyze", *arguments, "--out", out).stdout
    return read_csv(out / "similarity.csv"), read_csv(out / "deviation.csv"), printed


def gradients_of(model, batch, masks, construction):
    """Gradients by name, with BatchNorm in training mode."""
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    loss = F.cross_entropy(model(batch[0], masks, construction, buffers), batch[1])
    parameters = dict(model.named_parameters())
    gradients = torch.autograd.grad(loss, parameters.values(), allow_unused=True, materialize_grads=True)
    return dict(zip(parameters, gradients))


def is_layer(name, parameter):
    return parameter.ndim > 1 and name.endswith("weight")


def elements_of(model, plan, unit):
    """Parameter -> 0/1, broadcast over it: 1 where it belongs to the unit. Only parameters that are divided into units."""
    owners = lambda other: [0] if other is unit else []
    alone = oracle.Regime({**plan, "workers": 1, "units": [{**other, "owners": owners(other)} for other in plan["units"]]})
    return {
        name: alone.gradient_mask(model, name, parameter.shape, 0).expand(parameter.shape) > 0
        for name, parameter in model.named_parameters()
        if model.branch_of(name) == unit["branch"] and (plan["construction"] == "block" or model.slice_of(name))
    }


def expected(model, plan, rounds):
    """(layer, worker) -> ((cosine, norm, norm of the full model's) by round, elements), unit -> (deviation squared, bound),
    means over rounds of one batch for each worker."""
    regime = oracle.Regime(plan)
    n, p = plan["workers"], plan["owners_per_unit"]
    units = [elements_of(model, plan, unit) for unit in plan["units"]]
    cosines, elements = {}, {}
    deviations = np.zeros((len(plan["units"]), 2))
    for batches in rounds:
        full, own = [], []
        for worker, batch in enumerate(batches):
            full.append(gradients_of(model, batch, {}, plan["construction"]))
            masks = regime.forward_masks(worker, torch.float64)
            own.append(gradients_of(model, batch, masks, plan["construction"]))
            for name, parameter in model.named_parameters():
                mask = regime.gradient_mask(model, name, parameter.shape, worker).expand(parameter.shape)
                if not is_layer(name, parameter) or mask.sum() == 0:
                    continue
                a, b = (gradient[worker][name][mask > 0].numpy() for gradient in (own, full))
                norms = np.linalg.norm(a), np.linalg.norm(b)
                cosines.setdefault((name, worker), []).append((a @ b / math.prod(norms), *norms))
                elements[name, worker] = int(mask.sum())
        for index, unit in enumerate(plan["units"]):
            own_part = units[index].items()
            vector_of = lambda gradients: torch.cat([gradients[name][where] for name, where in own_part]).numpy()
            g = np.stack([vector_of(gradients) for gradients in full])
            estimate = np.mean([vector_of(own[k]) for k in unit["owners"]], axis=0)
            deviations[index, 0] += np.sum((estimate - g.mean(0)) ** 2) / len(rounds)
            deviations[index, 1] += (1 - p / n) / p * np.sum((g - g.mean(0)) ** 2) / len(rounds)
    return {key: (np.array(values), elements[key]) for key, values in cosines.items()}, deviations


def compare(similarity, deviation, regime, model, plan, rounds, step=None):
    if step is not None:
        similarity, deviation = ([row for row in rows if row["step"] == str(step)] for rows in (similarity, deviation))
    cosines, deviations = expected(model, plan, rounds)
    rows = [row for row in similarity if row["regime"] == regime]
    assert sorted((row["layer"], int(row["worker"])) for row in rows) == sorted(cosines)
    layers = [name for name, parameter in model.named_parameters() if is_layer(name, parameter)]
    assert {(row["layer"], int(row["depth"])) for row in rows} == {(name, i) for i, name in enumerate(layers)}
    close = functools.partial(pytest.approx, rel=TOLERANCE, abs=TOLERANCE, nan_ok=True)
    for row in rows:
        by_round, elements = cosines[row["layer"], int(row["worker"])]
        for column, values in zip(("cosine", "norm", "full_norm"), by_round.T):
            spread = np.std(values, ddof=1) if len(values) > 1 else math.nan
            assert [float(row[column]), float(row[f"{column}_std"])] == close([np.mean(values), spread]), (column, row)
        assert int(row["elements"]) == elements, row
    rows = [row for row in deviation if row["regime"] == regime]
    assert len(rows) == len(plan["units"])
    for number, (row, unit, (squared, bound)) in enumerate(zip(rows, plan["units"], deviations)):
        assert (row["branch"], int(row["begin"]), int(row["end"])) == (unit["branch"], unit["begin"], unit["end"])
        assert (int(row["unit"]), [int(owner) for owner in row["owners"].split()]) == (number, unit["owners"])
        found = [float(row[key]) for key in ("deviation_squared", "bound", "ratio")]
        assert found == pytest.approx([squared, bound, squared / bound], rel=TOLERANCE)
    return cosines


def over_batches(cosines):
    """For each batch, the mean over layers of the mean over workers."""
    by_layer = {}
    for (layer, _), (by_round, _) in cosines.items():
        by_layer.setdefault(layer, []).append(by_round[:, 0])
    return np.mean([np.mean(workers, axis=0) for workers in by_layer.values()], axis=0)


@pytest.fixture(scope="module")
def experiments(tmp_path_factory, data):
    """Model -> its experiment, created at its first use."""
    return functools.cache(lambda model: Experiment(tmp_path_factory.mktemp(model), data, model))


@pytest.fixture
def resnet(experiments):
    return experiments("resnet18")


@pytest.mark.parametrize("model", IMAGE_MODELS)
def test_every_regime_at_initialization(tmp_path, experiments, model):
    batches = 2 if model in ("resnet18", "mlp") else 1  # transformers are slower
    experiment = experiments(model)
    similarity, deviation, printed = analyze(tmp_path, "--config", experiment.config, "--batches", batches)
    assert {row["regime"] for row in similarity} == {row["regime"] for row in deviation} == set(REGIMES)
    rounds = [experiment.batches(step) for step in range(batches)]
    by_batch = {
        regime: over_batches(compare(similarity, deviation, regime, experiment.model(0), experiment.plan(regime), rounds))
        for regime in REGIMES
    }
    for row in similarity:
        # Gradients of the full forward pass, and of a different one.
        error = abs(float(row["cosine"]) - 1)
        assert error < 1e-12 if row["regime"] in ("B_b-SDP", "N_b-SDP") else error > 1e-9, row
    assert all(float(row["ratio"]) <= 1 for row in deviation if row["regime"] in ("B_b-SDP", "N_b-SDP"))
    assert all(f"{np.mean(by_batch[regime]):.3f}" in printed for regime in REGIMES)
    rows = read_csv(tmp_path / "out" / "summary.csv")
    assert {(row["regime"], row["step"]) for row in rows} == {(regime, "0") for regime in REGIMES} and len(rows) == len(REGIMES)
    for row in rows:
        cosines = by_batch[row["regime"]]
        assert float(row["cosine"]) == pytest.approx(np.mean(cosines), rel=TOLERANCE)
        spread = np.std(cosines, ddof=1) if len(cosines) > 1 else math.nan
        assert float(row["cosine_std"]) == pytest.approx(spread, rel=TOLERANCE, abs=TOLERANCE, nan_ok=True)


def test_a_run(tmp_path, data, resnet):
    """Its newest checkpoint in several regimes; all its checkpoints in its own."""
    train = resnet.sections["train"] | {"max_steps": 2}
    run_dir = harness.train(tmp_path, "short", data, 1, **resnet.sections | {"train": train})
    similarity, deviation, _ = analyze(tmp_path, "--run", run_dir, "--regimes", "bsdp,bbsdp,nsdp")
    for regime in ("B-SDP", "B_b-SDP", "N-SDP"):
        compare(similarity, deviation, regime, resnet.model(2, run_dir), resnet.plan(regime), [resnet.batches(2)])

    similarity, deviation, printed = analyze(tmp_path, "--run", run_dir, "--all-checkpoints", "--batch-size", 2)
    steps = [0, 1, 2]
    assert sorted({(row["regime"], int(row["step"])) for row in similarity}) == [("B-SDP", step) for step in steps]
    for step in steps[:2]:
        batches = [resnet.batches(step, size=2)]
        compare(similarity, deviation, "B-SDP", resnet.model(step), harness.plan_of(run_dir), batches, step)
    assert all(f"B-SDP at step {step}" in printed for step in steps)
    summary = read_csv(tmp_path / "out" / "summary.csv")
    assert [(row["regime"], int(row["step"])) for row in summary] == [("B-SDP", step) for step in steps]


def test_full_coverage_leaves_nothing_out(tmp_path, resnet):
    similarity, deviation, printed = analyze(tmp_path, "--config", resnet.config, "--set", "subnetwork.coverage=1")
    assert {row["regime"] for row in similarity} == set(REGIMES)
    assert all(abs(float(row["cosine"]) - 1) < 1e-12 for row in similarity)
    for row in deviation:
        assert float(row["bound"]) == 0 and math.isnan(float(row["ratio"])) and float(row["deviation_squared"]) < 1e-24
    assert printed.count("nothing to compare") == len(REGIMES)


REFUSALS = {
    "no subject": ([], 2, "--config"),
    "unknown regime": (["--config", "CONFIG", "--regimes", "bsdp,csdp"], 2, "csdp.*nsdp, bsdp, bbsdp, nbsdp"),
    "no data of a run": (["--run", "RUN", "--set", "data.path=/nowhere"], 3, "/nowhere"),
    "batch too large": (["--config", "CONFIG", "--batch-size", "201"], 2, "201.*200"),
    "checkpoints of no run": (["--config", "CONFIG", "--all-checkpoints"], 2, "--all-checkpoints.*--run"),
    "another run": (["--run", "RUN", "--set", "subnetwork.coverage=1"], 2, "subnetwork.coverage"),
    "a file for a folder": (["--config", "CONFIG", "--out", "CONFIG"], 2, "--out"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_refusals(tmp_path, resnet, case):
    words, code, message = REFUSALS[case]
    places = {"CONFIG": resnet.config, "RUN": resnet.run_dir, "EMPTY": tmp_path}
    arguments = [places.get(word, word) for word in words]
    assert re.search(message, harness.run("analyze", *arguments, expect=code).stderr)
