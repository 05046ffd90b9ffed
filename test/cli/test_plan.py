"""`plan` compared with PyTorch's own counts and with closed formulas."""

import contextlib
import functools
import json
import os
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
from torchvision.models import swin_transformer
from transformers.models.gpt2 import modeling_gpt2 as gpt2
from transformers.models.llama import modeling_llama as llama

import harness
from library_models import library_model
from small_models import RESNET18

CONFIGS = Path(__file__).parents[2] / "configs"


def plan(tmp_path, *overrides, **sections):
    config = harness.write_config(tmp_path, "plan", tmp_path / "no-data-needed", **sections)
    return json.loads(harness.run("plan", "--config", config, "--json", *overrides).stdout)


def pytorch_training_flops(model, size):
    images = torch.zeros(1, 3, size, size)
    model.eval()
    with FlopCounterMode(display=False) as counter:
        model(images).sum().backward()
    return counter.get_total_flops()


@contextlib.contextmanager
def stream_elements(model, *branch_types):
    """Yields a list that a forward pass fills with the numbers of elements that each branch reads and returns."""
    elements = []

    def see(module, args, kwargs, output):
        read = args[0] if args else kwargs["hidden_states"]
        given = output[0] if isinstance(output, tuple) else output
        elements.extend([read.numel(), given.numel()])

    hooks = [m.register_forward_hook(see, with_kwargs=True) for m in model.modules() if isinstance(m, branch_types)]
    yield elements
    for hook in hooks:
        hook.remove()


def check_tensor_parallel(result, elements, bytes_per_element):
    """A ring all-reduce of each branch's output, and one of the gradient of its input."""
    traffic = result["forecast"]["model_parallel"]
    t = traffic["tensor"]["processes"]
    assert t == result["processes"] > 1
    sent = 2 * (t - 1) / t * sum(elements) * traffic["global_batch_size"] * bytes_per_element
    assert traffic["tensor"]["bytes_sent_per_step"] == pytest.approx(sent, rel=1e-9)


def plan_of(model, *overrides):
    """The plan of one of the project's configurations."""
    arguments = ["plan", "--json", "--config", CONFIGS / f"{model}.yaml"]
    settings = [word for override in ("data.path=/none", *overrides) for word in ("--set", override)]
    return json.loads(harness.run(*arguments, *settings).stdout)


def llama_of(width, depth, heads, hidden):
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=32000, hidden_size=width, intermediate_size=hidden, num_hidden_layers=depth,
        num_attention_heads=heads, num_key_value_heads=heads, attn_implementation="eager"))


LLAMAS = {"134m": (768, 12, 12, 2048), "500m": (1536, 14, 24, 4096), "1b": (2048, 18, 16, 5120)}
FULL_SIZE = {  # configuration -> the library's model, its branches, its parameters where they are published
    "resnet18_imagenet": (torchvision.models.resnet18, [torchvision.models.resnet.BasicBlock], 11689512),
    "resnet50_imagenet": (torchvision.models.resnet50, [torchvision.models.resnet.Bottleneck], 25557032),
    "swin_t_imagenet": (torchvision.models.swin_t, [swin_transformer.ShiftedWindowAttention, torchvision.ops.MLP], 28288354),
    "gpt2_fineweb": (
        lambda: transformers.GPT2LMHeadModel(transformers.GPT2Config(attn_implementation="eager")),
        [gpt2.GPT2Attention, gpt2.GPT2MLP], 124439808),
} | {f"llama_{name}_fineweb": (functools.partial(llama_of, *sizes), [llama.LlamaAttention, llama.LlamaMLP], None)
     for name, sizes in LLAMAS.items()}


@pytest.mark.parametrize("name", FULL_SIZE)
def test_flops_and_parameters_at_full_size(name):
    make, branch_types, published = FULL_SIZE[name]
    tokens = 512
    with FakeTensorMode(), FlopCounterMode(display=False) as counter:  # shapes without memory, for models of any size
        model = make().eval()
        config = getattr(model, "config", None)
        with stream_elements(model, *branch_types) as elements:
            if config:
                model(torch.zeros(1, tokens, dtype=torch.long), use_cache=False).logits.sum().backward()
            else:
                model(torch.zeros(1, 3, 224, 224)).sum().backward()
    parameters = sum(p.numel() for p in model.parameters())
    assert published in (parameters, None)
    # Fused attention, which training uses, multiplies q and k once more in its backward pass.
    recomputed = config.num_hidden_layers * 2 * tokens * tokens * config.hidden_size if config else 0
    own = [f"data.sequence_length={tokens}", f"model.vocab_size={config.vocab_size}"] if config else ["train.precision=fp32"]
    result = plan_of(name, *own)
    assert result["dense"]["parameters"] == parameters
    assert result["dense"]["flops_per_sample"] == pytest.approx(counter.get_total_flops() + recomputed, rel=0.01)
    check_tensor_parallel(result, elements, 2 if config else 4)


def test_flops_of_subnetworks(tmp_path):
    result = plan(tmp_path, model={"width": 16}, subnetwork={"coverage": "1/4"})
    assert result["coverage"] == 0.25
    lacking, warning = result["warnings"]
    assert "stage" in lacking and "2/4" in lacking
    assert "one owner (coverage 1/4)" in warning
    sizes = RESNET18 | {"width": 16}
    model = library_model(sizes)
    for worker, cost in enumerate(result["per_worker"]):
        owned = {u["branch"] for u in result["units"] if worker in u["owners"]}
        assert cost["units"] == [i for i, u in enumerate(result["units"]) if worker in u["owners"]]
        held = [p for name, p in model.named_parameters() if model.branch_of(name) in owned | {None}]
        assert cost["parameters"] == sum(p.numel() for p in held)
        absent = library_model(sizes).net
        for name in model.branches.keys() - owned:
            block = absent.get_submodule(name)
            block.forward = (block.downsample or torch.nn.Identity()).forward
        assert cost["flops_per_sample"] == pytest.approx(pytorch_training_flops(absent, 32), rel=0.01)


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


@pytest.mark.parametrize("n,coverage,p", [(8, "4/8", 4), (8, "7/8", 7), (3, "2/3", 2), (8, "1", 8)])
def test_bytes_sent(tmp_path, n, coverage, p):
    """(p - 1) / n of the units' values each way on the mean over workers, (n - 1) / n of the shared ones."""
    result = plan(tmp_path, subnetwork={"workers": n, "coverage": coverage}, train={"precision": "fp32"})
    units = sum(unit["parameters"] for unit in result["units"])
    shared = result["dense"]["parameters"] - units
    expected = 4 * (units * (p - 1) + shared * (n - 1)) / n
    for key in ("reduce_bytes_per_step", "publish_bytes_per_step"):
        assert sum(cost[key] for cost in result["per_worker"]) / n == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("n,coverage,p", [(8, "3/8", 3), (8, "4/8", 4), (5, "4/5", 4)])
def test_balance_and_mixing(tmp_path, n, coverage, p):
    """Maximum over mean of the workers' figures, and numpy's eigenvalues of the co-ownership matrix."""
    result = plan(tmp_path, model={"width": 16}, subnetwork={"workers": n, "coverage": coverage})
    figures = {
        "flops": lambda cost: cost["flops_per_sample"],
        "parameters": lambda cost: cost["parameters"],
        "state_bytes": lambda cost: sum(cost[f"{kind}_bytes"] for kind in ("parameter", "gradient", "optimizer")),
        "bytes_sent": lambda cost: cost["bytes_sent_per_step"],
    }
    for name, figure in figures.items():
        values = [figure(cost) for cost in result["per_worker"]]
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
        found = result["spectrum"][name]
        assert found["lambda2"] == pytest.approx(second / largest, rel=1e-9)
        assert found["spectral_gap"] == pytest.approx(1 - second / largest, rel=1e-9)
        assert found["lambda2_bound"] == pytest.approx((np.trace(k) - largest) / ((n - 1) * largest), rel=1e-9)
        root = np.sqrt(k.sum(axis=1))
        normalized = np.linalg.eigvalsh(k / np.outer(root, root))[-2]
        assert found["lambda2_normalized"] == pytest.approx(normalized, rel=1e-9)


@pytest.mark.parametrize("n,coverage,p", [(8, "4/8", 4), (3, "2/3", 2)])
def test_bytes_sent_under_backward_masking(tmp_path, n, coverage, p):
    """(p - 1) / n of the units' gradients, (n - 1) / n of all values; units at p = 4, n = 8: 5/7 of DDP's."""
    subnetwork = {"workers": n, "coverage": coverage, "masking": "backward"}
    result = plan(tmp_path, subnetwork=subnetwork, train={"precision": "fp32"})
    units = sum(unit["parameters"] for unit in result["units"])
    shared = result["dense"]["parameters"] - units
    mean = lambda key: sum(cost[key] for cost in result["per_worker"]) / n
    assert mean("reduce_bytes_per_step") == pytest.approx(4 * (units * (p - 1) + shared * (n - 1)) / n, rel=1e-12)
    assert mean("publish_bytes_per_step") == pytest.approx(4 * (units + shared) * (n - 1) / n, rel=1e-12)
    if (n, p) == (8, 4):
        of_units = mean("bytes_sent_per_step") - 2 * 4 * shared * (n - 1) / n
        assert of_units / (2 * 4 * units * (n - 1) / n) == pytest.approx(5 / 7, rel=1e-9)


@pytest.mark.parametrize("processes,per_node,placement", [
    (8, 4, "in_order"), (8, 4, "pack"), (8, 2, "pack"), (4, 2, "pack"), (8, 8, "in_order"),
])
def test_bytes_between_nodes(tmp_path, processes, per_node, placement):
    """
    A holder of a unit receives its shard's gradients from the others and sends them its new values: twice the shard
    for each holder on another node. Shards are of equal size but for 64 bytes.
    """
    subnetwork = {"workers": 8, "coverage": "4/8", "placement": placement}
    result = plan(
        tmp_path, "--nproc", str(processes), "--processes-per-node", str(per_node), model={"width": 32},
        subnetwork=subnetwork, train={"precision": "fp32"},
    )
    nodes = result["nodes"]
    node = [process["node"] for process in result["per_process"]]
    assert sorted(node) == [i // per_node for i in range(processes)] and node[0] == 0
    assert nodes["nodes"] == processes // per_node and nodes["placement"] == placement
    workers_a_process = 8 // processes
    units = [
        (4 * unit["parameters"], sorted({owner // workers_a_process for owner in unit["owners"]}))
        for unit in result["units"]
    ]
    all_bytes = 4 * result["dense"]["parameters"]
    shared = (all_bytes - sum(size for size, _ in units), list(range(processes)))
    sent = lambda size, holders, process, elsewhere: sum(
        size / len(holders) * ((process in holders) + (process in holders))
        for other in holders
        if other != process and (node[other] != node[process]) == elsewhere
    )
    total = lambda parts, process, elsewhere: sum(sent(*part, process, elsewhere) for part in parts)
    for process, cost in enumerate(result["per_process"]):
        expected = total([*units, shared], process, True)
        assert cost["bytes_sent_between_nodes_per_step"] == pytest.approx(expected, rel=1e-3)
    for name, parts in (("sdp", [*units, shared]), ("ddp", [(all_bytes, list(range(processes)))])):
        for key, elsewhere in (("inside", False), ("between", True)):
            figures = [total(parts, process, elsewhere) for process in range(processes)]
            assert nodes[name][f"{key}_bytes_per_step"] == pytest.approx(sum(figures), rel=1e-3)
            assert nodes[name][f"largest_{key}_bytes_per_step"] == pytest.approx(max(figures), rel=1e-3)
    assert result["dense"]["bytes_sent_between_nodes_per_step"] == nodes["ddp"]["largest_between_bytes_per_step"]
    a_process = 2 * (processes - 1) / processes * all_bytes
    ring_between = nodes["nodes"] * a_process if nodes["nodes"] > 1 else 0
    assert nodes["ddp_ring"]["between_bytes_per_step"] == pytest.approx(ring_between, rel=1e-6)
    assert nodes["ddp_ring"]["inside_bytes_per_step"] == pytest.approx(processes * a_process - ring_between, rel=1e-6)
    together = [holders for _, holders in units if len({node[holder] for holder in holders}) == 1]
    assert nodes["units_in_one_node"] == len(together)


def test_placement_in_the_plans_text(tmp_path):
    text = lambda *arguments: harness.run(
        "plan", "--config", harness.write_config(tmp_path, "plan", tmp_path), "--set", "subnetwork.placement=pack",
        *arguments,
    ).stdout
    two_nodes = text("--processes-per-node", 2)
    assert "2 nodes of 2 processes, placement pack (0 " in two_nodes
    for word in ("between nodes", "DDP, the same exchange", "DDP, a ring all-reduce", "units with all owners"):
        assert word in two_nodes
    assert "placement pack has no effect" in text()
    refused = harness.run(
        "plan", "--config", harness.write_config(tmp_path, "plan", tmp_path), "--processes-per-node", 5, expect=2
    )
    assert "5 processes per node: expected 1 to 4" in refused.stderr


# A process's peak memory includes that of its parent at the fork, so it is started from a small one.
MEASURE = """
import os, sys
out = os.open(os.devnull, os.O_WRONLY)
pid = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, out, 1)])
_, status, usage = os.wait4(pid, 0)
assert status == 0
print(usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024)
"""


def measured(*arguments):
    """Processor time in seconds and peak memory in bytes of the program."""
    command = [sys.executable, "-S", "-E", "-c", MEASURE, harness.BINARY, *map(str, arguments)]
    result = subprocess.run(command, env=harness.environment(), capture_output=True, text=True, check=True)
    seconds, memory = result.stdout.split()
    return float(seconds), int(memory)


@pytest.mark.parametrize("construction,p", [("block", 16), ("block", 48), ("neuron", 32)])
def test_a_large_plan_is_cheap(construction, p):
    """LLaMA 1B on 64 workers: less than three times the time of a program that prints its version, and 100 MB more."""
    config = os.path.join(os.path.dirname(__file__), "..", "..", "configs", "llama_1b_fineweb.yaml")
    overrides = ["workers=64", f"coverage={p}/64", f"construction={construction}", "placement=pack"]
    settings = [word for override in overrides for word in ("--set", f"subnetwork.{override}")]
    base_seconds, base_memory = measured("--version")
    arguments = ["plan", "--config", config, *settings, "--processes-per-node", 8, "--json"]
    runs = [measured(*arguments) for _ in range(2)]
    # The smaller of two: other load only makes a measurement larger.
    seconds = min(seconds for seconds, _ in runs) - base_seconds
    memory = max(memory for _, memory in runs) - base_memory
    assert seconds < 3 * base_seconds and memory < 100e6, f"{seconds:.2f} s of {base_seconds:.2f} s, {memory / 1e6:.1f} MB"


def test_counted_traffic_is_the_plans(tmp_path, data):
    """Others: test/engine."""
    run_dir = harness.train(tmp_path, "run", data, 2, train={"max_steps": 3, "precision": "fp32"})
    result = json.loads((run_dir / "plan.json").read_text())
    trained = [line for line in harness.json_lines(run_dir / "metrics.jsonl") if line["kind"] == "train"]
    assert len(result["per_process"]) == 2 and trained
    assert all(line["bytes_sent"] == result["per_process"][0]["bytes_sent_per_step"] for line in trained)


def test_plan_text_names_what_matters(tmp_path):
    config = harness.write_config(tmp_path, "plan", tmp_path)
    text = harness.run("plan", "--config", config, "--set", "subnetwork.coverage=1/4").stdout
    for word in ("DDP", "balance", "spectral gap", "layer4.1", "sent", "warning: every unit has one owner"):
        assert word in text
    published = tmp_path / "plan.json"
    published.write_text(harness.run("plan", "--config", config, "--json", "--set", "subnetwork.assignment=random").stdout)
    again = plan(tmp_path, subnetwork={"assignment": "file", "assignment_file": str(published)})
    assert again["units"] == json.loads(published.read_text())["units"]


MAKE_ASSIGNMENT = Path(__file__).parents[2] / "scripts" / "make_assignment.py"


@pytest.mark.parametrize("construction", ["block", "neuron"])
def test_an_assignment_made_from_a_table_is_planned(tmp_path, construction):
    """The first row that fits a unit gives its owners."""
    sections = {"construction": construction, "workers": 4, "coverage": "1/2"}
    listed, table, made = tmp_path / "plan.json", tmp_path / "table", tmp_path / "made.json"
    before = plan(tmp_path, subnetwork=sections)
    listed.write_text(json.dumps(before))
    first = before["units"][0]
    rows = [
        {"branch": first["branch"], "begin": first["begin"], "end": first["end"], "owners": [3, 1]},
        {"branch": "layer[12].*", "owners": [0, 1]}, {"branch": "*", "owners": [2, 3]},
    ]
    cells = lambda row: [row["branch"], row.get("begin", ""), row.get("end", ""), " ".join(map(str, row["owners"]))]
    lines = ["branch,begin,end,owners", *(",".join(map(str, cells(row))) for row in rows)]
    outputs = []
    for text in ("\n".join(lines) + "\n", json.dumps(rows)):
        table.write_text(text)
        outputs.append(subprocess.check_output([sys.executable, MAKE_ASSIGNMENT, listed, table], text=True))
    assert outputs[0] == outputs[1]
    made.write_text(outputs[0])
    after = plan(tmp_path, subnetwork=sections | {"assignment": "file", "assignment_file": str(made)})
    owners = {(unit["branch"], unit["begin"]): unit["owners"] for unit in after["units"]}
    assert owners.pop((first["branch"], first["begin"])) == [1, 3]
    assert len(owners) == len(before["units"]) - 1
    for (branch, _), of_unit in owners.items():
        assert of_unit == ([0, 1] if branch.startswith(("layer1.", "layer2.")) else [2, 3]), branch

    table.write_text("branch,owners\nlayer1.*,0 1\nlayer9.*,0 1\n")
    refused = subprocess.run([sys.executable, MAKE_ASSIGNMENT, listed, table], capture_output=True, text=True)
    assert refused.returncode == 2 and refused.stdout == ""
    assert "layer9.*" in refused.stderr and "layer2.0" in refused.stderr and "layer1.0[" not in refused.stderr
    for text in ("branch\nlayer1.0\n", "branch,owners\n*,a b\n", '[{"owners": [1]}]', "[3]"):
        table.write_text(text)
        refused = subprocess.run([sys.executable, MAKE_ASSIGNMENT, listed, table], capture_output=True, text=True)
        assert refused.returncode == 2 and str(table) in refused.stderr and "Traceback" not in refused.stderr


def kept_bytes(model, images):
    """Bytes that autograd saves for the backward pass: every tensor once, without parameters and buffers."""
    own = {t.data_ptr() for t in [*model.parameters(), *model.buffers()]}
    seen = {}

    def pack(tensor):
        if tensor.is_floating_point() and tensor.data_ptr() not in own:
            seen[tensor.data_ptr()] = max(seen.get(tensor.data_ptr(), 0), tensor.numel() * tensor.element_size())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        labels = torch.zeros(len(images), dtype=torch.long)
        loss = torch.nn.functional.cross_entropy(model(images), labels)
    assert loss.requires_grad  # keeps the graph, and so the addresses, alive
    return sum(seen.values())


def test_activation_bytes(tmp_path):
    train = {"precision": "fp32", "batch_size_per_worker": 8}
    dense = plan(tmp_path, model={"width": 16}, train=train)["dense"]
    images = torch.zeros(8, 3, 32, 32)
    model = library_model(RESNET18 | {"width": 16}).net
    assert dense["activation_bytes"] == pytest.approx(kept_bytes(model, images), rel=0.01)


@pytest.mark.parametrize("arguments,expected", [
    (["--device", "h1000"], "--device h1000: expected one of "), (["--memory", "0"], "--memory 0: expected GiB above 0"),
    (["--bandwidth=-1"], "--bandwidth -1: expected Gbit/s above 0"), (["--bandwidth", "nan"], "--bandwidth nan"),
    (["--latency", "0"], "--latency 0: expected microseconds above 0"), (["--measure", "--bandwidth", "1"], "--bandwidth"),
    (["--measure", "--worker", "4"], "--worker 4: expected a worker in 0..3"), (["--worker", "1"], "Add --measure"),
])
def test_bad_input(tmp_path, arguments, expected):
    config = harness.write_config(tmp_path, "plan", tmp_path / "no-data-needed")
    assert expected in harness.run("plan", "--config", config, *arguments, expect=2).stderr


def test_options_without_effect_are_warned_about(tmp_path):
    config = harness.write_config(tmp_path, "plan", tmp_path / "no-data-needed")
    result = harness.run("plan", "--config", config, "--json", "--set", "subnetwork.slices_per_branch=4")
    assert "warning:" in result.stderr and "subnetwork.slices_per_branch" in result.stderr
    json.loads(result.stdout)
    assert "warning:" not in harness.run("plan", "--config", config).stderr


def test_forecast(tmp_path):
    """Methods on a device of a given memory: a method that fits takes at most this memory, which decides the batch size."""
    small, large = (plan(tmp_path, "--memory", size, "--device", "a100") for size in ("1.5", "1.875"))
    for result, bytes_ in ((small, 1.5 * 2**30), (large, 1.875 * 2**30)):
        device = result["forecast"]["device"]
        assert device["name"] == "a100" and device["memory_bytes"] == bytes_
        names = [method["name"] for method in result["forecast"]["methods"]]
        others = ["DDP", "ZeRO-1", "ZeRO-2", "ZeRO-3/FSDP"]
        checkpointing = [f"{name}, checkpointing" for name in (*others[:3], "this plan", others[3])]
        assert names == ["this plan", *others, *checkpointing]
        for method in result["forecast"]["methods"]:
            reserved = device["allowance_bytes"] + device["library_workspace_bytes"]
            assert method["fits"] == (method["peak_bytes"]["total"] + reserved <= bytes_)
            assert method["largest_batch_size_per_worker"] >= 4 if method["fits"] else True
        largest = max(cost["peak_bytes"]["total"] for cost in result["per_worker"])
        assert result["forecast"]["methods"][0]["peak_bytes"]["total"] == largest
    batches = [[method["largest_batch_size_per_worker"] for method in r["forecast"]["methods"]] for r in (small, large)]
    # Almost all of the memory is activations: several times as much of it, as many times the batch.
    ratio = (1.875 * 2**30 - reserved) / (1.5 * 2**30 - reserved)
    assert ratio > 4 and np.array(batches[1]) / np.array(batches[0]) == pytest.approx(ratio, rel=0.05)
    assert small["forecast"]["device"]["times"] == "estimated"


@pytest.mark.parametrize("gbit,per_node,device", [(10, None, "h100"), (2.5, 2, "rtx4090"), (40, 1, "a6000")])
def test_links_by_their_bandwidth(tmp_path, gbit, per_node, device):
    """Bytes over the rate. With several nodes it is that of the link to other nodes."""
    arguments = ["--bandwidth", gbit, "--device", device, *(["--processes-per-node", per_node] if per_node else [])]
    result = plan(tmp_path, *map(str, arguments), model={"width": 16}, train={"precision": "bf16"})["forecast"]
    rate = gbit * 1e9 / 8
    assert result["device"]["between_bytes_per_s"] == rate
    assert (result["device"]["inside_bytes_per_s"] == rate) == (per_node is None)
    for method in result["methods"]:
        if method["regime_file"] or not method["in_this_program"]:  # rings, which share the adapters of a node
            expected = method["bytes_sent_per_step"] / (rate * (per_node or 1))
            assert method["exchange_ms"] / 1e3 == pytest.approx(expected, rel=0.02), method["name"]
    times = [method["step_ms"] / method["flops_share"] for method in result["methods"] if method["fits"]]
    fastest = next(m for m in result["methods"] if m["name"] == result["verdict"]["fastest"])
    assert fastest["step_ms"] / fastest["flops_share"] == min(times)


@pytest.mark.parametrize("memory,overrides", [
    ("1.6", ["train.batch_size_per_worker=512"]), ("1.46", ["train.batch_size_per_worker=96", "train.accumulate_steps=4"]),
    ("1.8", ["train.batch_size_per_worker=2048", "train.checkpoint_activations=true", "subnetwork.coverage=1"]),
])
def test_the_printed_advice_fits(tmp_path, memory, overrides):
    """The lines of the verdict, typed as they are printed: what they say that they take, which fits."""
    config = harness.write_config(tmp_path, "plan", tmp_path, model={"width": 16}, train={"precision": "fp32"})
    settings = [word for override in overrides for word in ("--set", override)]
    command = ["plan", "--config", config, "--memory", memory, "--device", "a100", *settings]
    advised = [line for line in harness.run(*command).stdout.splitlines() if ": --set " in line]
    assert advised
    for line in advised:
        words = line.split(": --set ")[1].split(" --set ")
        again = json.loads(harness.run(*command, "--json", *(w for word in words for w in ("--set", word))).stdout)
        method = again["forecast"]["methods"][0]
        assert method["fits"]
        number, unit = line.split("(")[1].replace(";", ")").split(")")[0].split()
        assert method["peak_bytes"]["total"] == pytest.approx(float(number) * {"MiB": 2**20, "GiB": 2**30}[unit], rel=0.006)


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
