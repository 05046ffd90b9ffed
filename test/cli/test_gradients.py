"""The paper's statements about the gradient estimate under backward masking, tested on the program's estimates: one step of
plain SGD with learning rate 1 moves every parameter by its estimate.

Let g_k be the gradient of worker k's batch on the full model, gbar their mean over n workers, and ghat the estimate, the
mean over a unit's p owners. The mean of ghat over all owner sets is gbar, and ||ghat - gbar||^2 is at most
(1 - C) / p sum_k ||g_k - gbar||^2, C = p / n."""

import itertools
import json

import pytest
import torch

import harness
from library_models import library_model
from small_models import MLP, TOKENS, write_tokens

WORKERS = 4
OWNERS = 2
OWNER_SETS = list(itertools.combinations(range(WORKERS), OWNERS))
LLAMA = {"name": "llama_tiny", "width": 16, "depth": 2, "hidden_width": 24, "heads": 4, "vocab_size": 64}


class Estimates:
    """The first step's estimates of one model and construction, by (parameter, hidden range); the range (0, 0)
    stands for parameters that all workers share. Initial values and batches are the same in all runs."""

    def __init__(self, folder, data, model, construction):
        self.folder, self.data, self.construction = folder, data, construction
        self.sections = {"model": MLP if model == "mlp" else LLAMA}
        self.branch_of = library_model(self.sections["model"]).branch_of
        if model == "llama":
            self.data = write_tokens(folder / "tokens")
            self.sections["data"] = {"name": "tokens", "path": str(self.data), "sequence_length": TOKENS}
        config = self.write_config("plan", OWNERS)
        self.units = json.loads(harness.run("plan", "--config", config, "--json").stdout)["units"]
        self.losses = None
        self.runs = 0
        self.mean = self.of([tuple(range(WORKERS))] * len(self.units), processes=2)
        self.of_worker = [self.of([(k,)] * len(self.units)) for k in range(WORKERS)]
        self.of_set = {owners: self.of([owners] * len(self.units)) for owners in OWNER_SETS}

    def write_config(self, name, owners_per_unit, **subnetwork):
        return harness.write_config(
            self.folder, name, self.data,
            subnetwork={
                "workers": WORKERS, "coverage": f"{owners_per_unit}/{WORKERS}", "construction": self.construction,
                "masking": "backward", "unit": "branch", **subnetwork,
            },
            optimizer={"lr": 1.0, "momentum": 0.0, "weight_decay": 0.0},
            train={"max_steps": 1, "batch_size_per_worker": 2, "precision": "fp64"},
            eval={"recalibrate_batches": 0},
            **self.sections,
        )

    def of(self, owners_of_units, processes=1):
        """owners_of_units: one owner set for each unit, in order"""
        self.runs += 1
        name = f"run{self.runs}"
        units = [
            {"branch": unit["branch"], "begin": unit["begin"], "end": unit["end"], "owners": list(owners)}
            for unit, owners in zip(self.units, owners_of_units, strict=True)
        ]
        file = self.folder / f"{name}.json"
        file.write_text(json.dumps({"units": units}))
        config = self.write_config(name, len(owners_of_units[0]), assignment="file", assignment_file=str(file))
        harness.run("--config", config, "--nproc", processes)
        run_dir = self.folder / "runs" / name
        planned = json.loads((run_dir / "plan.json").read_text())["units"]
        assert [tuple(unit["owners"]) for unit in planned] == list(owners_of_units)
        # The full model's losses do not depend on the owners.
        losses = harness.trace_losses(run_dir)
        self.losses = self.losses or losses
        assert losses == pytest.approx(self.losses, rel=0, abs=1e-12)
        before, after = (harness.checkpoint_pieces(run_dir, step) for step in (0, 1))
        assert before.keys() == after.keys()
        return {piece: before[piece] - after[piece] for piece in before}

    def units_only(self, estimate):
        return torch.cat([values for (_, hidden), values in sorted(estimate.items()) if hidden != (0, 0)])

    def owners_of_piece(self, piece, owners_of_units):
        """None for shared parameters."""
        name, hidden = piece
        if hidden == (0, 0):
            return None
        place = (self.branch_of(name), *hidden)
        return next(
            owners for unit, owners in zip(self.units, owners_of_units)
            if (unit["branch"], unit["begin"], unit["end"]) == place
        )


@pytest.fixture(scope="module", params=[("mlp", "block"), ("llama", "neuron")], ids=lambda param: "-".join(param))
def estimates(request, tmp_path_factory, data):
    return Estimates(tmp_path_factory.mktemp("estimates"), data, *request.param)


def largest_difference(actual, expected):
    assert actual.keys() == expected.keys()
    return max((actual[piece] - expected[piece]).abs().max().item() for piece in expected)


def mean_of(all_estimates):
    return {piece: sum(e[piece] for e in all_estimates) / len(all_estimates) for piece in all_estimates[0]}


def test_the_mean_over_all_owner_sets_is_the_full_gradient(estimates):
    assert largest_difference(mean_of(list(estimates.of_set.values())), estimates.mean) < 1e-12
    # Shared parameters are estimated by all workers, whoever owns the units; a unit's parameters by its owners alone.
    for owners, estimate in estimates.of_set.items():
        for piece, values in estimate.items():
            difference = (values - estimates.mean[piece]).abs().max().item()
            assert (difference < 1e-12) == (piece[1] == (0, 0)), (owners, piece, difference)


def test_an_estimate_is_the_mean_of_its_owners_gradients(estimates):
    assert largest_difference(mean_of(estimates.of_worker), estimates.mean) < 1e-12
    for owners, estimate in estimates.of_set.items():
        expected = mean_of([estimates.of_worker[k] for k in owners])
        assert (estimates.units_only(estimate) - estimates.units_only(expected)).abs().max() < 1e-12, owners


@pytest.mark.parametrize("seed", [1, 2])
def test_the_error_of_any_assignment_is_bounded(estimates, seed):
    generator = torch.Generator().manual_seed(seed)
    draw = lambda: OWNER_SETS[int(torch.randint(len(OWNER_SETS), (), generator=generator))]
    owners_of_units = [draw() for _ in estimates.units]
    assert len(set(owners_of_units)) > 1
    estimate = estimates.of(owners_of_units, processes=2)
    for piece, values in estimate.items():
        owners = estimates.owners_of_piece(piece, owners_of_units)
        expected = estimates.mean[piece] if owners is None else sum(estimates.of_worker[k][piece] for k in owners) / OWNERS
        assert (values - expected).abs().max() < 1e-12, piece
    spread = spread_of_workers(estimates)
    error = (estimates.units_only(estimate) - estimates.units_only(estimates.mean)).square().sum().item()
    coverage = OWNERS / WORKERS
    assert 0 < error <= (1 - coverage) / OWNERS * spread


def spread_of_workers(estimates):
    mean = estimates.units_only(estimates.mean)
    return sum((estimates.units_only(e) - mean).square().sum().item() for e in estimates.of_worker)


def test_the_mean_error_over_all_owner_sets(estimates):
    """Sampling p of n without replacement: the bound over n - 1."""
    mean = estimates.units_only(estimates.mean)
    errors = [(estimates.units_only(e) - mean).square().sum().item() for e in estimates.of_set.values()]
    expected = (1 - OWNERS / WORKERS) / OWNERS / (WORKERS - 1) * spread_of_workers(estimates)
    assert sum(errors) / len(errors) == pytest.approx(expected, rel=1e-9)
