"""CIFAR-10 in a small file: the images in order, 8 x 25 in each JPEG, and their labels. 32 is a
multiple of JPEG's blocks of 16 pixels, so images do not affect their neighbors. Needs Pillow."""

import io
import pathlib
import random
import zipfile

FILES = [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]
SIDE, ACROSS, DOWN = 32, 25, 8
PIXELS = SIDE * SIDE


def pack_images(folder: pathlib.Path, target: pathlib.Path, quality: int) -> None:
    from PIL import Image

    with zipfile.ZipFile(target, "w") as archive:
        for name in FILES:
            data = (folder / name).read_bytes()
            records = [data[at:at + 1 + 3 * PIXELS] for at in range(0, len(data), 1 + 3 * PIXELS)]
            archive.writestr(f"{name}/labels", bytes(record[0] for record in records))
            for first in range(0, len(records), ACROSS * DOWN):
                sheet = Image.new("RGB", (SIDE * ACROSS, SIDE * DOWN))
                for place, record in enumerate(records[first:first + ACROSS * DOWN]):
                    bands = [Image.frombytes("L", (SIDE, SIDE), record[1 + b * PIXELS:1 + (b + 1) * PIXELS]) for b in range(3)]
                    sheet.paste(Image.merge("RGB", bands), (SIDE * (place % ACROSS), SIDE * (place // ACROSS)))
                jpeg = io.BytesIO()
                sheet.save(jpeg, "JPEG", quality=quality, optimize=True)
                archive.writestr(f"{name}/{first:06d}.jpg", jpeg.getvalue())


def unpack_images(source: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
    """Writes the official binary layout. A complete folder is left unchanged."""
    from PIL import Image

    if (folder / "complete").exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(source) as archive:
        members = sorted(archive.namelist())
        for name in FILES:
            labels = archive.read(f"{name}/labels")
            records = []
            for member in (m for m in members if m.startswith(f"{name}/") and m.endswith(".jpg")):
                sheet = Image.open(io.BytesIO(archive.read(member))).convert("RGB")
                for place in range(min(ACROSS * DOWN, len(labels) - len(records))):
                    left, top = SIDE * (place % ACROSS), SIDE * (place // ACROSS)
                    image = sheet.crop((left, top, left + SIDE, top + SIDE))
                    records.append(labels[len(records):len(records) + 1] + b"".join(band.tobytes() for band in image.split()))
            (folder / name).write_bytes(b"".join(records))
    (folder / "batches.meta.txt").write_text("airplane automobile bird cat deer dog frog horse ship truck\n".replace(" ", "\n"))
    (folder / "complete").touch()
    return folder


def write_noise_images(folder: pathlib.Path, per_file: int) -> pathlib.Path:
    """CIFAR-10's binary layout with noise, the same bytes everywhere."""
    noise = random.Random(0)
    folder.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        records = (bytes([noise.randrange(10)]) + noise.randbytes(3 * PIXELS) for _ in range(per_file))
        (folder / name).write_bytes(b"".join(records))
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
