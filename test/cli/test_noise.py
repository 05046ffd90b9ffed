"""Randomness in training: dropout, stochastic depth, mixup and CutMix. It depends on the seed and the pass alone, not on the
number of processes or a restart; every pass has its own; evaluation has none."""

import itertools
import math
import shutil

import pytest
import torch
import yaml
from torch.nn import functional as F

import harness
from comparison import REGIMES
from library_models import library_model
from small_models import MLP, MODELS, TOKENS, VARIANTS, read_tokens, reads_tokens, write_tokens

STEPS = 6
DROPOUT = {"dropout": 0.3}
DEPTH = {"stochastic_depth": 0.5}
UNIFORM = DEPTH | {"stochastic_depth_rule": "uniform"}
MIXING = {"resnet18": {"mixup_alpha": 0.8}, "mlp": {"mixup_alpha": 0.8, "cutmix_alpha": 1.0, "augment": ["crop", "flip"]}}
NAMES = [name for name in MODELS if name not in VARIANTS]


class Case:
    def __init__(self, folder, data, name):
        model = MODELS[name]
        self.folder, self.data, self.model = folder, data, model | DROPOUT | DEPTH
        # Each model in another regime, so that every regime has dropout on something.
        construction, masking = REGIMES[(NAMES.index(name) + 1) % 4]
        self.regime = {"construction": construction, "masking": masking, "unit": "branch"}
        self.has_norms = name == "resnet18"
        self.accumulate_steps = 2 if name in ("llama", "mlp") else 1
        self.sections = {"data": MIXING.get(name, {})}
        self.quiet = {"model": model, "data": {}}
        if reads_tokens(model):
            self.data = write_tokens(folder / "tokens")
            self.sections["data"] = self.quiet["data"] = {"name": "tokens", "sequence_length": TOKENS}

    def spec(self, steps, sections):
        return {
            "model": self.model,
            "subnetwork": self.regime,
            "train": {"max_steps": steps, "batch_size_per_worker": 2, "accumulate_steps": self.accumulate_steps},
            "checkpoint": {"every_steps": 3},
            "eval": {"recalibrate_batches": 2 if self.has_norms else 0},
            **self.sections,
            **sections,
        }

    def train(self, name, processes, steps=STEPS, **sections):
        return harness.train(self.folder, name, self.data, processes, **self.spec(steps, sections))


@pytest.fixture(scope="module", params=NAMES)
def case(request, tmp_path_factory, data):
    return Case(tmp_path_factory.mktemp("noise"), data, request.param)


@pytest.fixture(scope="module")
def whole(case):
    """Six steps by two processes."""
    return case.train("whole", 2)


def check_close(actual, expected):
    assert harness.trace_losses(actual) == pytest.approx(harness.trace_losses(expected), rel=0, abs=1e-9)
    ours, theirs = (harness.checkpoint_pieces(folder, STEPS) for folder in (actual, expected))
    joined = lambda pieces: torch.cat([pieces[piece] for piece in sorted(pieces)])
    assert ours.keys() == theirs.keys() and (joined(ours) - joined(theirs)).abs().max() < 1e-9


def test_neither_a_resume_nor_processes_change_it(case, whole):
    """One process, with all workers, continues a run of two. The same bits: test/train/test_kills.cpp."""
    stopped = case.train("stopped", 2, steps=3)
    folder = case.folder / "resumed"
    run_dir = shutil.copytree(stopped, folder / "runs" / stopped.name)
    config = harness.write_config(folder, stopped.name, case.data, **case.spec(STEPS, {}))
    assert "resuming at step 3" in harness.run("--config", config, "--nproc", 1, "--resume").stdout
    check_close(run_dir, whole)


def test_without_it_the_run_is_another(case, whole):
    """In the first step already, in which weights and batches are the same."""
    quiet = harness.trace_losses(case.train("quiet", 1, steps=1, **case.quiet))
    noisy = harness.trace_losses(whole)
    differs = [abs(noisy[key] - loss) > 1e-6 for key, loss in quiet.items()]
    # A worker may own nothing but the first branch, which stochastic depth never drops.
    assert len(differs) == 4 and sum(differs) >= (2 if case.model.get("stochastic_depth") else 4)


def test_evaluation_is_without_it(case, whole):
    """The record of the run's end, `eval` of its checkpoint, and the same weights in a run without noise."""
    record = harness.last_eval(whole)
    again = harness.run_json("eval", "--run", whole)
    weights = case.folder / "exported" / "model.safetensors"
    weights.parent.mkdir()
    harness.run("export", "--run", whole, "--out", weights, "--set", "eval.recalibrate_batches=0")
    config = harness.write_config(case.folder, "noiseless", case.data, **case.spec(STEPS, case.quiet))
    harness.run("import", "--config", config, "--from", weights)
    quiet = harness.run_json("eval", "--run", case.folder / "runs" / "noiseless")
    assert record["step"] == again["step"] == STEPS
    for key in ("loss", "accuracy"):
        assert [again[key], record[key]] == pytest.approx([quiet[key]] * 2, rel=0, abs=1e-9)


def test_evaluation_of_a_language_model_is_transformers(tmp_path):
    case = Case(tmp_path, None, "llama")
    run_dir = case.train("run", 1, subnetwork={"construction": "neuron", "masking": "forward"})
    net = library_model(MODELS["llama"]).double()
    harness.load_values(net, harness.checkpoint_values(run_dir, STEPS, net))
    inputs, labels = read_tokens(tmp_path / "tokens", "toy_val_000000.bin")
    samples = len(inputs)
    with torch.no_grad():
        logits = net(inputs)
    losses = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none").view(samples, TOKENS)

    def check(record, evaluated):
        loss = losses[[i * samples // evaluated for i in range(evaluated)]].mean().item()
        assert record["loss"] == pytest.approx(loss, rel=0, abs=1e-9)
        assert record["perplexity"] == pytest.approx(math.exp(loss), rel=1e-9)
        assert (record["samples"], record["test_samples"]) == (evaluated, samples)
        assert (record["tokens"], record["test_tokens"]) == (evaluated * TOKENS, samples * TOKENS)

    # By default, an evaluation during training takes as many samples as 20 steps.
    spec = yaml.safe_load((run_dir / "spec.yaml").read_text())
    per_step = 4 * 2 * 2  # workers, sequences of a micro-batch, micro-batches
    assert spec["eval"]["max_samples"] == 20 * per_step and spec["eval"]["max_samples_per_subnetwork"] == 5 * per_step
    record = harness.last_eval(run_dir)
    check(record, min(20 * per_step, samples))
    assert len(record["subnetwork_loss"]) == 4 and record["subnetwork_samples"] == min(5 * per_step, samples)
    # The variance of the assembled model's mean loss, and of one whose single losses vary about as much.
    all_samples, some_samples = record["samples"], record["subnetwork_samples"]
    some_losses = losses[[i * all_samples // some_samples * samples // all_samples for i in range(some_samples)]]
    variance = some_losses.var(correction=0).item() / some_losses.numel()
    assert all(1.5 * variance < error**2 < 3 * variance for error in record["subnetwork_standard_error"])
    some = "--set", "eval.max_samples=7", "--set", "eval.max_samples_per_subnetwork=0"
    result = harness.run("eval", "--run", run_dir, *some)
    loss = losses[[i * samples // 7 for i in range(7)]].mean().item()
    assert f"loss {loss:.4f}, perplexity {math.exp(loss):.2f}" in result.stdout and "subnetworks" not in result.stdout
    check(harness.run_json("eval", "--run", run_dir, "--set", "eval.max_samples=100000"), samples)


# ---- what is dropped, observed with one image and constant weights ----


@pytest.fixture(scope="module")
def one_image(tmp_path_factory):
    """A data set of one image, again and again."""
    folder = harness.write_cifar10(tmp_path_factory.mktemp("one"))
    images, labels = harness.read_arrays(folder / "train.safetensors")
    for name, count in (("train", 200), ("val", 40)):
        harness.write_arrays(folder / f"{name}.safetensors", images[[0] * count], labels[[0] * count], harness.CIFAR10)
    return folder


def passes(folder, data, model, steps, **train):
    """The losses of all passes in order, and the model that they belong to."""
    run_dir = harness.train(
        folder, "run", data, 1, model=model, subnetwork={"masking": "backward"},
        optimizer={"lr": 1e-30, "weight_decay": 0.0}, train={"max_steps": steps, "batch_size_per_worker": 1, **train},
    )
    net = library_model(model).double().net
    harness.load_values(net, harness.checkpoint_values(run_dir, steps, net))
    losses = harness.trace_losses(run_dir)
    return torch.tensor([losses[key] for key in sorted(losses)], dtype=torch.float64), net


def loss_with_scales(net, data, scales):
    """scales: for every branch, a factor, or one for each element of its output"""
    images, labels = harness.read_cifar10(data, "train")
    x = net.stem(images[:1].double().flatten(1))
    for block, scale in zip(net.blocks, scales, strict=True):
        x = x + scale * block(x)
    return F.cross_entropy(net.head(x), labels[:1]).item()


def counts(losses, expected):
    """How often each of the expected losses occurred; no other loss may occur."""
    expected = torch.tensor(expected, dtype=torch.float64)
    assert torch.pdist(expected[:, None]).min() > 1e-7
    differences = (losses[:, None] - expected).abs()
    assert differences.min(dim=1).values.max() < 1e-10
    return torch.bincount(differences.argmin(dim=1), minlength=len(expected)).double()


def check_frequencies(found, probabilities):
    """Within five standard deviations of the expectation."""
    total, probabilities = found.sum(), torch.tensor(probabilities, dtype=torch.float64)
    deviations = (total * probabilities * (1 - probabilities)).sqrt()
    assert ((found - total * probabilities).abs() <= 5 * deviations).all(), found


def test_every_pass_has_noise_of_its_own(tmp_path, one_image):
    """For every step, worker and replica: without noise, all losses are the same."""
    regime = {"masking": "backward", "replicas": 2}
    for name, noise, processes in (("quiet", {}, 1), ("noisy", DROPOUT, 2)):
        run_dir = harness.train(
            tmp_path, name, one_image, processes, model=MLP | noise, subnetwork=regime,
            optimizer={"lr": 1e-30, "weight_decay": 0.0}, train={"max_steps": STEPS, "accumulate_steps": 2},
        )
        losses = torch.tensor(list(harness.trace_losses(run_dir).values()), dtype=torch.float64)
        assert len(losses) == STEPS * 4 * 2
        distances = torch.pdist(losses[:, None])
        assert distances.max() < 1e-12 if name == "quiet" else distances.min() > 1e-9


def test_another_seed_is_other_noise(tmp_path, one_image):
    """Two seeds on the same weights: those of the first are imported into a run of the second."""
    sections = {
        "model": {"name": "mlp", "width": 4, "depth": 1, "hidden_width": 8} | DEPTH,
        "subnetwork": {"masking": "backward"}, "optimizer": {"lr": 1e-30, "weight_decay": 0.0},
        "train": {"max_steps": 20, "batch_size_per_worker": 1},
    }
    source = tmp_path / "source.safetensors"
    first = harness.train(tmp_path, "first", one_image, 1, seed=3, **sections)
    harness.run("export", "--run", first, "--out", source)
    config = harness.write_config(tmp_path, "second", one_image, seed=4, **sections)
    harness.run("import", "--config", config, "--from", source)
    harness.run("--config", config, "--nproc", 1, "--resume")
    losses = lambda name: [round(loss, 4) for loss in harness.trace_losses(tmp_path / "runs" / name).values()]
    a, b = losses("first"), losses("second")
    assert set(a) == set(b) and len(set(a)) == 2 and a != b


def outcomes_of_depth(survivals):
    """Each branch is kept with its own probability, and then scaled to the same expectation."""
    return [
        (math.prod(s if k else 1 - s for k, s in zip(kept, survivals)), [k / s for k, s in zip(kept, survivals)])
        for kept in itertools.product(*((0, 1) if survival < 1 else (1,) for survival in survivals))
    ]


DROPPED = {  # branches, their output's width, the noise, steps, and every outcome with its probability
    "branches by the linear rule": (3, 8, DEPTH, 150, outcomes_of_depth((1, 0.75, 0.5))),
    "branches by the uniform rule": (3, 8, UNIFORM, 150, outcomes_of_depth((0.5, 0.5, 0.5))),
    "elements of a branch's output": (1, 4, DROPOUT, 250, [
        (0.7 ** sum(kept) * 0.3 ** (4 - sum(kept)), [torch.tensor(kept).double() / 0.7])
        for kept in itertools.product((0.0, 1.0), repeat=4)
    ]),
}  # fmt: skip


@pytest.mark.parametrize("dropped", DROPPED)
def test_every_outcome_is_as_frequent_as_it_is_probable(tmp_path, one_image, dropped):
    depth, width, noise, steps, outcomes = DROPPED[dropped]
    model = {"name": "mlp", "width": width, "depth": depth, "hidden_width": 2 * width} | noise
    losses, net = passes(tmp_path, one_image, model, steps)
    probabilities, scales = zip(*outcomes)
    expected = [loss_with_scales(net, one_image, of_branches) for of_branches in scales]
    check_frequencies(counts(losses, expected), probabilities)


def test_stochastic_depth_drops_single_samples(tmp_path, one_image):
    """The two samples of a batch are dropped independently: the mean loss has three values, in the ratio 1 : 2 : 1."""
    model = {"name": "mlp", "width": 8, "depth": 1, "hidden_width": 16} | DEPTH
    losses, net = passes(tmp_path, one_image, model, steps=100, batch_size_per_worker=2)
    none, both = (loss_with_scales(net, one_image, (scale,)) for scale in (2, 0))
    check_frequencies(counts(losses, [none, (none + both) / 2, both]), [0.25, 0.5, 0.25])
