"""The official formats of CIFAR, SVHN and MNIST as arrays, and the files of arrays that sdp-train reads (docs/data.md)."""

import dataclasses
import json
import pathlib
from collections.abc import Mapping
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from fetching.archives import FetchError, check_space
from fetching.matlab import read_mat

Files = Mapping[str, BinaryIO]  # by official name


@dataclasses.dataclass(frozen=True)
class Images:
    """N images of one size in the official order."""

    images: NDArray[np.uint8]  # [N, H, W, C]
    labels: NDArray[np.uint8]  # [N], indices of class_names
    class_names: list[str]


def check_labels(labels: NDArray[np.uint8], first: int, last: int, file: str) -> None:
    wrong = np.flatnonzero((labels < first) | (labels > last))
    if wrong.size:
        raise FetchError(
            f"{file}: label {labels[wrong[0]]} of image {wrong[0]}, expected {first} to {last}. This is not the official file."
        )


def read_cifar(files: Files, batches: tuple[str, ...], classes: tuple[int, ...], names: str) -> Images:
    """CIFAR's binary version. A record has a byte for each label, of `classes` values, of which the last is the image's, and
    3072 bytes of pixels, RRR GGG BBB."""
    class_names = files[names].read().decode().split()
    if len(class_names) != classes[-1]:
        raise FetchError(f"{names}: {len(class_names)} names, expected {classes[-1]}. This is not the official file.")
    parts = []
    for batch in batches:
        content = files[batch].read()
        record_bytes = len(classes) + 3072
        if not content or len(content) % record_bytes:
            raise FetchError(f"{batch}: {len(content)} bytes, expected a multiple of {record_bytes}. Unpack or copy it again.")
        records = np.frombuffer(content, np.uint8).reshape(-1, record_bytes)
        for label, count in enumerate(classes):
            check_labels(records[:, label], 0, count - 1, batch)
        parts.append(records)
    records = np.concatenate(parts)
    planes = records[:, len(classes) :].reshape(-1, 3, 32, 32)
    return Images(planes.transpose(0, 2, 3, 1), records[:, len(classes) - 1], class_names)


def read_svhn(files: Files, name: str, class_names: list[str]) -> Images:
    """The cropped digits (format 2): X, uint8 [32, 32, 3, N], and y, uint8 [N, 1], in which 10 is the digit 0."""
    variables = read_mat(files[name], name)
    x, y = (np.asarray(variables.get(key, ())) for key in "Xy")
    x = x[..., None] if x.ndim == 3 else x  # MATLAB's arrays have no trailing dimension of 1
    if x.dtype != np.uint8 or y.dtype != np.uint8 or x.shape[:3] != (32, 32, 3) or y.shape != (*x.shape[3:], 1):
        raise FetchError(
            f"{name}: X is {x.dtype} {list(x.shape)} and y {y.dtype} {list(y.shape)}, expected uint8 [32, 32, 3, N] and [N, 1]. This "
            "is not SVHN's file of cropped digits."
        )
    check_labels(y[:, 0], 1, 10, name)
    return Images(x.transpose(3, 0, 1, 2), y[:, 0] % 10, class_names)


def read_idx(file: BinaryIO, name: str, item: tuple[int, ...]) -> NDArray[np.uint8]:
    """A file of IDX's magic number, sizes and uint8 values; `item`: the sizes after the first."""
    content = file.read()
    header_bytes = 4 * (2 + len(item))
    header = np.frombuffer(content[:header_bytes], ">u4") if len(content) >= header_bytes else np.empty(0)
    values = content[header_bytes:]
    expected = [0x801 + len(item), len(values) // int(np.prod(item, initial=1)), *item]
    if header.tolist() != expected or len(values) != np.prod(expected[1:]):
        raise FetchError(
            f"{name}: the header is {header.tolist()}, expected {expected} for {len(values)} bytes after it. Get it again."
        )
    return np.frombuffer(values, np.uint8).reshape(expected[1:])


def read_mnist(files: Files, prefix: str, class_names: list[str]) -> Images:
    images_file, labels_file = f"{prefix}-images-idx3-ubyte", f"{prefix}-labels-idx1-ubyte"
    images = read_idx(files[images_file], images_file, (28, 28))
    labels = read_idx(files[labels_file], labels_file, ())
    check_labels(labels, 0, 9, labels_file)
    return Images(images[..., None], labels, class_names)


def write_arrays(path: pathlib.Path, images: Images, sha256: Mapping[str, str]) -> None:
    """The file gets its name when it is complete. `sha256`: of the archives, by URL, or of their files, by name."""
    check_space(path.parent, images.images.nbytes + images.labels.nbytes)
    arrays = {"images": np.ascontiguousarray(images.images), "labels": np.ascontiguousarray(images.labels)}
    part = path.with_name(f"{path.name}.part")
    part.touch()
    mode = part.stat().st_mode
    save_file(arrays, part, {"class_names": json.dumps(images.class_names), "sha256": json.dumps(dict(sha256))})
    part.chmod(mode)  # save_file leaves it to its owner alone
    part.replace(path)


def origin_of(path: pathlib.Path) -> dict[str, str] | None:
    """`sha256` of write_arrays; None if there is no such file, or it is damaged or of another origin."""
    try:
        with safe_open(path, framework="np") as file:
            return json.loads((file.metadata() or {})["sha256"])
    except (OSError, SafetensorError, KeyError, ValueError):
        return None
