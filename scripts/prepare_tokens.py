#!/usr/bin/env python3
"""Writes text as the token shards that sdp-train and llm.c read.

    prepare_tokens.py INPUT... --out DIR --name NAME [--val-tokens N] ...
    prepare_tokens.py --dataset HuggingFaceFW/fineweb --subset sample-10BT --out DIR --name fineweb

An INPUT is a file, a folder or - (standard input). Its content decides how it is read: JSON has one document per line or
element of an array, Parquet one per row, and plain text is a single document (--document divides it). All may be packed by
gzip or zstd, Parquet excepted. The input is read once to find all errors in it before the work begins.

DIR gets NAME_val_000000.bin for validation, with documents from all over the input, and NAME_train_000001.bin, .._000002.bin,
.. with the others. The end-of-text token precedes every document; blank ones are left out. Tokens have 16 bits if the
vocabulary fits and 32 if not. A shard is renamed to its final name when it is complete, and NAME.state.json says where the
next one begins: --resume continues there. The same input and options give the same bytes, with any number of processes. A
tokenizer.json is copied to NAME.tokenizer.json, so that models trained on the shards are exported with it.

Exit status: 0 everything was written, 2 the arguments are wrong or a package is missing, 3 the input cannot be read.
"""

import argparse
import collections
import concurrent.futures
import hashlib
import itertools
import multiprocessing
import os
import pathlib
import shutil
import sys
import tempfile
import threading
from array import array
from collections.abc import Iterable, Iterator
from typing import Any

import text_documents
from text_documents import Documents, InputError, MissingPackage, Source, Survey, need
from token_shards import Output, State, UsageError, part_of, read_state, write_state

BATCH_CHARACTERS = 1 << 20  # of documents that a process tokenizes at a time
BATCHES_AHEAD = 4  # per process; limits the memory
DATASET_SURVEY = 256  # documents of a --dataset that are read beforehand
DATASET_SHARE = 10  # of a --dataset, whose size is unknown: one in so many documents, until there are enough
MOST_VAL_TOKENS = 10_000_000  # by default
END_OF_TEXT = ["<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>"]


# --- tokenizers -------------------------------------------------------------------------------------------------


class Tiktoken:
    def __init__(self, name: str):
        tiktoken = need("tiktoken", f"--tokenizer {name}")
        try:
            self.encoding = tiktoken.get_encoding(name)
        except ValueError as error:
            raise UsageError(f"--tokenizer {name}: neither a file nor one of tiktoken's encodings ({error})") from error
        except OSError as error:  # raised by requests
            raise UsageError(
                f"--tokenizer {name}: tiktoken cannot download its files ({error}). Download them where there is a "
                "network and set TIKTOKEN_CACHE_DIR to their folder, or give a tokenizer.json."
            ) from error
        self.vocab_size = self.encoding.n_vocab
        self.fingerprint = f"tiktoken {name}"

    def id_of(self, token: str) -> int | None:
        return self.encoding.encode_single_token(token) if token in self.encoding.special_tokens_set else None

    def encode(self, texts: list[str]) -> list:
        return [self.encoding.encode_ordinary(text) for text in texts]


class TokenizersFile:
    """A tokenizer.json of Hugging Face's library. Special tokens that occur in a text are encoded as text."""

    def __init__(self, path: str):
        tokenizers = need("tokenizers", f"--tokenizer {path}")
        content = pathlib.Path(path).read_text()
        try:
            self.tokenizer = tokenizers.Tokenizer.from_str(content)
        except Exception as error:  # the library raises nothing more specific
            raise UsageError(f"--tokenizer {path}: not a tokenizer.json ({error})") from error
        self.tokenizer.encode_special_tokens = True
        self.tokenizer.no_truncation()
        self.tokenizer.no_padding()
        self.vocab_size = max(self.tokenizer.get_vocab(with_added_tokens=True).values()) + 1
        self.fingerprint = f"tokenizer.json {hashlib.sha256(content.encode()).hexdigest()}"
        self.file_content = content

    def id_of(self, token: str) -> int | None:
        return self.tokenizer.token_to_id(token)

    def encode(self, texts: list[str]) -> list:
        return [e.ids for e in self.tokenizer.encode_batch(texts, add_special_tokens=False)]


class Bytes:
    """The bytes of the text in UTF-8; 256 is the end-of-text token. Needs no package."""

    vocab_size = 257
    fingerprint = "bytes"

    def id_of(self, token: str) -> int | None:
        return 256 if token == END_OF_TEXT[0] else None

    def encode(self, texts: list[str]) -> list:
        return [text.encode() for text in texts]


def open_tokenizer(name: str) -> Tiktoken | TokenizersFile | Bytes:
    if name == "bytes":
        return Bytes()
    return TokenizersFile(name) if name.endswith(".json") or os.path.exists(name) else Tiktoken(name)


def end_of_text(tokenizer: Tiktoken | TokenizersFile | Bytes, wanted: str | None) -> int:
    """Id of the end-of-text token."""
    names = [wanted] if wanted else [name for name in END_OF_TEXT if tokenizer.id_of(name) is not None]
    if len(names) != 1 or tokenizer.id_of(names[0]) is None:
        found = f"has {', '.join(names)}" if len(names) > 1 else f"has no {wanted or ', '.join(END_OF_TEXT)}"
        raise UsageError(f"--end-of-text: the vocabulary {found}. Name the token that begins a document.")
    return tokenizer.id_of(names[0])


# --- tokenizing, in this process or several -----------------------------------------------------------------------

worker: "Worker"  # in a process of the pool: its tokenizer


class Worker:
    def __init__(self, tokenizer_name: str, end_of_text_name: str | None):
        self.tokenizer = open_tokenizer(tokenizer_name)
        self.end = end_of_text(self.tokenizer, end_of_text_name)
        self.typecode = "H" if self.tokenizer.vocab_size <= 1 << 16 else "I"
        self.token_bytes = array(self.typecode).itemsize

    def tokens_of(self, texts: list[str]) -> tuple[array, list[int]]:
        """All tokens, with an end-of-text token before each document, and the number of tokens of every document."""
        documents = [[self.end, *ids] for ids in self.tokenizer.encode(texts)]
        flat = array(self.typecode, itertools.chain.from_iterable(documents))
        if sys.byteorder == "big":  # shards are little-endian
            flat.byteswap()
        return flat, [len(ids) for ids in documents]


def start_worker(*arguments: Any) -> None:
    global worker
    # Otherwise a process of the pool would outlive a killed parent.
    threading.Thread(target=lambda: (multiprocessing.parent_process().join(), os._exit(1)), daemon=True).start()
    worker = Worker(*arguments)


def run_worker(texts: list[str]) -> tuple[array, list[int]]:
    return worker.tokens_of(texts)


def batches_of(documents: Iterable[str]) -> Iterator[list[str]]:
    texts, characters = [], 0
    for text in documents:
        texts.append(text)
        characters += len(text)
        if characters >= BATCH_CHARACTERS:
            yield texts
            texts, characters = [], 0
    if texts:
        yield texts


def tokenized(documents: Iterable[str], own_worker: Worker, options: argparse.Namespace) -> Iterator[tuple[array, list[int]]]:
    """Results of Worker.tokens_of in the order of the documents, computed at most a few batches ahead."""
    if options.processes == 1:
        yield from map(own_worker.tokens_of, batches_of(documents))
        return
    context = multiprocessing.get_context("spawn")
    arguments = (options.tokenizer, options.end_of_text)
    with concurrent.futures.ProcessPoolExecutor(options.processes, context, start_worker, arguments) as pool:
        pending: collections.deque = collections.deque()
        try:
            for texts in batches_of(documents):
                pending.append(pool.submit(run_worker, texts))
                if len(pending) >= BATCHES_AHEAD * options.processes:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()


# --- resuming after an interruption ---------------------------------------------------------------------------------


def settings_of(options: argparse.Namespace, sources: list[Source], worker: Worker) -> dict[str, Any]:
    """Settings that a later call must share to resume with the shards. lib/data reads end_of_text and vocab_size."""
    return {
        "dataset": [options.dataset, options.subset, options.split],
        "inputs": [[source.place, source.kind, source.size_bytes, source.changed_ns] for source in sources],
        "tokenizer": worker.tokenizer.fingerprint,
        "vocab_size": worker.tokenizer.vocab_size,
        "end_of_text": worker.end,
    } | {key: getattr(options, key) for key in ("document", "text_key", "shard_tokens", "val_tokens")}


def validation_of(options: argparse.Namespace, survey: Survey, worker: Worker) -> tuple[int, int]:
    """Characters of validation, and over how many they are spread (State)."""
    if not survey.characters:
        raise InputError("the input has no text")
    tokens_of_excerpts = sum(map(len, worker.tokenizer.encode(survey.excerpts)))
    tokens_per_character = survey.documents / survey.characters + tokens_of_excerpts / sum(map(len, survey.excerpts))
    tokens = round(tokens_per_character * survey.characters)
    usual = MOST_VAL_TOKENS if options.dataset else max(1, min(MOST_VAL_TOKENS, tokens // 20))
    goal = usual if options.val_tokens is None else options.val_tokens
    characters = round(goal / tokens_per_character)
    if options.dataset:
        return characters, DATASET_SHARE * characters
    if 2 * goal > tokens:
        raise UsageError(f"--val-tokens {goal}: more than half of the input, which has about {tokens} tokens; {usual} are usual")
    print(f"{survey.documents} documents with about {tokens} tokens, {goal} of them for validation", flush=True)
    return (max(1, characters), survey.characters) if goal else (0, 0)


def begin(options: argparse.Namespace, sources: list[Source], problems: list[Exception], settings: dict, worker: Worker) -> State:
    """The state of a call that does not resume."""
    revision = text_documents.dataset_revision(options.dataset) if options.dataset else None
    documents = [source.documents(options.document, options.text_key) for source in sources]
    if options.dataset:
        documents = [itertools.islice(documents_of(options, sources, revision), DATASET_SURVEY)]
    state = State(settings, revision, *validation_of(options, Survey(documents, problems), worker))
    if isinstance(worker.tokenizer, TokenizersFile):
        (options.out / f"{options.name}.tokenizer.json").write_text(worker.tokenizer.file_content)
    write_state(options, state)
    return state


# --- the program ----------------------------------------------------------------------------------------------------


def token_count(text: str) -> int:
    for unit, power in {"k": "e3", "m": "e6", "g": "e9", "b": "e9"}.items():
        text = text.lower().replace(unit, power)
    if not (number := float(text)).is_integer() or number < 0:
        raise ValueError
    return int(number)


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("inputs", nargs="*", metavar="INPUT", help="files, folders or -")
    parser.add_argument("--dataset", metavar="REPO", help="a data set of the Hugging Face hub, streamed")
    parser.add_argument("--subset", metavar="NAME", help="with --dataset: its configuration")
    parser.add_argument("--split", metavar="NAME", default="train", help="with --dataset (train)")
    parser.add_argument("--out", metavar="DIR", type=pathlib.Path, required=True, help="folder for the shards")
    parser.add_argument("--name", default="tokens", help="prefix of the shards' names (tokens)")
    parser.add_argument(
        "--tokenizer", default="gpt2", metavar="NAME|FILE", help="an encoding of tiktoken, a tokenizer.json, or bytes (gpt2)"
    )
    parser.add_argument(
        "--end-of-text", metavar="TOKEN", help=f"token before each document (default: the one of {END_OF_TEXT} in the vocabulary)"
    )
    parser.add_argument(
        "--document", choices=["file", "paragraph", "line"], default="file", help="plain text: the unit of a document (file)"
    )
    parser.add_argument("--text-key", default="text", metavar="KEY", help="key of the text in JSON, Parquet and --dataset (text)")
    parser.add_argument("--shard-tokens", type=token_count, default=100_000_000, metavar="N", help="tokens per shard (100M)")
    parser.add_argument(
        "--val-tokens",
        type=token_count,
        metavar="N",
        help="tokens of validation, about, such as 60k or 1.5M; 0: none (a 20th of the input, at most 10M)",
    )
    for option, purpose in (("--text", "are plain text, whatever their ending or content"), ("--skip", "are left out")):
        parser.add_argument(
            option, action="append", default=[], metavar="PATTERN", help=f"files, or those in folders, named like *.log {purpose}"
        )
    parser.add_argument(
        "--processes", type=int, default=os.cpu_count(), metavar="N", help="processes that tokenize (default: all cores)"
    )
    parser.add_argument("--resume", action="store_true", help="continue after the complete shards")
    options = parser.parse_args(arguments)
    if bool(options.inputs) == bool(options.dataset):
        parser.error("either INPUT or --dataset is needed")
    if options.shard_tokens < 1 or options.processes < 1:
        parser.error("--shard-tokens and --processes must be at least 1")
    if options.resume and "-" in options.inputs:
        parser.error("--resume cannot continue with standard input, which cannot be read again")
    if any(part in options.name for part in ("/", "train", "val")):
        parser.error("--name is a prefix of file names, to which _train and _val are added; it must not contain them or a slash")
    return options


def documents_of(options: argparse.Namespace, sources: list[Source], revision: str | None) -> Documents:
    if options.dataset:
        return text_documents.dataset_documents(options.dataset, options.subset, options.split, options.text_key, revision)
    return itertools.chain.from_iterable(source.documents(options.document, options.text_key) for source in sources)


def prepare(options: argparse.Namespace) -> None:
    own_worker = Worker(options.tokenizer, options.end_of_text)
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=options.out, suffix=".txt") as stdin:  # the input is read several times
        if "-" in options.inputs:
            shutil.copyfileobj(sys.stdin.buffer, stdin)
            stdin.flush()
        write(options, own_worker, *text_documents.sources_of(options, pathlib.Path(stdin.name)))


def write(options: argparse.Namespace, own_worker: Worker, sources: list[Source], problems: list[Exception]) -> None:
    settings = settings_of(options, sources, own_worker)
    state = None if problems else read_state(options, settings, own_worker.token_bytes)
    state = state or begin(options, sources, problems, settings, own_worker)
    if state.complete:
        print(f"{options.out}: complete")
        return
    if options.dataset and state.revision is None:
        print(f"warning: the revision of --dataset {options.dataset} is unknown: --resume cannot detect changes", file=sys.stderr)
    output = Output(options, state, own_worker.token_bytes)
    for validation in (True, False)[min(1, output.number()) :]:
        documents = part_of(documents_of(options, sources, state.revision), state, validation)
        for tokens, lengths in tokenized(itertools.islice(documents, state.documents, None), own_worker, options):
            at = 0
            for length in lengths:
                output.add(tokens[at : at + length])
                at += length
        output.finish(validation)
    print(f"{options.out}: complete, {sum(state.shard_tokens)} tokens of {8 * own_worker.token_bytes} bits")


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # the processes already run in parallel
    try:
        prepare(options)
    except (UsageError, MissingPackage, InputError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2 if isinstance(error, (UsageError, MissingPackage)) else 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
