"""Compares a finished run with the method written in plain PyTorch (oracle.py): losses of every worker and step, final
weights and their moving average, BatchNorm statistics."""

import fnmatch
import json

import pytest
import torch
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import harness
import oracle
from library_models import library_model
from small_models import TOKENS, read_tokens, reads_tokens, write_tokens

# The oracle computes on a CPU. A GPU sums in a different order and rounds fp32 at different places.
TOLERANCE = {"cpu": {"fp64": 1e-9, "fp32": 1e-5}, "cuda": {"fp64": 1e-8, "fp32": 1e-4}}[harness.DEVICE]
TORCH_TYPE = {"fp64": torch.float64, "fp32": torch.float32}


def make_optimizer(model, spec):
    all_decay = spec.get("decay_norms_and_biases", spec["name"] == "sgd")

    def group_of(name, parameter):
        matching = [group for group in spec.get("groups", []) if fnmatch.fnmatchcase(name, group["match"])]
        own = matching[0] if matching else {}
        decay = own.get("weight_decay", spec["weight_decay"] if all_decay or parameter.ndim > 1 else 0.0)
        return {"params": [parameter], "lr": spec["lr"] * own.get("lr_factor", 1), "weight_decay": decay}

    groups = [group_of(name, parameter) for name, parameter in model.named_parameters()]
    if spec["name"] == "adamw":
        return torch.optim.AdamW(groups, lr=spec["lr"], weight_decay=spec["weight_decay"], eps=spec.get("eps", 1e-8))
    return torch.optim.SGD(
        groups, lr=spec["lr"], momentum=spec.get("momentum", 0.9), nesterov=spec.get("nesterov", False),
        weight_decay=spec["weight_decay"],
    )


def train_and_compare(folder, data, processes, learning_rate=None, **sections):
    """Trains a small model and compares the run; returns its folder. data: images, for a model that reads them"""
    if reads_tokens(sections.get("model", {})):
        data = write_tokens(folder / "tokens")
        sections["data"] = {"name": "tokens", "path": str(data), "sequence_length": TOKENS}
        samples = read_tokens(data)
    else:
        samples = harness.read_cifar10(data, "train")
    run_dir = harness.train(folder, "run", data, processes, **sections)
    compare_run(run_dir, samples, json.loads((folder / "run.yaml").read_text()), learning_rate)
    return run_dir


def compare_run(run_dir, data, spec, learning_rate):
    """data: inputs and labels of all samples"""
    inputs, labels = data
    precision, steps, optimizer = spec["train"]["precision"], spec["train"]["max_steps"], spec["optimizer"]
    if inputs.is_floating_point():  # as sdp-train: batch norms of few samples amplify roundings
        inputs = inputs.to(TORCH_TYPE[precision], memory_format=torch.channels_last)
    plan = harness.plan_of(run_dir)
    regime = oracle.Regime(plan)
    samples = harness.trace_samples(run_dir)

    def batches(step, worker):
        indices = torch.tensor(samples[step, worker, 0])
        return [(inputs[part], labels[part]) for part in indices.split(spec["train"]["batch_size_per_worker"])]

    model = library_model(spec["model"]).to(TORCH_TYPE[precision])
    harness.load_values(model, harness.checkpoint_values(run_dir, 0, model))
    clip_norm, decay = optimizer.get("clip_norm", 0), optimizer.get("ema_decay", 0)
    if exchange := spec.get("exchange"):
        expected, correct, expected_buffers, averages = oracle.train_locally(
            model, lambda copied: make_optimizer(copied, optimizer), regime, batches, steps, exchange, clip_norm, learning_rate,
            decay,
        )
    else:
        torch_optimizer = make_optimizer(model, optimizer)
        average = AveragedModel(model.net, multi_avg_fn=get_ema_multi_avg_fn(decay))
        torch_optimizer.register_step_post_hook(lambda *_: average.update_parameters(model.net))
        expected, correct, expected_buffers = oracle.train(
            model, torch_optimizer, regime, batches, steps, clip_norm, learning_rate
        )
        averages = dict(average.module.named_parameters())
    actual = harness.trace_losses(run_dir)
    assert len(actual) == steps * plan["workers"]
    for (step, worker), loss in expected.items():
        assert actual[step, worker, 0] == pytest.approx(loss, rel=0, abs=TOLERANCE[precision]), (step, worker)
    if labels.ndim == 1:
        compare_accuracies(run_dir, correct, {key: len(indices) for key, indices in samples.items()})
    final = harness.checkpoint_values(run_dir, steps, model)
    compare_values(final, dict(model.named_parameters()), precision)
    if decay:
        final = harness.checkpoint_values(run_dir, steps, model, "ema")
        compare_values(final, averages, precision)
    compare_buffers(harness.checkpoint_buffer_pieces(run_dir, steps), expected_buffers, model, regime, precision)


def compare_values(actual, expected, precision):
    """Both by name."""
    assert actual.keys() == expected.keys()
    for name, values in expected.items():
        difference = (actual[name] - values.detach().reshape(actual[name].shape)).abs().max().item()
        assert difference <= TOLERANCE[precision], (name, difference)


def compare_accuracies(run_dir, correct, images):
    """For every line of the metrics, over its steps and all workers."""
    begin = 0
    for line in harness.records(run_dir, "train"):
        right = sum(count for (step, _), count in correct.items() if begin < step <= line["step"])
        seen = sum(count for (step, *_), count in images.items() if begin < step <= line["step"])
        assert line["accuracy"] == right / seen, line
        begin = line["step"]
    assert begin > 0


def compare_buffers(actual, expected, model, regime, precision):
    """Checks the BatchNorm statistics of everything that a worker has, and that there are no others."""
    wanted = {}
    for worker, buffers in enumerate(expected):
        for name, values in buffers.items():
            if name.endswith(".num_batches_tracked"):
                continue
            branch = model.branch_of(name)
            if branch is None or (regime.construction == "neuron" and model.slice_of(name) is None):
                wanted[name, (0, 0), *divmod(worker, regime.replicas)] = values
                continue
            for begin, end, owners in regime.units[branch]:
                if worker // regime.replicas in owners or regime.masking == "backward":
                    piece = values[begin:end] if regime.construction == "neuron" else values
                    wanted[name, (begin, end), *divmod(worker, regime.replicas)] = piece
    assert {values.dtype for values in actual.values()} <= {TORCH_TYPE[precision]}
    compare_values(actual, wanted, precision)


OPTIMIZERS = {
    "sgd": {"name": "sgd", "lr": 0.05, "weight_decay": 5e-4},
    "nesterov": {"name": "sgd", "lr": 0.05, "weight_decay": 5e-4, "nesterov": True},
    "plain_sgd": {"name": "sgd", "lr": 0.05, "weight_decay": 0.0, "momentum": 0.0},
    "adamw": {"name": "adamw", "lr": 1e-3, "weight_decay": 1e-2},
    # AdamW's first step is close to the gradient's sign, which is arbitrary where a gradient is as small as its rounding.
    "adamw_smooth": {"name": "adamw", "lr": 1e-3, "weight_decay": 1e-2, "eps": 1e-4},
}


REGIMES = [(construction, masking) for construction in ("block", "neuron") for masking in ("forward", "backward")]
