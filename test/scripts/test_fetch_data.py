"""scripts/fetch_data with a local server, and small archives in place of the pinned ones."""

import dataclasses
import hashlib
import http.server
import io
import json
import os
import shutil
import subprocess
import sys
import threading

import numpy as np
import official_archives
import pytest
import scipy.io
from conftest import SCRIPTS, call
from fetching import archives, command
from fetching import imagenet as folders
from official_archives import CLASSES, NOISE, cifar10_files, cifar100_files, idx, mat, mnist_files, tar_of
from safetensors import safe_open
from safetensors.numpy import load_file

ARCHIVES = official_archives.archives()
TAR = ARCHIVES["cifar-10-binary.tar.gz"]
IMAGENET_FILES = ["ILSVRC2012_img_train.tar", "ILSVRC2012_img_val.tar", "ILSVRC2012_devkit_t12.tar.gz"]
TAR_URL = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"


class Server:
    """Serves `files` and records the requested ranges in `ranges`. Without `ranged` it sends whole files; `cuts` are numbers
    of bytes after which it closes the connection, one per request."""

    def __init__(self, files):
        self.files, self.ranges, self.ranged, self.cuts, self.status = files, [], True, [], None
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                content = outer.files.get(self.path.lstrip("/"))
                asked = self.headers.get("Range")
                outer.ranges.append(asked)
                if content is None or outer.status:
                    return self.send_error(outer.status or 404)
                begin = int(asked.removeprefix("bytes=").removesuffix("-")) if asked and outer.ranged else 0
                if begin >= len(content):
                    return self.send_error(416)
                self.send_response(206 if asked and outer.ranged else 200)
                if asked and outer.ranged:
                    self.send_header("Content-Range", f"bytes {begin}-{len(content) - 1}/{len(content)}")
                self.send_header("Content-Length", str(len(content) - begin))
                self.end_headers()
                self.wfile.write(content[begin:][: outer.cuts.pop(0) if outer.cuts else None])

            def log_message(self, *_):
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}"
        threading.Thread(target=self.http.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self):
        self.http.shutdown()
        self.http.server_close()


@pytest.fixture(autouse=True)
def publish(monkeypatch):
    """Pins the small archives, with some of them replaced."""

    def publish(**others):
        for name, files in official_archives.pinned(ARCHIVES | others).items():
            monkeypatch.setitem(command.SETS, name, files)

    monkeypatch.setattr(archives, "PAUSE_S", 0)
    publish()
    return publish


@pytest.fixture
def server():
    server = Server(dict(ARCHIVES))
    yield server
    server.stop()


def fetch(server, name, dest, expect=0):
    return call(command.main, name, dest, "--mirror", server.url, expect=expect)


def fetch_from(source, name, dest, expect=0):
    return call(command.main, name, dest, "--from", source, expect=expect)


def tree(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def names_in(folder):
    return sorted(tree(folder))


def check_arrays(dest, name):
    """The images in `dest` are those of the archives, in their order."""
    assert names_in(dest) == sorted(file.name for file in command.SETS[name])
    for file in command.SETS[name]:
        arrays, (images, labels) = load_file(dest / file.name), NOISE[name.removesuffix("_extra")][file.name]
        assert arrays.keys() == {"images", "labels"} and arrays["images"].dtype == arrays["labels"].dtype == np.uint8
        assert np.array_equal(arrays["images"], images) and np.array_equal(arrays["labels"], labels)
        with safe_open(dest / file.name, framework="np") as opened:
            assert json.loads(opened.metadata()["class_names"]) == CLASSES[name]
            yield file, json.loads(opened.metadata()["sha256"])


@pytest.mark.parametrize("name", CLASSES)
def test_archives_are_downloaded_and_become_arrays_once(server, tmp_path, name):
    dest = tmp_path / "a" / "b"
    fetch(server, name, dest)
    for file, sha256 in check_arrays(dest, name):
        assert sha256 == {archive.url: archive.sha256 for archive in file.archives}
    wanted = {archive for file in command.SETS[name] for archive in file.archives}
    assert server.ranges == [None] * len(wanted)
    fetch(server, name, dest)
    assert len(server.ranges) == len(wanted)
    (dest / "val.safetensors").write_bytes((dest / "val.safetensors").read_bytes()[:-1])
    fetch(server, name, dest)
    list(check_arrays(dest, name))
    assert len(server.ranges) == len(wanted) + len(command.SETS[name][1].archives)

    # The program reads them.
    of_file = {
        file: b"".join(bytes([label]) + image.transpose(2, 0, 1).tobytes() for image, label in zip(images, labels))
        for file, (images, labels) in NOISE[name.removesuffix("_extra")].items()
    }
    train = of_file["train.safetensors"] + (of_file["extra.safetensors"] if name == "svhn_extra" else b"")
    for split, expected in (("train", train), ("test", of_file["val.safetensors"])):
        result = subprocess.run([os.environ["DUMP_DATA"], dest, "pixels", split, name], check=True, capture_output=True)
        assert result.stdout == expected


@pytest.mark.parametrize("ranged", [True, False])
def test_a_connection_that_ends_is_gone_on_with(server, tmp_path, ranged):
    server.ranged, server.cuts = ranged, [1000, 50_000]
    assert "ended after 1000 of" in fetch(server, "cifar10", tmp_path)
    list(check_arrays(tmp_path, "cifar10"))
    assert server.ranges == [None, "bytes=1000-", f"bytes={51_000 if ranged else 50_000}-"]


def test_the_next_call_goes_on_with_the_part(server, tmp_path):
    server.cuts = [100] * 5
    assert "500 bytes are in" in fetch(server, "cifar10", tmp_path, expect=3)
    assert names_in(tmp_path) == ["cifar-10-binary.tar.gz.part"]
    server.ranges.clear()
    fetch(server, "cifar10", tmp_path)
    assert server.ranges == ["bytes=500-"]
    list(check_arrays(tmp_path, "cifar10"))


@pytest.mark.parametrize("left", [b"another file" * 10, TAR[:-1] + b"?", TAR + b"more"])
def test_a_part_of_something_else_is_thrown_away(server, tmp_path, left):
    (tmp_path / "cifar-10-binary.tar.gz.part").write_bytes(left)
    fetch(server, "cifar10", tmp_path)
    list(check_arrays(tmp_path, "cifar10"))


@pytest.mark.parametrize("wrong, text", [(TAR[:-1] + b"?", "SHA-256"), (TAR + b"x", "bytes, expected")])
def test_another_file_than_the_published_one_is_refused(server, tmp_path, wrong, text):
    server.files["cifar-10-binary.tar.gz"] = wrong
    error = fetch(server, "cifar10", tmp_path, expect=3)
    assert text in error and "not have the published file" in error
    assert names_in(tmp_path) == []
    assert len(server.ranges) == 2


@pytest.mark.parametrize("status, requests", [(404, 1), (403, 1), (503, 5)])
def test_a_server_that_refuses(server, tmp_path, status, requests):
    server.status = status
    error = fetch(server, "cifar10", tmp_path, expect=3)
    assert f"{server.url}/cifar-10-binary.tar.gz: {status}" in error and "--from DIR" in error and TAR_URL in error
    assert len(server.ranges) == requests


def test_without_a_network_the_message_says_where_to_put_what(server, tmp_path):
    server.stop()
    error = fetch(server, "cifar10", tmp_path, expect=3)
    assert "cannot be reached" in error and f"put {TAR_URL} into a folder DIR" in error


# --- archives and files of a folder -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", CLASSES)
def test_archives_of_a_folder(tmp_path, name):
    source, dest = tmp_path / "source", tmp_path / "dest"
    source.mkdir()
    wanted = {archive.name: archive for file in command.SETS[name] for archive in file.archives}
    for archive in wanted.values():
        error = fetch_from(source, name, dest, expect=3)
        assert f"{source}/{archive.name} does not exist" in error and f"Put {archive.url} there" in error
        (source / archive.name).write_bytes(ARCHIVES[archive.name][:-1] + b"?")
        assert f"{source}/{archive.name}: SHA-256" in fetch_from(source, name, dest, expect=3)
        (source / archive.name).write_bytes(ARCHIVES[archive.name])
    fetch_from(source, name, dest)
    list(check_arrays(dest, name))
    assert names_in(source) == sorted(wanted)


UNPACKED = {"cifar10": cifar10_files(), "cifar100": cifar100_files(), "mnist": mnist_files()}
FOLDERS = {"cifar10": "cifar-10-batches-bin", "cifar100": "cifar-100-binary", "mnist": "."}


@pytest.mark.parametrize("name", UNPACKED)
@pytest.mark.parametrize("below", [True, False])
def test_files_that_are_unpacked_already(tmp_path, name, below):
    source = tmp_path / "source"
    folder = source / FOLDERS[name] if below else source
    folder.mkdir(parents=True)
    for file, content in UNPACKED[name].items():
        (folder / file).write_bytes(content)
    fetch_from(source, name, tmp_path / "dest")
    for file, sha256 in check_arrays(tmp_path / "dest", name):
        read = {path for archive in file.archives for path in archive.files}
        assert sha256 == {path: hashlib.sha256(UNPACKED[name][path]).hexdigest() for path in read}


LABELS = "train-labels-idx1-ubyte"
DAMAGE = {
    "a record is cut off": ("cifar10", "data_batch_3.bin", lambda c: c[:-7], "data_batch_3.bin: 12285 bytes"),
    "nothing": ("cifar10", "test_batch.bin", lambda c: b"", "test_batch.bin: 0 bytes"),
    "an image is missing": ("cifar10", "data_batch_3.bin", lambda c: c[:-3073], "19 images, expected 20"),
    "a label": ("cifar10", "data_batch_1.bin", lambda c: c[:3073] + b"\x0a" + c[3074:], "label 10 of image 1, expected 0 to 9"),
    "a name": ("cifar10", "batches.meta.txt", lambda c: c[9:], "9 names, expected 10"),
    "a superclass": ("cifar100", "train.bin", lambda c: b"\x14" + c[1:], "label 20 of image 0, expected 0 to 19"),
    "records of CIFAR-10": ("cifar100", "test.bin", lambda c: c[:3073], "test.bin: 3073 bytes"),
    "IDX is cut off": ("mnist", LABELS, lambda c: c[:-1], "expected [2049, 19]"),
    "the header is cut off": ("mnist", LABELS, lambda c: c[:7], "the header is []"),
    "images in place of labels": ("mnist", LABELS, lambda c: idx(np.zeros((20, 28, 28), np.uint8)), "the header is [2051, 20]"),
    "a digit": ("mnist", LABELS, lambda c: c[:-1] + b"\x0a", "label 10 of image 19"),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_what_is_wrong_with_unpacked_files_is_named(tmp_path, case):
    name, file, damage, text = DAMAGE[case]
    for other, content in UNPACKED[name].items():
        (tmp_path / other).write_bytes(damage(content) if other == file else content)
    assert text in fetch_from(tmp_path, name, tmp_path / "dest", expect=3)
    (tmp_path / file).unlink()
    assert "does not exist" in fetch_from(tmp_path, name, tmp_path / "dest", expect=3)


IMAGES, DIGITS_OF = NOISE["svhn"]["train.safetensors"]
MATS = {
    "gray": (mat(IMAGES[:, :, :, :1], DIGITS_OF), "[32, 32, 1, 20]"),
    "as numbers": (mat(IMAGES.astype(float), DIGITS_OF), "X is float64"),
    "labels in a row": (mat(IMAGES, DIGITS_OF, y=DIGITS_OF[None]), "y uint8 [1, 20]"),
    "a label is 0": (mat(IMAGES, DIGITS_OF, y=DIGITS_OF[:, None]), "label 0 of image 0, expected 1 to 10"),
    "no X": (mat(IMAGES, DIGITS_OF)[:128], "X is float64 [0]"),
    "cut off": (mat(IMAGES, DIGITS_OF)[:5000], "is no MAT-file"),
    "text": (b"<!DOCTYPE html>" * 50, "is no MAT-file"),
}


@pytest.mark.parametrize("case", MATS)
def test_mat_files_of_something_else(tmp_path, publish, case):
    content, text = MATS[case]
    publish(**{"train_32x32.mat": content})
    (tmp_path / "train_32x32.mat").write_bytes(content)
    error = fetch_from(tmp_path, "svhn", tmp_path, expect=3)
    assert text in error and "train_32x32.mat" in error


@pytest.mark.parametrize("count", [1, 2])
def test_mat_files_are_compressed_or_not(tmp_path, monkeypatch, count):
    """MATLAB drops a last dimension of 1."""
    images, labels = IMAGES[:count], DIGITS_OF[:count]
    for compressed in (True, False):
        content = mat(images, labels, compressed, **({"X": images[0]} if count == 1 else {}))
        train = official_archives.pinned(ARCHIVES | {"train_32x32.mat": content})["svhn"][0]
        monkeypatch.setitem(command.SETS, "svhn", [dataclasses.replace(train, count=count)])
        (tmp_path / "train_32x32.mat").write_bytes(content)
        fetch_from(tmp_path, "svhn", tmp_path)
        arrays = load_file(tmp_path / "train.safetensors")
        assert np.array_equal(arrays["images"], images) and np.array_equal(arrays["labels"], labels)


@pytest.mark.parametrize("files, links, text", [
    ({"cifar-10-batches-bin/data_batch_1.bin": b"x"}, [], "cifar-10-batches-bin/batches.meta.txt is not in it"),
    ({f"other/{name}": content for name, content in cifar10_files().items()}, [], "is not in it"),
    ({"../escaped": b"x"}, [("cifar-10-batches-bin/batches.meta.txt", "/etc/passwd")], "is not in it"),
])
def test_a_tar_file_of_something_else(server, tmp_path, publish, files, links, text):
    server.files["cifar-10-binary.tar.gz"] = tar_of(files, links)
    publish(**{"cifar-10-binary.tar.gz": server.files["cifar-10-binary.tar.gz"]})
    assert text in fetch(server, "cifar10", tmp_path / "inner" / "dest", expect=3)
    assert names_in(tmp_path) == ["inner/dest/cifar-10-binary.tar.gz.part"]


def test_no_space(server, tmp_path, monkeypatch):
    monkeypatch.setattr(archives.shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10, 5, 5))
    assert "GB are needed" in fetch(server, "svhn", tmp_path, expect=3)


def test_the_call(tmp_path):
    for arguments in (["emnist", tmp_path], ["cifar10"]):
        call(command.main, *arguments, expect=2)
    for name, advice in {
        "fineweb": [f"--dataset HuggingFaceFW/fineweb --subset sample-10BT --out {tmp_path}"],
        "imagenet": [*IMAGENET_FILES, "--from DIR"],
    }.items():
        said = call(command.main, name, tmp_path, expect=3)
        assert all(part in said for part in advice)


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

# As in the kit, numbers are not in the order of the WNIDs, and synsets with children have numbers beyond.
SYNSETS = [(1, "n02119789", 0), (2, "n02100735", 0), (3, "n01440764", 0), (4, "n00001740", 2)]
TRUTH = [3, 1, 1, 2, 3]


def meta_mat(compressed):
    fields = [("ILSVRC2012_ID", "O"), ("WNID", "O"), ("words", "O"), ("num_children", "O"), ("children", "O")]
    rows = [(float(i), wnid, "kit fox, Vulpes", float(n), np.arange(n, dtype=float)) for i, wnid, n in SYNSETS]
    out = io.BytesIO()
    values = {"other": np.arange(3.0), "synsets": np.array(rows, dtype=fields)[:, None]}
    scipy.io.savemat(out, values, do_compression=compressed)
    return out.getvalue()


@pytest.fixture
def imagenet(tmp_path, monkeypatch):
    source = tmp_path / "source"
    source.mkdir()
    images = {w: {f"{w}_{i}.JPEG": f"{w} {i}".encode() * 300 for i in range(3)} for _, w, n in SYNSETS if n == 0}
    validation = {f"ILSVRC2012_val_{i + 1:08d}.JPEG": f"val {i}".encode() * 300 for i in range(len(TRUTH))}
    kit = {folders.META: meta_mat(True), folders.GROUND_TRUTH: "".join(f"{n}\n" for n in TRUTH).encode()}
    files = {
        "ILSVRC2012_img_train.tar": tar_of({f"{w}.tar": tar_of(files) for w, files in images.items()}),
        "ILSVRC2012_img_val.tar": tar_of(dict(reversed(validation.items()))),
        "ILSVRC2012_devkit_t12.tar.gz": tar_of(kit),
    }
    for name, content in files.items():
        (source / name).write_bytes(content)
    pinned = [archives.Archive(n, len(c), hashlib.sha256(c).hexdigest()) for n, c in files.items()]
    monkeypatch.setattr(command.imagenet, "ARCHIVES", pinned)
    wnid = {number: w for number, w, _ in SYNSETS}
    expected = {f"train/{w}/{name}": data for w, files in images.items() for name, data in files.items()}
    expected |= {f"val/{wnid[n]}/{name}": data for n, (name, data) in zip(TRUTH, validation.items())}
    return source, expected


def test_imagenet_becomes_folders_of_classes(imagenet, tmp_path):
    source, expected = imagenet
    dest = tmp_path / "dest"
    fetch_from(source, "imagenet", dest)
    assert tree(dest) == expected
    # Incomplete files of an interrupted call are written again, complete ones are not.
    wnid = "n01440764"
    (dest / "train" / wnid).rename(dest / "train" / f"{wnid}.part")
    (dest / "val").rename(dest / "val.part")
    kept = dest / "train" / "n02119789" / "n02119789_0.JPEG"
    kept.write_bytes(b"kept")
    fetch_from(source, "imagenet", dest)
    assert tree(dest) == expected | {"train/n02119789/n02119789_0.JPEG": b"kept"}


@pytest.mark.parametrize("name", IMAGENET_FILES)
def test_archives_of_imagenet_are_checked(imagenet, tmp_path, name):
    source, _ = imagenet
    content = bytearray((source / name).read_bytes())
    content[len(content) // 2] ^= 1
    (source / name).write_bytes(content)
    assert f"{name}: SHA-256" in fetch_from(source, "imagenet", tmp_path / "dest", expect=3)
    (source / name).unlink()
    assert f"{name} does not exist" in fetch_from(source, "imagenet", tmp_path / "dest", expect=3)


@pytest.mark.parametrize("compressed", [True, False])
def test_classes_are_the_synsets_without_children(compressed):
    assert folders.wnids_of(meta_mat(compressed)) == {number: w for number, w, n in SYNSETS if n == 0}


@pytest.mark.parametrize("damage", [lambda c: c[:200], lambda c: c[:128] + b"\xff" * 64, lambda c: b"text" * 100])
def test_a_damaged_kit_is_named(tmp_path, damage):
    kit = tmp_path / "kit.tar.gz"
    for content in (tar_of({folders.META: damage(meta_mat(True)), folders.GROUND_TRUTH: b"1\n"}), b"no archive"):
        kit.write_bytes(content)
        with pytest.raises(archives.FetchError, match="kit.tar.gz"):
            folders.read_kit(kit)
