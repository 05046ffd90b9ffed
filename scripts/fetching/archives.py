"""Official archives: downloaded from their authors' sites, or taken from a folder, and checked."""

import dataclasses
import gzip
import hashlib
import http.client
import io
import pathlib
import shutil
import sys
import tarfile
import time
import urllib.error
import urllib.request
import zlib
from typing import BinaryIO

ATTEMPTS = 5
PAUSE_S = 2
TIMEOUT_S = 60
CHUNK_BYTES = 1 << 20


class FetchError(Exception):
    """Names a file that could not be obtained or read, and says what to do."""


@dataclasses.dataclass(frozen=True)
class Archive:
    """A file as its authors publish it: a tar file of a folder, a file packed by gzip, or the file itself."""

    url: str  # only the name, if downloading needs an account
    size_bytes: int | None
    sha256: str
    folder: str = ""  # of a tar file: the folder in it
    members: tuple[str, ...] = ()  # of a tar file: the files of that folder that are used

    @property
    def name(self) -> str:
        return pathlib.PurePosixPath(self.url).name

    @property
    def files(self) -> tuple[str, ...]:
        """Official names of the files in it."""
        return self.members or (self.name.removesuffix(".gz"),)


@dataclasses.dataclass(frozen=True)
class Opened:
    """The files of an archive by their official names, and where they are from: SHA-256 by URL or name."""

    files: dict[str, BinaryIO]
    sha256: dict[str, str]


def say(text: str) -> None:
    print(text, flush=True)


def sha256_of(path: pathlib.Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def size_of(path: pathlib.Path) -> int:
    return path.stat().st_size if path.exists() else 0


def problem_with(archive: Archive, path: pathlib.Path) -> str | None:
    """The fault of a complete file; None if it matches the pinned values."""
    size_bytes = path.stat().st_size
    if archive.size_bytes is not None and size_bytes != archive.size_bytes:
        return f"{size_bytes} bytes, expected {archive.size_bytes}"
    sha256 = sha256_of(path)
    return None if sha256 == archive.sha256 else f"SHA-256 {sha256}, expected {archive.sha256}"


def check_space(folder: pathlib.Path, needed_bytes: int) -> None:
    free_bytes = shutil.disk_usage(folder).free
    if free_bytes < needed_bytes:
        raise FetchError(
            f"{folder}: {free_bytes / 1e9:.1f} GB are free, {needed_bytes / 1e9:.1f} GB are needed. Free space there "
            "or choose another DEST."
        )


# --- download -------------------------------------------------------------------------------------------------


class Progress:
    """Shows progress on one line of a terminal; prints nothing elsewhere."""

    def __init__(self, name: str, total_bytes: int) -> None:
        self.name, self.total_bytes, self.shown = name, total_bytes, 0.0

    def update(self, bytes_so_far: int) -> None:
        if sys.stderr.isatty() and time.monotonic() - self.shown > 0.5:
            self.shown = time.monotonic()
            end = "\n" if bytes_so_far == self.total_bytes else ""
            print(
                f"\r{self.name}: {100 * bytes_so_far / self.total_bytes:5.1f} %", end=end, file=sys.stderr, flush=True
            )


def continue_download(url: str, part: pathlib.Path, size_bytes: int) -> None:
    """One request for the rest of `part`. A server without range requests sends everything again."""
    have_bytes = size_of(part)
    request = urllib.request.Request(url, headers={"User-Agent": "sdp-train", "Accept-Encoding": "identity"})
    if have_bytes:
        request.add_header("Range", f"bytes={have_bytes}-")
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
        resumed = response.status == 206 and response.headers.get("Content-Range", "").startswith(
            f"bytes {have_bytes}-"
        )
        at = have_bytes if resumed else 0
        progress = Progress(part.stem, size_bytes)
        with open(part, "r+b" if resumed else "wb") as out:
            out.seek(at)
            while at <= size_bytes and (chunk := response.read(CHUNK_BYTES)):
                out.write(chunk)
                at += len(chunk)
                progress.update(at)


def attempt(archive: Archive, url: str, part: pathlib.Path) -> str | None:
    """Downloads the rest of `part`. Returns an error message, or None on success."""
    have_bytes = size_of(part)
    say(f"downloading {url}" + (f" from byte {have_bytes}" if have_bytes else ""))
    try:
        continue_download(url, part, archive.size_bytes)
    except urllib.error.HTTPError as error:
        if error.code == 416:  # the part belongs to another file
            part.unlink()
        elif error.code < 500:
            raise FetchError(f"{url}: {error.code} {error.reason}.") from error
        return f"{error.code} {error.reason}"
    except urllib.error.URLError as error:
        if not have_bytes:
            raise FetchError(f"{url} cannot be reached: {error.reason}.") from error
        return str(error.reason)
    except (OSError, http.client.HTTPException) as error:
        return repr(error)
    if size_of(part) < archive.size_bytes:
        return f"the connection ended after {size_of(part)} of {archive.size_bytes} bytes"
    return None


def download(archive: Archive, url: str, part: pathlib.Path) -> None:
    """Completes `part` to the pinned file, continuing an earlier download."""
    wrong_files = 0
    for number in range(1, ATTEMPTS + 1):
        problem = attempt(archive, url, part) if size_of(part) < archive.size_bytes else None
        if problem is None:
            problem = problem_with(archive, part)
            if problem is None:
                return
            part.unlink()
            wrong_files += 1
            if wrong_files == 2:  # the first may have been part of another file
                raise FetchError(f"{url}: {problem}. The server does not have the published file.")
        if number < ATTEMPTS:
            say(f"{archive.name}: {problem}; trying again")
            time.sleep(PAUSE_S)
    kept = f" {size_of(part)} bytes are in {part}: the next call resumes there." if size_of(part) else ""
    raise FetchError(f"{url}: {problem}.{kept}")


def downloaded(archive: Archive, dest: pathlib.Path, mirror: str | None) -> pathlib.Path:
    """The checked file in `dest`, under a name that ends with .part."""
    part = dest / f"{archive.name}.part"
    check_space(dest, archive.size_bytes - size_of(part))
    url = f"{mirror.rstrip('/')}/{archive.name}" if mirror else archive.url
    try:
        download(archive, url, part)
    except FetchError as error:
        raise FetchError(
            f"{error}\nWithout a network: put {archive.url} into a folder DIR and add --from DIR to this call."
        ) from error
    return part


# --- contents -------------------------------------------------------------------------------------------------


def open_archive(archive: Archive, path: pathlib.Path) -> Opened:
    """`path`: the checked file."""
    origin = {archive.url: archive.sha256}
    try:
        if archive.members:
            wanted = {f"{archive.folder}/{name}": name for name in archive.members}
            with tarfile.open(path) as tar:
                found = {wanted[m.name]: io.BytesIO(tar.extractfile(m).read()) for m in tar if m.isfile() and m.name in wanted}
            if missing := sorted(set(archive.members) - found.keys()):
                raise FetchError(f"{path}: {archive.folder}/{missing[0]} is not in it.")
            return Opened(found, origin)
        if archive.name.endswith(".gz"):
            return Opened({archive.files[0]: io.BytesIO(gzip.decompress(path.read_bytes()))}, origin)
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise FetchError(f"{path} cannot be unpacked: {error}.") from error
    return Opened({archive.name: path.open("rb")}, origin)


def open_in(archive: Archive, source: pathlib.Path) -> Opened:
    """The archive in a folder, checked, or the files that were unpacked from it, of which no sums are published."""
    path = source / archive.name
    if path.is_file():
        say(f"checking {path}")
        if problem := problem_with(archive, path):
            raise FetchError(f"{path}: {problem}. Replace it with {archive.url}.")
        return open_archive(archive, path)
    for folder in (source, source / archive.folder):
        paths = {name: folder / name for name in archive.files}
        if all(path.is_file() for path in paths.values()):
            say(f"reading what was unpacked from {archive.name} in {folder}")
            return Opened({name: path.open("rb") for name, path in paths.items()},
                          {name: sha256_of(path) for name, path in paths.items()})
    unpacked = "" if archive.files == (archive.name,) else f", nor are all the files in it: {', '.join(archive.files)}"
    raise FetchError(f"{path} does not exist{unpacked}. Put {archive.url} there, then run this again.")
