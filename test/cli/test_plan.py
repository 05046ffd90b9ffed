"""`plan` against PyTorch's own counts and closed formulas."""

import json

import pytest
import torch
import torchvision
from torch.utils.flop_counter import FlopCounterMode

import harness
import oracle


def plan(tmp_path, *overrides, **sections):
    config = harness.write_config(tmp_path, "plan", tmp_path / "no-data-needed", **sections)
    return json.loads(harness.run("plan", "--config", config, "--json", *overrides).stdout)


def pytorch_training_flops(model, size, *extra):
    images = torch.zeros(1, 3, size, size)
    model.eval()
    with FlopCounterMode(display=False) as counter:
        model(images, *extra).sum().backward()
    return counter.get_total_flops()


@pytest.mark.parametrize("width", [8, 64])
def test_flops_and_parameters_of_resnet18(tmp_path, width):
    model = oracle.ResNet18(width)
    dense = plan(tmp_path, model={"width": width})["dense"]
    assert dense["parameters"] == sum(p.numel() for p in model.parameters())
    assert dense["flops_per_sample"] == pytest.approx(pytorch_training_flops(model, 32, {}), rel=0.01)


def test_flops_and_parameters_of_torchvisions_imagenet_resnet18(tmp_path):
    model = torchvision.models.resnet18()
    dense = plan(tmp_path, model={"width": 64, "stem": "imagenet", "num_classes": 1000})["dense"]
    assert dense["parameters"] == sum(p.numel() for p in model.parameters()) == 11689512
    assert dense["flops_per_sample"] == pytest.approx(pytorch_training_flops(model, 224), rel=0.01)


def test_flops_of_subnetworks(tmp_path):
    result = plan(tmp_path, model={"width": 16}, subnetwork={"coverage": "1/4"})
    assert result["coverage"] == 0.25
    model = oracle.ResNet18(16)
    for worker, cost in enumerate(result["per_worker"]):
        owned = {u["branch"] for u in result["units"] if worker in u["owners"]}
        assert cost["units"] == [i for i, u in enumerate(result["units"]) if worker in u["owners"]]
        held = [p for name, p in model.named_parameters() if model.branch_of(name) in owned | {None}]
        assert cost["parameters"] == sum(p.numel() for p in held)
        absent = oracle.ResNet18(16)
        for name in absent.branches:
            if name not in owned:
                block = absent.get_submodule(name)
                block.forward = lambda x, mask, construction, block=block: torch.relu(
                    x if block.downsample is None else block.downsample(x)
                )
        assert cost["flops_per_sample"] == pytest.approx(pytorch_training_flops(absent, 32, {}), rel=0.01)


def test_memory_formulas(tmp_path):
    """Bytes a parameter of the units: DDP 16; forward SDP split over the owners 4 C + 12 / n (bf16, Adam)."""
    n, p = 8, 4
    result = plan(
        tmp_path,
        model={"name": "mlp", "width": 64, "depth": 16, "hidden_width": 512},
        subnetwork={"workers": n, "coverage": "4/8"},
        optimizer={"name": "adamw"},
        train={"precision": "bf16"},
    )
    shared = 3072 * 64 + 64 + 64 * 10 + 10
    norms = 16 * 2 * 64  # fp32: 4 + 4 + 8 bytes in DDP, no second master
    unit_weights = result["dense"]["parameters"] - shared - norms
    state = lambda cost: cost["parameter_bytes"] + cost["gradient_bytes"] + cost["optimizer_bytes"]
    assert state(result["dense"]) == 16 * (shared + norms + unit_weights)
    mean = sum(state(cost) for cost in result["per_worker"]) / n
    expected = (
        (4 + 12 / n) * shared + (4 * p / n + 12 / n) * unit_weights + (8 * p / n + 8 / n) * norms
    )
    assert mean == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("n,coverage,p", [(8, "4/8", 4), (8, "6/8", 6), (8, "7/8", 7), (8, "3/8", 3), (3, "2/3", 2), (8, "1", 8)])
def test_bytes_sent(tmp_path, n, coverage, p):
    """(p - 1) / n of the units' values each way on the mean over workers, (n - 1) / n of the shared ones."""
    result = plan(tmp_path, subnetwork={"workers": n, "coverage": coverage}, train={"precision": "fp32"})
    units = sum(unit["parameters"] for unit in result["units"])
    shared = result["dense"]["parameters"] - units
    expected = 4 * (units * (p - 1) + shared * (n - 1)) / n
    for key in ("reduce_bytes_per_step", "publish_bytes_per_step"):
        assert sum(cost[key] for cost in result["per_worker"]) / n == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("processes", [4, 2, 1])
def test_counted_traffic_is_the_plans(tmp_path, data, processes):
    run_dir = harness.train(tmp_path, "run", data, processes, train={"max_steps": 3, "precision": "fp32"})
    result = json.loads((run_dir / "plan.json").read_text())
    trained = [line for line in harness.json_lines(run_dir / "metrics.jsonl") if line["kind"] == "train"]
    assert len(result["per_process"]) == processes
    assert all(line["bytes_sent"] == result["per_process"][0]["bytes_sent_per_step"] for line in trained)


def test_plan_text_names_what_matters(tmp_path):
    config = harness.write_config(tmp_path, "plan", tmp_path)
    text = harness.run("plan", "--config", config).stdout
    for word in ("DDP", "balance", "spectral gap", "layer4.1", "sent"):
        assert word in text
    published = tmp_path / "plan.json"
    published.write_text(harness.run("plan", "--config", config, "--json", "--set", "subnetwork.assignment=random").stdout)
    again = plan(tmp_path, subnetwork={"assignment": "file", "assignment_file": str(published)})
    assert again["units"] == json.loads(published.read_text())["units"]


def kept_bytes(model, images, *extra):
    """What autograd saves for backward, every tensor once, without parameters and buffers."""
    own = {t.data_ptr() for t in [*model.parameters(), *model.buffers()]}
    seen = {}

    def pack(tensor):
        if tensor.is_floating_point() and tensor.data_ptr() not in own:
            seen[tensor.data_ptr()] = max(seen.get(tensor.data_ptr(), 0), tensor.numel() * tensor.element_size())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        labels = torch.zeros(len(images), dtype=torch.long)
        loss = torch.nn.functional.cross_entropy(model(images, *extra), labels)
    assert loss.requires_grad  # keeps the graph, and so the addresses, alive
    return sum(seen.values())


def test_activation_bytes(tmp_path):
    train = {"precision": "fp32", "batch_size_per_worker": 8}
    dense = plan(tmp_path, model={"width": 16}, train=train)["dense"]
    images = torch.zeros(8, 3, 32, 32)
    model = oracle.ResNet18(16)
    # The oracle's mask multiplication keeps no tensor of its own: its factor is a number.
    assert dense["activation_bytes"] == pytest.approx(kept_bytes(model, images, {}), rel=0.01)
