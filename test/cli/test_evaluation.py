"""Evaluation repeated in plain PyTorch from the final checkpoint: the assembled model without and with its corrections, and
every worker's subnetwork, on all test samples or a subset; and on the exported weights."""

import csv
import functools
import json
import math
import re
from pathlib import Path

import numpy as np
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

STEPS = 3
WORKERS = 4
RULES = [{"match": "strided", "coverage": "1"}, {"match": "layer1.0", "masking": "backward"},
         {"match": "layer[13].*", "coverage": "1/4"}]


def load_buffers(model, buffers, is_used):
    """Means over the workers and replicas whose statistics are used."""
    own = dict(model.named_buffers())
    for used in {name for name, *_ in buffers}:
        chosen = [values for (name, _, *place), values in buffers.items() if name == used and is_used(name, *place)]
        if chosen:
            own[used].copy_(torch.stack(chosen).mean(0))


def scales(of_branch):
    """Factors on whole branches, in the oracle's form."""
    return {branch: torch.tensor([scale], dtype=torch.float64) for branch, scale in of_branch.items()}


def recalibrate(model, batches, present):
    for norm in (module for module in model.net.modules() if isinstance(module, torch.nn.BatchNorm2d)):
        norm.reset_running_stats()
        norm.momentum = None  # a plain average over the batches
    model.net.train()
    for images in batches:
        model(images, present)


def loss_and_accuracy(model, images, labels, present):
    model.net.eval()
    logits = model(images, present)
    return F.cross_entropy(logits, labels).item(), (logits.argmax(1) == labels).double().mean().item()


close = functools.partial(pytest.approx, rel=0, abs=1e-8)


def evenly(count, values):
    """`count` of the values, evenly spaced; all of them if there are no more."""
    count = min(count, len(values))
    return [values[i * len(values) // count] for i in range(count)]


@pytest.mark.parametrize("mode,scale,batch_size,processes,batches,samples,samples_per_subnetwork,replicas,rules", [
    ("full", "none", 64, 2, 4, None, None, 1, []),
    ("full", "survival", 7, 2, 4, 23, 9, 2, []),
    ("streamed", "none", 7, 1, 4, 11, None, 1, []),
    ("full", "auto", 3, 2, 4, None, 9, 1, []),
    ("streamed", "survival", 9, 2, 4, 1000, 2000, 1, []),
    # 40 test images make 5 batches and there are 3 training batches: some processes have none in the last round.
    ("streamed", "survival", 9, 4, 3, None, 0, 2, []),
    ("streamed", "survival", 9, 4, 4, None, 9, 1, RULES), ("full", "auto", 9, 2, 4, 23, None, 2, RULES),
])
@torch.no_grad()
def test_evaluation_is_pytorchs(
    tmp_path, data, mode, scale, batch_size, processes, batches, samples, samples_per_subnetwork, replicas, rules
):
    """A subnetwork's figures are those of its replica 0."""
    run_dir = harness.train(
        tmp_path, "run", data, processes,
        subnetwork={"workers": WORKERS, "coverage": "2/4", "replicas": replicas, "rules": rules},
        train={"max_steps": STEPS, "batch_size_per_worker": 4, "precision": "fp64"},
        eval={"mode": mode, "branch_scale": scale, "batch_size": batch_size, "recalibrate_batches": batches,
              "max_samples": samples, "max_samples_per_subnetwork": samples_per_subnetwork},
    )
    record = harness.last_eval(run_dir)
    assert record["step"] == STEPS
    plan = harness.plan_of(run_dir)
    owners = {unit["branch"]: unit["owners"] for unit in plan["units"]}
    frozen = {unit["branch"] for unit in plan["units"] if unit.get("masking") == "backward"}
    coverage = {branch: 1.0 if branch in frozen else len(held) / WORKERS for branch, held in owners.items()}
    buffers = harness.checkpoint_buffer_pieces(run_dir, STEPS)
    train_images, train_labels = harness.read_cifar10(data, "train")
    train_images = train_images.double()
    all_images, all_labels = harness.read_cifar10(data, "test")
    chosen = evenly(samples or 40, range(40))
    assert (record["samples"], record["test_samples"]) == (len(chosen), 40)
    images, labels = all_images[chosen].double(), all_labels[chosen]
    model = library_model(RESNET18).double()
    harness.load_values(model, harness.checkpoint_values(run_dir, STEPS, model))

    load_buffers(model, buffers, lambda name, worker, _: worker in owners.get(model.branch_of(name), range(WORKERS)))
    loss, accuracy = loss_and_accuracy(model, images, labels, {})
    assert [record["loss_uncorrected"], record["accuracy_uncorrected"]] == close([loss, accuracy])

    of_subnetworks = evenly(len(chosen) if samples_per_subnetwork is None else samples_per_subnetwork, chosen)
    part = all_images[of_subnetworks].double(), all_labels[of_subnetworks]
    singles = []
    for worker in range(WORKERS if of_subnetworks else 0):
        load_buffers(model, buffers, lambda _, *place: place == (worker, 0))
        present = scales({branch: float(worker in held or branch in frozen) for branch, held in owners.items()})
        singles.append(loss_and_accuracy(model, *part, present))
    assert record.get("subnetwork_samples", 0) == len(of_subnetworks)
    for key, values in zip(("subnetwork_loss", "subnetwork_accuracy"), zip(*singles)):
        assert record[key] == close(values)
    assert ("subnetwork_loss" in record) == bool(of_subnetworks)

    # Batch i of the training order is what replica 0 of worker i saw in the first step.
    samples = harness.trace_samples(run_dir)
    recalibration_batches = [train_images[samples[1, i, 0]] for i in range(batches)]

    def correct(is_survival):
        present = scales(coverage if is_survival else {})
        recalibrate(model, recalibration_batches, present)
        return present

    is_survival = scale == "survival"
    if scale == "auto":
        for tried_batches in (8, 16, 32, 64):
            tried = evenly(tried_batches * batch_size, range(len(train_images)))
            trial, of_batches = {"samples": len(tried)}, []
            for key, is_survival in (("loss_none", False), ("loss_survival", True)):
                present = correct(is_survival)
                trial[key] = loss_and_accuracy(model, train_images[tried], train_labels[tried], present)[0]
                split = [tried[i : i + batch_size] for i in range(0, len(tried), batch_size)]
                of_batches.append([loss_and_accuracy(model, train_images[b], train_labels[b], present)[0] for b in split])
            difference = np.subtract(*of_batches)
            trial["standard_error"] = difference.std(ddof=1) / len(difference) ** 0.5 if len(difference) > 1 else 0.0
            is_decided = abs(trial["loss_survival"] - trial["loss_none"]) > trial["standard_error"]
            if is_decided or len(tried) == len(train_images):
                break
        assert record["branch_scale_trial"] == close(trial)
        is_survival = is_decided and trial["loss_survival"] < trial["loss_none"]
    assert record["branch_scale"] == (plan["coverage"] if is_survival else 1)
    present = correct(is_survival)
    loss, accuracy = loss_and_accuracy(model, images, labels, present)
    assert abs(loss - record["loss_uncorrected"]) > 1e-4, "the corrections change nothing"
    assert [record["loss"], record["accuracy"]] == close([loss, accuracy])
    largest = model(images, present).topk(5, dim=1).indices
    assert record["accuracy_top5"] == pytest.approx((largest == labels[:, None]).any(1).double().mean().item(), abs=1e-8)
    if of_subnetworks:
        loss, accuracy = loss_and_accuracy(model, *part, present)
        assert [record[f"{key}_on_subnetwork_samples"] for key in ("loss", "accuracy")] == close([loss, accuracy])
        variances = [single * (1 - single) + accuracy * (1 - accuracy) for _, single in singles]
        errors = [(variance / len(of_subnetworks)) ** 0.5 for variance in variances]
        assert record["subnetwork_standard_error"] == close(errors)
    parts = [record[key] for key in ("assemble_s", "recalibrate_s", "evaluate_s", "subnetworks_s")]
    assert all(part > 0 for part in parts[: 4 if of_subnetworks else 3]) and sum(parts) <= record["eval_s"]

    if replicas > 1:
        all_samples = harness.sets("eval.max_samples=null")
        on_training_data = harness.run_json("eval", "--run", run_dir, "--train-data", *all_samples)
        loss, accuracy = loss_and_accuracy(model, train_images, train_labels, present)
        assert (on_training_data["loss"], on_training_data["accuracy"]) == pytest.approx((loss, accuracy), abs=1e-8)
        assert on_training_data["on_training_data"] and on_training_data["samples"] == len(train_labels)
    if mode == "full":
        check_export(tmp_path, run_dir, record, all_images[chosen], chosen, labels)


def export(run_dir, out):
    harness.run("export", "--run", run_dir, "--out", out)
    return load_file(out)


def check_export(tmp_path, run_dir, record, images, chosen, labels):
    """With recalibrated statistics and branch scale, PyTorch finds the reported loss with the exported file, read and
    given its input by the code of docs/import_export.md. `eval` writes the same logits."""
    state = export(run_dir, tmp_path / "model.safetensors")
    page = (Path(__file__).parents[2] / "docs" / "import_export.md").read_text()
    *_, narrow, _, transform = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names = {"folder": tmp_path, "json": json, "math": math, "torch": torch, "torchvision": torchvision}
    names["safetensors"] = safetensors
    exec(narrow + transform, names)
    assert "architecture" not in names["config"] and names["config"]["label_names"][3] == "cat"
    loss = lambda inputs: F.cross_entropy(names["model"](inputs), labels).item()
    assert loss(images.double()) == pytest.approx(record["loss"], rel=0, abs=1e-8)
    pixels = (images * torch.tensor(harness.STD) + torch.tensor(harness.MEAN)).mul(255).round().byte()
    pictures = map(torchvision.transforms.functional.to_pil_image, pixels)
    inputs = torch.stack([names["transform"](picture) for picture in pictures]).double()
    assert loss(inputs) == pytest.approx(record["loss"], rel=0, abs=1e-5)
    harness.run("eval", "--run", run_dir, "--logits", tmp_path / "logits.safetensors")
    written = load_file(tmp_path / "logits.safetensors")
    assert written["samples"].tolist() == list(chosen) and torch.equal(written["labels"], labels)
    assert (written["logits"] - names["model"](inputs)).abs().max() < 1e-4
    with safe_open(tmp_path / "model.safetensors", framework="pt") as file:
        metadata = file.metadata()
    assert (metadata["recalibrate_batches"], metadata["format"]) == ("4", "pt")
    assert float(metadata["branch_scale"]) == record["branch_scale"]
    if "branch_scale_trial" in record:
        # Without the run's evaluation, the branch scale is selected again, with the same result.
        (run_dir / "metrics.jsonl").unlink()
        again = export(run_dir, tmp_path / "again.safetensors")
        assert all(torch.allclose(again[name], state[name], atol=1e-10, rtol=0) for name in state)


def test_held_out_samples_take_the_place_of_a_test_set(tmp_path, data):
    """A run with data.validation_share is the run on folders that were divided by hand; and its predictions by class."""
    images, true_labels = harness.read_arrays(data / "train.safetensors")
    held_out = np.arange(len(images)) % 4 == 0
    whole, divided = tmp_path / "whole", tmp_path / "divided"
    harness.write_arrays(whole / "train.safetensors", images, true_labels, harness.CIFAR10)
    harness.write_arrays(divided / "train.safetensors", images[~held_out], true_labels[~held_out], harness.CIFAR10)
    harness.write_arrays(divided / "val.safetensors", images[held_out], true_labels[held_out], harness.CIFAR10)
    train = {"max_steps": 6, "precision": "fp32"}
    by_hand = harness.train(tmp_path, "by_hand", divided, 1, train=train)
    section = {"name": "cifar10", "path": str(whole), "validation_share": 0.25}
    run_dir = harness.train(tmp_path, "run", whole, 1, data=section, train=train)
    assert harness.trace_losses(run_dir) == harness.trace_losses(by_hand)
    assert harness.without_times(harness.last_eval(run_dir)) == harness.without_times(harness.last_eval(by_hand))

    csv_file, logits_file = tmp_path / "predictions.csv", tmp_path / "logits.safetensors"
    files = ("--predictions", csv_file, "--logits", logits_file)
    said = harness.run_json("eval", "--run", run_dir, "--per-class", *files)
    saved = load_file(logits_file)
    labels, predicted = saved["labels"], saved["logits"].argmax(1)
    assert labels.tolist() == true_labels[held_out].tolist()
    confusion = [[int(((labels == a) & (predicted == b)).sum()) for b in range(10)] for a in range(10)]
    assert said["confusion"] == confusion
    assert said["accuracy_by_class"] == [row[i] / sum(row) if sum(row) else None for i, row in enumerate(confusion)]
    rows = list(csv.DictReader(csv_file.open()))
    probabilities = saved["logits"].double().softmax(1).max(1).values
    assert [int(row["prediction"]) for row in rows] == predicted.tolist()
    assert [(int(row["sample"]), int(row["label"]), row["file"]) for row in rows] == [
        (i, label, "") for i, label in enumerate(labels.tolist())
    ]
    assert [float(row["probability"]) for row in rows] == pytest.approx(probabilities.tolist(), abs=1e-6)
    text = harness.run("eval", "--run", run_dir, "--per-class").stdout
    assert all(f"{100 * row[i] / sum(row):.2f}" in text for i, row in enumerate(confusion) if sum(row))


def test_recalibrated_statistics_are_kept_beside_the_checkpoint(tmp_path, data):
    run_dir = harness.train(tmp_path, "run", data, 1, train={"max_steps": 3}, eval={"recalibrate_batches": 2})
    loss = lambda *overrides: harness.run_json("eval", "--run", run_dir, *harness.sets(*overrides))["loss"]
    statistics = lambda: set(run_dir.glob("checkpoints/step-00000003/statistics-*"))
    (kept,) = statistics()
    original = kept.read_bytes()
    kept.unlink()
    estimated = loss()
    assert estimated == pytest.approx(harness.last_eval(run_dir)["loss"], rel=1e-12)
    a = export(run_dir, tmp_path / "a.safetensors")
    # They are read where they belong: changed ones change the loss, damaged ones are estimated again.
    save_file({name: 2 * values for name, values in load_file(kept).items()}, kept)
    assert loss() != pytest.approx(estimated, rel=1e-3)
    b = export(run_dir, tmp_path / "b.safetensors")
    assert torch.equal(b["bn1.running_var"], 2 * a["bn1.running_var"])
    loss("eval.recalibrate_batches=3")
    assert len(statistics()) == 2, "other batches, another file"
    kept.write_bytes(original[:-8])
    assert loss() == estimated


def test_recalibration_augments_as_training_does(tmp_path, data):
    losses = []
    for name, augment in (("plain", []), ("augmented", ["crop", "flip"])):
        run_dir = harness.train(
            tmp_path, name, data, 1, data={"augment": augment}, optimizer={"lr": 1e-12},  # the same weights
            train={"max_steps": 1, "precision": "fp32"}, eval={"recalibrate_batches": 3},
        )
        losses.append(harness.last_eval(run_dir)["loss"])
    assert abs(losses[0] - losses[1]) > 1e-4
