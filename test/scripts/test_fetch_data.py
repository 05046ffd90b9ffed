"""scripts/fetch_data with a local server, and small archives in the official formats in place of the pinned ones."""

import dataclasses
import gzip
import hashlib
import http.server
import io
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tarfile
import threading

import numpy as np
import pytest
import scipy.io
from conftest import SCRIPTS, call
from fetching import archives, command
from fetching import imagenet as folders
from fetching.sets import SETS
from safetensors import safe_open
from safetensors.numpy import load_file

CIFAR100 = (pathlib.Path(__file__).parents[1] / "data" / "cifar100_classes.txt").read_text().split()
CIFAR10 = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
FASHION = ["T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"]
CLASSES = {"cifar10": CIFAR10, "cifar100": CIFAR100, "fashion_mnist": FASHION}
CLASSES |= {name: [str(digit) for digit in range(10)] for name in ("svhn", "svhn_extra", "mnist")}
COUNTS = {"train.safetensors": 20, "val.safetensors": 6, "extra.safetensors": 3}


def noise(classes, shape):
    """Images [N, H, W, C] and labels of every file, of all classes where there are few."""
    random = np.random.default_rng(classes)
    return {
        name: (random.integers(0, 256, (count, *shape), np.uint8), (np.arange(count) * 7 % classes).astype(np.uint8))
        for name, count in COUNTS.items()
    }


NOISE = {n: noise(len(classes), (28, 28, 1) if "mnist" in n else (32, 32, 3)) for n, classes in CLASSES.items()}
NOISE |= {"fashion_mnist": NOISE["mnist"], "svhn_extra": NOISE["svhn"]}  # whose archives have the same names


def tar_of(files, links=()):
    """`files`: contents by name, None for a folder."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name, content in [*files.items(), *links]:
            member = tarfile.TarInfo(name)
            member.type = {type(None): tarfile.DIRTYPE, str: tarfile.SYMTYPE}.get(type(content), tarfile.REGTYPE)
            data = content if isinstance(content, bytes) else b""
            member.size, member.linkname = len(data), content if isinstance(content, str) else ""
            tar.addfile(member, io.BytesIO(data))
    return out.getvalue()


def records(images, *labels):
    """CIFAR's binary version: labels, then the red plane, the green and the blue."""
    return b"".join(
        bytes(numbers) + image.transpose(2, 0, 1).tobytes() for image, *numbers in zip(images, *labels, strict=True)
    )


def cifar_files():
    images, labels = NOISE["cifar10"]["train.safetensors"]
    cifar10 = {f"data_batch_{i + 1}.bin": records(images[4 * i :][:4], labels[4 * i :][:4]) for i in range(5)}
    cifar10 |= {"test_batch.bin": records(*NOISE["cifar10"]["val.safetensors"]), "readme.html": b"x"}
    splits = {"train.bin": "train.safetensors", "test.bin": "val.safetensors"}
    noises = {name: NOISE["cifar100"][file] for name, file in splits.items()}
    cifar100 = {name: records(images, labels // 5, labels) for name, (images, labels) in noises.items()}
    names = {"fine_label_names.txt": "\n".join(CIFAR100).encode()}
    return cifar10 | {"batches.meta.txt": ("\n".join(CIFAR10) + "\n\n").encode()}, cifar100 | names


def mat(images, labels, compressed=True, **more):
    """X [32, 32, 3, N] and y [N, 1], in which 10 is the digit 0."""
    y = np.where(labels == 0, 10, labels).astype(np.uint8)[:, None]
    out = io.BytesIO()
    scipy.io.savemat(out, {"X": images.transpose(1, 2, 3, 0), "y": y} | more, do_compression=compressed)
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


UNPACKED = dict(zip(("cifar10", "cifar100"), cifar_files())) | {"mnist": mnist_files()}
FOLDERS = {"cifar10": "cifar-10-batches-bin", "cifar100": "cifar-100-binary", "mnist": "."}
MATS = {
    f"{split}_32x32.mat": mat(*NOISE["svhn"][f"{file}.safetensors"], compressed=split != "test")
    for split, file in (("train", "train"), ("test", "val"), ("extra", "extra"))
}
ARCHIVES = MATS | {f"{name}.gz": gzip.compress(content) for name, content in UNPACKED["mnist"].items()}
for set_, archive_ in (("cifar10", "cifar-10-binary.tar.gz"), ("cifar100", "cifar-100-binary.tar.gz")):
    below = {f"{FOLDERS[set_]}/{name}": content for name, content in UNPACKED[set_].items()}
    ARCHIVES[archive_] = tar_of({FOLDERS[set_]: None} | below)
TAR = ARCHIVES["cifar-10-binary.tar.gz"]
TAR_URL = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"


@pytest.fixture(autouse=True)
def publish(monkeypatch):
    """Pins the small archives, with some of them replaced."""

    def publish(count=None, **others):
        for name, files in SETS.items():
            pinned = []
            for file in files:
                contents = [(ARCHIVES | others)[archive.name] for archive in file.archives]
                small = [dataclasses.replace(archive, size_bytes=len(c), sha256=hashlib.sha256(c).hexdigest())
                         for archive, c in zip(file.archives, contents, strict=True)]
                pinned.append(dataclasses.replace(file, count=count or COUNTS[file.name], archives=small))
            monkeypatch.setitem(command.SETS, name, pinned)

    monkeypatch.setattr(command, "SETS", dict(SETS))
    monkeypatch.setattr(archives, "PAUSE_S", 0)
    publish()
    return publish


class Handler(http.server.BaseHTTPRequestHandler):
    """Sends the server's `files` and records the requested `ranges`. Without `ranged` it sends whole files; `cuts` are
    numbers of bytes after which it closes the connection, one per request."""

    def do_GET(self):
        content, asked = self.server.files.get(self.path.lstrip("/")), self.headers.get("Range")
        self.server.ranges.append(asked)
        if content is None or self.server.status:
            return self.send_error(self.server.status or 404)
        partly = asked and self.server.ranged
        begin = int(asked.removeprefix("bytes=").removesuffix("-")) if partly else 0
        if begin >= len(content):
            return self.send_error(416)
        self.send_response(206 if partly else 200)
        if partly:
            self.send_header("Content-Range", f"bytes {begin}-{len(content) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(content) - begin))
        self.end_headers()
        self.wfile.write(content[begin:][: self.server.cuts.pop(0) if self.server.cuts else None])

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.files, server.ranges, server.ranged, server.cuts, server.status = dict(ARCHIVES), [], True, [], None
        server.url = f"http://127.0.0.1:{server.server_address[1]}"
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield server
        server.shutdown()


def fetch(server, name, dest, expect=0):
    return call(command.main, name, dest, "--mirror", server.url, expect=expect)


def fetch_from(source, name, dest, expect=0):
    return call(command.main, name, dest, "--from", source, expect=expect)


def tree(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def check_arrays(dest, name, sha256_of=lambda archive: {archive.url: archive.sha256}):
    """The images in `dest` are those of the archives, in their order."""
    assert sorted(tree(dest)) == sorted(file.name for file in command.SETS[name])
    for file in command.SETS[name]:
        arrays, (images, labels) = load_file(dest / file.name), NOISE[name][file.name]
        assert arrays.keys() == {"images", "labels"} and arrays["images"].dtype == arrays["labels"].dtype == np.uint8
        assert np.array_equal(arrays["images"], images) and np.array_equal(arrays["labels"], labels)
        with safe_open(dest / file.name, framework="np") as opened:
            assert json.loads(opened.metadata()["class_names"]) == CLASSES[name]
            sums = [sha256_of(archive).items() for archive in file.archives]
            assert json.loads(opened.metadata()["sha256"]) == dict(pair for pairs in sums for pair in pairs)


@pytest.mark.parametrize("name", CLASSES)
def test_archives_are_downloaded_and_become_arrays_once(server, tmp_path, name):
    dest = tmp_path / "a" / "b"
    fetch(server, name, dest)
    check_arrays(dest, name)
    wanted = {archive for file in command.SETS[name] for archive in file.archives}
    assert server.ranges == [None] * len(wanted)
    fetch(server, name, dest)
    assert len(server.ranges) == len(wanted)
    (dest / "val.safetensors").write_bytes((dest / "val.safetensors").read_bytes()[:-1])
    fetch(server, name, dest)
    check_arrays(dest, name)
    assert len(server.ranges) == len(wanted) + len(command.SETS[name][1].archives)

    # The program reads them.
    of_file = {file: records(images, labels) for file, (images, labels) in NOISE[name].items()}
    train = of_file["train.safetensors"] + (of_file["extra.safetensors"] if name == "svhn_extra" else b"")
    for split, expected in (("train", train), ("test", of_file["val.safetensors"])):
        result = subprocess.run([os.environ["DUMP_DATA"], dest, "pixels", split, name], check=True, capture_output=True)
        assert result.stdout == expected


@pytest.mark.parametrize("settings, left, requests, text", [
    # A connection that ends is gone on with, where the server sends parts.
    ({"cuts": [1000, 50_000]}, b"", [None, "bytes=1000-", "bytes=51000-"], "ended after 1000 of"),
    ({"cuts": [1000, 50_000], "ranged": False}, b"", [None, "bytes=1000-", "bytes=50000-"], "ended after 1000 of"),
    # What an earlier call left is gone on with, or thrown away if it is of something else.
    ({}, TAR[:500], ["bytes=500-"], ""), ({}, b"another file" * 10, ["bytes=120-", None], "SHA-256"),
    ({}, TAR[:-1] + b"?", [None], "SHA-256"), ({}, TAR + b"more", [None], f"{len(TAR)}"),
])  # fmt: skip
def test_downloads_go_on(server, tmp_path, settings, left, requests, text):
    vars(server).update(settings)
    if left:
        (tmp_path / "cifar-10-binary.tar.gz.part").write_bytes(left)
    assert text in fetch(server, "cifar10", tmp_path)
    check_arrays(tmp_path, "cifar10")
    assert server.ranges == requests


WRONG = {"cifar-10-binary.tar.gz": TAR[:-1] + b"?"}
LONG = {"cifar-10-binary.tar.gz": TAR + b"x"}


@pytest.mark.parametrize("settings, requests, kept, texts", [
    ({"cuts": [100] * 5}, 5, 500, ["500 bytes"]),
    ({"files": WRONG}, 2, 0, ["SHA-256"]), ({"files": LONG}, 2, 0, [f"expected {len(TAR)}"]),
    ({"status": 404}, 1, 0, [": 404"]), ({"status": 403}, 1, 0, [": 403"]), ({"status": 503}, 5, 0, [": 503"]),
    ({"url": "http://127.0.0.1:1"}, 0, 0, ["cannot be reached"]),
])  # fmt: skip
def test_a_download_that_fails_says_where_to_put_what(server, tmp_path, settings, requests, kept, texts):
    vars(server).update(settings)
    error = fetch(server, "cifar10", tmp_path, expect=3)
    assert all(text in error for text in [*texts, f"{server.url}/cifar-10-binary.tar.gz", TAR_URL, "--from DIR"]), error
    assert sum(map(len, tree(tmp_path).values())) == kept and len(server.ranges) == requests


@pytest.mark.parametrize("name", CLASSES)
def test_archives_of_a_folder(tmp_path, name):
    source = tmp_path / "source"
    source.mkdir()
    wanted = {archive.name: archive.url for file in command.SETS[name] for archive in file.archives}
    for archive, url in wanted.items():
        error = fetch_from(source, name, tmp_path / "dest", expect=3)
        assert f"{source}/{archive} does not exist" in error and url in error
        (source / archive).write_bytes(ARCHIVES[archive][:-1] + b"?")
        assert f"{source}/{archive}: SHA-256" in fetch_from(source, name, tmp_path / "dest", expect=3)
        (source / archive).write_bytes(ARCHIVES[archive])
    fetch_from(source, name, tmp_path / "dest")
    check_arrays(tmp_path / "dest", name)
    assert tree(source).keys() == wanted.keys()


@pytest.mark.parametrize("name", UNPACKED)
@pytest.mark.parametrize("below", [True, False])
def test_files_that_are_unpacked_already(tmp_path, name, below):
    folder = tmp_path / "source" / (FOLDERS[name] if below else "")
    folder.mkdir(parents=True)
    for file, content in UNPACKED[name].items():
        (folder / file).write_bytes(content)
    fetch_from(tmp_path / "source", name, tmp_path / "dest")
    sha256 = {file: hashlib.sha256(content).hexdigest() for file, content in UNPACKED[name].items()}
    check_arrays(tmp_path / "dest", name, lambda archive: {file: sha256[file] for file in archive.files})


LABELS, MAT, ARCHIVE = "train-labels-idx1-ubyte", "train_32x32.mat", "cifar-10-binary.tar.gz"
IMAGES, DIGITS = NOISE["svhn"]["train.safetensors"]
META = f"{FOLDERS['cifar10']}/batches.meta.txt"
REFUSED = [  # the set, the wrong file among its own, what is wrong with its content, and what is said
    ("cifar10", "data_batch_3.bin", lambda c: c[:-7], "data_batch_3.bin: 12285 bytes"),
    ("cifar10", "data_batch_1.bin", lambda c: c[:3073] + b"\x0a" + c[3074:], "label 10 of image 1, expected 0 to 9"),
    ("cifar10", "batches.meta.txt", lambda c: c[9:], "9 names, expected 10"),
    ("cifar100", "train.bin", lambda c: b"\x14" + c[1:], "label 20 of image 0, expected 0 to 19"),
    ("cifar100", "test.bin", lambda c: c[:3073], "test.bin: 3073 bytes"),  # a record of CIFAR-10
    ("mnist", LABELS, lambda c: c[:-1], "expected [2049, 19]"),
    ("mnist", LABELS, lambda c: idx(np.zeros((20, 28, 28), np.uint8)), "the header is [2051, 20]"),
    ("mnist", LABELS, lambda c: c[:-1] + b"\x0a", "label 10 of image 19"),
    ("svhn", MAT, lambda c: mat(IMAGES[:, :, :, :1], DIGITS), "[32, 32, 1, 20]"),
    ("svhn", MAT, lambda c: mat(IMAGES.astype(float), DIGITS), "X is float64"),
    ("svhn", MAT, lambda c: mat(IMAGES, DIGITS, y=DIGITS[:, None]), "label 0 of image 0, expected 1 to 10"),
    ("svhn", MAT, lambda c: b"<!DOCTYPE html>" * 50, MAT),
    ("cifar10", ARCHIVE, lambda c: tar_of({f"{FOLDERS['cifar10']}/data_batch_1.bin": b"x"}), META),
    ("cifar10", ARCHIVE, lambda c: tar_of({f"other/{name}": data for name, data in UNPACKED["cifar10"].items()}), META),
    ("cifar10", ARCHIVE, lambda c: tar_of({"../escaped": b"x"}, [(META, "/etc/passwd")]), META),
]


@pytest.mark.parametrize("name, file, damage, text", REFUSED)
def test_what_is_wrong_with_a_file_is_named(tmp_path, publish, name, file, damage, text):
    """Also of an archive as published. Without the file its name is said."""
    files = dict(MATS if name == "svhn" else {file: TAR} if file == ARCHIVE else UNPACKED[name])
    files[file] = damage(files[file])
    publish(**{file: files[file]})
    for other, content in files.items():
        (tmp_path / other).write_bytes(content)
    error = fetch_from(tmp_path, name, tmp_path / "dest", expect=3)
    assert text in error and file in error
    assert not list(tmp_path.parent.rglob("escaped"))
    (tmp_path / file).unlink()
    assert file in fetch_from(tmp_path, name, tmp_path / "dest2", expect=3)


def test_a_mat_file_of_one_image(tmp_path, publish):
    """MATLAB drops a last dimension of 1."""
    content = mat(IMAGES[:1], DIGITS[:1], X=IMAGES[0])
    publish(count=1, **dict.fromkeys(MATS, content))
    for name in MATS:
        (tmp_path / name).write_bytes(content)
    fetch_from(tmp_path, "svhn", tmp_path)
    arrays = load_file(tmp_path / "train.safetensors")
    assert np.array_equal(arrays["images"], IMAGES[:1]) and np.array_equal(arrays["labels"], DIGITS[:1])


def test_no_space(server, tmp_path, monkeypatch):
    monkeypatch.setattr(archives.shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10, 5, 5))
    assert "GB are needed" in fetch(server, "svhn", tmp_path, expect=3)


def test_the_call(tmp_path):
    for arguments in (["emnist", tmp_path], ["cifar10"]):
        call(command.main, *arguments, expect=2)
    assert f"--out {tmp_path}" in call(command.main, "fineweb", tmp_path, expect=3)
    assert all(file in call(command.main, "imagenet", tmp_path, expect=3) for file in IMAGENET_FILES)


def test_a_python_without_the_packages(tmp_path):
    """It goes on with that of scripts/setup, or says what is missing."""
    shutil.copytree(SCRIPTS / "fetching", tmp_path / "scripts" / "fetching")
    script = shutil.copy(SCRIPTS / "fetch_data", tmp_path / "scripts")
    call = lambda: subprocess.run([sys.executable, "-S", script, "fineweb", "x"], capture_output=True, text=True)
    without = call()
    assert without.returncode == 3 and "numpy" in without.stderr and "requirements-lab.txt" in without.stderr
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    assert "HuggingFaceFW/fineweb" in call().stderr


# --- ImageNet -------------------------------------------------------------------------------------------------

IMAGENET_FILES = ["ILSVRC2012_img_train.tar", "ILSVRC2012_img_val.tar", "ILSVRC2012_devkit_t12.tar.gz"]
# As in the kit, numbers are not in the order of the WNIDs, and synsets with children have numbers beyond.
SYNSETS = [(1, "n02119789", 0), (2, "n02100735", 0), (3, "n01440764", 0), (4, "n00001740", 2)]
WNIDS = {number: wnid for number, wnid, children in SYNSETS if children == 0}
TRUTH = [3, 1, 1, 2, 3]


def meta_mat():
    fields = [("ILSVRC2012_ID", "O"), ("WNID", "O"), ("words", "O"), ("num_children", "O"), ("children", "O")]
    rows = [(float(i), wnid, "kit fox, Vulpes", float(n), np.arange(n, dtype=float)) for i, wnid, n in SYNSETS]
    out = io.BytesIO()
    values = {"other": np.arange(3.0), "synsets": np.array(rows, dtype=fields)[:, None]}
    scipy.io.savemat(out, values, do_compression=True)
    return out.getvalue()


@pytest.fixture
def imagenet(tmp_path, monkeypatch):
    """The folder of the archives, and the files that are made of them."""
    source = tmp_path / "source"
    source.mkdir()
    images = {w: {f"{w}_{i}.JPEG": f"{w} {i}".encode() * 300 for i in range(3)} for w in WNIDS.values()}
    validation = {f"ILSVRC2012_val_{i + 1:08d}.JPEG": f"val {i}".encode() * 300 for i in range(len(TRUTH))}
    kit = {folders.META: meta_mat(), folders.GROUND_TRUTH: "".join(f"{n}\n" for n in TRUTH).encode()}
    tars = [{f"{w}.tar": tar_of(files) for w, files in images.items()}, dict(reversed(validation.items())), kit]
    contents = dict(zip(IMAGENET_FILES, map(tar_of, tars), strict=True))
    for name, content in contents.items():
        (source / name).write_bytes(content)
    pinned = [archives.Archive(n, len(c), hashlib.sha256(c).hexdigest()) for n, c in contents.items()]
    monkeypatch.setattr(command.imagenet, "ARCHIVES", pinned)
    expected = {f"train/{w}/{name}": data for w, files in images.items() for name, data in files.items()}
    expected |= {f"val/{WNIDS[n]}/{name}": data for n, (name, data) in zip(TRUTH, validation.items())}
    return source, expected


def test_imagenet_becomes_folders_of_classes(imagenet, tmp_path):
    source, expected = imagenet
    dest = tmp_path / "dest"
    fetch_from(source, "imagenet", dest)
    assert tree(dest) == expected
    # Incomplete files of an interrupted call are written again, complete ones are not.
    (dest / "train" / "n01440764").rename(dest / "train" / "n01440764.part")
    (dest / "val").rename(dest / "val.part")
    (dest / "train" / "n02119789" / "n02119789_0.JPEG").write_bytes(b"kept")
    fetch_from(source, "imagenet", dest)
    assert tree(dest) == expected | {"train/n02119789/n02119789_0.JPEG": b"kept"}
    for name in IMAGENET_FILES:
        content = (source / name).read_bytes()
        (source / name).write_bytes(content[:-9] + bytes([content[-9] ^ 1]) + content[-8:])
        assert f"{name}: SHA-256" in fetch_from(source, "imagenet", tmp_path / "new", expect=3)
        (source / name).unlink()
        assert f"{name} does not exist" in fetch_from(source, "imagenet", tmp_path / "new", expect=3)
        (source / name).write_bytes(content)


def test_classes_are_the_synsets_without_children_and_a_damaged_kit_is_named(tmp_path):
    assert folders.wnids_of(meta_mat()) == WNIDS
    kit = tmp_path / "kit.tar.gz"
    for meta in (meta_mat()[:200], meta_mat()[:128] + b"\xff" * 64, b"text" * 100, None):
        kit.write_bytes(b"no archive" if meta is None else tar_of({folders.META: meta, folders.GROUND_TRUTH: b"1\n"}))
        with pytest.raises(archives.FetchError, match="kit.tar.gz"):
            folders.read_kit(kit)
