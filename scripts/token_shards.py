"""Shards of tokens on the disk and the state from which a call goes on, for scripts/prepare_tokens.py."""

import dataclasses
import json
import os
import re
import time

from text_documents import InputError

HEADER_BYTES = 1024
FORMATS = {2: (20240520, 1), 4: (20240801, 7)}  # bytes of a token: magic number, version (lib/data/formats/token_shard.h)


def header_words(token_bytes, tokens):
    """The bytes that a shard begins with; the rest of its header is zeros."""
    return b"".join(word.to_bytes(4, "little") for word in (*FORMATS[token_bytes], tokens % 2**32))


class UsageError(Exception):
    """A wrong option, with its name."""


@dataclasses.dataclass
class State:
    """Where the next shard begins. In NAME.state.json, written before the first shard and after every one."""

    settings: dict  # on which the bytes of the shards depend
    revision: str | None = None  # of the data set on the hub, which the shards were begun with
    shard_tokens: list = dataclasses.field(default_factory=list)  # of the shards that are complete
    documents: int = 0  # before the one in which the next shard begins
    tokens_of_document: int = 0  # of that one, in shards that are complete
    complete: bool = False


def shard_path(options, number):
    return options.out / f"{options.name}_{'train' if number else 'val'}_{number:06d}.bin"


def first_number(options):
    """0 is the validation shard."""
    return 0 if options.val_tokens else 1


def sync(path):
    """Makes what was written to a file, or the names in a folder, durable."""
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
        """Of the shard that is next or being written. 0 is the validation shard."""
        return first_number(self.options) + len(self.state.shard_tokens)

    def room(self):
        return (self.options.shard_tokens if self.number() else self.options.val_tokens) - self.written

    def add(self, tokens):
        """All tokens of the next document."""
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
    """Whole or not at all, whenever the machine stops; the shards before it too."""
    path = state_path(options)
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(dataclasses.asdict(state), indent=1) + "\n")
    sync(part)
    os.replace(part, path)
    sync(options.out)


# --- going on after an interruption -----------------------------------------------------------------------------


def parse_state(text):
    """Throws ValueError where it is none."""
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
    """That of an earlier call, for the same input and options."""
    path = state_path(options)
    try:
        state = parse_state(path.read_text())
    except ValueError as error:
        raise UsageError(
            f"--resume: {path} is damaged ({error}). Remove it and the shards of this --name to begin anew."
        ) from error
    for key in {**state.settings, **settings}:
        if state.settings.get(key) != settings.get(key):
            raise UsageError(
                f"--resume: {key} is another than in {path}. Give the same input and options, or remove the shards "
                "and the state to begin anew."
            )
    return state


def check_shards(options, state, token_bytes):
    """Whether the shards of a state are there as it says, and no others but one: of a call that was stopped between
    a shard and its state."""
    path, first = state_path(options), first_number(options)
    for number, tokens in enumerate(state.shard_tokens, first):
        shard = shard_path(options, number)
        if not shard.exists() or shard.stat().st_size != HEADER_BYTES + tokens * token_bytes:
            raise UsageError(
                f"--resume: {shard} is missing or has another size than {path} says. Remove the shards and the state "
                "to begin anew."
            )
    end = first + len(state.shard_tokens) + (not state.complete)
    known = {shard_path(options, number) for number in range(first, end)}
    for shard in shards_there(options):
        if shard not in known:
            raise UsageError(
                f"--resume: {shard} is none of the shards of {path}, and would be trained on with them. Remove it, or "
                "choose another --name."
            )


def shards_there(options):
    """Files that are named as the shards of this call are."""
    name = re.compile(re.escape(options.name) + r"_(train|val)_\d+\.bin")
    return sorted(path for path in options.out.iterdir() if name.fullmatch(path.name))


def read_state(options, settings, token_bytes):
    """That of an earlier call, whose shards are checked, or None where there is none to go on with."""
    if options.resume and state_path(options).exists():
        state = load_state(options, settings)
        check_shards(options, state, token_bytes)
        return state
    if others := shards_there(options):
        advice = "remove it, or choose another --name"
        if options.resume:
            raise UsageError(
                f"--resume: {others[0]} is there, but {state_path(options)} is not, so it is unknown what the shards "
                f"were made of. To begin anew, {advice}."
            )
        raise UsageError(f"--out: {others[0]} is there already. --resume goes on with it; or {advice}.")
    return None
