"""Data as a run sees it: gray, streamed and damaged images; `data check`. The samples of an epoch: test_resharding.py.
Data that changed: test_resume.py."""

import json
import math
import shutil
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

MLP = {"name": "mlp", "width": 4, "depth": 2, "hidden_width": 8}
NO_EVAL = {"recalibrate_batches": 0, "batch_size": 200}

FASHION = ["T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"]


@pytest.mark.parametrize("model", ["resnet18", "swin_t"])
def test_gray_images_train_evaluate_and_export(tmp_path, model):
    """One channel: torchvision's model on the exported weights has the same logits."""
    folder, rng = tmp_path / "fashion", np.random.default_rng(8)
    for name, count in (("train", 60), ("val", 30)):
        pixels, labels = rng.integers(0, 256, (count, 1, 28, 28), np.uint8), rng.integers(0, 10, count, np.uint8)
        harness.write_arrays(folder / f"{name}.safetensors", pixels, labels, FASHION)
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
    images = (torch.from_numpy(pixels) / 255 - 0.2860) / 0.3530
    with torch.no_grad():
        expected = net.eval()(images)
    assert (load_file(tmp_path / "logits.safetensors")["logits"] - expected).abs().max() < 1e-4


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
    """The exported weights in torchvision's model, on torchvision's ImageFolder and transforms. An image of each split
    is damaged, which ends training with its name, or is skipped and counted."""
    folder = write_imagenet(tmp_path / "imagenet", per_class=5, size=(90, 80))
    in_training, broken = folder / "train" / "n02102040" / "train_3.JPEG", folder / "val" / "n01443537" / "val_2.JPEG"
    for path in (in_training, broken):
        path.write_bytes(path.read_bytes()[:400])
    model = {"name": "resnet18", "stem": "imagenet", "width": 64, "num_classes": 3, "image_size": 56}
    config = imagenet_run(tmp_path, "run", folder, model=model, train={"log_every_steps": 3})
    assert str(in_training) in harness.run("--config", config, "--nproc", 1, expect=3).stderr
    result = harness.run("--config", config, "--nproc", 2, *harness.sets("data.on_error=skip", "name=skip"))
    # 15 images, 8 per step: the damaged one is drawn at least 4 times in 9 steps, and the next image replaces it.
    run_dir = tmp_path / "runs" / "skip"
    skipped = sum(line.get("skipped_samples", 0) for line in harness.records(run_dir, "train"))
    used = Counter(sample for samples in harness.samples_by_step(run_dir) for sample in samples)
    assert used[13] == 0 and sum(used.values()) == 72
    assert skipped in (4, 5) and used[14] - skipped in (4, 5)

    out, logits = tmp_path / "model.safetensors", tmp_path / "logits.safetensors"
    harness.run("export", "--run", run_dir, "--out", out)
    harness.run("eval", "--run", run_dir, "--logits", logits)
    record = harness.last_eval(run_dir)
    assert record["skipped_samples"] == 1 and all(str(path) in result.stderr for path in (in_training, broken))
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


# ---- data check ----


def check(config, expect=0):
    return harness.run_json("data", "check", "--config", config, expect=expect)


def test_data_check_of_cifar10(tmp_path, data):
    config = harness.write_config(tmp_path, "run", data)
    report, text = check(config), harness.run("data", "check", "--config", config).stdout
    for split, size in (("train", 200), ("test", 40)):
        _, labels = harness.read_cifar10(data, split)
        assert (report[split]["samples"], report[split]["problems"]) == (size, [])
        assert report[split]["images_of_class"] == torch.bincount(labels, minlength=10).tolist()
        assert report[split]["sizes"] == [{"height": 32, "width": 32, "images": size}]
    assert "train: 200 images in 10 classes, 32 x 32" in text and "no problem found" in text
    pixels = harness.read_arrays(data / "train.safetensors")[0] / 255
    measured = report["train"]["normalization"]
    assert measured["mean"] == pytest.approx(pixels.mean((0, 2, 3)), rel=1e-5)
    assert measured["std"] == pytest.approx(pixels.std((0, 2, 3)), rel=1e-5)
    assert f"data.normalization.mean=[{measured['mean'][0]:.4f}, " in text


SLOW = """
#define _GNU_SOURCE
#include <dlfcn.h>
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
#define NEXT(type, name, ...) ((type (*)(const char*, ...))dlsym(RTLD_NEXT, #name))(__VA_ARGS__)
int open(const char* path, int flags, ...) { delay(path); return NEXT(int, open, path, flags, 0644); }
int open64(const char* path, int flags, ...) { delay(path); return NEXT(int, open64, path, flags, 0644); }
void* fopen(const char* path, const char* mode) { delay(path); return NEXT(void*, fopen, path, mode); }
void* fopen64(const char* path, const char* mode) { delay(path); return NEXT(void*, fopen64, path, mode); }
void* opendir(const char* path) { delay(path); return NEXT(void*, opendir, path); }
"""


def test_what_rank_0_reads_may_take_longer_than_a_collective(tmp_path):
    """The list of images, and the files of a checkpoint that it verifies."""
    library = harness.shared_object(tmp_path, "slow", SLOW)
    folder = write_imagenet(tmp_path / "imagenet", per_class=4)
    train = {"max_steps": 2, "collective_timeout_s": 5}
    for arguments, slow in [([], "imagenet/train"), (["--resume", "--set", "train.max_steps=3"], "process-00000-of")]:
        began = time.monotonic()
        env = {"LD_PRELOAD": library, "SLOW_FILE": slow}
        harness.run("--config", imagenet_run(tmp_path, "run", folder, train=train), "--nproc", 2, *arguments, env=env)
        assert time.monotonic() - began > 8, "nothing was slow"
    assert (tmp_path / "runs" / "run" / "summary.json").exists()


def test_data_check_of_imagenet(tmp_path):
    folder = write_imagenet(tmp_path / "imagenet", per_class=4)
    gif = folder / "val" / "n02102040" / "val_0.JPEG"
    picture = Image.open(gif).copy()
    picture.save(gif, format="GIF")
    damaged = [folder / "train" / name for name in ("n01440764/train_1.JPEG", "n01443537/a.png", "n01443537/b.webp")]
    for path in damaged:
        if not path.exists():
            picture.save(path)
        path.write_bytes(path.read_bytes()[:-100] if path.suffix != ".JPEG" else path.read_bytes()[:500])
    (folder / "val").rename(folder / "test")
    report = check(imagenet_run(tmp_path, "run", folder), expect=3)
    assert [report[split]["images_of_class"] for split in ("train", "test")] == [[3, 4, 4], [4, 4, 3]]
    for path, problem in zip(damaged, report["train"]["problems"], strict=True):
        assert str(path) in problem and "cannot be decoded" in problem
    (problem,) = report["test"]["problems"]
    assert "GIF" in problem
    # Every image has the same weight, whatever its size.
    readable = [path for path in sorted((folder / "train").glob("*/*.JPEG")) if path not in damaged]
    images = [np.asarray(Image.open(path)).reshape(-1, 3) / 255 for path in readable]
    mean = np.mean([image.mean(0) for image in images], 0)
    deviation = np.sqrt(np.mean([(image**2).mean(0) for image in images], 0) - mean**2)
    np.testing.assert_allclose(report["train"]["normalization"]["mean"], mean, rtol=1e-9)
    np.testing.assert_allclose(report["train"]["normalization"]["std"], deviation, rtol=1e-9)
    sizes = {(s["width"], s["height"]): s["images"] for s in report["train"]["sizes"]}
    assert sizes == {(60, 50): 3, (63, 51): 2, (66, 52): 3, (69, 53): 3}
    # Without a test set, the key that holds data out is named.
    for path in damaged:
        path.unlink()
    shutil.rmtree(folder / "test")
    config = tmp_path / "run.yaml"
    assert "data.validation_share" in harness.run("--config", config, "--nproc", 1, expect=3).stderr
    harness.run("data", "check", "--config", config, "--set", "data.validation_share=0.25")
