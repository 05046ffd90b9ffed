"""Token shards on disk and the state from which a call resumes, for scripts/prepare_tokens.py."""

import dataclasses
import json
import os
import re
import time

from text_documents import InputError

HEADER_BYTES = 1024
FORMATS = {2: (20240520, 1), 4: (20240801, 7)}  # bytes per token: magic number, version (lib/data/formats/token_shard.h)


def header_words(token_bytes, tokens):
    """The first bytes of a shard; the rest of its header is zeros."""
    return b"".join(word.to_bytes(4, "little") for word in (*FORMATS[token_bytes], tokens % 2**32))


class UsageError(Exception):
    """A wrong option, with its name."""


@dataclasses.dataclass
class State:
    """Where the next shard begins. Saved in NAME.state.json before the first shard and after each."""

    settings: dict  # those that determine the bytes of the shards
    revision: str | None = None  # of the data set on the hub when the first shard was begun
    shard_tokens: list = dataclasses.field(default_factory=list)  # of each complete shard
    documents: int = 0  # number of documents before the one in which the next shard begins
    tokens_of_document: int = 0  # tokens of that document in complete shards
    complete: bool = False


def shard_path(options, number):
    return options.out / f"{options.name}_{'train' if number else 'val'}_{number:06d}.bin"


def first_number(options):
    """0 is the validation shard."""
    return 0 if options.val_tokens else 1


def sync(path):
    """Flushes a file, or the names in a folder, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# --- writing ----------------------------------------------------------------------------------------------------


class Output:
    """Takes documents and writes shards."""

    def __init__(self, options, state, token_bytes):
        self.options, self.state, self.token_bytes = options, state, token_bytes
        self.file, self.written = None, 0
        self.document, self.skipped = state.documents, state.tokens_of_document
        self.started, self.tokens = time.monotonic(), 0

    def number(self):
        """Size of the next or current shard. 0 is the validation shard."""
        return first_number(self.options) + len(self.state.shard_tokens)

    def room(self):
        return (self.options.shard_tokens if self.number() else self.options.val_tokens) - self.written

    def add(self, tokens):
        """Adds all tokens of the next document."""
        done, self.skipped = self.skipped, 0
        while done < len(tokens):
            part = tokens[done : done + self.room()]
            self.write(part)
            done += len(part)
            if self.room() == 0:
                self.finish_shard(done)
        self.document += 1

    def write(self, tokens):
        if self.file is None:
            path = shard_path(self.options, self.number())
            self.file = open(path.with_name(path.name + ".part"), "wb")
            self.file.write(bytes(HEADER_BYTES))
        self.file.write(tokens.tobytes())
        self.written += len(tokens)

    def finish_shard(self, tokens_of_document):
        path = shard_path(self.options, self.number())
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

    def finish(self):
        if self.number() == 0:
            raise InputError(
                f"the input has {self.written} tokens, fewer than --val-tokens {self.options.val_tokens}: nothing is "
                "left to train on. Lower --val-tokens."
            )
        if self.written:
            self.finish_shard(0)
        if self.options.val_tokens and len(self.state.shard_tokens) == 1:
            raise InputError(f"the input has no more than --val-tokens {self.options.val_tokens}. Lower --val-tokens.")
        if not self.state.shard_tokens:
            raise InputError("the input has no text")
        self.state.complete = True
        write_state(self.options, self.state)


def state_path(options):
    return options.out / f"{options.name}.state.json"


def write_state(options, state):
    """Saves the state atomically, after flushing the shards before it."""
    path = state_path(options)
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(dataclasses.asdict(state), indent=1) + "\n")
    sync(part)
    os.replace(part, path)
    sync(options.out)


# --- resuming after an interruption -----------------------------------------------------------------------------


def parse_state(text):
    """Raises ValueError if it is not a valid state."""
    fields = json.loads(text)
    known = {field.name for field in dataclasses.fields(State)}
    if not isinstance(fields, dict) or not {"settings"} <= set(fields) <= known:
        raise ValueError("not the fields of a state")
    state = State(**fields)
    numbers = state.shard_tokens if isinstance(state.shard_tokens, list) else [None]
    if not isinstance(state.settings, dict) or not all(
        isinstance(number, int) for number in (*numbers, state.documents, state.tokens_of_document)
    ):
        raise ValueError("not the values of a state")
    return state


def load_state(options, settings):
    """The state of an earlier call for the same input and options."""
    path = state_path(options)
    try:
        state = parse_state(path.read_text())
    except ValueError as error:
        raise UsageError(
            f"--resume: {path} is damaged ({error}). Remove it and the shards of this --name to start over."
        ) from error
    for key in {**state.settings, **settings}:
        if state.settings.get(key) != settings.get(key):
            raise UsageError(
                f"--resume: {key} differs from that in {path}. Give the same input and options, or remove the shards "
                "and the state to start over."
            )
    return state


def check_shards(options, state, token_bytes):
    """Checks that the shards of a state exist with their sizes, and no others except one: a call may have been stopped
    between writing a shard and its state."""
    path, first = state_path(options), first_number(options)
    for number, tokens in enumerate(state.shard_tokens, first):
        shard = shard_path(options, number)
        if not shard.exists() or shard.stat().st_size != HEADER_BYTES + tokens * token_bytes:
            raise UsageError(
                f"--resume: {shard} is missing or does not have the size in {path}. Remove the shards and the state "
                "to start over."
            )
    end = first + len(state.shard_tokens) + (not state.complete)
    known = {shard_path(options, number) for number in range(first, end)}
    for shard in shards_there(options):
        if shard not in known:
            raise UsageError(
                f"--resume: {shard} is not one of the shards of {path}, but training would read it. Remove it, or "
                "choose another --name."
            )


def shards_there(options):
    """Files with the names of this call's shards."""
    name = re.compile(re.escape(options.name) + r"_(train|val)_\d+\.bin")
    return sorted(path for path in options.out.iterdir() if name.fullmatch(path.name))


def read_state(options, settings, token_bytes):
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
