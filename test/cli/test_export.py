"""Exported weights are torchvision's, and evaluation agrees with PyTorch on them."""

import json
import math
import re
from pathlib import Path

import pytest
import safetensors.torch
import torch
import torchvision
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import harness
from library_models import library_model
from small_models import RESNET18


def torchvision_resnet18(state):
    model = torchvision.models.resnet18(num_classes=10)
    model.conv1 = torch.nn.Conv2d(3, 64, 3, 1, 1, bias=False)
    model.maxpool = torch.nn.Identity()
    model.load_state_dict(state)
    return model.eval()


def evaluate(model, images, labels):
    with torch.no_grad():
        logits = torch.cat([model(part) for part in images.split(50)])
    return torch.nn.functional.cross_entropy(logits, labels).item(), (logits.argmax(1) == labels).float().mean().item()


@pytest.fixture(scope="module")
def full_width(tmp_path_factory, data):
    """Width 64, a few steps, no correction: the exported model is the evaluated one."""
    return harness.train(
        tmp_path_factory.mktemp("export"), "wide", data, 1, model={"width": 64}, train={"max_steps": 2, "precision": "fp32"},
        eval={"recalibrate_batches": 0, "branch_scale": "none"},
    )


def test_export_loads_into_torchvision(tmp_path, data, full_width):
    out = tmp_path / "model.safetensors"
    harness.run("export", "--run", full_width, "--out", out)
    model = torchvision_resnet18(load_file(out))
    all_images, all_labels = harness.read_cifar10(data, "test")
    loss, accuracy = evaluate(model, all_images, all_labels)
    record = harness.last_eval(full_width)
    assert record["loss"] == pytest.approx(loss, abs=1e-4)
    assert record["accuracy"] == pytest.approx(accuracy, abs=1e-6)
    with safe_open(out, framework="pt") as file:
        assert file.metadata()["branch_scale"] == "1"
        assert file.metadata()["format"] == "pt"

    # The logits of some samples.
    logits_file = tmp_path / "logits.safetensors"
    some = "--set", "eval.max_samples=17", "--set", "eval.batch_size=5"
    record = json.loads(harness.run("eval", "--run", full_width, "--logits", logits_file, "--json", *some).stdout)
    written = load_file(logits_file)
    ours, samples = written["logits"], written["samples"]
    assert samples.tolist() == [i * 40 // 17 for i in range(17)]
    images, labels = all_images[samples], all_labels[samples]
    assert torch.equal(written["labels"], labels)
    with torch.no_grad():
        theirs = model(images)
    assert ours.shape == theirs.shape
    assert (ours - theirs).abs().max().item() < 1e-4
    # The exported model is the evaluated one.
    assert (record["samples"], record["test_samples"]) == (17, 40)
    loss = torch.nn.functional.cross_entropy(ours.double(), labels).item()
    assert record["loss"] == pytest.approx(loss, rel=0, abs=1e-6)
    assert record["accuracy"] == pytest.approx((ours.argmax(1) == labels).double().mean().item())


def export(run_dir, out, *more):
    harness.run("export", "--run", run_dir, "--out", out, *more)
    return out


def test_the_page_loads_a_narrow_model(tmp_path, data):
    """The code of docs/exported_models.md, on a ResNet of another width with the stem for small images."""
    run_dir = harness.train(
        tmp_path, "run", data, 1,
        model={"width": 6}, train={"max_steps": 2, "precision": "fp32"}, eval={"recalibrate_batches": 0},
    )
    folder = tmp_path / "out"
    export(run_dir, folder / "model.safetensors")
    harness.run("eval", "--run", run_dir, "--logits", tmp_path / "logits.safetensors")
    page = (Path(__file__).parents[2] / "docs" / "exported_models.md").read_text()
    _, narrow, _, transform = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names = {"folder": folder, "json": json, "math": math, "torch": torch, "torchvision": torchvision, "safetensors": safetensors}
    exec(narrow + transform, names)
    assert "architecture" not in names["config"] and names["config"]["label_names"][3] == "cat"
    mean, std = (torch.tensor(names["cfg"][key]).view(1, 3, 1, 1) for key in ("mean", "std"))
    pixels = (harness.read_cifar10(data, "test")[0] * std + mean).mul(255).round().byte()
    images = torch.stack([names["transform"](torchvision.transforms.functional.to_pil_image(image)) for image in pixels])
    with torch.no_grad():
        expected = names["model"](images)
    assert (load_file(tmp_path / "logits.safetensors")["logits"] - expected).abs().max() < 1e-4


def test_recalibrated_statistics_are_kept_beside_the_checkpoint(tmp_path, data):
    run_dir = harness.train(
        tmp_path, "run", data, 1, train={"max_steps": 3}, eval={"recalibrate_batches": 2, "branch_scale": "none"}
    )

    def loss(*overrides):
        arguments = [argument for override in overrides for argument in ("--set", override)]
        return json.loads(harness.run("eval", "--run", run_dir, "--json", *arguments).stdout)["loss"]

    (kept,) = run_dir.glob("checkpoints/step-00000003/statistics-*")
    original, trained = kept.read_bytes(), harness.last_eval(run_dir)["loss"]
    kept.unlink()
    estimated = loss()
    assert estimated == pytest.approx(trained, rel=1e-12)
    export(run_dir, tmp_path / "a.safetensors")

    # They are read where they belong: changed ones change the loss, damaged ones are estimated again.
    save_file({name: 2 * values for name, values in load_file(kept).items()}, kept)
    assert loss() != pytest.approx(estimated, rel=1e-3)
    export(run_dir, tmp_path / "b.safetensors")
    a, b = load_file(tmp_path / "a.safetensors"), load_file(tmp_path / "b.safetensors")
    assert torch.equal(b["bn1.running_var"], 2 * a["bn1.running_var"])
    loss("eval.recalibrate_batches=3")
    assert len(list(kept.parent.glob("statistics-*"))) == 2, "other batches, another file"
    kept.write_bytes(original[:-8])
    assert loss() == estimated


@pytest.mark.parametrize("scale", ["survival", "auto"])
def test_export_is_the_model_whose_accuracy_was_reported(tmp_path, data, scale):
    """With recalibrated statistics and branch scale: PyTorch reproduces the reported loss from the exported file."""
    run_dir = harness.train(
        tmp_path, "run", data, 1, train={"max_steps": 5, "precision": "fp64"},
        eval={"recalibrate_batches": 3, "branch_scale": scale},
    )
    out = tmp_path / "model.safetensors"
    state = load_file(export(run_dir, out))
    model = library_model(RESNET18).double().net
    model.load_state_dict(state)
    images, labels = harness.read_cifar10(data, "test")
    model.eval()
    with torch.no_grad():
        logits = model(images.double())
    record = harness.last_eval(run_dir)
    assert torch.nn.functional.cross_entropy(logits, labels).item() == pytest.approx(record["loss"], abs=1e-8)
    with safe_open(out, framework="pt") as file:
        assert file.metadata()["recalibrate_batches"] == "3"
        assert float(file.metadata()["branch_scale"]) == record["branch_scale"]
    if scale == "auto":
        # Without the run's evaluation, the branch scale is selected again, with the same result.
        (run_dir / "metrics.jsonl").unlink()
        again = load_file(export(run_dir, tmp_path / "again.safetensors"))
        assert all(torch.allclose(again[name], state[name], atol=1e-10, rtol=0) for name in state)


def test_recalibration_augments_as_training_does(tmp_path, data):
    losses = []
    for name, augment in (("plain", []), ("augmented", ["crop", "flip"])):
        run_dir = harness.train(
            tmp_path, name, data, 1,
            data={"augment": augment},
            optimizer={"lr": 1e-12},  # the same weights
            train={"max_steps": 1, "precision": "fp32"},
            eval={"recalibrate_batches": 3},
        )
        losses.append(harness.last_eval(run_dir)["loss"])
    assert abs(losses[0] - losses[1]) > 1e-4
