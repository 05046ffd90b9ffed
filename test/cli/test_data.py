"""Data as a run sees it: every sample of an epoch exactly once, for any number of processes and across a resume; images
kept on the device; damaged images; `data check`."""

import io
import json
import math
import shutil
import subprocess
import tarfile
import time
from collections import Counter

import numpy as np
import pytest
import torch
import torchvision
from PIL import Image
from safetensors.torch import load_file

import harness
from library_models import library_model
from small_models import VOCABULARY, write_tokens

MLP = {"name": "mlp", "width": 4, "depth": 2, "hidden_width": 8}
LLAMA = {"name": "llama_tiny", "width": 16, "depth": 2, "hidden_width": 16, "heads": 4, "vocab_size": VOCABULARY}
NO_EVAL = {"recalibrate_batches": 0, "batch_size": 200}


def used_samples(run_dir):
    """Samples of all workers, by step."""
    steps = {}
    for (step, _, _), samples in harness.trace_samples(run_dir).items():
        steps.setdefault(step, []).extend(samples)
    return [steps[step] for step in sorted(steps)]


def check_exactly_once(steps, size):
    """Epochs are consecutive: after every step, each sample was used as often as any other, or once more."""
    uses = Counter()
    for samples in steps:
        uses.update(samples)
        total = sum(uses.values())
        counts = [uses[i] for i in range(size)]
        assert set(uses) <= set(range(size))
        assert max(counts) == -(-total // size) and min(counts) == total // size, "a sample before its turn"
    return uses


# 200 training images and 30 or 72 samples per step: the first epoch ends within a step. Others: test/data/test_sampler.cpp.
GEOMETRIES = {
    "n=3": ({"workers": 3, "coverage": "2/3"}, {"batch_size_per_worker": 10}, 3, 1),
    "n=4, two replicas, accumulated": ({"workers": 4, "replicas": 2}, {"batch_size_per_worker": 3, "accumulate_steps": 3}, 2, 4),
}


@pytest.mark.parametrize("case", GEOMETRIES)
def test_every_image_of_an_epoch_is_used_exactly_once(tmp_path, data, case):
    subnetwork, batch, processes, resumed_with = GEOMETRIES[case]
    sections = {
        "model": MLP,
        "subnetwork": subnetwork,
        "train": {"epochs": 3, "max_steps": None, "precision": "fp32"} | batch,
        "checkpoint": {"at_start": False, "every_steps": 4, "keep_last": 100},
        "eval": NO_EVAL,
    }
    whole = harness.train(tmp_path, "whole", data, 1, **sections)
    steps = used_samples(whole)
    uses = check_exactly_once(steps, 200)
    per_step = len(steps[0])
    assert 200 % per_step != 0 and sum(uses.values()) == round(600 / per_step) * per_step

    # Stopped in the middle of an epoch and resumed with a different number of processes.
    cut = tmp_path / "runs" / "cut"
    config = harness.write_config(tmp_path, "cut", data, **sections)
    harness.run("--config", config, "--nproc", processes, "--set", "train.max_steps=4")
    assert 4 * per_step % 200 != 0
    harness.run("--config", config, "--nproc", resumed_with, "--resume")
    assert used_samples(cut) == steps


@pytest.mark.parametrize("cut_at", [None, 7])
def test_every_window_of_tokens_is_used_exactly_once(tmp_path, tmp_path_factory, cut_at):
    tokens = write_tokens(tmp_path_factory.mktemp("tokens"))
    sections = {
        "model": LLAMA,
        "data": {"name": "tokens", "sequence_length": 48},
        "subnetwork": {"workers": 3, "coverage": "2/3"},
        "train": {"epochs": 2, "max_steps": None, "batch_size_per_worker": 2, "precision": "fp32"},
        "checkpoint": {"at_start": False, "every_steps": 7, "keep_last": 100},
        "eval": {"batch_size": 64},
    }
    sections["data"]["augment"] = []
    config = harness.write_config(tmp_path, "run", tokens, **sections)
    if cut_at:
        harness.run("--config", config, "--nproc", 3, "--set", f"train.max_steps={cut_at}")
    harness.run("--config", config, "--nproc", 1, "--resume" if cut_at else "--resume=if-any")
    # By hand: windows of 48 + 1 tokens in each shard; neighbors share one token.
    size = sum((np.fromfile(file, np.uint16).size - 512 - 1) // 48 for file in sorted(tokens.glob("*train*.bin")))
    uses = check_exactly_once(used_samples(tmp_path / "runs" / "run"), size)
    assert len(uses) == size


def test_images_on_the_device_train_to_the_same_weights(tmp_path, data):
    hashes = []
    for location in ("host", "device"):
        run_dir = harness.train(
            tmp_path, location, data, 2, model=MLP, train={"precision": "fp32"}, eval=NO_EVAL,
            data={"location": location, "augment": ["crop", "flip"], "mixup_alpha": 0.8, "cutmix_alpha": 1.0},
        )
        out = run_dir / "model.safetensors"
        harness.run("export", "--run", run_dir, "--out", out)
        evaluation = harness.without_times(harness.last_eval(run_dir))
        hashes.append((harness.sha256(out), harness.trace_losses(run_dir), evaluation))
    assert hashes[0] == hashes[1]


FASHION = ["T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"]


def write_fashion(folder):
    """Random images."""
    rng = np.random.default_rng(8)
    for name, count in (("train", 60), ("val", 30)):
        labels, images = rng.integers(0, 10, count, np.uint8), rng.integers(0, 256, (count, 1, 28, 28), np.uint8)
        harness.write_arrays(folder / f"{name}.safetensors", images, labels, FASHION)
    return folder


@pytest.mark.parametrize("model", ["resnet18", "swin_t"])
def test_gray_images_train_evaluate_and_export(tmp_path, model):
    """One channel: torchvision's model on the exported weights has the same logits."""
    folder = write_fashion(tmp_path / "fashion")
    sizes = {"resnet18": {"width": 4}, "swin_t": {"width": 8, "depths": [1, 2], "num_heads": [2, 1], "patch_size": 2, "window_size": 4}}
    section = {"name": model, "image_size": 28, "image_channels": 1} | sizes[model]
    run_dir = harness.train(
        tmp_path, "run", folder, 1, model=section,
        data={"name": "fashion_mnist", "augment": ["crop", "flip"]}, train={"max_steps": 3, "precision": "fp32"}, eval=NO_EVAL,
    )
    harness.run("eval", "--run", run_dir, "--logits", tmp_path / "logits.safetensors")
    harness.run("export", "--run", run_dir, "--out", tmp_path / "model.safetensors")
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["model_args"] == {"in_chans": 1} and config["pretrained_cfg"]["input_size"] == [1, 28, 28]
    assert config["label_names"][9] == "Ankle boot"
    net = library_model(section).net
    net.load_state_dict(load_file(tmp_path / "model.safetensors"))
    pixels, _ = harness.read_arrays(folder / "val.safetensors")
    images = (torch.from_numpy(pixels) / 255 - 0.2860) / 0.3530
    with torch.no_grad():
        expected = net.eval()(images)
    assert (load_file(tmp_path / "logits.safetensors")["logits"] - expected).abs().max() < 1e-4


def test_the_wait_for_data_is_measured_and_warned_of(tmp_path):
    folder = write_imagenet(tmp_path / "imagenet", per_class=3, size=(1000, 750))
    slow = imagenet_run(
        tmp_path, "slow", folder, train={"max_steps": 12, "log_every_steps": 4}, data={"scaled_decoding": False}
    )
    result = harness.run("--config", slow, "--nproc", 1)
    lines = [x for x in harness.json_lines(tmp_path / "runs" / "slow" / "metrics.jsonl") if x["kind"] == "train"]
    waits = [line["data_wait_ms"] / line["step_ms"] for line in lines]
    assert len(waits) == 3 and all(0 < wait < 1.01 for wait in waits), waits
    # How long a step waits depends on the machine. The warning follows from it, once, and never from the first batch.
    assert result.stderr.count("the data is the bottleneck") == any(wait >= 0.2 for wait in waits[1:]), waits


def test_other_data_is_refused_or_told_of_at_a_resume(tmp_path, data):
    copy = tmp_path / "copy"
    shutil.copytree(data, copy)
    config = harness.write_config(
        tmp_path, "run", copy, model=MLP, eval=NO_EVAL, checkpoint={"every_steps": 5}, train={"precision": "fp32"}
    )
    harness.run("--config", config, "--nproc", 1, "--set", "train.max_steps=5")
    images, labels = harness.read_arrays(copy / "train.safetensors")
    images[83, 0, 0, 5] ^= 1
    harness.write_arrays(copy / "train.safetensors", images, labels, harness.CIFAR10)
    result = harness.run("--config", config, "--nproc", 1, "--resume", "--set", "train.max_steps=7")
    assert "the training data has changed" in result.stderr
    harness.write_arrays(copy / "train.safetensors", images[:-1], labels[:-1], harness.CIFAR10)
    message = harness.run("--config", config, "--nproc", 1, "--resume", expect=3).stderr
    assert "has 199 samples, but had 200" in message


# ---- ImageNet ----


def write_imagenet(folder, per_class, size=(60, 50)):
    """Class folders of noisy JPEGs around a color of each class."""
    rng = np.random.default_rng(5)
    for split in ("train", "val"):
        for label, name in enumerate(["n01440764", "n01443537", "n02102040"]):
            (folder / split / name).mkdir(parents=True)
            for i in range(per_class):
                width, height = size[0] + 3 * i, size[1] + i
                pixels = rng.normal(60 + 70 * label, 25, (height, width, 3)).clip(0, 255).astype(np.uint8)
                Image.fromarray(pixels).save(folder / split / name / f"{split}_{i}.JPEG", quality=90)
    return folder


def imagenet_run(tmp_path, name, folder, **sections):
    sections["data"] = {"name": "imagenet", "augment": ["resized_crop", "flip"]} | sections.get("data", {})
    sections["train"] = {"max_steps": 9, "precision": "fp32", "batch_size_per_worker": 2} | sections.get("train", {})
    small = {"model": MLP | {"num_classes": 3, "image_size": 32}, "eval": NO_EVAL}
    return harness.write_config(tmp_path, name, folder, **(small | sections))


def test_imagenet_is_evaluated_as_torchvision_would(tmp_path):
    """The exported weights in torchvision's model, on torchvision's ImageFolder and transforms. One image is damaged."""
    folder = write_imagenet(tmp_path / "imagenet", per_class=5, size=(90, 80))
    broken = folder / "val" / "n01443537" / "val_2.JPEG"
    broken.write_bytes(broken.read_bytes()[:400])
    config = imagenet_run(
        tmp_path, "run", folder,
        model={"name": "resnet18", "stem": "imagenet", "width": 64, "num_classes": 3, "image_size": 56},
        train={"max_steps": 2}, data={"on_error": "skip"}, eval=NO_EVAL,
    )
    result = harness.run("--config", config, "--nproc", 2)
    run_dir = tmp_path / "runs" / "run"
    out, logits = tmp_path / "model.safetensors", tmp_path / "logits.safetensors"
    harness.run("export", "--run", run_dir, "--out", out)
    harness.run("eval", "--run", run_dir, "--logits", logits)
    record = harness.last_eval(run_dir)
    assert record["skipped_samples"] == 1 and f"skipped: {broken}" in result.stderr
    broken.unlink()

    transform = torchvision.transforms.Compose([
        torchvision.transforms.Resize(64), torchvision.transforms.CenterCrop(56), torchvision.transforms.ToTensor(),
        torchvision.transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    ])
    images, labels = zip(*torchvision.datasets.ImageFolder(folder / "val", transform))
    model = torchvision.models.resnet18(num_classes=3)
    model.load_state_dict(load_file(out))
    config = json.loads((tmp_path / "config.json").read_text())
    cfg = config["pretrained_cfg"]
    assert (config["architecture"], config["num_classes"], cfg["input_size"]) == ("resnet18", 3, [3, 56, 56])
    assert config["label_names"] == ["n01440764", "n01443537", "n02102040"]
    assert (cfg["mean"], cfg["std"]) == ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
    assert math.floor(56 / cfg["crop_pct"]) == 64 and cfg["interpolation"] == "bilinear"
    with torch.no_grad():
        expected, labels = model.eval()(torch.stack(images)), torch.tensor(labels)
    ours = load_file(logits)
    assert torch.equal(ours["labels"], labels)
    assert (ours["logits"] - expected).abs().max() < 0.02 * expected.abs().max()
    assert record["loss"] == pytest.approx(torch.nn.functional.cross_entropy(expected, labels).item(), rel=0.02)
    assert record["accuracy"] == pytest.approx((ours["logits"].argmax(1) == labels).float().mean().item())


def test_a_damaged_image_ends_training_with_its_name_or_is_skipped_and_counted(tmp_path):
    folder = write_imagenet(tmp_path / "imagenet", per_class=5)
    broken = folder / "train" / "n02102040" / "train_3.JPEG"
    broken.write_bytes(broken.read_bytes()[:300])
    message = harness.run("--config", imagenet_run(tmp_path, "error", folder), "--nproc", 1, expect=3).stderr
    assert str(broken) in message

    # 15 images, 8 per step: the damaged one is drawn at least 4 times in 9 steps, and the next image replaces it.
    skipping = imagenet_run(tmp_path, "skip", folder, data={"on_error": "skip"}, train={"log_every_steps": 3})
    result = harness.run("--config", skipping, "--nproc", 2)
    assert result.stderr.count(str(broken)) >= 1
    run_dir = tmp_path / "runs" / "skip"
    skipped = sum(x.get("skipped_samples", 0) for x in harness.json_lines(run_dir / "metrics.jsonl") if x["kind"] == "train")
    used = Counter(sample for samples in used_samples(run_dir) for sample in samples)
    assert used[13] == 0 and sum(used.values()) == 72
    assert skipped in (4, 5) and used[14] - skipped in (4, 5)


# ---- data check ----


def check(config, expect=0):
    result = harness.run("data", "check", "--config", config, "--json", expect=expect)
    return json.loads(result.stdout), result.stderr


def test_data_check_of_cifar10(tmp_path, data):
    config = harness.write_config(tmp_path, "run", data)
    report, _ = check(config)
    for split, size in (("train", 200), ("test", 40)):
        _, labels = harness.read_cifar10(data, split)
        assert report[split]["samples"] == size
        assert report[split]["images_of_class"] == torch.bincount(labels, minlength=10).tolist()
        assert report[split]["sizes"] == [{"height": 32, "width": 32, "images": size}]
        assert report[split]["problems"] == []
    text = harness.run("data", "check", "--config", config).stdout
    assert "train: 200 images in 10 classes, 32 x 32" in text and "no problem found" in text

    # Mean and deviation of the pixels, which a run then uses.
    normalized, _ = harness.read_cifar10(data, "train")
    used = torch.tensor([[0.4914, 0.4822, 0.4465], [0.2470, 0.2435, 0.2616]]).view(2, 1, 3, 1, 1)
    pixels = (normalized * used[1] + used[0]).double()
    measured = report["train"]["normalization"]
    torch.testing.assert_close(torch.tensor(measured["mean"]).double(), pixels.mean((0, 2, 3)), rtol=1e-5, atol=0)
    torch.testing.assert_close(torch.tensor(measured["std"]).double(), pixels.std((0, 2, 3), correction=0), rtol=1e-5, atol=0)
    assert f"data.normalization.mean=[{measured['mean'][0]:.4f}, " in text
    run_dir = harness.train(
        tmp_path, "normalized", data, 1, model=MLP, data={"normalization": measured}, train={"max_steps": 1}, eval=NO_EVAL
    )
    harness.run("eval", "--run", run_dir, "--logits", tmp_path / "logits.safetensors")
    harness.run("export", "--run", run_dir, "--out", tmp_path / "out" / "model.safetensors")
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert {key: config["pretrained_cfg"][key] for key in ("mean", "std")} == measured
    state = load_file(tmp_path / "out" / "model.safetensors")
    normalized, _ = harness.read_cifar10(data, "test")
    mean, std = (torch.tensor(measured[key]).view(1, 3, 1, 1) for key in ("mean", "std"))
    x = ((normalized * used[1] + used[0] - mean) / std).flatten(1).double()
    x = torch.nn.functional.linear(x, state["stem.weight"], state["stem.bias"])
    for block in ("blocks.0.", "blocks.1."):
        norm = torch.nn.functional.layer_norm(x, (4,), state[block + "norm.weight"], state[block + "norm.bias"])
        hidden = torch.nn.functional.linear(norm, state[block + "mlp.0.weight"], state[block + "mlp.0.bias"]).relu()
        x = x + torch.nn.functional.linear(hidden, state[block + "mlp.3.weight"], state[block + "mlp.3.bias"])
    logits = torch.nn.functional.linear(x, state["head.weight"], state["head.bias"])
    torch.testing.assert_close(load_file(tmp_path / "logits.safetensors")["logits"].double(), logits, rtol=0, atol=1e-4)


def test_data_check_names_every_wrong_label(tmp_path, data):
    folder = tmp_path / "damaged"
    shutil.copytree(data, folder)
    images, labels = harness.read_arrays(folder / "train.safetensors")
    labels[45], labels[49] = 10, 200
    harness.write_arrays(folder / "train.safetensors", images, labels, harness.CIFAR10)
    (folder / "val.safetensors").write_bytes((folder / "val.safetensors").read_bytes()[:-100])
    config = harness.write_config(tmp_path, "run", folder)
    report, message = check(config, expect=3)
    first, second = report["train"]["problems"]
    assert "label 10 of image 45" in first and "label 200 of image 49" in second and "train.safetensors" in first
    assert report["train"]["samples"] == 198
    assert len(report["test"]["problems"]) == 1 and "val.safetensors" in report["test"]["problems"][0]
    assert "3 problems" in message


SLOW = """
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static void delay(const char* path) {
  static int delayed = 0;
  const char* const rank = getenv("RANK");
  if (!delayed && rank && strcmp(rank, "0") == 0 && strstr(path, getenv("SLOW_FILE"))) {
    delayed = 1;
    sleep(8);
  }
}
#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define MODE(name) va_list list; va_start(list, flags); const int name = va_arg(list, int); va_end(list)
int open(const char* path, int flags, ...) { MODE(mode); delay(path); return NEXT(open)(path, flags, mode); }
int open64(const char* path, int flags, ...) { MODE(mode); delay(path); return NEXT(open64)(path, flags, mode); }
int openat(int at, const char* path, int flags, ...) { MODE(mode); delay(path); return NEXT(openat)(at, path, flags, mode); }
FILE* fopen(const char* path, const char* mode) { delay(path); return NEXT(fopen)(path, mode); }
FILE* fopen64(const char* path, const char* mode) { delay(path); return NEXT(fopen64)(path, mode); }
DIR* opendir(const char* path) { delay(path); return NEXT(opendir)(path); }
"""


def test_what_rank_0_reads_may_take_longer_than_a_collective(tmp_path):
    """The list of images, and the files of a checkpoint that it verifies."""
    library = tmp_path / "slow.so"
    (tmp_path / "slow.c").write_text(SLOW)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, tmp_path / "slow.c"], check=True)
    folder = write_imagenet(tmp_path / "imagenet", per_class=4)
    train = {"max_steps": 2, "collective_timeout_s": 5}
    for arguments, slow in [([], "imagenet/train"), (["--resume", "--set", "train.max_steps=3"], "process-00000-of")]:
        began = time.monotonic()
        env = {"LD_PRELOAD": str(library), "SLOW_FILE": slow}
        harness.run("--config", imagenet_run(tmp_path, "run", folder, train=train), "--nproc", 2, *arguments, env=env)
        assert time.monotonic() - began > 8, "nothing was slow"
    assert (tmp_path / "runs" / "run" / "summary.json").exists()


def test_data_check_of_imagenet(tmp_path):
    folder = write_imagenet(tmp_path / "imagenet", per_class=4)
    truncated = folder / "train" / "n01440764" / "train_1.JPEG"
    truncated.write_bytes(truncated.read_bytes()[:500])
    gif = folder / "val" / "n02102040" / "val_0.JPEG"
    buffer = io.BytesIO()
    Image.open(gif).save(buffer, format="GIF")
    gif.write_bytes(buffer.getvalue())
    damaged = [folder / "train" / "n01443537" / name for name in ("a.png", "b.webp")]
    for path in damaged:
        Image.open(folder / "train" / "n01443537" / "train_0.JPEG").save(path)
        path.write_bytes(path.read_bytes()[:-100])
    (folder / "val").rename(folder / "test")
    report, _ = check(imagenet_run(tmp_path, "run", folder), expect=3)
    assert report["train"]["images_of_class"] == [3, 4, 4]
    assert report["test"]["images_of_class"] == [4, 4, 3]
    assert len(report["train"]["problems"]) == 3
    for path, problem in zip([truncated, *damaged], report["train"]["problems"]):
        assert str(path) in problem and "cannot be decoded" in problem
    assert len(report["test"]["problems"]) == 1 and "GIF" in report["test"]["problems"][0]
    # Every image has the same weight, whatever its size.
    readable = [path for path in sorted((folder / "train").glob("*/*.JPEG")) if path != truncated]
    images = [np.asarray(Image.open(path)).reshape(-1, 3) / 255 for path in readable]
    mean = np.mean([image.mean(0) for image in images], 0)
    deviation = np.sqrt(np.mean([(image**2).mean(0) for image in images], 0) - mean**2)
    np.testing.assert_allclose(report["train"]["normalization"]["mean"], mean, rtol=1e-9)
    np.testing.assert_allclose(report["train"]["normalization"]["std"], deviation, rtol=1e-9)
    sizes = {(s["width"], s["height"]): s["images"] for s in report["train"]["sizes"]}
    assert sizes == {(60, 50): 3, (63, 51): 2, (66, 52): 3, (69, 53): 3}


def test_data_check_of_shards_of_png_and_webp(tmp_path):
    rng = np.random.default_rng(8)
    means = []
    for split in ("train", "val"):
        with tarfile.open(tmp_path / f"{split}.tar", "w") as tar:
            for i, kind in enumerate(["png", "webp", "PNG", "jpeg"] + ["bmp"] * (40 if split == "val" else 0)):
                image = Image.fromarray(rng.integers(0, 255, (40, 44, 3), dtype=np.uint8))
                buffer = io.BytesIO()
                image.save(buffer, format=kind.upper(), **({"lossless": True} if kind == "webp" else {}))
                if split == "train":
                    means.append(np.asarray(Image.open(buffer).convert("RGB")).reshape(-1, 3).mean(0) / 255)
                for name, content in [(f"image{i}.{kind}", buffer.getvalue()), (f"image{i}.cls", b"%d" % (i % 3))]:
                    member = tarfile.TarInfo(name)
                    member.size = len(content)
                    tar.addfile(member, io.BytesIO(content))
    config = imagenet_run(tmp_path, "run", tmp_path)
    report, _ = check(config, expect=3)
    assert report["train"]["problems"] == [] and report["train"]["samples"] == 4
    np.testing.assert_allclose(report["train"]["normalization"]["mean"], np.mean(means, 0), rtol=1e-9)
    # All problems are in the JSON; the text has three of a kind and the number of the others.
    assert len(report["test"]["problems"]) == 40
    lines = [line for line in harness.run("data", "check", "--config", config, expect=3).stdout.splitlines() if "problem" in line]
    assert len(lines) == 4 and all(f"image{i}.bmp" in lines[i - 4] for i in (4, 5, 6)) and " 37 " in lines[3]


def test_data_check_of_tokens(tmp_path):
    tokens = write_tokens(tmp_path / "tokens")
    config = harness.write_config(
        tmp_path, "run", tokens, model=LLAMA, data={"name": "tokens", "sequence_length": 48, "augment": []}
    )
    report, _ = check(config)
    for split, pattern in (("train", "*train*.bin"), ("test", "*val*.bin")):
        for shard, file in zip(report[split]["shards"], sorted(tokens.glob(pattern)), strict=True):
            values = np.fromfile(file, np.uint16)[512:]
            assert (shard["tokens"], shard["smallest"], shard["largest"]) == (values.size, values.min(), values.max())
    file = sorted(tokens.glob("*train*.bin"))[0]
    blob = bytearray(file.read_bytes())
    blob[1024 + 2 * 77 : 1024 + 2 * 78] = (VOCABULARY + 5).to_bytes(2, "little")
    file.write_bytes(blob)
    report, _ = check(config, expect=3)
    (problem,) = report["train"]["problems"]
    assert str(file) in problem and "77" in problem and str(VOCABULARY + 5) in problem


def test_a_vocabulary_larger_than_that_of_the_tokens_is_told(tmp_path):
    folder = write_tokens(tmp_path / "tokens")
    largest = int(np.fromfile(folder / "toy_train_000000.bin", np.uint16)[512:].max())

    def config(vocab_size):
        model = LLAMA | {"vocab_size": vocab_size}
        data = {"name": "tokens", "sequence_length": 48, "augment": []}
        train = {"max_steps": 1, "precision": "fp32"}
        return harness.write_config(tmp_path, f"run{vocab_size}", folder, model=model, data=data, train=train)

    # Without the tokenizer's size, the largest token that was read counts.
    report, _ = check(config(5000))
    assert f"model.vocab_size: {largest + 1}" in report["train"]["note"] and "note" not in report["test"]
    assert "note" not in check(config(VOCABULARY))[0]["train"]

    settings = {"end_of_text": 0, "vocab_size": 3000}
    (folder / "toy.state.json").write_text(json.dumps({"settings": settings}))
    report, _ = check(config(5000))
    assert "model.vocab_size: 3000" in report["train"]["note"]
    assert "note" not in check(config(3072))[0]["train"], "a multiple of 128 is usual"
    assert "model.vocab_size: 3000" in harness.run("--config", config(5000), "--nproc", 1).stderr
    assert "vocab_size: 3000" not in harness.run("--config", config(3072), "--nproc", 1).stderr


def test_data_check_of_nothing(tmp_path):
    folder = tmp_path / "empty"
    folder.mkdir()
    report, message = check(harness.write_config(tmp_path, "run", folder), expect=3)
    assert report["train"]["samples"] == 0 and "fetch_data cifar10" in report["train"]["problems"][0]
    assert "2 problems" in message


# ---- links and names ----


def link_class(folder):
    return "n01440765", folder / "gone"


def link_image(folder):
    return "n01440764/more.png", folder / "gone.png"


def link_itself(folder):
    return "n02102041", "n02102041"


def link_upwards(folder):
    return "n01443537/all", ".."


def link_the_set(folder):
    return "n03", "."


@pytest.mark.parametrize("link", [link_class, link_image, link_itself, link_upwards, link_the_set])
def test_a_link_that_leads_nowhere_is_no_missing_class(tmp_path, link):
    folder = write_imagenet(tmp_path / "imagenet", per_class=1)
    place, target = link(folder)
    (folder / "train" / place).symlink_to(target)
    found = harness.run("data", "check", "--config", imagenet_run(tmp_path, "run", folder), "--json", expect=3)
    assert any(place in line and "link" in line for line in (found.stdout + found.stderr).splitlines())
    # Links to classes and images elsewhere are read.
    (folder / "train" / place).unlink()
    (folder / "train" / "n02102040").rename(folder / "elsewhere")
    (folder / "train" / "n02102040").symlink_to(folder / "elsewhere")
    (folder / "train" / "n01440764" / "linked.JPEG").symlink_to(folder / "val" / "n01440764" / "val_0.JPEG")
    report, _ = check(imagenet_run(tmp_path, "run", folder))
    assert report["train"]["images_of_class"] == [2, 1, 1]


def test_names_of_classes_are_told_whatever_is_in_them(tmp_path):
    folder = write_imagenet(tmp_path / "imagenet", per_class=2)
    names = [" ", "a cat", "line\nbreak", "tab\tulator"]
    for name in names:
        for split in ("train", "val"):
            shutil.copytree(folder / split / "n01440764", folder / split / name)
    (folder / "train" / "a cat" / " .JPEG").write_bytes((folder / "train" / "a cat" / "train_0.JPEG").read_bytes())
    classes = sorted(names + ["n01440764", "n01443537", "n02102040"])
    config = imagenet_run(tmp_path, "run", folder, model={"num_classes": 7})
    report, _ = check(config)
    assert report["train"]["classes"] == classes
    assert report["train"]["images_of_class"] == [3 if name == "a cat" else 2 for name in classes]
    lines = harness.run("data", "check", "--config", config).stdout.splitlines()
    table = lines[next(i for i, line in enumerate(lines) if "label" in line) + 2 :][:7]
    assert [line.split()[:2] for line in table] == [[str(i), "3" if name == "a cat" else "2"] for i, name in enumerate(classes)]
    assert all(name in table[label] for label, name in enumerate(classes) if name.isprintable())
    shutil.rmtree(folder / "val" / "line\nbreak")
    shutil.rmtree(folder / "val" / " ")
    report, _ = check(config, expect=3)
    assert any('" ", "line\\nbreak"' in problem for problem in report["test"]["problems"])


def without_val_folders(tmp_path):
    folder = write_imagenet(tmp_path / "imagenet", per_class=4)
    shutil.rmtree(folder / "val")
    return imagenet_run(tmp_path, "run", folder)


def without_val_tokens(tmp_path):
    tokens = write_tokens(tmp_path / "tokens")
    (tokens / "toy_val_000000.bin").unlink()
    return harness.write_config(
        tmp_path, "run", tokens, model=LLAMA, data={"name": "tokens", "sequence_length": 48, "augment": []}
    )


def without_val_shards(tmp_path):
    folder = write_imagenet(tmp_path / "imagenet", per_class=4)
    (tmp_path / "shards").mkdir()
    with tarfile.open(tmp_path / "shards" / "a_train.tar", "w") as tar:
        for label, path in enumerate(sorted((folder / "train").glob("*/train_0.JPEG"))):
            tar.add(path, f"{label}/{label}.jpg")
    return imagenet_run(tmp_path, "run", tmp_path / "shards")


@pytest.mark.parametrize("without_val", [without_val_folders, without_val_tokens, without_val_shards])
def test_without_a_test_set_the_key_that_holds_data_out_is_named(tmp_path, without_val):
    config = without_val(tmp_path)
    assert "data.validation_share" in harness.run("--config", config, "--nproc", 1, expect=3).stderr
    harness.run("data", "check", "--config", config, "--set", "data.validation_share=0.25")
