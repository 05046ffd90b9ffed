"""Text documents from files or a Hugging Face data set, for scripts/prepare_tokens.py.

The content of a file decides how it is read; its name only says whether content without a structure may be plain text. A
source yields (text, place); the place is for messages. The order is always the same: files in the order given, those of a
folder sorted by path, and documents in the order of the file.
"""

import fnmatch
import gzip
import io
import itertools
import json
import pathlib
import re
import shlex
import sys
import zlib
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO

Documents = Iterator[tuple[str, str]]

KINDS = {
    ".txt": "text",
    ".text": "text",
    ".md": "text",
    ".json": "JSON",
    ".jsonl": "JSON",
    ".ndjson": "JSON",
    ".parquet": "Parquet",
}
PACKED = {".gz", ".zst"}
HEAD_BYTES = 1 << 16  # of a file's content, by which its kind is known
BOM = b"\xef\xbb\xbf"
JSON_BEGIN = re.compile(rb'\s*(\{\s*"|\[\s*[{"])')
PAGE_BEGIN = re.compile(rb"\s*<(!doctype|html|\?xml)", re.IGNORECASE)
BLANKS = re.compile(r"\s*")
UTF_16 = "UTF-16. Convert it, for example with iconv -f UTF-16 -t UTF-8"
LFS = "a Git LFS pointer instead of the file, which git lfs pull fetches"
REFUSED = {b"version https://git-lfs": LFS, b"\xff\xfe": UTF_16, b"\xfe\xff": UTF_16}
READ_ERRORS = (OSError, EOFError, zlib.error)
EXCERPTS, EXCERPT_CHARACTERS = 256, 2000  # of which the number of tokens is estimated


class InputError(Exception):
    """An error in the input, with its file and position."""


class MissingPackage(Exception):
    """A missing package, its purpose, and how to install it."""


def need(package: str, purpose: str) -> Any:
    """Imports an optional package."""
    try:
        return __import__(package)
    except ImportError as error:
        requirements = pathlib.Path(__file__).with_name("requirements-data.txt")
        raise MissingPackage(
            f"{purpose} needs the Python package {package} ({error}). Install it with\n"
            f"  {shlex.join([sys.executable, '-m', 'pip', 'install', '-r', str(requirements)])}"
        ) from error


# --- files and their kinds --------------------------------------------------------------------------------------

UNPACK: dict[bytes, Callable] = {  # by the first bytes
    b"\x1f\x8b": gzip.open,
    b"\x28\xb5": lambda path: io.BufferedReader(need("pyarrow", f"{path}: zstd").input_stream(path, compression="zstd")),
}


class Source:
    """A file whose kind is known."""

    def __init__(self, path: pathlib.Path, place: str, plain: bool):
        """`plain`: the user says that it is plain text."""
        if not path.is_file():
            raise InputError(f"{place}: there is no such file, or it is not a regular one; pipes go to standard input, INPUT -")
        self.path, self.place, self.bom_bytes = path, place, 0
        self.size_bytes, self.changed_ns = path.stat().st_size, path.stat().st_mtime_ns
        try:
            with open(path, "rb") as file:
                self.unpack = UNPACK.get(file.read(2))
            with self.open() as file:
                head = file.read(HEAD_BYTES)
        except READ_ERRORS as error:
            raise InputError(f"{place}: {error}") from error
        self.bom_bytes = len(BOM) if head.startswith(BOM) else 0
        self.kind = self.kind_of(head[self.bom_bytes :], plain)

    def open(self) -> BinaryIO:
        """The unpacked content after a byte-order mark."""
        file = self.unpack(self.path) if self.unpack else open(self.path, "rb")
        file.read(self.bom_bytes)
        return file

    def kind_of(self, head: bytes, plain: bool) -> str:
        endings = [ending.lower() for ending in self.path.suffixes]
        ending = next((ending for ending in reversed(endings) if ending not in PACKED), "")
        promised = "text" if plain else KINDS.get(ending)
        packed_by_name = bool(PACKED.intersection(endings[-1:])) and not self.unpack
        if what := next((REFUSED[magic] for magic in REFUSED if head.startswith(magic)), None):
            raise InputError(f"{self.place}: {what}")
        if not plain and (packed_by_name or promised in ("JSON", "Parquet")) and PAGE_BEGIN.match(head):
            raise InputError(f"{self.place}: an HTML or XML page, perhaps the error message of a download")
        if head.startswith(b"PAR1") and not self.unpack:
            return "Parquet"
        if head[:2] in UNPACK or b"\0" in head:
            raise InputError(f"{self.place}: binary, not Parquet, nor text or JSON, which gzip or zstd may have packed once")
        if JSON_BEGIN.match(head) and not plain:
            return "JSON"
        if promised == "Parquet":
            raise InputError(f"{self.place}: not Parquet: it begins with {head[:8]!r}")
        if not promised:
            pattern = f"'*{ending}'" if ending else self.path.name
            raise InputError(f"{self.place}: may not be text. If it is, add --text {pattern}; --skip {pattern} leaves it out")
        return promised

    def documents(self, division: str, key: str) -> Documents:
        try:
            yield from text_documents(self, division) if self.kind == "text" else RECORDS[self.kind](self, key)
        except READ_ERRORS as error:
            raise InputError(f"{self.place}: {error}") from error


def sources_of(options: Namespace, stdin: pathlib.Path) -> tuple[list[Source], list[Exception]]:
    """The files to read, also those below folders, and what is wrong with others. `stdin`: a copy of standard input."""
    sources: list[Source] = []
    problems: list[Exception] = []
    for name in options.inputs:
        top = stdin if name == "-" else pathlib.Path(name)
        paths = sorted(p for p in top.rglob("*") if p.is_symlink() or not p.is_dir()) if top.is_dir() else [top]
        if not paths:
            problems.append(InputError(f"{top}: no file below it"))
        for path in paths:
            names = path.relative_to(top).parts or (path.name,)
            plain, skipped = (any(fnmatch.filter(names, p) for p in patterns) for patterns in (options.text, options.skip))
            try:
                if not skipped:
                    sources.append(Source(path, "standard input" if path == stdin else str(path), plain))
            except (InputError, MissingPackage) as problem:
                problems.append(problem)
    return sources, problems


class Survey:
    """What documents contain, for which all of them are read. Raises all problems at once, with the first one in each source."""

    def __init__(self, sources: Iterable[Iterable[tuple[str, str]]], problems: list[Exception]):
        self.documents = self.characters = 0
        self.excerpts: list[str] = []  # evenly over all characters
        self.distance = EXCERPT_CHARACTERS
        for documents in sources:
            try:
                for text, _ in documents:
                    self.add(text)
            except (InputError, MissingPackage) as problem:
                problems.append(problem)
        if problems:
            raise type(problems[0])("\n  ".join(dict.fromkeys(map(str, problems))))

    def add(self, text: str) -> None:
        if not text.strip():
            return
        while (at := len(self.excerpts) * self.distance - self.characters) < len(text):
            self.excerpts.append(text[at : at + EXCERPT_CHARACTERS])
            if len(self.excerpts) == 2 * EXCERPTS:
                self.excerpts, self.distance = self.excerpts[::2], 2 * self.distance
        self.documents += 1
        self.characters += len(text)


# --- plain text -------------------------------------------------------------------------------------------------


def decode(data: bytes, place: str, offset: int) -> str:
    """`offset`: the position of the data in the file, in bytes."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InputError(
            f"{place}: byte {data[error.start]:#04x} at offset {offset + error.start} is not UTF-8. Convert the file, "
            "for example with iconv -t UTF-8."
        ) from error


def whole(source: Source) -> str:
    with source.open() as file:
        return decode(file.read(), source.place, source.bom_bytes)


def lines(source: Source) -> Iterator[tuple[int, str]]:
    """(number, line with its end) in UTF-8."""
    offset = source.bom_bytes
    with source.open() as file:
        for number, line in enumerate(file, 1):
            yield number, decode(line, source.place, offset)
            offset += len(line)


def text_documents(source: Source, division: str) -> Documents:
    """The whole file, its paragraphs (between blank lines) or its lines that are not blank."""
    if division == "file":
        yield whole(source), source.place
        return
    unit = (lambda line: bool(line[1].strip())) if division == "paragraph" else (lambda line: line[1].strip() and line[0])
    for kept, group in itertools.groupby(lines(source), unit):
        if kept:
            numbers, texts = zip(*group, strict=True)
            yield "".join(texts).rstrip("\r\n"), f"{source.place}: line {numbers[0]}"


# --- records ----------------------------------------------------------------------------------------------------


def text_of(record: Any, key: str, place: str) -> str:
    if not isinstance(record, dict) or key not in record:
        has = f"keys {', '.join(record)}" if isinstance(record, dict) else type(record).__name__
        raise InputError(f"{place}: no {key!r} ({has}); --text-key names another")
    text = record[key]
    if not isinstance(text, str):
        raise InputError(f"{place}: the value of {key!r} is {type(text).__name__}, expected text")
    try:
        text.isascii() or text.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{place}: {key!r} has half a surrogate pair at character {error.start}") from error
    return text


def json_documents(source: Source, key: str) -> Documents:
    """An object per line; or, if the first line is none, the elements of an array and objects that span lines, for which the
    file is read as a whole."""
    place, records = source.place, 0
    try:
        if re.fullmatch(r"\s*(\{.*\}\s*)?", next((line for _, line in lines(source) if line.strip()), "")):
            for number, line in lines(source):
                place = f"{source.place}: line {number}"
                if line.strip():
                    yield text_of(json.loads(line), key, place), place
            return
        text, at = whole(source).strip(), 0
        while at < len(text):
            place = source.place
            value, at = json.JSONDecoder().raw_decode(text, BLANKS.match(text, at).end())
            for record in value if isinstance(value, list) else [value]:
                records += 1
                place = f"{source.place}: record {records}"
                yield text_of(record, key, place), place
    except (ValueError, RecursionError) as error:
        raise InputError(f"{place}: not JSON ({error}). If the file is plain text, --text says so.") from error


def parquet_documents(source: Source, key: str) -> Documents:
    pyarrow = need("pyarrow.parquet", f"{source.place}: Parquet")
    try:
        with pyarrow.parquet.ParquetFile(source.path) as file:
            if key not in (columns := file.schema_arrow.names):
                raise InputError(f"{source.place}: no column {key!r} ({', '.join(columns)}); --text-key names another")
            rows = (row for batch in file.iter_batches(columns=[key]) for row in batch.to_pylist())
            for number, row in enumerate(rows):
                place = f"{source.place}: row {number}"
                yield text_of(row, key, place), place
    except pyarrow.ArrowException as error:
        raise InputError(f"{source.place}: Parquet: {error}") from error


RECORDS = {"JSON": json_documents, "Parquet": parquet_documents}


def dataset_revision(name: str) -> str | None:
    """The current commit of a data set on the Hugging Face hub, or None with a warning on standard error."""
    need("datasets", "--dataset")
    hub = need("huggingface_hub", "--dataset")
    try:
        return hub.HfApi().dataset_info(name).sha
    except Exception as error:  # of requests or httpx, depending on the version, or for an unknown name
        print(f"warning: --dataset {name}: the hub does not report its revision ({error})", file=sys.stderr)
        return None


def dataset_documents(name: str, subset: str | None, split: str, key: str, revision: str | None) -> Documents:
    """A data set of the Hugging Face hub as a stream; `revision` is a commit or None."""
    stream = need("datasets", "--dataset").load_dataset(name, name=subset, split=split, revision=revision, streaming=True)
    for number, record in enumerate(stream):
        place = f"{name}: document {number}"
        yield text_of(record, key, place), place
