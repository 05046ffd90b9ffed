"""Networks in Python (--network, sdp_train.train): the same steps as the program's models, and networks of libraries unchanged."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import harness
from small_models import GPT2

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "python"))

import python_networks
from sdp_train import Network, NetworkError, divide
from sdp_train.structure import Structure

NETWORKS = Path(python_networks.__file__)
ALL_SETTINGS = {
    "train": {"max_steps": 20, "batch_size_per_worker": 4, "accumulate_steps": 2, "checkpoint_activations": True, "log_every_steps": 1},
    "optimizer": {"clip_norm": 0.5, "ema_decay": 0.7}, "eval": {"recalibrate_batches": 0}, "checkpoint": {"every_steps": 5, "keep_last": 5},
}


def environment(values=None):
    return {"PYTHONPATH": f"{ROOT / 'python'}:{NETWORKS.parent}"} | ({"VALUES": str(values)} if values else {})


def in_python(*arguments, network, values=None, **options):
    return harness.run(*arguments, "--network", f"{NETWORKS}:{network}", env=environment(values), **options)


def exported(run_dir, out, step, **own):
    run = (lambda *words: in_python(*words, **own)) if own else harness.run
    run("export", "--run", run_dir, "--checkpoint", step, "--out", out)
    return load_file(out)


CASES = [
    ("ResNet", {"name": "resnet18", "width": 8}, "forward", [1, 4]),
    ("ResNet", {"name": "resnet18", "width": 8}, "backward", [2]),
    ("Gpt2", GPT2, "forward", [2]),
    ("Gpt2", GPT2, "backward", [4]),
]


@pytest.mark.parametrize("network,model,masking,processes", CASES)
def test_it_trains_as_the_same_model_of_the_program(tmp_path, data_of, network, model, masking, processes):
    tokens = "vocab_size" in model
    own = {"name": "own"} | ({"reads_tokens": True, "vocab_size": model["vocab_size"]} if tokens else {})
    shared = ALL_SETTINGS | {"subnetwork": {"coverage": "2/4", "masking": masking, "assignment": "window"}}
    if tokens:
        shared |= {"data": {"name": "tokens", "sequence_length": 12}}
    data = data_of(model)
    reference = harness.train(tmp_path, "reference", data, 2, model=model, **shared)
    save_file(python_networks.renamed(exported(reference, tmp_path / "first.safetensors", 0)), values := tmp_path / "values.safetensors")
    expected = python_networks.renamed(exported(reference, tmp_path / "reference.safetensors", 20))
    losses = harness.trace_losses(reference)
    for count in processes:
        config = harness.write_config(tmp_path, f"own{count}", data, model=own, **shared)
        in_python("--config", config, "--nproc", count, network=network, values=values)
        run_dir = tmp_path / "runs" / f"own{count}"
        found = harness.trace_losses(run_dir)
        assert found == pytest.approx(losses, rel=1e-12, abs=0)
        tensors = exported(run_dir, tmp_path / f"own{count}.safetensors", 20, network=network, values=values)
        assert tensors.keys() == expected.keys() - {"num_batches_tracked"}
        for name, tensor in tensors.items():
            torch.testing.assert_close(tensor, expected[name], rtol=1e-10, atol=1e-12)
    # Without the program: the network reads what was exported.
    getattr(python_networks, network)().load_state_dict(tensors, strict=not tokens)


def test_killed_and_resumed_it_has_the_same_bits(tmp_path, data):
    few = {"train": ALL_SETTINGS["train"] | {"max_steps": 10}}
    sections = ALL_SETTINGS | few | {"model": {"name": "own"}, "subnetwork": {"coverage": "2/4"}}
    command = lambda name: ("--config", harness.write_config(tmp_path, name, data, **sections), "--nproc", 2)
    in_python(*command("whole"), network="ResNet")
    arguments = [*command("killed"), "--network", f"{NETWORKS}:ResNet"]
    process = harness.start(*arguments, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
    runs = tmp_path / "runs"
    harness.await_checkpoint(runs / "killed", 5, process)
    harness.kill_run(process)
    in_python(*command("killed"), "--resume", network="ResNet")
    assert harness.hashes(runs / "killed") == harness.hashes(runs / "whole")
    assert harness.trace_losses(runs / "killed") == harness.trace_losses(runs / "whole")


@pytest.mark.parametrize("network", ["convnext", "mixer"])
def test_networks_of_libraries_train_unchanged(tmp_path, data, network):
    sections = {"model": {"name": "own"}, "train": {"max_steps": 50, "precision": "fp32"}, "optimizer": {"lr": 0.02}}
    config = harness.write_config(tmp_path, network, data, **sections)
    script = tmp_path / "train.py"
    script.write_text(f"import python_networks, sdp_train\nsdp_train.train({str(config)!r}, python_networks.{network}, processes=2)\n")
    measured = json.loads(in_python("plan", "--config", config, "--measure", "--json", network=network).stdout)
    assert measured["predicted_bytes"]["peak"] == pytest.approx(measured["measured_bytes"]["peak"], rel=0.05)
    env = harness.environment(environment())
    subprocess.run([sys.executable, script], env=env, check=True, timeout=300, capture_output=True)
    run_dir = tmp_path / "runs" / network
    losses = [line["loss"] for line in harness.records(run_dir, "train")]
    assert losses[-1] < losses[0]
    tensors = exported(run_dir, tmp_path / "x.safetensors", 50, network=network)
    model = getattr(python_networks, network)().root.eval()
    model.load_state_dict(tensors)
    images, labels = harness.read_cifar10(data, "test")
    with torch.no_grad():
        accuracy = model(images).argmax(1).eq(labels).double().mean().item()
    assert accuracy == harness.last_eval(run_dir)["accuracy"]


class Small(Network):
    """Two branches of 4 channels; tests change one thing of it."""

    def __init__(self, branch=lambda: nn.Conv2d(4, 4, 3, padding=1)):
        super().__init__()
        self.stem, self.blocks, self.fc = nn.Conv2d(3, 4, 3), nn.ModuleList(branch() for _ in range(2)), nn.Linear(4, 10)

    def branches(self):
        return list(self.blocks)

    def head(self, x):
        return self.fc(x.mean((2, 3)))


@torch.library.custom_op("tests::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return 2 * x


class Part(nn.Module):
    def __init__(self, forward):
        super().__init__()
        self.forward = forward


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return x * self.calls


class Gain(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(()))

    def forward(self, x):
        return self.gain * x


def shared_between_branches():
    network = Small()
    network.blocks[1].weight = network.blocks[0].weight
    return network


class SetsValues(Small):
    def __init__(self):
        super().__init__()
        nn.init.zeros_(self.fc.weight)


BAD = {
    "another shape": (lambda: Small(lambda: nn.Conv2d(4, 4, 3)), ["branch 0", "[2, 4, 28, 28]", "[2, 4, 30, 30]", "shortcut"]),
    "a tuple": (lambda: Small(lambda: Part(lambda x: (x, x))), ["blocks.0", "tuple", "one tensor"]),
    "a shared parameter": (shared_between_branches, ["blocks.0.weight", "parameters of one branch"]),
    "no meta kernel": (lambda: Small(lambda: Part(lambda x: twice(x))), ["tests::twice", "meta kernel"]),
    "a changed buffer": (lambda: Small(Counter), ["blocks.0.calls", "constant"]),
    "no reset_parameters": (lambda: Small(Gain), ["blocks.0.gain", "reset_parameters", "whole_init"]),
    "values of the constructor": (SetsValues, ["SetsValues", "zero_", "whole_init"]),
    "no network": (lambda: nn.Linear(1, 1), ["Linear", "sdp_train.Network"]),
    "no such blocks": (divide(lambda: nn.Sequential(nn.ReLU()), "layers.*"), ["layers.*", "Sequential"]),
    "only blocks that change shapes": (divide(lambda: nn.Sequential(nn.Conv2d(3, 4, 3)), "0"), ["shape"]),
}


@pytest.mark.parametrize("build,words", BAD.values(), ids=BAD)
def test_what_cannot_be_divided_is_refused(build, words):
    with pytest.raises(NetworkError) as error:
        Structure(build).describe((2, 3, 32, 32))
    assert all(word in str(error.value) for word in words), error.value


def test_initial_values_are_those_of_reset_parameters_and_depend_on_the_name():
    draws = [Structure(Small).draw("fc.weight", seed) for seed in (1, 1, 2)]
    assert torch.equal(draws[0], draws[1]) and not torch.equal(draws[0], draws[2])
    assert 0.4 < draws[0].abs().max() <= 0.5  # uniform(+-1/sqrt(4)), as torch.nn.Linear
    first, second = (Structure(Small).draw(f"blocks.{i}.weight", 1) for i in range(2))
    assert not torch.equal(first, second)


def test_a_branch_sees_the_same_random_numbers_wherever_it_runs(tmp_path, data):
    """With dropout and stochastic depth of timm and torch, for other numbers of processes and with recomputation."""
    sections = {"model": {"name": "own"}, "train": {"max_steps": 4}, "subnetwork": {"coverage": "2/4"}}
    losses = []
    for processes, again in ((1, False), (2, True)):
        train = sections["train"] | {"checkpoint_activations": again}
        config = harness.write_config(tmp_path, f"run{processes}", data, **sections | {"train": train})
        in_python("--config", config, "--nproc", processes, network="mixer")
        losses.append(harness.trace_losses(tmp_path / "runs" / f"run{processes}"))
    assert losses[0] == pytest.approx(losses[1], rel=1e-12)


def test_an_exception_ends_the_run_with_its_traceback(tmp_path, data):
    (tmp_path / "broken.py").write_text(
        "import torch, test_python_network\n"
        "class Net(test_python_network.Small):\n"
        "    def after(self, i, x):\n"
        "        return x if x.is_meta else 1 / 0\n"
    )
    config = harness.write_config(tmp_path, "broken", data, model={"name": "own"})
    env = environment() | {"SDP_NETWORK": f"{tmp_path / 'broken.py'}:Net"}
    said = harness.run("--config", config, "--nproc", 1, env=env, expect=1).stderr
    assert "ZeroDivisionError" in said and "in after" in said
    assert "there is no file" in harness.run("plan", "--config", config, env={"SDP_NETWORK": "/none.py:Net"}, expect=2).stderr
