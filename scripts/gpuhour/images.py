"""CIFAR-10 in a small file: the images in order, 8 x 25 in each JPEG, and their labels. 32 is a
multiple of JPEG's blocks of 16 pixels, so images do not affect their neighbors. Needs Pillow. Arrays are written without numpy
and safetensors, which the GPU machine may lack."""

import io
import json
import pathlib
import random
import zipfile

FILES = ["train.safetensors", "val.safetensors"]
CLASSES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
SIDE, ACROSS, DOWN = 32, 25, 8
IMAGE_BYTES = 3 * SIDE * SIDE


def write_arrays(path: pathlib.Path, images: bytes, labels: bytes) -> None:
    """The file of docs/data.md: images [N, 32, 32, 3] and labels [N], both uint8."""
    count, end = len(labels), len(images)
    header = {
        "__metadata__": {"class_names": json.dumps(CLASSES)},
        "images": {"dtype": "U8", "shape": [count, SIDE, SIDE, 3], "data_offsets": [0, end]},
        "labels": {"dtype": "U8", "shape": [count], "data_offsets": [end, end + count]},
    }
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + images + labels)


def pack_images(folder: pathlib.Path, target: pathlib.Path, quality: int) -> None:
    from PIL import Image
    from safetensors.numpy import load_file

    with zipfile.ZipFile(target, "w") as archive:
        for name in FILES:
            arrays = load_file(folder / name)
            images, labels = arrays["images"], arrays["labels"].tobytes()
            archive.writestr(f"{name}/labels", labels)
            for first in range(0, len(labels), ACROSS * DOWN):
                sheet = Image.new("RGB", (SIDE * ACROSS, SIDE * DOWN))
                for place, image in enumerate(images[first:first + ACROSS * DOWN]):
                    sheet.paste(Image.fromarray(image), (SIDE * (place % ACROSS), SIDE * (place // ACROSS)))
                jpeg = io.BytesIO()
                sheet.save(jpeg, "JPEG", quality=quality, optimize=True)
                archive.writestr(f"{name}/{first:06d}.jpg", jpeg.getvalue())


def unpack_images(source: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
    """Writes arrays. A complete folder is left unchanged."""
    from PIL import Image

    if (folder / "complete").exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(source) as archive:
        members = sorted(archive.namelist())
        for name in FILES:
            labels = archive.read(f"{name}/labels")
            images: list[bytes] = []
            for member in (m for m in members if m.startswith(f"{name}/") and m.endswith(".jpg")):
                sheet = Image.open(io.BytesIO(archive.read(member))).convert("RGB")
                for place in range(min(ACROSS * DOWN, len(labels) - len(images))):
                    left, top = SIDE * (place % ACROSS), SIDE * (place // ACROSS)
                    images.append(sheet.crop((left, top, left + SIDE, top + SIDE)).tobytes())
            write_arrays(folder / name, b"".join(images), labels)
    (folder / "complete").touch()
    return folder


def write_noise_images(folder: pathlib.Path, count: int) -> pathlib.Path:
    """Noise in the shape of CIFAR-10, `count` images to train on, the same bytes everywhere."""
    noise = random.Random(0)
    folder.mkdir(parents=True, exist_ok=True)
    for name, images in zip(FILES, (count, count // 5 + 1), strict=True):
        labels = bytes(noise.randrange(10) for _ in range(images))
        write_arrays(folder / name, b"".join(noise.randbytes(IMAGE_BYTES) for _ in range(images)), labels)
    return folder


def write_noise_tokens(folder: pathlib.Path, count: int, vocabulary: int, noise_share: float = 1.0) -> pathlib.Path:
    """llm.c's layout with noise and a pattern that can be learned in a few steps."""
    noise = random.Random(0)
    folder.mkdir(parents=True, exist_ok=True)
    for name, size in (("noise_train_000000.bin", count), ("noise_val_000000.bin", 1 << 14)):
        header = b"".join(n.to_bytes(4, "little") for n in (20240520, 1, size)).ljust(1024, b"\0")
        values = (noise.randrange(vocabulary) if noise.random() < noise_share else i * 37 % 97 for i in range(size))
        (folder / name).write_bytes(header + b"".join(value.to_bytes(2, "little") for value in values))
    return folder
