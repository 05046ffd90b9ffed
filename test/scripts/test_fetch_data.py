"""scripts/fetch_data with a local server, and small archives in place of the pinned ones."""

import hashlib
import http.server
import io
import random
import subprocess
import tarfile
import threading

import numpy as np
import pytest
import scipy.io

from conftest import SCRIPTS, load_script

fetch_data = load_script("fetch_data")
import imagenet_folders


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


BATCH = random.Random(0).randbytes(300_000)
TAR_FILES = {
    "cifar-10-batches-bin": None,
    "cifar-10-batches-bin/data_batch_1.bin": BATCH,
    "cifar-10-batches-bin/a.txt": b"x",
}
TAR = tar_of(TAR_FILES)
MAT = random.Random(1).randbytes(200_000)


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
        threading.Thread(target=self.http.serve_forever, daemon=True).start()


def archive(name, content, folder=None):
    return fetch_data.Archive(f"https://example.invalid/{name}", len(content), hashlib.sha256(content).hexdigest(), folder)


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(fetch_data, "PAUSE_S", 0)
    monkeypatch.setitem(fetch_data.ARCHIVES, "cifar10", [archive("c.tar.gz", TAR, "cifar-10-batches-bin")])
    monkeypatch.setitem(fetch_data.ARCHIVES, "svhn", [archive("train.mat", MAT), archive("test.mat", MAT[::-1])])
    server = Server({"c.tar.gz": TAR, "train.mat": MAT, "test.mat": MAT[::-1]})
    yield server
    server.http.shutdown()
    server.http.server_close()


def fetch(server, name, dest, *more):
    return fetch_data.main([name, str(dest), "--mirror", server.url, *map(str, more)])


def contents(folder):
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.name != ".fetched.json"}


UNPACKED = {"data_batch_1.bin": BATCH, "a.txt": b"x"}


def test_an_archive_is_downloaded_and_unpacked_once(server, tmp_path):
    assert fetch(server, "cifar10", tmp_path / "a" / "b") == 0
    assert contents(tmp_path / "a" / "b") == UNPACKED
    assert server.ranges == [None]
    assert fetch(server, "cifar10", tmp_path / "a" / "b") == 0
    assert server.ranges == [None]
    (tmp_path / "a" / "b" / "data_batch_1.bin").write_bytes(b"short")
    assert fetch(server, "cifar10", tmp_path / "a" / "b") == 0
    assert contents(tmp_path / "a" / "b") == UNPACKED
    assert server.ranges == [None, None]


def test_files_that_need_no_unpacking_keep_their_names(server, tmp_path):
    (tmp_path / "train.mat").write_bytes(MAT)
    assert fetch(server, "svhn", tmp_path) == 0
    assert contents(tmp_path) == {"train.mat": MAT, "test.mat": MAT[::-1]}
    assert len(server.ranges) == 1  # train.mat existed already


@pytest.mark.parametrize("ranged", [True, False])
def test_a_connection_that_ends_is_gone_on_with(server, tmp_path, capsys, ranged):
    server.ranged, server.cuts = ranged, [1000, 50_000]
    assert fetch(server, "cifar10", tmp_path) == 0
    assert contents(tmp_path) == UNPACKED
    assert server.ranges == [None, "bytes=1000-", f"bytes={51_000 if ranged else 50_000}-"]
    assert "ended after 1000 of" in capsys.readouterr().out


def test_the_next_call_goes_on_with_the_part(server, tmp_path, capsys):
    server.cuts = [100] * 5
    assert fetch(server, "cifar10", tmp_path) == 3
    assert "500 bytes are in" in capsys.readouterr().err
    assert contents(tmp_path) == {"c.tar.gz.part": TAR[:500]}
    server.ranges.clear()
    assert fetch(server, "cifar10", tmp_path) == 0
    assert server.ranges == ["bytes=500-"]
    assert contents(tmp_path) == UNPACKED


@pytest.mark.parametrize("left", [b"another file" * 10, TAR[:-1] + b"?", TAR + b"more"])
def test_a_part_of_something_else_is_thrown_away(server, tmp_path, left):
    (tmp_path / "c.tar.gz.part").write_bytes(left)
    assert fetch(server, "cifar10", tmp_path) == 0
    assert contents(tmp_path) == UNPACKED


@pytest.mark.parametrize("wrong, text", [(TAR[:-1] + b"?", "SHA-256"), (TAR + b"x", "bytes, expected")])
def test_another_file_than_the_published_one_is_refused(server, tmp_path, capsys, wrong, text):
    server.files["c.tar.gz"] = wrong
    assert fetch(server, "cifar10", tmp_path) == 3
    error = capsys.readouterr().err
    assert text in error and "not have the published file" in error
    assert contents(tmp_path) == {}
    assert len(server.ranges) == 2


def test_a_shorter_file_on_the_server_does_not_pass(server, tmp_path, capsys):
    server.files["c.tar.gz"] = TAR[:-100]
    assert fetch(server, "cifar10", tmp_path) == 3
    assert not (tmp_path / "data_batch_1.bin").exists()


@pytest.mark.parametrize("status, requests", [(404, 1), (403, 1), (503, 5)])
def test_a_server_that_refuses(server, tmp_path, capsys, status, requests):
    server.status = status
    assert fetch(server, "cifar10", tmp_path) == 3
    error = capsys.readouterr().err
    assert f"{server.url}/c.tar.gz: {status}" in error and "--from DIR" in error and "example.invalid/c.tar.gz" in error
    assert len(server.ranges) == requests


def test_without_a_network_the_message_says_where_to_put_what(server, tmp_path, capsys):
    server.http.shutdown()
    server.http.server_close()
    assert fetch(server, "cifar10", tmp_path) == 3
    error = capsys.readouterr().err
    assert "cannot be reached" in error and "put https://example.invalid/c.tar.gz into a folder DIR" in error


@pytest.mark.parametrize(
    "files, links",
    [
        ({"cifar-10-batches-bin/../../escaped": b"x"}, []),
        ({"../escaped": b"x"}, []),
        ({"/escaped": b"x"}, []),
        ({"cifar-10-batches-bin/inner/escaped": b"x"}, []),
        ({"other/escaped": b"x"}, []),
        ({"cifar-10-batches-bin/a": b"x"}, [("cifar-10-batches-bin/link", "/etc/passwd")]),
        ({"cifar-10-batches-bin/a": b"x"}, [("cifar-10-batches-bin/link", "a")]),
    ],
)
def test_a_tar_file_cannot_write_elsewhere(server, tmp_path, monkeypatch, capsys, files, links):
    content = tar_of(files, links)
    monkeypatch.setitem(fetch_data.ARCHIVES, "cifar10", [archive("c.tar.gz", content, "cifar-10-batches-bin")])
    server.files["c.tar.gz"] = content
    dest = tmp_path / "inner" / "dest"
    assert fetch(server, "cifar10", dest) == 3
    assert "c.tar.gz" in capsys.readouterr().err
    written = {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if not p.is_dir() or p.is_symlink()}
    assert written <= {"inner/dest/c.tar.gz.part", "inner/dest/a"}


def test_archives_of_a_folder(server, tmp_path, capsys):
    source, dest = tmp_path / "source", tmp_path / "dest"
    source.mkdir()
    assert fetch(server, "svhn", dest, "--from", source) == 3
    assert f"{source}/train.mat does not exist. Put https://example.invalid/train.mat there" in capsys.readouterr().err
    (source / "train.mat").write_bytes(MAT)
    (source / "test.mat").write_bytes(MAT)
    assert fetch(server, "svhn", dest, "--from", source) == 3
    assert f"{source}/test.mat: SHA-256" in capsys.readouterr().err
    (source / "test.mat").write_bytes(MAT[::-1])
    (source / "c.tar.gz").write_bytes(TAR)
    assert fetch(server, "svhn", dest, "--from", source) == 0
    assert fetch(server, "cifar10", dest, "--from", source) == 0
    assert contents(dest) == UNPACKED | {"train.mat": MAT, "test.mat": MAT[::-1]}
    assert len(contents(source)) == 3
    assert server.ranges == []


def test_no_space(server, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(fetch_data.shutil, "disk_usage", lambda _: fetch_data.shutil._ntuple_diskusage(10, 5, 5))
    assert fetch(server, "svhn", tmp_path) == 3
    assert "GB are needed" in capsys.readouterr().err


def test_the_call(tmp_path):
    def call(*arguments):
        return subprocess.run([SCRIPTS / "fetch_data", *arguments], capture_output=True, text=True)

    assert call("emnist", tmp_path).returncode == 2
    assert call("cifar10").returncode == 2
    fineweb = call("fineweb", tmp_path / "fw")
    assert fineweb.returncode == 3
    assert f"--dataset HuggingFaceFW/fineweb --subset sample-10BT --out {tmp_path}/fw" in fineweb.stderr
    imagenet = call("imagenet", tmp_path / "in")
    assert imagenet.returncode == 3
    for name in ("ILSVRC2012_img_train.tar", "ILSVRC2012_img_val.tar", "ILSVRC2012_devkit_t12.tar.gz", "--from DIR"):
        assert name in imagenet.stderr


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
    kit = {imagenet_folders.META: meta_mat(True), imagenet_folders.GROUND_TRUTH: "".join(f"{n}\n" for n in TRUTH).encode()}
    files = {
        "ILSVRC2012_img_train.tar": tar_of({f"{w}.tar": tar_of(files) for w, files in images.items()}),
        "ILSVRC2012_img_val.tar": tar_of(dict(reversed(validation.items()))),
        "ILSVRC2012_devkit_t12.tar.gz": tar_of(kit),
    }
    for name, content in files.items():
        (source / name).write_bytes(content)
    pinned = [fetch_data.Archive(n, len(c), hashlib.sha256(c).hexdigest()) for n, c in files.items()]
    monkeypatch.setitem(fetch_data.ARCHIVES, "imagenet", pinned)
    wnid = {number: w for number, w, _ in SYNSETS}
    expected = {f"train/{w}/{name}": data for w, files in images.items() for name, data in files.items()}
    expected |= {f"val/{wnid[n]}/{name}": data for n, (name, data) in zip(TRUTH, validation.items())}
    return source, expected


def tree(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_imagenet_becomes_folders_of_classes(imagenet, tmp_path):
    source, expected = imagenet
    dest = tmp_path / "dest"
    assert fetch_data.main(["imagenet", str(dest), "--from", str(source)]) == 0
    assert tree(dest) == expected
    # Incomplete files of an interrupted call are written again, complete ones are not.
    wnid = "n01440764"
    (dest / "train" / wnid).rename(dest / "train" / f"{wnid}.part")
    (dest / "val").rename(dest / "val.part")
    kept = dest / "train" / "n02119789" / "n02119789_0.JPEG"
    kept.write_bytes(b"kept")
    assert fetch_data.main(["imagenet", str(dest), "--from", str(source)]) == 0
    assert tree(dest) == expected | {"train/n02119789/n02119789_0.JPEG": b"kept"}


@pytest.mark.parametrize("name", ["ILSVRC2012_img_train.tar", "ILSVRC2012_img_val.tar", "ILSVRC2012_devkit_t12.tar.gz"])
def test_archives_of_imagenet_are_checked(imagenet, tmp_path, capsys, name):
    source, _ = imagenet
    content = bytearray((source / name).read_bytes())
    content[len(content) // 2] ^= 1
    (source / name).write_bytes(content)
    assert fetch_data.main(["imagenet", str(tmp_path / "dest"), "--from", str(source)]) == 3
    assert f"{name}: SHA-256" in capsys.readouterr().err
    (source / name).unlink()
    assert fetch_data.main(["imagenet", str(tmp_path / "dest"), "--from", str(source)]) == 3
    assert f"{name} does not exist" in capsys.readouterr().err


@pytest.mark.parametrize("compressed", [True, False])
def test_meta_mat_is_read_as_scipy_reads_it(compressed):
    content = meta_mat(compressed)
    synsets = imagenet_folders.read_mat(content)["synsets"]
    wanted = scipy.io.loadmat(io.BytesIO(content), squeeze_me=True)["synsets"]
    assert len(synsets) == len(wanted)
    for got, want in zip(synsets, wanted):
        assert got["ILSVRC2012_ID"] == [want["ILSVRC2012_ID"]]
        assert (got["WNID"], got["words"]) == (want["WNID"], want["words"])
        assert got["children"] == np.atleast_1d(want["children"]).tolist()
    assert imagenet_folders.read_mat(content)["other"] == [0, 1, 2]
    assert imagenet_folders.wnids_of(content) == {number: w for number, w, n in SYNSETS if n == 0}


@pytest.mark.parametrize("damage", [lambda c: c[:200], lambda c: c[:128] + b"\xff" * 64, lambda c: b"text" * 100])
def test_a_damaged_kit_is_named(tmp_path, damage):
    kit = tmp_path / "kit.tar.gz"
    kit.write_bytes(tar_of({imagenet_folders.META: damage(meta_mat(True)), imagenet_folders.GROUND_TRUTH: b"1\n"}))
    with pytest.raises(imagenet_folders.ArchiveError, match="kit.tar.gz"):
        imagenet_folders.read_kit(kit)
    kit.write_bytes(b"no archive")
    with pytest.raises(imagenet_folders.ArchiveError, match="kit.tar.gz"):
        imagenet_folders.read_kit(kit)
