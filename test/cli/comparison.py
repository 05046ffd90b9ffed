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
from small_models import TOKENS, read_tokens, reads_tokens

# The oracle computes on a CPU. A GPU sums in a different order and rounds fp32 at different places.
TOLERANCE = {"cpu": {"fp64": 1e-9, "fp32": 1e-5}, "cuda": {"fp64": 1e-8, "fp32": 1e-4}}[harness.DEVICE]
TORCH_TYPE = {"fp64": torch.float64, "fp32": torch.float32}


def make_optimizer(model, spec):
    all_decay = spec.get("decay_norms_and_biases", spec["name"] == "sgd")

    def group_of(name, parameter):
        matching = [group for group in spec.get("groups", []) if fnmatch.fnmatchcase(name, group["match"])]
        own = matching[0] if matching else {}
        decay = own.get("weight_decay", spec["weight_decay"] if all_decay or parameter.ndim > 1 else 0.0)
        factor = own.get("lr_factor", 1)
        return {"params": [parameter], "lr": spec["lr"] * factor, "lr_factor": factor, "weight_decay": decay}

    groups = [group_of(name, parameter) for name, parameter in model.named_parameters()]
    if spec["name"] == "adamw":
        return torch.optim.AdamW(groups, lr=spec["lr"], weight_decay=spec["weight_decay"], eps=spec.get("eps", 1e-8))
    return torch.optim.SGD(
        groups, lr=spec["lr"], momentum=spec.get("momentum", 0.9), nesterov=spec.get("nesterov", False),
        weight_decay=spec["weight_decay"],
    )


def train_and_compare(folder, data, processes, learning_rate=None, **sections):
    """Trains a small model and compares the run; returns its folder. data: images or tokens"""
    if reads_tokens(sections.get("model", {})):
        sections["data"] = {"name": "tokens", "path": str(data), "sequence_length": TOKENS}
    run_dir = harness.train(folder, "run", data, processes, **sections)
    compare_run(run_dir, data, learning_rate)
    return run_dir


def compare_run(run_dir, data, learning_rate=None, ends=None):
    """`ends`: the last steps of the parts of a run that went on with another division. A part begins with the averages
    over the owners of BatchNorm statistics."""
    spec = json.loads((run_dir.parents[1] / "run.yaml").read_text())
    precision, optimizer = spec["train"]["precision"], spec["optimizer"]
    inputs, labels = read_tokens(data) if reads_tokens(spec["model"]) else harness.read_cifar10(data, "train")
    if inputs.is_floating_point():  # as sdp-train: batch norms of few samples amplify roundings
        inputs = inputs.to(TORCH_TYPE[precision], memory_format=torch.channels_last)
    samples, losses = harness.trace_samples(run_dir), harness.trace_losses(run_dir)
    model = library_model(spec["model"]).to(TORCH_TYPE[precision])
    harness.load_values(model, harness.checkpoint_values(run_dir, 0, model))
    torch_optimizer = make_optimizer(model, optimizer)
    values = {"value": model}
    if decay := optimizer.get("ema_decay", 0):
        average = AveragedModel(model.net, multi_avg_fn=get_ema_multi_avg_fn(decay))
        torch_optimizer.register_step_post_hook(lambda *_: average.update_parameters(model.net))
        values["ema"] = average.module
    regime = buffers = None
    compared, correct, begin = 0, {}, 0
    for end in ends or [spec["train"]["max_steps"]]:
        before, regime = regime, oracle.Regime(
            harness.plan_of(run_dir / "checkpoints" / f"step-{end:08d}"), spec["subnetwork"].get("branch_scale", "none")
        )
        if before and vars(regime) != vars(before):
            buffers = owners_average(model, before, buffers, regime.workers)

        def batches(step, worker):
            indices = torch.tensor(samples[begin + step, *divmod(worker, regime.replicas)])
            return [(inputs[part], labels[part]) for part in indices.split(spec["train"]["batch_size_per_worker"])]

        if exchange := spec.get("exchange"):
            expected, of_part, buffers, average = oracle.train_locally(
                model, lambda own: make_optimizer(own, optimizer), regime, batches, end, exchange,
                optimizer.get("clip_norm", 0), learning_rate, decay,
            )
            values |= {"ema": average} if decay else {}
        else:
            expected, of_part, buffers = oracle.train(
                model, torch_optimizer, regime, batches, end - begin, optimizer.get("clip_norm", 0), learning_rate, buffers
            )
        for (step, worker), loss in expected.items():
            actual = losses[begin + step, *divmod(worker, regime.replicas)]
            assert actual == pytest.approx(loss, rel=0, abs=TOLERANCE[precision]), (begin + step, worker)
        correct |= {(begin + step, worker): count for (step, worker), count in of_part.items()}
        for kind, of_kind in values.items():
            actual = harness.checkpoint_values(run_dir, end, model, kind)
            compare_values(actual, dict(of_kind.named_parameters()), precision)
        state = next(iter(torch_optimizer.state.values()), {}) if ends else {}  # that a part takes over
        for kind in state.keys() - {"step"}:
            states = {name: torch_optimizer.state[parameter][kind] for name, parameter in model.named_parameters()}
            if None not in states.values():
                compare_values(harness.checkpoint_values(run_dir, end, model, kind), states, precision)
        compare_buffers(harness.checkpoint_buffer_pieces(run_dir, end), buffers, model, regime, precision)
        compared, begin = compared + len(expected), end
    assert compared == len(losses)
    if labels.ndim == 1:
        compare_accuracies(run_dir, correct, {key: len(indices) for key, indices in samples.items()})


def owners_average(model, regime, buffers, workers):
    """Of BatchNorm statistics, by hidden unit: what every worker of the next part begins with."""
    means = {}
    for name, values in buffers[0].items():
        masks = [regime.gradient_mask(model, name, values.shape, worker) for worker in range(regime.workers)]
        is_counter = name.endswith(".num_batches_tracked")
        means[name] = values if is_counter else sum(own[name] * mask for own, mask in zip(buffers, masks)) / sum(masks)
    return [{name: mean.clone() for name, mean in means.items()} for _ in range(workers)]


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
                if worker // regime.replicas in owners or regime.masking[branch] == "backward":
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
