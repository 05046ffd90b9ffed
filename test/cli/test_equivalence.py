"""sdp-train computes what the method defines: losses of every worker and step, and the final weights, compared with
the masked models of PyTorch, torchvision and transformers."""

import pytest
import torch

import harness
from comparison import OPTIMIZERS, REGIMES, train_and_compare
from library_models import library_model
from small_models import LLAMA, MODELS, RESNET18, TOKENS, write_tokens


def case(name, workers, coverage, processes, regime, rule="sgd", steps=3, batch=2, **more):
    """The sections of a run, with more keys of each, and its processes."""
    sections = {
        "model": MODELS[name], "optimizer": OPTIMIZERS[rule], "eval": {"recalibrate_batches": 0},
        "subnetwork": {"workers": workers, "coverage": coverage, "construction": regime[0], "masking": regime[1]},
        "train": {"max_steps": steps, "batch_size_per_worker": batch},
    }  # fmt: skip
    return {section: keys | more.get(section, {}) for section, keys in sections.items()}, processes


# Several workers per process as well as one each: processes divide the workers.
SIZES = [(8, "4/8", 1), (3, "2/3", 3), (8, "7/8", 1), (8, "3/8", 4), (4, "1", 2)]
IN_FP32 = {"rule": "adamw_smooth", "steps": 1, "train": {"precision": "fp32"}}
BRANCHES = {"unit": "branch"}
THREE_SLICES = {"slices_per_branch": 3}  # a worker may have none
OTHERS = "swin", "vit", "llama_3"


def rule(match, coverage=None, masking=None):
    """Of subnetwork.rules"""
    return {"match": match} | ({"coverage": coverage} if coverage else {}) | ({"masking": masking} if masking else {})


def uneven(name, regime, processes, update="sgd", rules=(), capacities=(), **more):
    """Units with different numbers of owners, and branches with different masking, of 4 workers."""
    own = {"rules": list(rules), "capacities": list(capacities)} | more.pop("subnetwork", {})
    more["train"] = {"bucket_megabytes": 0.01} | more.get("train", {})
    return case(name, 4, "1" if capacities else "2/4", processes, regime, update, subnetwork=own, **more)


FORWARD_PARTS = rule("*.self_att*", "3/4"), rule("*.mlp", "1/4", "forward")
BACKWARD_PARTS = rule("*.attn", "1/4", "backward"), rule("*.mlp", "1")
STAGES = rule("strided", "1"), rule("layer1.*", "1/4"), rule("layer[34].*", masking="backward")
TO_FORWARD = rule("layer2.?", "3/4", "forward"), rule("strided", "1/4", "forward")
INVERSE = {"branch_scale": "inverse"}
CAPACITIES = ["1", "1", "1/2", "1/2"]
ALL_SETTINGS = {
    "optimizer": {"clip_norm": 0.5, "ema_decay": 0.7, "groups": [{"match": "*bias", "lr_factor": 2.0}], "shard": False},
    "train": {"accumulate_steps": 2, "reduce_every": "micro_batch"}, "steps": 4,
}
UNEVEN = [
    *(uneven("resnet18", REGIMES[i], (1, 2, 4, 2)[i], rules=(STAGES, TO_FORWARD)[i % 2], batch=4) for i in range(4)),
    *(uneven("resnet18", REGIMES[i], 4, "nesterov", STAGES[2:], CAPACITIES, batch=4, **ALL_SETTINGS) for i in (2, 3)),
    uneven("swin", REGIMES[1], 4, rules=[rule("features.1.*", "1/4", "forward"), *BACKWARD_PARTS], subnetwork=BRANCHES),
    uneven("gpt2", REGIMES[2], 2, "adamw", BACKWARD_PARTS, subnetwork=BRANCHES | {"assignment": "window"}),
    uneven("vit", REGIMES[0], 1, "nesterov", FORWARD_PARTS, subnetwork=BRANCHES | {"replicas": 2}, **ALL_SETTINGS),
    uneven("llama_3", REGIMES[3], 2, rules=FORWARD_PARTS, subnetwork=BRANCHES | {"assignment": "random"}),
    uneven("llama", REGIMES[2], 1, "adamw_smooth", capacities=["1", "1/2", "1/2", "1/4"]),
    uneven("vit", REGIMES[3], 4, rules=[rule("*.mlp", masking="forward")], capacities=["1/8", "1", "1/2", "1/4"],
           subnetwork=BRANCHES | {"slices_per_branch": 6}, optimizer={"shard": False}),
    uneven("resnet18", REGIMES[0], 2, rules=STAGES[1:], batch=4, subnetwork=INVERSE, **ALL_SETTINGS),
    uneven("swin", REGIMES[0], 4, rules=BACKWARD_PARTS[:1], subnetwork=BRANCHES | INVERSE),
    uneven("llama", REGIMES[2], 2, "adamw", capacities=CAPACITIES, subnetwork=INVERSE),
    *(uneven("mlp", REGIMES[i], 2, "nesterov", [rule("blocks.0", "1/4", "backward"), rule("blocks.1", "1")],
             subnetwork={"assignment": "equal_units"}, **ALL_SETTINGS) for i in (0, 2)),
]  # fmt: skip
CASES = [
    # Two regimes for each size, so that each regime is tested with two of them.
    *(case("resnet18", *size, REGIMES[j % 4], steps=4, batch=4) for i, size in enumerate(SIZES) for j in (i, i + 2)),
    # Every model in all regimes but for those below. The LLaMA without grouped queries differs where heads are divided.
    *(case(name, *SIZES[(i + n) % 4], REGIMES[i]) for n, name in enumerate(OTHERS) for i in range(4)),
    *(case(name, *SIZES[4], REGIMES[i]) for i, name in enumerate(OTHERS)),
    *(case("llama", *size, REGIMES[i + 2]) for i, size in enumerate(SIZES[:2])),
    # Bottlenecks have layers that are not sliced; without a slice of a branch, GPT-2 still has its output's bias.
    *(case("resnet50", 4, "1/4", 1, REGIMES[i], subnetwork=THREE_SLICES if i > 1 else {}) for i in range(4)),
    *(case("gpt2", 4, ["1/4", "2/4"][i % 2], 1, REGIMES[i], subnetwork=BRANCHES | (THREE_SLICES if i > 1 else {}))
      for i in range(4)),
    # Of width 16: in fp32, PyTorch's own narrower shortcuts may write beyond their buffers (oneDNN issue 6035).
    *(case("resnet18", 4, "2/4", 2, REGIMES[i], batch=4, model={"width": 16}, optimizer={"shard": i == 1}, **IN_FP32)
      for i in (1, 2)),
    *(case(name, 4, "2/4", 2, REGIMES[i], subnetwork=BRANCHES, **IN_FP32) for i, name in ((1, "swin"), (2, "llama_3"))),
    # Small buckets, several workers per process, accumulation and clipping at once. State that is not sharded, in every
    # regime; in most other tests it is.
    *(case("mlp", 4, "3/4", 2, REGIMES[i], optimizer, 6, 4, model={"width": 24, "depth": 5, "hidden_width": 40},
           subnetwork={"assignment": assignment}, optimizer={"clip_norm": 0.5, "shard": shard},
           train={"accumulate_steps": 3, "bucket_megabytes": 0.01,
                  "reduce_every": "micro_batch" if assignment == "random" else "step"})
      for i, optimizer, assignment, shard in [
          (0, "adamw", "window", False), (1, "nesterov", "random", False), (2, "adamw", "random", True),
          (2, "nesterov", "balanced", False), (3, "adamw", "window", False), (3, "plain_sgd", "balanced", True)]),
]  # fmt: skip


@pytest.mark.parametrize("sections,processes", CASES + UNEVEN)
def test_every_regime_is_the_mask_oracle(tmp_path, data_of, sections, processes):
    train_and_compare(tmp_path, data_of(sections["model"]), processes, **sections)


@pytest.mark.parametrize("construction,settings", [
    ("block", {"coverage": "2/4", "rules": [rule("*", "1")]}), ("neuron", {"coverage": "2/4", "rules": [rule("*", "4/4")]}),
    ("neuron", {"capacities": ["1"] * 4}), ("neuron", {"rules": [rule("layer1.*", "1", "backward")]}),
])
def test_coverage_1_of_every_branch_has_the_bits_of_coverage_1(tmp_path, data, construction, settings):
    runs = [
        harness.train(tmp_path, f"run{i}", data, 2, train={"max_steps": 3},
                      subnetwork={"coverage": "1", "construction": construction} | own)
        for i, own in enumerate(({}, settings))
    ]  # fmt: skip
    losses, pieces = zip(*((harness.trace_losses(run), harness.checkpoint_pieces(run, 3)) for run in runs))
    assert losses[0] == losses[1] and pieces[0].keys() == pieces[1].keys()
    assert all(torch.equal(values, pieces[1][key]) for key, values in pieces[0].items())


UNCORRECTED = {"branch_scale": "none", "recalibrate_batches": 0}
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
def test_groups_schedule_and_average_are_torch_optims(tmp_path, data, construction, masking, rule, own):
    optimizer = {**OPTIMIZERS[rule], "groups": GROUPS, "ema_decay": 0.7, **own}
    learning_rate = lambda step: optimizer["lr"] * (step / 2 if step <= 2 else 1 - (step - 3) / 4)
    run_dir = train_and_compare(
        tmp_path, data, 2, learning_rate, subnetwork={"construction": construction, "masking": masking},
        optimizer=optimizer, schedule={"name": "linear", "warmup_steps": 2},
        train={"max_steps": 6, "log_every_steps": 1}, eval=UNCORRECTED,
    )
    logged = [line["lr"] for line in harness.records(run_dir, "train")]
    assert logged == pytest.approx([learning_rate(step) for step in range(1, 7)], rel=1e-12)
    first, last = (harness.checkpoint_values(run_dir, step, library_model(RESNET18))["conv1.weight"] for step in (0, 6))
    assert torch.equal(first, last)  # lr_factor 0

    if construction == "block":
        return
    # The average is evaluated as a model that is exported and imported has it.
    trained = harness.records(run_dir, "eval")[-1]
    saved = harness.run_json("eval", "--run", run_dir)
    assert saved["loss_ema"] == pytest.approx(trained["loss_ema"], abs=1e-9) != saved["loss"]
    harness.run("export", "--run", run_dir, "--average", "--out", tmp_path / "average.safetensors")
    config = harness.write_config(tmp_path, "again", data, eval=UNCORRECTED)
    harness.run("import", "--config", config, "--from", tmp_path / "average.safetensors")
    again = harness.run_json("eval", "--run", tmp_path / "runs" / "again")
    assert (again["loss"], again["accuracy"]) == pytest.approx((saved["loss_ema"], saved["accuracy_ema"]), abs=1e-9)


def test_another_sequence_length_counts_the_tokens_on(tmp_path):
    """20 samples of 12 tokens: two steps of 8 samples, then 26 samples of 9 tokens, of which 22 begin after the 192 tokens."""
    folder = write_tokens(tmp_path / "tokens", samples=20)
    sections = {
        "model": LLAMA, "optimizer": OPTIMIZERS["adamw"], "eval": {"recalibrate_batches": 0},
        "data": {"name": "tokens", "path": str(folder), "sequence_length": TOKENS},
        "train": {"max_steps": 2, "precision": "fp32", "batch_size_per_worker": 2, "log_every_steps": 1},
    }
    run_dir = harness.train(tmp_path, "run", folder, 1, **sections)
    sections["train"]["max_steps"] = 7
    changed = sections | {"data": sections["data"] | {"sequence_length": 9}}
    result = harness.run("--config", harness.write_config(tmp_path, "run", folder, **changed), "--nproc", 2, "--resume")
    assert "data has changed" not in result.stderr and "optimizer.lr" in result.stderr
    lines = harness.records(run_dir, "train")
    assert [line["tokens"] for line in lines] == [8 * 12, 16 * 12, *((22 + 8 * step) * 9 for step in range(1, 6))]
    assert [line["epoch"] for line in lines[2:]] == pytest.approx([(22 + 8 * step) / 26 for step in range(1, 6)])
    read = [sample for (step, *_), samples in sorted(harness.trace_samples(run_dir).items()) if step > 2 for sample in samples]
    assert len(set(read[4:30])) == 26  # the whole second epoch, after the last four samples of the first one
