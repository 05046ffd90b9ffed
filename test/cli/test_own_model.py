"""examples/own_model: a network that is not one of the program's, with all that theirs have."""

import json
import os
import signal
import subprocess
import tarfile
from pathlib import Path

import harness
import numpy as np
import torch
from PIL import Image
from safetensors.torch import load_file
from torch.nn import functional as F

ROOT = Path(__file__).parents[2]


def start_example(folder):
    """Trains 30 steps in `folder`, which has the examples' data."""
    folder.mkdir(exist_ok=True)
    if not (folder / "examples").exists():
        (folder / "examples").symlink_to(ROOT / "examples")
    command = [os.environ["OWN_MODEL"], "30"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder, env=harness.environment())


def run_example(folder):
    with start_example(folder) as process:
        text = process.stdout.read()
    assert process.returncode == 0, text
    return text


def forward(tensors, images):
    """The network as the example's comment describes it, in PyTorch."""

    def norm(x, name):
        return F.batch_norm(x, *(tensors[f"{name}.{own}"] for own in ("running_mean", "running_var", "weight", "bias")))

    conv = lambda x, name: F.conv2d(x, tensors[f"{name}.weight"], padding=1)
    x = F.relu(norm(conv(images, "stem.conv"), "stem.bn"))
    for b in range(5):
        x = x + conv(F.relu(norm(conv(x, f"branch{b}.conv1"), f"branch{b}.bn1")), f"branch{b}.conv2")
    return F.linear(x.mean((2, 3)), tensors["fc.weight"], tensors["fc.bias"])


def read_test_images():
    """Normalized images and labels of the examples' test data."""
    images, labels = [], []
    with tarfile.open(ROOT / "examples/data/test-000000.tar") as tar:
        for member in tar:
            pixels = np.asarray(Image.open(tar.extractfile(member)), dtype=np.float32)
            images.append((pixels.transpose(2, 0, 1) / 255 - harness.MEAN) / harness.STD)
            labels.append(int(member.name.split("/")[0]))
    return torch.from_numpy(np.stack(images)), torch.tensor(labels)


def test_it_plans_trains_continues_and_exports(tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert "sdp-train export" not in run_example(whole)  # it has no such network
    run = whole / "runs/own_model"
    outside = 3 * 16 * 9 + 2 * 16 + 16 * 10 + 10
    branches = 5 * (2 * 16 * 32 * 9 + 2 * 32)
    plan = harness.plan_of(run)
    assert plan["dense"]["parameters"] == outside + branches
    assert [worker["parameters"] for worker in plan["per_worker"]] == [outside + branches / 2] * 4
    losses = [line["loss"] for line in harness.records(run, "train")]
    assert losses[-1] < losses[0] - 0.2, losses

    stopped = start_example(parts)
    while not stopped.stdout.readline().startswith("step 10/"):
        assert stopped.poll() is None
    stopped.send_signal(signal.SIGTERM)
    stopped.communicate()
    assert stopped.returncode == 75
    assert "resuming at step 1" in run_example(parts)
    exports = [load_file(folder / "runs/own_model/export/30.safetensors") for folder in (whole, parts)]
    assert exports[0].keys() == exports[1].keys()
    assert all(torch.equal(exports[0][name], exports[1][name]) for name in exports[0])

    images, labels = read_test_images()
    accuracy = forward(exports[0], images).argmax(1).eq(labels).double().mean().item()
    assert abs(accuracy - json.loads((run / "summary.json").read_text())["accuracy"]) < 1.5 / len(labels)
