"""`plan` compared with PyTorch's own counts and with closed formulas."""

import functools
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import torchvision
import transformers
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode

import harness
from library_models import library_model
from small_models import RESNET18

CONFIGS = Path(__file__).parents[2] / "configs"


def plan(tmp_path, *overrides, **sections):
    config = harness.write_config(tmp_path, "plan", tmp_path / "no-data-needed", **sections)
    return harness.run_json("plan", "--config", config, *overrides)


def llama_of(width, depth, heads, hidden):
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=32000, hidden_size=width, intermediate_size=hidden, num_hidden_layers=depth,
        num_attention_heads=heads, attn_implementation="eager"))


LLAMAS = {"134m": (768, 12, 12, 2048), "500m": (1536, 14, 24, 4096), "1b": (2048, 18, 16, 5120)}
FULL_SIZE = {  # configuration -> the library's model, its parameters where they are published
    "resnet18_imagenet": (torchvision.models.resnet18, 11689512),
    "resnet50_imagenet": (torchvision.models.resnet50, 25557032),
    "swin_t_imagenet": (torchvision.models.swin_t, 28288354),
    "gpt2_fineweb": (
        lambda: transformers.GPT2LMHeadModel(transformers.GPT2Config(attn_implementation="eager")), 124439808,
    ),
} | {f"llama_{name}_fineweb": (functools.partial(llama_of, *sizes), None) for name, sizes in LLAMAS.items()}


@pytest.mark.parametrize("name", FULL_SIZE)
def test_flops_and_parameters_at_full_size(name):
    make, published = FULL_SIZE[name]
    tokens = 512
    with FakeTensorMode(), FlopCounterMode(display=False) as counter:  # shapes without memory, for models of any size
        model = make().eval()
        config = getattr(model, "config", None)
        if config:
            model(torch.zeros(1, tokens, dtype=torch.long), use_cache=False).logits.sum().backward()
        else:
            model(torch.zeros(1, 3, 224, 224)).sum().backward()
    parameters = sum(p.numel() for p in model.parameters())
    assert published in (parameters, None)
    # Fused attention, which training uses, multiplies q and k once more in its backward pass.
    recomputed = config.num_hidden_layers * 2 * tokens * tokens * config.hidden_size if config else 0
    own = [f"data.sequence_length={tokens}", f"model.vocab_size={config.vocab_size}"] if config else ["train.precision=fp32"]
    result = harness.run_json("plan", "--config", CONFIGS / f"{name}.yaml", *harness.sets("data.path=/none", *own))
    assert result["dense"]["parameters"] == parameters
    assert result["dense"]["flops_per_sample"] == pytest.approx(counter.get_total_flops() + recomputed, rel=0.01)


UNEVEN = {"rules": [{"match": "strided", "coverage": "1"}, {"match": "layer1.*", "masking": "backward"}]}
BACKWARD = {"masking": "backward"}
CAPACITIES = {"construction": "neuron", "coverage": "1", "capacities": ["1", "1", "1/2", "1/4"]}


@pytest.mark.parametrize("subnetwork", [{}, UNEVEN, CAPACITIES])
def test_flops_of_subnetworks(tmp_path, subnetwork):
    sizes = RESNET18 | {"width": 16}
    result = plan(tmp_path, model=sizes, subnetwork={"coverage": "1/4"} | subnetwork)
    if not subnetwork:
        assert result["coverage"] == 0.25
        lacking, warning = result["warnings"]
        assert "stage" in lacking and "2/4" in lacking and "one owner (coverage 1/4)" in warning
    for worker, cost in enumerate(result["per_worker"]):
        model = library_model(sizes)
        own = [i for i, unit in enumerate(result["units"]) if worker in unit["owners"]]
        assert cost["units"] == own
        width = dict.fromkeys(model.branches, 0)
        for unit in map(result["units"].__getitem__, own):
            width[unit["branch"]] += unit["end"] - unit["begin"]
        masking = {unit["branch"]: unit.get("masking", result["masking"]) for unit in result["units"]}
        for name, owned in width.items():
            block, (stage, number) = model.net.get_submodule(name), name.split(".")
            if owned:
                block.conv1 = torch.nn.Conv2d(block.conv1.in_channels, owned, 3, block.stride, 1, bias=False)
                block.bn1 = torch.nn.BatchNorm2d(owned)
                block.conv2 = torch.nn.Conv2d(owned, block.conv2.out_channels, 3, 1, 1, bias=False)
            elif masking[name] == "backward":
                for part in (block.conv1, block.bn1, block.conv2, block.bn2):
                    part.requires_grad_(False)
            else:
                model.net.get_submodule(stage)[int(number)] = block.downsample or torch.nn.Identity()
        assert cost["parameters"] == sum(p.numel() for p in model.parameters())
        with FlopCounterMode(display=False) as counter:
            model.net.eval()(torch.zeros(1, 3, 32, 32)).sum().backward()
        assert cost["flops_per_sample"] == pytest.approx(counter.get_total_flops(), rel=0.01)


@pytest.mark.parametrize("release", [True, False])
def test_memory_formulas(tmp_path, release):
    """
    Bytes per parameter of the units in bf16 with Adam: DDP 16; forward SDP split over the owners 4 C + 12 / n, with
    released gradients 2 C + 16 / n.
    """
    n, p = 8, 4
    result = plan(
        tmp_path, model={"name": "mlp", "width": 64, "depth": 16, "hidden_width": 512},
        subnetwork={"workers": n, "coverage": "4/8"}, optimizer={"name": "adamw"},
        train={"precision": "bf16", "release_gradients": release},
    )
    shared = 3072 * 64 + 64 + 64 * 10 + 10
    norms = 16 * 2 * 64  # fp32: 4 + 4 + 8 bytes in DDP, no second master
    unit_weights = result["dense"]["parameters"] - shared - norms
    state = lambda cost: cost["parameter_bytes"] + cost["gradient_bytes"] + cost["optimizer_bytes"]
    assert state(result["dense"]) == 16 * (shared + norms + unit_weights)
    mean = sum(state(cost) for cost in result["per_worker"]) / n
    of = lambda values, c, summed: values * (c * (1 if release else 2) + (12 + (4 if release else 0) - summed) / n)
    expected = of(shared, 2, 0) + of(unit_weights, 2 * p / n, 0) + of(norms, 4 * p / n, 4)
    assert mean == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("n,subnetwork", [
    (8, {"coverage": "4/8"}), (3, {"coverage": "2/3"}), (8, {"coverage": "1"}), (3, {"coverage": "2/3"} | BACKWARD),
    (8, {"coverage": "4/8"} | BACKWARD), (4, UNEVEN), (4, CAPACITIES), (4, CAPACITIES | BACKWARD),
])
def test_bytes_sent(tmp_path, n, subnetwork):
    """On the mean over workers: of a unit of p owners (p - 1) / n of the gradients and, in forward masking, of the values;
    (n - 1) / n of the rest."""
    result = plan(tmp_path, subnetwork={"workers": n, **subnetwork}, train={"precision": "fp32"})
    units, parameters = result["units"], lambda unit: unit["parameters"]
    shared = result["dense"]["parameters"] - sum(map(parameters, units))
    sent = lambda others: 4 * (sum(parameters(unit) * others(unit) for unit in units) + shared * (n - 1)) / n
    owners = lambda unit: len(unit["owners"]) - 1
    holders = lambda unit: owners(unit) if unit.get("masking", result["masking"]) == "forward" else n - 1
    mean = lambda key: sum(cost[key] for cost in result["per_worker"]) / n
    assert mean("reduce_bytes_per_step") == pytest.approx(sent(owners), rel=1e-12)
    assert mean("publish_bytes_per_step") == pytest.approx(sent(holders), rel=1e-12)


@pytest.mark.parametrize("n,coverage,p", [(8, "3/8", 3), (8, "4/8", 4), (5, "4/5", 4)])
def test_balance_and_mixing(tmp_path, n, coverage, p):
    """Maximum over mean of the workers' figures, and numpy's eigenvalues of the co-ownership matrix."""
    result = plan(tmp_path, model={"width": 16}, subnetwork={"workers": n, "coverage": coverage})
    for name, keys in [
        ("flops", ["flops_per_sample"]), ("parameters", ["parameters"]), ("bytes_sent", ["bytes_sent_per_step"]),
        ("state_bytes", ["parameter_bytes", "gradient_bytes", "optimizer_bytes"]),
    ]:  # fmt: skip
        values = [sum(cost[key] for key in keys) for cost in result["per_worker"]]
        assert result["balance"][f"{name}_max_over_mean"] == pytest.approx(max(values) / np.mean(values), rel=1e-12)
    owns = np.array([[worker in unit["owners"] for unit in result["units"]] for worker in range(n)], dtype=float)
    weights = {"by_unit": np.ones(len(result["units"]))}
    weights |= {f"by_{key}": np.array([unit[key] for unit in result["units"]]) for key in ("parameters", "flops")}
    assert (owns.sum(axis=1) > 0).all()
    # Stages of two blocks: a worker lacks one exactly if 2 p < n.
    assert bool(result["warnings"]) == (2 * p < n)
    assert any(0 in worker["branches_by_stage"] for worker in result["depth"]) == (2 * p < n)
    assert result["spectrum"]["lambda2_normalized_bound"] == pytest.approx((n - p) / (p * (n - 1)), rel=1e-12)
    for name, weight in weights.items():
        k = owns * weight @ owns.T
        largest, second = np.linalg.eigvalsh(k)[:-3:-1]
        root = np.sqrt(k.sum(axis=1))
        expected = {
            "lambda2": second / largest, "spectral_gap": 1 - second / largest,
            "lambda2_bound": (np.trace(k) - largest) / ((n - 1) * largest),
            "lambda2_normalized": np.linalg.eigvalsh(k / np.outer(root, root))[-2],
        }  # fmt: skip
        assert {key: result["spectrum"][name][key] for key in expected} == pytest.approx(expected, rel=1e-9)


MAKE_ASSIGNMENT = Path(__file__).parents[2] / "scripts" / "make_assignment.py"


@pytest.mark.parametrize("construction", ["block", "neuron"])
def test_an_assignment_made_from_a_table_is_planned(tmp_path, construction):
    """The first row that fits a unit gives its owners."""
    sections = {"construction": construction, "workers": 4, "coverage": "1/2"}
    listed, table, made = tmp_path / "plan.json", tmp_path / "table", tmp_path / "made.json"
    make = lambda text: table.write_text(text) and subprocess.run(
        [sys.executable, MAKE_ASSIGNMENT, listed, table], capture_output=True, text=True)
    before = plan(tmp_path, subnetwork=sections)
    listed.write_text(json.dumps(before))
    first = before["units"][0]
    rows = [{"branch": first["branch"], "begin": first["begin"], "end": first["end"], "owners": [3, 1]},
            {"branch": "layer[12].*", "owners": [0, 1]}, {"branch": "*", "owners": [2, 3]}]
    csv = [f"{first['branch']},{first['begin']},{first['end']},3 1", "layer[12].*,,,0 1", "*,,,2 3"]
    made.write_text(make("\n".join(["branch,begin,end,owners", *csv, ""])).stdout)
    assert made.read_text() == make(json.dumps(rows)).stdout
    after = plan(tmp_path, subnetwork=sections | {"assignment": "file", "assignment_file": str(made)})
    early = ("layer1.", "layer2.")
    expected = [[1, 3]] + [[0, 1] if unit["branch"].startswith(early) else [2, 3] for unit in before["units"][1:]]
    assert [unit["owners"] for unit in after["units"]] == expected
    for text, parts in {
        "branch,owners\nlayer1.*,0 1\nlayer9.*,0 1\n": ["layer9.*", "layer2.0"],
        **dict.fromkeys(("branch\nlayer1.0\n", "branch,owners\n*,a b\n", '[{"owners": [1]}]', "[3]"), [str(table)]),
    }.items():
        refused = make(text)
        assert refused.returncode == 2 and refused.stdout == "" and "Traceback" not in refused.stderr
        assert all(part in refused.stderr for part in parts) and "layer1.0[" not in refused.stderr


@pytest.mark.parametrize("arguments,expected", [
    (["--device", "h1000"], "--device"), (["--memory", "0"], "--memory"),
    (["--memory=nan"], "--memory"), (["--bandwidth=-1"], "--bandwidth"), (["--latency", "0"], "--latency"),
    (["--measure", "--bandwidth", "1"], "--bandwidth"),
    (["--measure", "--worker", "4"], "0..3"), (["--worker", "1"], "--measure"),
])
def test_bad_input(tmp_path, arguments, expected):
    config = harness.write_config(tmp_path, "plan", tmp_path / "no-data-needed")
    assert expected in harness.run("plan", "--config", config, *arguments, expect=2).stderr


@pytest.mark.parametrize("memory,overrides", [
    ("1.46", ["train.batch_size_per_worker=96", "train.accumulate_steps=4"]),
    ("1.8", ["train.batch_size_per_worker=2048", "train.checkpoint_activations=true", "subnetwork.coverage=1"]),
])
def test_the_printed_advice_fits(tmp_path, memory, overrides):
    """The lines of the verdict, typed as they are printed: what they say that they take, which fits."""
    config = harness.write_config(tmp_path, "plan", tmp_path, model={"width": 16}, train={"precision": "fp32"})
    command = ["plan", "--config", config, "--memory", memory, "--device", "a100", *harness.sets(*overrides)]
    advised = re.findall(r"^[^(]*\(([\d.]+) ([MG])iB.*: --set (.*)$", harness.run(*command).stdout, re.M)
    assert advised
    for number, unit, settings in advised:
        method = harness.run_json(*command, *harness.sets(*settings.split(" --set ")))["forecast"]["methods"][0]
        expected = float(number) * {"M": 2**20, "G": 2**30}[unit]
        assert method["fits"] and method["peak_bytes"]["total"] == pytest.approx(expected, rel=0.006)


PROFILE = {
    "name": "card", "times": "estimated", "flops_per_s": 1e13, "peak_flops_per_s": 0, "tile_side": 128, "tiles_at_once": 84,
    "launch_s": 4e-6, "is_gpu": True, "memory_bytes_per_s": 6e11, "inside_bytes_per_s": 1e10, "between_bytes_per_s": 1e9,
    "memory_bytes": 2**34, "allowance_bytes": 10**9, "library_workspace_bytes": 0, "convolution_workspace_bytes": 0,
}


def test_a_profile_by_hand(tmp_path):
    """That of docs/plans.md is used; a wrong value is named with its place."""
    file = tmp_path / "card.json"
    written = lambda changes: file.write_text(json.dumps(
        {"sdp_train_profile": 2, "profiles": {"fp64": {k: v for k, v in (PROFILE | changes).items() if v is not None}}}))
    written({"latency_s": 5e-5})
    device = plan(tmp_path, "--device", str(file))["forecast"]["device"]
    assert {key: device[key] for key in PROFILE} == PROFILE | {"times": "measured rates"} and device["latency_s"] == 5e-5
    config = harness.write_config(tmp_path, "plan", tmp_path)
    refused = lambda: harness.run("plan", "--config", config, "--device", file, expect=2).stderr
    for key, value in {
        "flops_per_s": -3, "memory_bytes_per_s": "fast", "tile_side": 0, "tiles_at_once": 1.5, "launch_s": None,
        "is_gpu": 1, "memory_bytes": 10**9, "inside_bytes_per_s": 1e300, "latency_s": [], "times": "guessed", "memory_gb": 24,
    }.items():
        written({key: value})
        assert f'profiles.fp64: the key "{key}"' in refused(), key
    for text in ('{"sdp_train_profile": "2"}', '{"sdp_train_profile": 2, "profiles": []}', "[]", "", '{"a": NaN}'):
        file.write_text(text)
        assert str(file) in refused() and "internal" not in refused()
