"""Text documents from files, standard input or a Hugging Face data set, for scripts/prepare_tokens.py.

A source is an iterator of (text, place); the place is for messages. The order is always the same: files in the order
given, those of a folder sorted by path, and documents in the order of the file.
"""

import gzip
import json
import pathlib
import sys

KINDS = {".txt": "text", ".md": "text", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet"}


class InputError(Exception):
    """An error in the input, with its file and position."""


class MissingPackage(Exception):
    """A missing package, its purpose, and how to install it."""


def need(package, purpose):
    """Imports an optional package."""
    try:
        return __import__(package)
    except ImportError as error:
        raise MissingPackage(
            f"{purpose} needs the Python package {package} ({error}). Install it with\n"
            f"  {sys.executable} -m pip install -r scripts/requirements-data.txt"
        ) from error


def kind_of(path):
    """text, jsonl, parquet, or None for an unknown extension."""
    suffixes = [suffix for suffix in path.suffixes if suffix != ".gz"]
    return KINDS.get(suffixes[-1]) if suffixes else None


def files_of(inputs):
    """(path, kind) of each file, also of files below folders; "-" is standard input."""
    for name in inputs:
        path = pathlib.Path(name)
        if name == "-":
            yield None, "text"
        elif path.is_dir():
            found = [(p, kind_of(p)) for p in sorted(path.rglob("*")) if p.is_file() and kind_of(p)]
            if not found:
                raise InputError(f"{path}: no file below it is named *{', *'.join(KINDS)} (or these with .gz)")
            yield from found
        elif path.exists():
            yield path, kind_of(path) or "text"
        else:
            raise InputError(f"{path}: there is no such file or folder")


# --- plain text -------------------------------------------------------------------------------------------------


def open_bytes(path):
    if path is None:
        return sys.stdin.buffer
    return gzip.open(path) if path.suffix == ".gz" else open(path, "rb")


def decode(data, place, offset):
    """`offset`: the position of the data in the file, in bytes."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InputError(
            f"{place}: byte {data[error.start]:#04x} at offset {offset + error.start} is not UTF-8. Convert the file, "
            "for example with iconv -t UTF-8."
        ) from error


def lines(file, place):
    """(number, line with its end) in UTF-8."""
    offset = 0
    for number, line in enumerate(file, 1):
        yield number, decode(line, place, offset)
        offset += len(line)


def text_documents(path, division):
    """The whole file, its paragraphs (between blank lines) or its lines; blank ones are skipped."""
    place = str(path or "standard input")
    with open_bytes(path) as file:
        if division == "file":
            text = decode(file.read(), place, 0)
            if text.strip():
                yield text, place
            return
        paragraph, first = [], 1
        for number, line in lines(file, place):
            if line.strip():
                first = first if paragraph else number
                paragraph.append(line)
            if paragraph and (division == "line" or not line.strip()):
                yield "".join(paragraph).rstrip("\r\n"), f"{place}: line {first}"
                paragraph = []
        if paragraph:
            yield "".join(paragraph).rstrip("\r\n"), f"{place}: line {first}"


# --- records ----------------------------------------------------------------------------------------------------


def checked_text(text, key, place):
    if not isinstance(text, str):
        raise InputError(f"{place}: the value of {key!r} is {type(text).__name__}, expected text")
    try:
        text.isascii() or text.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"{place}: {key!r} has half a surrogate pair at character {error.start}, which is not valid text"
        ) from error
    return text


def jsonl_documents(path, key):
    with open_bytes(path) as file:
        for number, line in lines(file, path):
            if not line.strip():
                continue
            place = f"{path}: line {number}"
            try:
                record = json.loads(line)
            except json.JSONDecodeError as error:
                raise InputError(f"{place}: not JSON ({error})") from error
            if not isinstance(record, dict) or key not in record:
                has = f"keys {', '.join(record)}" if isinstance(record, dict) else type(record).__name__
                raise InputError(f"{place}: no {key!r} ({has}); --text-key names another")
            yield checked_text(record[key], key, place), place


def parquet_documents(path, key):
    need("pyarrow", f"{path}: Parquet")
    import pyarrow
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            if key not in file.schema_arrow.names:
                raise InputError(
                    f"{path}: no column {key!r} ({', '.join(file.schema_arrow.names)}); --text-key names another"
                )
            row = 0
            for batch in file.iter_batches(columns=[key]):
                for text in batch.column(0).to_pylist():
                    place = f"{path}: row {row}"
                    yield checked_text(text, key, place), place
                    row += 1
    except pyarrow.ArrowInvalid as error:
        raise InputError(f"{path}: {error}") from error


def file_documents(inputs, division, key):
    for path, kind in files_of(inputs):
        try:
            if kind == "jsonl":
                yield from jsonl_documents(path, key)
            elif kind == "parquet":
                yield from parquet_documents(path, key)
            else:
                yield from text_documents(path, division)
        except (OSError, EOFError) as error:
            raise InputError(f"{path}: {error}") from error


def dataset_revision(name):
    """The current commit of a data set on the Hugging Face hub, or None with a warning on standard error."""
    need("datasets", "--dataset")
    hub = need("huggingface_hub", "--dataset")
    try:
        return hub.HfApi().dataset_info(name).sha
    except Exception as error:  # of requests or httpx, depending on the version, or for an unknown name
        print(f"warning: --dataset {name}: the hub does not report its revision ({error})", file=sys.stderr)
        return None


def dataset_documents(name, subset, split, key, revision, skip):
    """A data set of the Hugging Face hub as a stream; `revision` is a commit or None, and the first `skip` documents are
    left out."""
    datasets = need("datasets", "--dataset")
    stream = datasets.load_dataset(name, name=subset, split=split, revision=revision, streaming=True)
    for number, record in enumerate(stream.skip(skip) if skip else stream, skip):
        place = f"{name}: document {number}"
        if key not in record:
            raise InputError(f"{place}: no {key!r} ({', '.join(record)}); --text-key names another")
        yield checked_text(record[key], key, place), place
