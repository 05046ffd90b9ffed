#!/usr/bin/env python3
"""Make the small CIFAR-10 sample of examples/data from the official binary version.

    make_example_data.py CIFAR_DIR DEST

CIFAR_DIR holds data_batch_1.bin to data_batch_5.bin and test_batch.bin. DEST gets train-000000.tar,
train-000001.tar and test-000000.tar: the first 500 training and 100 test images of every class, in the official
order, as JPEG members CLASS/INDEX.jpg. Needs numpy and Pillow. Same input and libraries, same bytes.
"""
import argparse
import io
import pathlib
import tarfile

import numpy as np
from PIL import Image

CLASSES = 10
TRAIN_FILES = [f"data_batch_{i}.bin" for i in range(1, 6)]
TEST_FILES = ["test_batch.bin"]
TRAIN_PER_CLASS, TEST_PER_CLASS = 500, 100
IMAGES_PER_SHARD = 2500
# At this quality nine images in ten fit into one block of 512 bytes, the unit in which tar stores.
JPEG_QUALITY = 40


def read_batches(folder, names):
    """labels [N] and images [N, 32, 32, 3] of batch files in the official order."""
    records = np.concatenate([np.fromfile(folder / name, np.uint8).reshape(-1, 3073) for name in names])
    return records[:, 0], records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)


def first_of_each_class(labels, per_class):
    """Indices of the first `per_class` images of every class, ascending."""
    chosen = [np.flatnonzero(labels == label)[:per_class] for label in range(CLASSES)]
    if any(len(indices) < per_class for indices in chosen):
        raise SystemExit(f"the data set has fewer than {per_class} images of some class")
    return np.sort(np.concatenate(chosen))


def encode(image):
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "JPEG", quality=JPEG_QUALITY, subsampling="4:2:0", optimize=True)
    return buffer.getvalue()


def write_shards(dest, prefix, labels, images, indices):
    for shard, begin in enumerate(range(0, len(indices), IMAGES_PER_SHARD)):
        path = dest / f"{prefix}-{shard:06d}.tar"
        with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
            for index in indices[begin : begin + IMAGES_PER_SHARD]:
                jpeg = encode(images[index])
                member = tarfile.TarInfo(f"{labels[index]}/{index:05d}.jpg")
                member.size = len(jpeg)
                tar.addfile(member, io.BytesIO(jpeg))
        print(f"{path}: {path.stat().st_size} bytes")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cifar_dir", type=pathlib.Path, help="folder of CIFAR-10's binary version")
    parser.add_argument("dest", type=pathlib.Path, help="folder for the shards")
    arguments = parser.parse_args()
    arguments.dest.mkdir(parents=True, exist_ok=True)
    for prefix, names, per_class in (("train", TRAIN_FILES, TRAIN_PER_CLASS), ("test", TEST_FILES, TEST_PER_CLASS)):
        labels, images = read_batches(arguments.cifar_dir, names)
        write_shards(arguments.dest, prefix, labels, images, first_of_each_class(labels, per_class))


if __name__ == "__main__":
    main()
