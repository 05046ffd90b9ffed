"""Input for the tests of scripts/prepare_tokens.py, and a reader of shards written from the format's description."""

import json
import random
import subprocess
import sys

import numpy as np
import pytest
import tokenizers

from conftest import SCRIPTS, call, load_script

prepare_tokens = load_script("prepare_tokens.py")
PROGRAM = [sys.executable, SCRIPTS / "prepare_tokens.py"]
BYTES = ("bytes",)  # the bytes of the text as tokens
WORDS = "the quick brown fox jumps over the lazy dog über Ωmega 漢字 naïve\tx  2026 <|endoftext|> \n".split(" ")
END = "<|endoftext|>"


def document(number, words=60):
    chosen = random.Random(number)
    return " ".join(chosen.choice(WORDS) for _ in range(chosen.randrange(1, words)))


DOCUMENTS = [document(i) for i in range(400)]


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory):
    """(file, encode) of a byte-level BPE tokenizer; encode makes a text the ids without special tokens."""
    bpe = tokenizers.Tokenizer(tokenizers.models.BPE())
    bpe.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=350, initial_alphabet=alphabet, show_progress=False)
    bpe.train_from_iterator(DOCUMENTS, trainer)
    plain = tokenizers.Tokenizer.from_str(bpe.to_str())  # knows no special token
    bpe.add_special_tokens([END])
    file = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    bpe.save(str(file))
    return file, lambda text: plain.encode(text).ids, bpe.token_to_id(END)


def tokens_of(tokenizer, documents):
    _, encode, end = tokenizer
    return [token for text in documents for token in [end, *encode(text)]]


def documents_in(tokens, end):
    """The tokens of each document, without the end-of-text token that begins it."""
    begins = np.flatnonzero(tokens == end)
    assert (begins[:1] == 0).all() and len(begins) >= min(1, len(tokens))
    return [tuple(part[1:].tolist()) for part in np.split(tokens, begins)[1:]]


def texts(out):
    """The texts of validation and of training, of BYTES."""
    return tuple([bytes(document).decode() for document in documents_in(tokens, 256)] for tokens in split_of(out))


def command(tokenizer, out, *arguments):
    return list(map(str, ["--tokenizer", tokenizer[0], "--out", out, "--name", "toy", "--processes", 1, *arguments]))


def run(tokenizer, out, *arguments, expect=0):
    """In this process. Returns the output."""
    return call(prepare_tokens.main, *command(tokenizer, out, *arguments), expect=expect)


def launch(tokenizer, out, *arguments, stdin=None, program=PROGRAM):
    """As a program."""
    subprocess.run([*program, *command(tokenizer, out, *arguments)], input=stdin, check=True, timeout=300)


def write_shard(path, tokens, dtype=np.uint16):
    magic, version = {np.uint16: (20240520, 1), np.uint32: (20240801, 7)}[dtype]
    header = np.zeros(256, np.int32)
    header[:3] = magic, version, len(tokens)
    path.write_bytes(header.tobytes() + np.asarray(tokens, dtype).tobytes())


def read_shard(path):
    """The shard's tokens, by llm.c's description of the format."""
    content = path.read_bytes()
    header = np.frombuffer(content, np.int32, 256)
    dtype = {20240520: np.uint16, 20240801: np.uint32}[header[0]]
    assert header[1] == {20240520: 1, 20240801: 7}[header[0]] and not header[3:].any()
    tokens = np.frombuffer(content, dtype, offset=1024)
    assert len(tokens) == header[2]
    return tokens


def shards(folder):
    """Names and tokens in the order of the shards' numbers."""
    found = sorted(folder.glob("*.bin"), key=lambda path: path.stem[-6:])
    return {path.name: read_shard(path) for path in found}


def split_of(folder):
    """Tokens of validation and of training."""
    parts, none = {"val": [], "train": []}, np.array([], np.uint16)
    for name, tokens in shards(folder).items():
        parts[name.split("_")[-2]].append(tokens)
    return [np.concatenate([none, *found]) for found in parts.values()]


def jsonl(documents, end="\n"):
    return "".join(json.dumps({"text": text}) + end for text in documents).encode()


def put(folder, files):
    """Writes contents by name, and the folders that they are in. Returns the paths."""
    paths = [folder / name for name in files]
    for path, content in zip(paths, files.values()):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return paths
