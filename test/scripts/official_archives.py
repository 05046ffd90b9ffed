"""Small archives in the official formats, and the images in them."""

import dataclasses
import gzip
import hashlib
import io
import pathlib
import struct
import tarfile

import numpy as np
import scipy.io
from fetching.sets import SETS, ArrayFile

CIFAR100 = (pathlib.Path(__file__).parents[1] / "data" / "cifar100_classes.txt").read_text().split()
CIFAR10 = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
FASHION = ["T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"]
DIGITS = [str(digit) for digit in range(10)]
CLASSES = {"cifar10": CIFAR10, "cifar100": CIFAR100, "fashion_mnist": FASHION}
CLASSES |= {name: DIGITS for name in ("svhn", "svhn_extra", "mnist")}
COUNTS = {"train.safetensors": 20, "val.safetensors": 6, "extra.safetensors": 3}


def tar_of(files, links=()):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.type = tarfile.DIRTYPE if content is None else tarfile.REGTYPE
            member.size = len(content or b"")
            tar.addfile(member, io.BytesIO(content or b""))
        for name, target in links:
            member = tarfile.TarInfo(name)
            member.type, member.linkname = tarfile.SYMTYPE, target
            tar.addfile(member)
    return out.getvalue()


def noise(classes, shape):
    """Images [N, H, W, C] and labels of every file, of all classes where there are few."""
    random = np.random.default_rng(classes)
    return {
        name: (random.integers(0, 256, (count, *shape), np.uint8), (np.arange(count) * 7 % classes).astype(np.uint8))
        for name, count in COUNTS.items()
    }


NOISE = {name: noise(len(classes), (28, 28, 1) if "mnist" in name else (32, 32, 3)) for name, classes in CLASSES.items()}
NOISE["fashion_mnist"] = NOISE["mnist"]  # whose archives have the same names


def records(images, *labels):
    """CIFAR's binary version: labels, then the red plane, the green and the blue."""
    return b"".join(
        bytes(numbers) + image.transpose(2, 0, 1).tobytes() for image, *numbers in zip(images, *labels, strict=True)
    )


def cifar10_files():
    images, labels = NOISE["cifar10"]["train.safetensors"]
    batches = {f"data_batch_{i + 1}.bin": records(images[4 * i :][:4], labels[4 * i :][:4]) for i in range(5)}
    test = records(*NOISE["cifar10"]["val.safetensors"])
    return batches | {"test_batch.bin": test, "batches.meta.txt": ("\n".join(CIFAR10) + "\n\n").encode(), "readme.html": b"x"}


def cifar100_files():
    of_split = {file: records(images, labels // 5, labels) for file, (images, labels) in NOISE["cifar100"].items()}
    names = "\n".join(CIFAR100).encode()
    return {"train.bin": of_split["train.safetensors"], "test.bin": of_split["val.safetensors"], "fine_label_names.txt": names}


def mat(images, labels, compressed=True, **more):
    """X [32, 32, 3, N] and y [N, 1], in which 10 is the digit 0."""
    variables = {"X": images.transpose(1, 2, 3, 0), "y": np.where(labels == 0, 10, labels).astype(np.uint8)[:, None]} | more
    out = io.BytesIO()
    scipy.io.savemat(out, variables, do_compression=compressed)
    return out.getvalue()


def idx(values):
    """Magic number and sizes as big-endian numbers, then the values."""
    return struct.pack(f">{1 + values.ndim}I", 0x800 + values.ndim, *values.shape) + values.tobytes()


def mnist_files():
    files = {}
    for prefix, name in (("train", "train.safetensors"), ("t10k", "val.safetensors")):
        images, labels = NOISE["mnist"][name]
        files |= {f"{prefix}-images-idx3-ubyte": idx(images[..., 0]), f"{prefix}-labels-idx1-ubyte": idx(labels)}
    return files


def archives():
    """Contents by the official names."""
    cifar10 = {"cifar-10-batches-bin": None} | {f"cifar-10-batches-bin/{n}": c for n, c in cifar10_files().items()}
    cifar100 = {f"cifar-100-binary/{n}": c for n, c in cifar100_files().items()}
    tars = {"cifar-10-binary.tar.gz": tar_of(cifar10), "cifar-100-binary.tar.gz": tar_of(cifar100)}
    mats = {
        f"{split}_32x32.mat": mat(*NOISE["svhn"][f"{file}.safetensors"])
        for split, file in (("train", "train"), ("test", "val"), ("extra", "extra"))
    }
    return tars | mats | {f"{name}.gz": gzip.compress(content) for name, content in mnist_files().items()}


def pinned(contents) -> dict[str, list[ArrayFile]]:
    """SETS with the small archives in place of the published ones."""

    def small(archive):
        content = contents[archive.name]
        return dataclasses.replace(archive, size_bytes=len(content), sha256=hashlib.sha256(content).hexdigest())

    return {
        name: [dataclasses.replace(f, count=COUNTS[f.name], archives=[small(a) for a in f.archives]) for f in files]
        for name, files in SETS.items()
    }
