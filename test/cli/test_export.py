"""Exported weights are torchvision's, and evaluation agrees with PyTorch on them. Full width: test_data.py."""

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
from torch.nn import functional as F

import harness
from library_models import library_model
from small_models import RESNET18


def export(run_dir, out):
    harness.run("export", "--run", run_dir, "--out", out)
    return load_file(out)


def test_the_page_loads_a_narrow_model(tmp_path, data):
    """The code of docs/import_export.md, on a ResNet of another width with the stem for small images. Without
    corrections the exported model is the evaluated one; its logits are those of some of the samples."""
    run_dir = harness.train(
        tmp_path, "run", data, 1,
        model={"width": 6}, train={"max_steps": 2, "precision": "fp32"}, eval={"recalibrate_batches": 0},
    )
    folder = tmp_path / "out"
    export(run_dir, folder / "model.safetensors")
    some = harness.sets("eval.max_samples=17", "eval.batch_size=5")
    record = harness.run_json("eval", "--run", run_dir, "--logits", tmp_path / "logits.safetensors", *some)
    written = load_file(tmp_path / "logits.safetensors")
    ours, samples, labels = written["logits"], written["samples"], written["labels"]
    page = (Path(__file__).parents[2] / "docs" / "import_export.md").read_text()
    *_, narrow, _, transform = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names = {"folder": folder, "json": json, "math": math, "torch": torch, "torchvision": torchvision, "safetensors": safetensors}
    exec(narrow + transform, names)
    assert "architecture" not in names["config"] and names["config"]["label_names"][3] == "cat"
    mean, std = (torch.tensor(names["cfg"][key]).view(1, 3, 1, 1) for key in ("mean", "std"))
    all_images, all_labels = harness.read_cifar10(data, "test")
    assert samples.tolist() == [i * 40 // 17 for i in range(17)] and torch.equal(labels, all_labels[samples])
    pixels = (all_images[samples] * std + mean).mul(255).round().byte()
    images = torch.stack([names["transform"](torchvision.transforms.functional.to_pil_image(image)) for image in pixels])
    with torch.no_grad():
        expected = names["model"](images)
    assert ours.shape == expected.shape and (ours - expected).abs().max() < 1e-4
    assert (record["samples"], record["test_samples"]) == (17, 40)
    loss, accuracy = F.cross_entropy(ours.double(), labels).item(), (ours.argmax(1) == labels).double().mean().item()
    assert (record["loss"], record["accuracy"]) == pytest.approx((loss, accuracy), rel=0, abs=1e-6)


def test_recalibrated_statistics_are_kept_beside_the_checkpoint(tmp_path, data):
    run_dir = harness.train(
        tmp_path, "run", data, 1, train={"max_steps": 3}, eval={"recalibrate_batches": 2, "branch_scale": "none"}
    )

    def loss(*overrides):
        return harness.run_json("eval", "--run", run_dir, *harness.sets(*overrides))["loss"]

    (kept,) = run_dir.glob("checkpoints/step-00000003/statistics-*")
    original, trained = kept.read_bytes(), harness.last_eval(run_dir)["loss"]
    kept.unlink()
    estimated = loss()
    assert estimated == pytest.approx(trained, rel=1e-12)
    a = export(run_dir, tmp_path / "a.safetensors")

    # They are read where they belong: changed ones change the loss, damaged ones are estimated again.
    save_file({name: 2 * values for name, values in load_file(kept).items()}, kept)
    assert loss() != pytest.approx(estimated, rel=1e-3)
    b = export(run_dir, tmp_path / "b.safetensors")
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
    state = export(run_dir, out)
    model = library_model(RESNET18).double().net
    model.load_state_dict(state)
    images, labels = harness.read_cifar10(data, "test")
    with torch.no_grad():
        loss = F.cross_entropy(model.eval()(images.double()), labels).item()
    record = harness.last_eval(run_dir)
    assert record["loss"] == pytest.approx(loss, abs=1e-8)
    with safe_open(out, framework="pt") as file:
        metadata = file.metadata()
    assert (metadata["recalibrate_batches"], metadata["format"]) == ("3", "pt")
    assert float(metadata["branch_scale"]) == record["branch_scale"]
    if scale == "auto":
        # Without the run's evaluation, the branch scale is selected again, with the same result.
        (run_dir / "metrics.jsonl").unlink()
        again = export(run_dir, tmp_path / "again.safetensors")
        assert all(torch.allclose(again[name], state[name], atol=1e-10, rtol=0) for name in state)


def test_recalibration_augments_as_training_does(tmp_path, data):
    losses = []
    for name, augment in (("plain", []), ("augmented", ["crop", "flip"])):
        run_dir = harness.train(
            tmp_path, name, data, 1, data={"augment": augment}, optimizer={"lr": 1e-12},  # the same weights
            train={"max_steps": 1, "precision": "fp32"}, eval={"recalibrate_batches": 3},
        )
        losses.append(harness.last_eval(run_dir)["loss"])
    assert abs(losses[0] - losses[1]) > 1e-4
