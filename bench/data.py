#!/usr/bin/env python3
"""Compares the data path for ImageNet with torchvision's, on one core and the same JPEG files.

    bench/data.py [--folder FOLDER] [--rounds N] [--seconds S] [--bench build/bench/bench_data]

torchvision: ImageFolder, Pillow, RandomResizedCrop, RandomHorizontalFlip, ToTensor and Normalize, in a DataLoader
with one worker process and without any. Programs take turns, so that other load on the machine affects both; the
table has the medians of the rounds. On a busy machine, compare
images per second of processor time (of all processes). Without --folder, 256 images of 500 x 375 pixels are generated,
quality 90 and 4:2:0.
"""
import argparse
import pathlib
import resource
import statistics
import subprocess
import tempfile
import time

import numpy as np
import torch
from PIL import Image
from torch.utils.data import ConcatDataset, DataLoader
from torchvision import transforms
from torchvision.datasets import ImageFolder

ROOT = pathlib.Path(__file__).resolve().parent.parent
BATCH = 64


def make_images(folder, count=256):
    """Noise of several scales on top of each other, each with the contrast of photographs."""
    random = np.random.default_rng(0)
    (folder / "class").mkdir()
    for number in range(count):
        image = np.zeros((375, 500, 3))
        for octave in range(8):
            size = (500 * 2**octave // 256 + 1, 375 * 2**octave // 256 + 1)
            noise = random.normal(0, 1, (size[1], size[0], 3)).astype(np.float32)
            layers = [np.asarray(Image.fromarray(noise[:, :, c]).resize((500, 375), Image.BICUBIC)) for c in range(3)]
            image += 30 * 0.78**octave * np.stack(layers, 2)
        pixels = (128 + image).clip(0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(folder / "class" / f"{number:04d}.jpg", quality=90, subsampling=2)


def processor_s():
    times = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(t.ru_utime + t.ru_stime for t in times)


def run_torchvision(dataset, workers):
    """Images per second of processor time and of wall-clock time, over enough images to hide the worker's start."""
    dataset = ConcatDataset([dataset] * (1000 // len(dataset) + 1))
    loader = DataLoader(dataset, batch_size=BATCH, shuffle=True, num_workers=workers)
    start, processor_start = time.perf_counter(), processor_s()
    for _ in loader:
        pass
    del loader  # waits for the worker, whose processor time is known only then
    return len(dataset) / (processor_s() - processor_start), len(dataset) / (time.perf_counter() - start)


def run_ours(program, folder, seconds):
    lines = subprocess.run(
        [program, "jpeg", folder, str(seconds)], check=True, stdout=subprocess.PIPE, text=True
    ).stdout.splitlines()
    results = {}
    for line in lines:
        name, processor, wall = line.rsplit(maxsplit=2)
        results[name.strip()] = float(processor), float(wall)
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=pathlib.Path, help="folder of class folders of JPEGs")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2, help="duration of each measurement of bench_data")
    parser.add_argument("--bench", type=pathlib.Path, default=ROOT / "build" / "bench" / "bench_data")
    arguments = parser.parse_args()
    torch.set_num_threads(1)

    with tempfile.TemporaryDirectory() as name:
        folder = arguments.folder or pathlib.Path(name)
        if not arguments.folder:
            make_images(folder)
        steps = [
            transforms.RandomResizedCrop(224),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
        ]
        dataset = ImageFolder(folder, transforms.Compose(steps))
        results = {}
        for _ in range(arguments.rounds):
            rates = run_ours(arguments.bench, folder, arguments.seconds)
            rates["torchvision, DataLoader"] = run_torchvision(dataset, 1)
            rates["torchvision, no worker"] = run_torchvision(dataset, 0)
            for what, rate in rates.items():
                results.setdefault(what, []).append(rate)

    medians = {what: [statistics.median(rates) for rates in zip(*runs)] for what, runs in results.items()}
    print(f"{len(dataset)} images, medians of {arguments.rounds} rounds")
    print(f"{'images/s':<28}{'processor time':>16}{'wall-clock':>14}")
    for what, (processor, wall) in medians.items():
        print(f"{what:<28}{processor:>16.0f}{wall:>14.0f}")

    def ratio(of, to):
        return statistics.median(a[0] / b[0] for a, b in zip(results[of], results[to]))

    print("\nratios of processor time, medians of pairs")
    for of, to in (
        ("train", "torchvision, DataLoader"),
        ("train, scaled decoding", "torchvision, DataLoader"),
        ("train", "torchvision, no worker"),
        ("decode", "bare decode"),
    ):
        print(f"{of} / {to}: {ratio(of, to):.2f}")


if __name__ == "__main__":
    main()
