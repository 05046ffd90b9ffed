"""sdp-train computes what the method defines: losses of every worker and step, and the final weights, compared with
plain PyTorch on dense models."""

import pytest
import torch

import harness
from comparison import OPTIMIZERS, REGIMES, train_and_compare
from library_models import library_model
from small_models import MODELS, RESNET18


# Several workers per process as well as one each: processes divide the workers.
SIZES = [(8, "4/8", 1), (8, "3/8", 4), (8, "7/8", 1), (3, "2/3", 3)]
# Two regimes for each, so that each regime is tested with two of them. The bottlenecks have coverage 1/4.
CASES = [size + REGIMES[regime] for i, size in enumerate(SIZES) for regime in (i % 4, (i + 2) % 4)]
CASES.append((4, "1", 2, "neuron", "backward"))


@pytest.mark.parametrize("workers,coverage,processes,construction,masking", CASES)
def test_every_regime_is_the_mask_oracle(tmp_path, data, construction, masking, workers, coverage, processes):
    regime = {"workers": workers, "coverage": coverage, "construction": construction, "masking": masking}
    train_and_compare(tmp_path, data, processes, subnetwork=regime, optimizer=OPTIMIZERS["sgd"], train={"max_steps": 4})


@pytest.mark.parametrize("construction,masking", REGIMES)
def test_bottlenecks_are_the_mask_oracle(tmp_path, data, construction, masking):
    """ResNet-50, whose branches have layers that are not sliced; in neuron construction, some workers have no slice."""
    regime = {"workers": 4, "coverage": "1/4", "construction": construction, "masking": masking}
    if construction == "neuron":
        regime["slices_per_branch"] = 3
    train_and_compare(
        tmp_path, data, 1, model=MODELS["resnet50"], subnetwork=regime, optimizer=OPTIMIZERS["sgd"],
        train={"max_steps": 3, "batch_size_per_worker": 2},
    )


@pytest.mark.parametrize("construction,masking,shard", [("block", "backward", True), ("neuron", "forward", False)])
def test_adamw_in_fp32_is_the_mask_oracle(tmp_path, data, construction, masking, shard):
    """Of width 16: in fp32, PyTorch's own narrower shortcuts may write beyond their buffers (oneDNN issue 6035). The first step
    is lr * g / (|g| + eps), in which a small eps would amplify the roundings of small gradients."""
    train_and_compare(
        tmp_path, data, 2, model={"width": 16}, subnetwork={"construction": construction, "masking": masking},
        optimizer={**OPTIMIZERS["adamw"], "eps": 1e-4, "shard": shard}, train={"max_steps": 1, "precision": "fp32"},
    )


@pytest.mark.parametrize(
    "construction,masking,optimizer,assignment,shard",
    [
        ("block", "forward", "adamw", "window", False),
        ("block", "backward", "nesterov", "random", False),
        ("neuron", "forward", "adamw", "random", True),
        ("neuron", "forward", "nesterov", "balanced", False),
        ("neuron", "backward", "adamw", "window", False),
        ("neuron", "backward", "plain_sgd", "balanced", True),
    ],
)
def test_mlp_clipped_is_the_mask_oracle(tmp_path, data, construction, masking, optimizer, assignment, shard):
    """Small buckets, several workers per process, accumulation and clipping at once. State that is not sharded, in every
    regime; in most other tests it is."""
    train_and_compare(
        tmp_path, data, 2,
        model={"name": "mlp", "width": 24, "depth": 5, "hidden_width": 40},
        subnetwork={"coverage": "3/4", "assignment": assignment, "construction": construction, "masking": masking},
        optimizer={**OPTIMIZERS[optimizer], "clip_norm": 0.5, "shard": shard},
        train={
            "max_steps": 6, "accumulate_steps": 3, "bucket_megabytes": 0.01,
            "reduce_every": "micro_batch" if assignment == "random" else "step",
        },
    )


GROUPS = [
    {"match": "layer4.*.conv?.weight", "lr_factor": 0.1, "weight_decay": 0.2},
    {"match": "layer[34].*", "lr_factor": 3.0},
    {"match": "conv1.weight", "lr_factor": 0},
    # What a group says applies to norms and biases too; the first of several that match counts.
    {"match": "layer1.*.bn?.bias", "weight_decay": 0.3},
    {"match": "layer2.*.bn1.*", "lr_factor": 2.0, "weight_decay": 0.4},
    {"match": "layer2.*", "weight_decay": 0.05},
    {"match": "fc.bias", "weight_decay": 0},
    {"match": "bn1.*", "lr_factor": 0.5},
]


@pytest.mark.parametrize("construction,masking,rule,own", [
    ("block", "backward", "sgd", {"shard": False, "decay_norms_and_biases": False}),
    ("neuron", "forward", "adamw_smooth", {"shard": True}),
])
def test_groups_and_the_average_are_torch_optims(tmp_path, data, construction, masking, rule, own):
    optimizer = {**OPTIMIZERS[rule], "groups": GROUPS, "ema_decay": 0.7, **own}
    run_dir = train_and_compare(
        tmp_path, data, 2, subnetwork={"construction": construction, "masking": masking},
        optimizer=optimizer, train={"max_steps": 5}, eval={"branch_scale": "none", "recalibrate_batches": 0},
    )
    first, last = (harness.checkpoint_values(run_dir, step, library_model(RESNET18))["conv1.weight"] for step in (0, 5))
    assert torch.equal(first, last)  # lr_factor 0

    if construction == "block":
        return
    # The average is evaluated as a model that is exported and imported has it.
    trained = harness.records(run_dir, "eval")[-1]
    saved = harness.run_json("eval", "--run", run_dir)
    assert saved["loss_ema"] == pytest.approx(trained["loss_ema"], abs=1e-9) != saved["loss"]
    harness.run("export", "--run", run_dir, "--average", "--out", tmp_path / "average.safetensors")
    config = harness.write_config(tmp_path, "again", data, eval={"branch_scale": "none", "recalibrate_batches": 0})
    harness.run("import", "--config", config, "--from", tmp_path / "average.safetensors")
    again = harness.run_json("eval", "--run", tmp_path / "runs" / "again")
    assert (again["loss"], again["accuracy"]) == pytest.approx((saved["loss_ema"], saved["accuracy_ema"]), abs=1e-9)


def test_learning_rate_of_every_step(tmp_path, data):
    learning_rate = lambda step: 0.05 * step / 4 if step <= 4 else 0.05 * (1 - (step - 5) / 8)
    run_dir = train_and_compare(
        tmp_path, data, 2, learning_rate, optimizer=OPTIMIZERS["sgd"],
        schedule={"name": "linear", "warmup_steps": 4}, train={"max_steps": 12, "log_every_steps": 1},
    )
    logged = [line["lr"] for line in harness.json_lines(run_dir / "metrics.jsonl") if line["kind"] == "train"]
    assert logged == pytest.approx([learning_rate(step) for step in range(1, 13)], rel=1e-12)
