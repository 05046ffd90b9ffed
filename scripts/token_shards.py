"""Token shards on disk and the state from which a call resumes, for scripts/prepare_tokens.py."""

import dataclasses
import json
import os
import pathlib
import random
import re
import time
from argparse import Namespace
from array import array
from collections.abc import Iterator
from typing import Any, BinaryIO

from text_documents import Documents, InputError

HEADER_BYTES = 1024
START_OVER = "To start over, remove the state and the shards of this --name."
FORMATS = {2: (20240520, 1), 4: (20240801, 7)}  # bytes per token: magic number, version (lib/formats/token_shard.h)


def header_words(token_bytes: int, tokens: int) -> bytes:
    """The first bytes of a shard; the rest of its header is zeros."""
    return b"".join(word.to_bytes(4, "little") for word in (*FORMATS[token_bytes], tokens % 2**32))


class UsageError(Exception):
    """A wrong option, with its name."""


@dataclasses.dataclass
class State:
    """Where the next shard begins. Saved in NAME.state.json before the first shard and after each."""

    settings: dict[str, Any]  # those that determine the bytes of the shards
    revision: str | None = None  # of the data set on the hub when the first shard was begun
    val_characters: int = 0  # of text in the validation shard, about; 0: there is none
    val_span: int = 0  # characters from the beginning of the input over which they are spread
    shard_tokens: list[int] = dataclasses.field(default_factory=list)  # of each complete shard
    documents: int = 0  # number of documents of training before the one in which the next shard begins
    tokens_of_document: int = 0  # tokens of that document in complete shards
    complete: bool = False


def part_of(documents: Documents, state: State, validation: bool) -> Iterator[str]:
    """The documents of validation, or the others; blank ones are in neither, and counted.

    Validation gets whole documents, the next one whenever it has less than its share of the text so far. By how much is random,
    so that it does not follow a regular order of the input. A document longer than a quarter of validation gives its end
    instead, so that it can neither be all of validation nor be missing there.
    """
    draw = random.Random(0)
    share, read, behind, threshold, blank = state.val_characters / max(1, state.val_span), 0, 0.0, 0.0, 0
    for text, _ in documents:
        if validation and read >= state.val_span:
            return
        length, begin = len(text.rstrip()), len(text)  # begin of the part for validation
        if length > state.val_characters / 4 and read < state.val_span:
            wanted = max(1, round(share * length))
            begin, first = length - wanted, length - wanted - wanted // 4
            begin = text.rfind("\n", first, begin) + 1 or text.rfind(" ", first, begin) + 1 or begin
        elif length and read < state.val_span:
            if behind > threshold:
                begin, behind, threshold = 0, behind - length, (draw.random() - 0.5) * length
            behind += share * length
        read += len(text)
        blank += not length
        if (part := text[begin:] if validation else text[:begin]).strip():
            yield part
    if blank and not validation:
        print(f"{blank} blank documents are left out", flush=True)


def shard_path(options: Namespace, number: int) -> pathlib.Path:
    return options.out / f"{options.name}_{'train' if number else 'val'}_{number:06d}.bin"


def first_number(state: State) -> int:
    """0 is the validation shard."""
    return 0 if state.val_characters else 1


def sync(path: pathlib.Path) -> None:
    """Flushes a file, or the names in a folder, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# --- writing ----------------------------------------------------------------------------------------------------


class Output:
    """Takes documents, first those of validation, and writes shards."""

    def __init__(self, options: Namespace, state: State, token_bytes: int):
        self.options, self.state, self.token_bytes = options, state, token_bytes
        self.file: BinaryIO | None = None
        self.written = 0
        self.document, self.skipped = state.documents, state.tokens_of_document
        self.started, self.tokens = time.monotonic(), 0

    def number(self) -> int:
        """Number of the next or current shard. 0 is the validation shard."""
        return first_number(self.state) + len(self.state.shard_tokens)

    def add(self, tokens: array) -> None:
        """Adds all tokens of the next document."""
        done, self.skipped = self.skipped, 0
        while done < len(tokens):
            room = self.options.shard_tokens - self.written if self.number() else len(tokens)
            part = tokens[done : done + room]
            self.write(part)
            done += len(part)
            if len(part) == room and self.number():
                self.finish_shard(done)
        self.document += 1

    def write(self, tokens: array) -> None:
        if self.file is None:
            path = shard_path(self.options, self.number())
            self.file = open(path.with_name(path.name + ".part"), "wb")
            self.file.write(bytes(HEADER_BYTES))
        self.file.write(tokens.tobytes())
        self.written += len(tokens)

    def finish_shard(self, tokens_of_document: int) -> None:
        path = shard_path(self.options, self.number())
        if not self.file:
            raise InputError(f"no document is left for {path}. Change --val-tokens, or divide the text with --document.")
        self.file.seek(0)
        self.file.write(header_words(self.token_bytes, self.written))
        self.file.flush()
        os.fsync(self.file.fileno())
        self.file.close()
        os.replace(self.file.name, path)
        self.tokens += self.written
        speed = self.tokens / (time.monotonic() - self.started)
        print(f"{path}: {self.written} tokens ({1e-6 * speed:.2f} M tokens/s so far)", flush=True)
        self.state.shard_tokens.append(self.written)
        self.state.documents, self.state.tokens_of_document = self.document, tokens_of_document
        self.file, self.written = None, 0
        write_state(self.options, self.state)

    def finish(self, validation: bool) -> None:
        """Ends the documents of validation or of training."""
        if validation:
            self.document = 0
        if self.written or self.number() < 2:
            self.finish_shard(0)
        if not validation:
            self.state.complete = True
            write_state(self.options, self.state)


def state_path(options: Namespace) -> pathlib.Path:
    return options.out / f"{options.name}.state.json"


def write_state(options: Namespace, state: State) -> None:
    """Saves the state atomically, after flushing the shards before it."""
    path = state_path(options)
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(dataclasses.asdict(state), indent=1) + "\n")
    sync(part)
    os.replace(part, path)
    sync(options.out)


# --- resuming after an interruption -----------------------------------------------------------------------------


def parse_state(text: str) -> State:
    """Raises ValueError or TypeError if it is not a valid state."""
    state = State(**json.loads(text))
    for name, default in dataclasses.asdict(State({})).items():
        value = getattr(state, name)
        if (
            name != "revision"
            and not isinstance(value, type(default))
            or default == []
            and not all(isinstance(n, int) for n in value)
        ):
            raise ValueError(f"{name} is {value!r}")
    return state


def load_state(options: Namespace, settings: dict[str, Any]) -> State:
    """The state of an earlier call for the same input and options."""
    path = state_path(options)
    try:
        state = parse_state(path.read_text())
    except (ValueError, TypeError) as error:
        raise UsageError(f"--resume: {path} is damaged ({error}). {START_OVER}") from error
    for key in {**state.settings, **settings}:
        if state.settings.get(key) != settings.get(key):
            raise UsageError(f"--resume: {key} differs from that in {path}, so give the same input and options. {START_OVER}")
    return state


def check_shards(options: Namespace, state: State, token_bytes: int) -> None:
    """Checks that the shards of a state exist with their sizes, and no others except one: a call may have been stopped
    between writing a shard and its state."""
    path, first = state_path(options), first_number(state)
    for number, tokens in enumerate(state.shard_tokens, first):
        shard = shard_path(options, number)
        if not shard.exists() or shard.stat().st_size != HEADER_BYTES + tokens * token_bytes:
            raise UsageError(f"--resume: {shard} is missing or does not have the size in {path}. {START_OVER}")
    end = first + len(state.shard_tokens) + (not state.complete)
    known = {shard_path(options, number) for number in range(first, end)}
    for shard in shards_there(options):
        if shard not in known:
            raise UsageError(
                f"--resume: {shard} is not one of the shards of {path}, but training would read it. Remove it, or "
                "choose another --name."
            )


def shards_there(options: Namespace) -> list[pathlib.Path]:
    """Files with the names of this call's shards."""
    name = re.compile(re.escape(options.name) + r"_(train|val)_\d+\.bin")
    return sorted(path for path in options.out.iterdir() if name.fullmatch(path.name))


def read_state(options: Namespace, settings: dict[str, Any], token_bytes: int) -> State | None:
    """The state of an earlier call, after checking its shards; None if there is none to resume."""
    if options.resume and state_path(options).exists():
        state = load_state(options, settings)
        check_shards(options, state, token_bytes)
        return state
    if others := shards_there(options):
        advice = "remove it, or choose another --name"
        if options.resume:
            raise UsageError(
                f"--resume: {others[0]} exists, but {state_path(options)} does not, so it is unknown what the shards "
                f"were made from. To start over, {advice}."
            )
        raise UsageError(f"--out: {others[0]} exists. Continue with --resume, or {advice}.")
    return None
