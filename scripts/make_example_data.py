#!/usr/bin/env python3
"""Makes a small sample of CIFAR-10 as tar shards; without options, the one in examples/data.

    make_example_data.py CIFAR_DIR DEST [--train-per-class N] [--test-per-class N] [--quality Q]

CIFAR_DIR holds train.safetensors and val.safetensors (scripts/fetch_data). DEST gets train-000000.tar, ... and
test-000000.tar, ...: the first training and test images of every class, in the official order, as JPEG members
CLASS/INDEX.jpg. Needs numpy, safetensors and Pillow. The same input, options and libraries give the same bytes.
"""
import argparse
import io
import pathlib
import tarfile

import numpy as np
from PIL import Image
from safetensors.numpy import load_file

CLASSES = 10
IMAGES_PER_SHARD = 2500


def first_of_each_class(labels, per_class):
    """Indices of the first `per_class` images of every class, ascending."""
    chosen = [np.flatnonzero(labels == label)[:per_class] for label in range(CLASSES)]
    if any(len(indices) < per_class for indices in chosen):
        raise SystemExit(f"the data set has fewer than {per_class} images for some class")
    return np.sort(np.concatenate(chosen))


def encode(image, quality):
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "JPEG", quality=quality, subsampling="4:2:0", optimize=True)
    return buffer.getvalue()


def write_shards(dest, prefix, labels, images, indices, quality):
    for shard, begin in enumerate(range(0, len(indices), IMAGES_PER_SHARD)):
        path = dest / f"{prefix}-{shard:06d}.tar"
        with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
            for index in indices[begin : begin + IMAGES_PER_SHARD]:
                jpeg = encode(images[index], quality)
                member = tarfile.TarInfo(f"{labels[index]}/{index:05d}.jpg")
                member.size = len(jpeg)
                tar.addfile(member, io.BytesIO(jpeg))
        print(f"{path}: {path.stat().st_size} bytes")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cifar_dir", type=pathlib.Path, help="folder of CIFAR-10's arrays")
    parser.add_argument("dest", type=pathlib.Path, help="folder for the shards")
    parser.add_argument("--train-per-class", type=int, default=500, metavar="N", help="training images per class (500)")
    parser.add_argument("--test-per-class", type=int, default=100, metavar="N", help="test images per class (100)")
    # At quality 40, nine images in ten fit into 512 bytes, tar's block size.
    parser.add_argument("--quality", type=int, default=40, metavar="Q", help="JPEG quality, 1 to 95 (40)")
    arguments = parser.parse_args()
    arguments.dest.mkdir(parents=True, exist_ok=True)
    per_class = {"train": arguments.train_per_class, "test": arguments.test_per_class}
    for prefix, name in (("train", "train.safetensors"), ("test", "val.safetensors")):
        arrays = load_file(arguments.cifar_dir / name)
        indices = first_of_each_class(arrays["labels"], per_class[prefix])
        write_shards(arguments.dest, prefix, arrays["labels"], arrays["images"], indices, arguments.quality)


if __name__ == "__main__":
    main()
