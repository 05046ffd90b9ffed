"""Randomness in training: dropout, stochastic depth, mixup and CutMix. It depends on the seed and the pass alone, not on the
number of processes or a restart; every pass has its own; evaluation has none."""

import itertools
import math

import numpy as np
import pytest
import torch
import yaml
from torch.nn import functional as F

import harness
from comparison import REGIMES
from library_models import library_model
from small_models import MLP, MODELS, TOKENS, VARIANTS, read_tokens, reads_tokens

STEPS = 6
DROPOUT = {"dropout": 0.3}
DEPTH = {"stochastic_depth": 0.5}
UNIFORM = DEPTH | {"stochastic_depth_rule": "uniform"}
MIXING = {"resnet18": {"mixup_alpha": 0.8}, "mlp": {"mixup_alpha": 0.8, "cutmix_alpha": 1.0, "augment": ["crop", "flip"]}}
NAMES = [name for name in MODELS if name not in VARIANTS]


def spec_of(name, steps=STEPS, is_noisy=True, **sections):
    """Each model in another regime, so that every regime has dropout on something."""
    construction, masking = REGIMES[(NAMES.index(name) + 1) % 4]
    reads = {"name": "tokens", "sequence_length": TOKENS} if reads_tokens(MODELS[name]) else {}
    return {
        "model": MODELS[name] | (DROPOUT | DEPTH if is_noisy else {}),
        "data": reads | (MIXING.get(name, {}) if is_noisy else {}),
        "subnetwork": {"construction": construction, "masking": masking, "unit": "branch"},
        "train": {"max_steps": steps, "batch_size_per_worker": 2, "accumulate_steps": 1 + (name in ("llama", "mlp"))},
        "checkpoint": {"every_steps": 3},
        "eval": {"recalibrate_batches": 2 if name == "resnet18" else 0},
    } | sections  # fmt: skip


def check_close(actual, expected):
    assert harness.trace_losses(actual) == pytest.approx(harness.trace_losses(expected), rel=0, abs=1e-9)
    ours, theirs = (harness.checkpoint_pieces(folder, STEPS) for folder in (actual, expected))
    joined = lambda pieces: torch.cat([pieces[piece] for piece in sorted(pieces)])
    assert ours.keys() == theirs.keys() and (joined(ours) - joined(theirs)).abs().max() < 1e-9


@pytest.mark.parametrize("name", NAMES)
def test_noise_of_every_model(tmp_path, data_of, name):
    folder = data_of(MODELS[name])
    train = lambda run, processes, **more: harness.train(tmp_path, run, folder, processes, **spec_of(name, **more))
    whole = train("whole", 2)
    # One process, with all workers, continues a run of two. The same bits: test/train/test_kills.cpp.
    stopped = train("stopped", 2, steps=3)
    config = harness.write_config(tmp_path, "stopped", folder, **spec_of(name))
    assert "resuming at step 3" in harness.run("--config", config, "--nproc", 1, "--resume").stdout
    check_close(stopped, whole)

    # Without noise the run is another in the first step already, in which weights and batches are the same.
    noisy, quiet = (harness.trace_losses(run) for run in (whole, train("quiet", 1, steps=1, is_noisy=False)))
    differs = [abs(noisy[key] - loss) > 1e-6 for key, loss in quiet.items()]
    # A worker may own nothing but the first branch, which stochastic depth never drops.
    assert len(differs) == 4 and sum(differs) >= 2

    # Evaluation has none: the record of the run's end, `eval` of its checkpoint, its weights in a run without noise.
    weights = tmp_path / "exported" / "model.safetensors"
    harness.run("export", "--run", whole, "--out", weights, "--set", "eval.recalibrate_batches=0")
    config = harness.write_config(tmp_path, "noiseless", folder, **spec_of(name, is_noisy=False))
    harness.run("import", "--config", config, "--from", weights)
    scores = lambda record: [record["loss"], record["accuracy"]]
    expected = scores(harness.run_json("eval", "--run", tmp_path / "runs" / "noiseless"))
    for record in (harness.last_eval(whole), harness.run_json("eval", "--run", whole)):
        assert record["step"] == STEPS and scores(record) == pytest.approx(expected, rel=0, abs=1e-9)


def test_evaluation_of_a_language_model_is_transformers(tmp_path, tokens):
    regime = {"construction": "neuron", "masking": "forward"}
    run_dir = harness.train(tmp_path, "run", tokens, 1, **spec_of("llama", subnetwork=regime))
    net = library_model(MODELS["llama"]).double()
    harness.load_values(net, harness.checkpoint_values(run_dir, STEPS, net))
    inputs, labels = read_tokens(tokens, "toy_val_000000.bin")
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
    some = harness.sets("eval.max_samples=7", "eval.max_samples_per_subnetwork=0")
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


# Steps that leave the weights as they are, so that losses differ by noise alone.
STILL = {"subnetwork": {"masking": "backward"}, "optimizer": {"lr": 1e-30, "weight_decay": 0.0}}


def loss_with_scales(net, data, scales):
    """scales: for every branch, a factor, or one for each element of its output"""
    images, labels = harness.read_cifar10(data, "train")
    x = net.stem(images[:1].double().flatten(1))
    for block, scale in zip(net.blocks, scales, strict=True):
        x = x + scale * block(x)
    return F.cross_entropy(net.head(x), labels[:1]).item()


def test_every_pass_has_noise_of_its_own(tmp_path, one_image):
    """For every step, worker and replica: without noise, all losses are the same."""
    regime = {"masking": "backward", "replicas": 2}
    for name, noise, processes in (("quiet", {}, 1), ("noisy", DROPOUT, 2)):
        run_dir = harness.train(
            tmp_path, name, one_image, processes, model=MLP | noise,
            **STILL | {"subnetwork": regime}, train={"max_steps": STEPS, "accumulate_steps": 2},
        )
        losses = torch.tensor(list(harness.trace_losses(run_dir).values()), dtype=torch.float64)
        assert len(losses) == STEPS * 4 * 2
        distances = torch.pdist(losses[:, None])
        assert distances.max() < 1e-12 if name == "quiet" else distances.min() > 1e-9


def test_another_seed_is_other_noise(tmp_path, one_image):
    """Two seeds on the same weights: those of the first are imported into a run of the second."""
    sections = STILL | {
        "model": {"name": "mlp", "width": 4, "depth": 1, "hidden_width": 8} | DEPTH,
        "train": {"max_steps": 20, "batch_size_per_worker": 1},
    }
    runs = [harness.train(tmp_path, "first", one_image, 1, seed=3, **sections), tmp_path / "runs" / "second"]
    harness.run("export", "--run", runs[0], "--out", tmp_path / "source.safetensors")
    config = harness.write_config(tmp_path, "second", one_image, seed=4, **sections)
    harness.run("import", "--config", config, "--from", tmp_path / "source.safetensors")
    harness.run("--config", config, "--nproc", 1, "--resume")
    a, b = ([round(loss, 4) for loss in harness.trace_losses(run).values()] for run in runs)
    assert set(a) == set(b) and len(set(a)) == 2 and a != b


def outcomes_of_depth(survivals):
    """Each branch is kept with its own probability, and then scaled to the same expectation."""
    return [
        (math.prod(s if k else 1 - s for k, s in zip(kept, survivals)), [[k / s for k, s in zip(kept, survivals)]])
        for kept in itertools.product(*((0, 1) if survival < 1 else (1,) for survival in survivals))
    ]


# Branches, their output's width, the noise, steps, and every outcome with its probability: scales by sample and branch.
DROPPED = {
    "branches by the linear rule": (3, 8, DEPTH, 150, outcomes_of_depth((1, 0.75, 0.5))),
    "branches by the uniform rule": (3, 8, UNIFORM, 150, outcomes_of_depth((0.5, 0.5, 0.5))),
    "single samples": (1, 8, DEPTH, 100, [(0.25, [[2], [2]]), (0.5, [[2], [0]]), (0.25, [[0], [0]])]),
    "elements of a branch's output": (1, 4, DROPOUT, 250, [
        (0.7 ** sum(kept) * 0.3 ** (4 - sum(kept)), [[torch.tensor(kept).double() / 0.7]])
        for kept in itertools.product((0.0, 1.0), repeat=4)
    ]),
}  # fmt: skip


@pytest.mark.parametrize("dropped", DROPPED)
def test_every_outcome_is_as_frequent_as_it_is_probable(tmp_path, one_image, dropped):
    """Within five standard deviations; no other loss occurs. The loss of a batch is the mean over its samples."""
    depth, width, noise, steps, outcomes = DROPPED[dropped]
    model = {"name": "mlp", "width": width, "depth": depth, "hidden_width": 2 * width} | noise
    train = {"max_steps": steps, "batch_size_per_worker": len(outcomes[0][1])}
    run_dir = harness.train(tmp_path, "run", one_image, 1, model=model, **STILL, train=train)
    net = library_model(model).double().net
    harness.load_values(net, harness.checkpoint_values(run_dir, steps, net))
    of_outcome = [np.mean([loss_with_scales(net, one_image, scales) for scales in samples]) for _, samples in outcomes]
    losses, expected = (torch.tensor(values, dtype=torch.float64)
                        for values in (list(harness.trace_losses(run_dir).values()), of_outcome))
    assert torch.pdist(expected[:, None]).min() > 1e-7
    differences = (losses[:, None] - expected).abs()
    assert differences.min(dim=1).values.max() < 1e-10
    found = torch.bincount(differences.argmin(dim=1), minlength=len(expected)).double()
    probabilities = torch.tensor([probability for probability, _ in outcomes], dtype=torch.float64)
    deviations = (len(losses) * probabilities * (1 - probabilities)).sqrt()
    assert ((found - len(losses) * probabilities).abs() <= 5 * deviations).all(), found
