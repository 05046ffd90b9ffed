"""scripts/prepare_tokens.py: the shards against the tokenizer called directly, and what lib/data reads of them."""

import gzip
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import tokenizers

from conftest import SCRIPTS, load_script

prepare_tokens = load_script("prepare_tokens.py")
import text_documents

PROGRAM = [sys.executable, SCRIPTS / "prepare_tokens.py"]
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
    return list(itertools.chain.from_iterable([end, *encode(text)] for text in documents))


def run(tokenizer, out, *arguments, expect=0, stdin=None, program=PROGRAM):
    command = [*program, "--tokenizer", tokenizer[0], "--out", out, "--name", "toy", *arguments]
    result = subprocess.run(list(map(str, command)), input=stdin, capture_output=True, timeout=300)
    assert result.returncode == expect, result.stderr.decode()
    return result.stderr.decode()


def read_shard(path):
    """Its tokens, by llm.c's description of the format."""
    content = path.read_bytes()
    header = np.frombuffer(content, np.int32, 256)
    dtype = {20240520: np.uint16, 20240801: np.uint32}[header[0]]
    assert header[1] == {20240520: 1, 20240801: 7}[header[0]] and not header[3:].any()
    tokens = np.frombuffer(content, dtype, offset=1024)
    assert len(tokens) == header[2]
    return tokens


def shards(folder):
    """Names and tokens in the order of the numbers."""
    found = sorted(folder.glob("*.bin"), key=lambda path: path.stem[-6:])
    return {path.name: read_shard(path) for path in found}


def write_jsonl(path, documents):
    path.write_text("".join(json.dumps({"id": i, "text": text}) + "\n" for i, text in enumerate(documents)))
    return path


@pytest.mark.parametrize("processes", [1, 2])
def test_shards_hold_the_tokens_of_all_documents_in_order(tokenizer, tmp_path, processes):
    source, out = write_jsonl(tmp_path / "a.jsonl", DOCUMENTS), tmp_path / "out"
    expected = tokens_of(tokenizer, DOCUMENTS)
    run(tokenizer, out, source, "--val-tokens", 700, "--shard-tokens", 3000, "--processes", processes)
    got = shards(out)
    sizes = [len(tokens) for tokens in got.values()]
    assert sizes == [700] + [3000] * ((len(expected) - 700) // 3000) + [(len(expected) - 700) % 3000]
    assert list(got) == ["toy_val_000000.bin"] + [f"toy_train_{i:06d}.bin" for i in range(1, len(sizes))]
    assert np.concatenate(list(got.values())).tolist() == expected
    assert next(iter(got.values())).dtype == np.uint16
    assert {p.name for p in out.iterdir()} == {*got, "toy.state.json"}

    length = 64
    for split, names in (("test", list(got)[:1]), ("train", list(got)[1:])):
        command = [os.environ["DUMP_DATA"], out, "tokens", split, str(length)]
        read = np.frombuffer(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout, np.int64)
        windows = [got[n][i : i + length + 1] for n in names for i in range(0, len(got[n]) - length, length)]
        assert np.array_equal(read, np.concatenate(windows))


def test_a_vocabulary_beyond_16_bits_gives_tokens_of_32(tokenizer, tmp_path):
    wide = tokenizers.Tokenizer.from_file(str(tokenizer[0]))
    wide.add_tokens([f"filler{i}" for i in range(1 << 16)] + ["tokenbeyond"])
    wide.save(str(tmp_path / "wide.json"))
    (tmp_path / "a.txt").write_text("the quick tokenbeyond fox")
    run((tmp_path / "wide.json",), tmp_path / "out", tmp_path / "a.txt", "--val-tokens", 0, "--processes", 1)
    ((name, tokens),) = shards(tmp_path / "out").items()
    assert name == "toy_train_000001.bin" and tokens.dtype == np.uint32
    assert tokens.tolist() == [wide.token_to_id(END), *wide.encode("the quick tokenbeyond fox").ids]
    assert tokens.max() > 1 << 16
    scan = [os.environ["DUMP_DATA"], tmp_path / "out", "scan", "train", "70000"]
    line = subprocess.run(scan, check=True, stdout=subprocess.PIPE, text=True).stdout
    assert line == f"{name} 32 {len(tokens)} {tokens.min()} {tokens.max()} 0\n"


def test_an_encoding_of_tiktoken(tokenizer, tmp_path, monkeypatch):
    """One that is added the way tiktoken finds encodings of other packages: bytes, and some pairs of them."""
    (tmp_path / "tiktoken_ext").mkdir()
    (tmp_path / "tiktoken_ext" / "toy.py").write_text(
        "def toy():\n"
        "    ranks = {bytes([i]): i for i in range(256)} | {b'th': 256, b'the': 257, b' q': 258}\n"
        "    return {'name': 'toy', 'pat_str': r' ?\\S+|\\s+', 'mergeable_ranks': ranks,\n"
        "            'special_tokens': {'<|endoftext|>': 259}}\n"
        "ENCODING_CONSTRUCTORS = {'toy': toy}\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "a.txt").write_text("the quick\n<|endoftext|>é")
    arguments = [tmp_path / "a.txt", "--val-tokens", 0, "--tokenizer", "toy"]
    run(tokenizer, tmp_path / "out", *arguments, "--processes", 2)
    expected = [259, 257, 258, *b"uick", *b"\n<|endoftext|>", *"é".encode()]
    assert shards(tmp_path / "out")["toy_train_000001.bin"].tolist() == expected
    assert "tiktoken's encodings" in run(tokenizer, tmp_path / "out", *arguments[:-1], "absent", expect=2)


def test_kinds_of_input(tokenizer, tmp_path):
    folder = tmp_path / "in"
    (folder / "b").mkdir(parents=True)
    (folder / "a.txt").write_bytes("one\r\n\r\nte¼xt\n".encode())
    write_jsonl(folder / "b" / "c.jsonl", DOCUMENTS[:3])
    with gzip.open(folder / "b" / "d.ndjson.gz", "wt") as file:
        file.write("\n" + json.dumps({"text": "packed", "other": 1}) + "\n\n")
    table = pyarrow.table({"n": list(range(5)), "text": DOCUMENTS[3:8]})
    pyarrow.parquet.write_table(table, folder / "e.parquet", row_group_size=2)
    (folder / "f.bin").write_bytes(b"\xff not looked at")
    (tmp_path / "alone.unknown").write_text("alone")
    expected = ["one\r\n\r\nte¼xt\n", *DOCUMENTS[:3], "packed", *DOCUMENTS[3:8], "alone", "from stdin\n\nrest"]
    run(
        tokenizer,
        tmp_path / "out",
        folder,
        tmp_path / "alone.unknown",
        "-",
        "--val-tokens",
        0,
        stdin=b"from stdin\n\nrest",
    )
    assert np.concatenate(list(shards(tmp_path / "out").values())).tolist() == tokens_of(tokenizer, expected)


@pytest.mark.parametrize(
    "division, expected",
    [
        ("file", ["\n\nfirst\nsecond\r\n \nthird\n\n\nfourth"]),
        ("paragraph", ["first\nsecond", "third", "fourth"]),
        ("line", ["first", "second", "third", "fourth"]),
    ],
)
def test_plain_text_is_divided(tokenizer, tmp_path, division, expected):
    (tmp_path / "a.txt").write_bytes(b"\n\nfirst\nsecond\r\n \nthird\n\n\nfourth")
    (tmp_path / "empty.txt").write_text(" \n")
    inputs = [tmp_path / "a.txt", tmp_path / "empty.txt"]
    run(tokenizer, tmp_path / "out", *inputs, "--val-tokens", 0, "--document", division, "--processes", 1)
    assert shards(tmp_path / "out")["toy_train_000001.bin"].tolist() == tokens_of(tokenizer, expected)


# --- interrupted and gone on with -------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def long_input(tokenizer, tmp_path_factory):
    """A file that takes seconds, and the shards of a call that was not interrupted."""
    folder = tmp_path_factory.mktemp("long")
    source = write_jsonl(folder / "a.jsonl", [document(i, 2000) for i in range(1500)])
    run(tokenizer, folder / "whole", source, "--val-tokens", 5000, "--shard-tokens", 30_000, "--processes", 2)
    return source, {p.name: p.read_bytes() for p in (folder / "whole").glob("*.bin")}


@pytest.mark.parametrize("kind, shards_before", [(signal.SIGKILL, 2), (signal.SIGTERM, 9), (signal.SIGKILL, 20)])
def test_a_resumed_call_writes_what_an_uninterrupted_one_does(tokenizer, long_input, tmp_path, kind, shards_before):
    source, whole = long_input
    arguments = [source, "--val-tokens", 5000, "--shard-tokens", 30_000, "--processes", 2, "--resume"]
    command = [*PROGRAM, "--tokenizer", tokenizer[0], "--out", tmp_path, "--name", "toy", *arguments]
    with subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while len(list(tmp_path.glob("*.bin"))) < shards_before and process.poll() is None:
            time.sleep(0.001)
        process.send_signal(kind)
    state = json.loads((tmp_path / "toy.state.json").read_text())
    assert not state["complete"] and len(state["shard_tokens"]) >= shards_before - 1
    assert len(whole) > len(list(tmp_path.glob("*.bin"))) >= shards_before
    kept = {path.name: path.stat().st_mtime_ns for path in tmp_path.glob("*.bin")}
    run(tokenizer, tmp_path, *arguments)
    assert {p.name: p.read_bytes() for p in tmp_path.glob("*.bin")} == whole
    assert not list(tmp_path.glob("*.part"))
    again = [name for name, changed in kept.items() if (tmp_path / name).stat().st_mtime_ns != changed]
    assert len(again) <= 1  # one whose state was not written yet
    run(tokenizer, tmp_path, *arguments)
    assert {p.name: p.read_bytes() for p in tmp_path.glob("*.bin")} == whole


@pytest.mark.parametrize("shard_tokens", [1, 7, 64])
def test_shards_may_begin_anywhere_in_a_document(tokenizer, tmp_path, shard_tokens):
    """Of every state that a call passes through, going on gives the same shards."""
    documents = ["", "the quick brown fox", "x", "", "über the lazy dog", ""]
    source = write_jsonl(tmp_path / "a.jsonl", documents)
    arguments = [source, "--val-tokens", 3, "--shard-tokens", shard_tokens, "--processes", 1]
    arguments += ["--tokenizer", tokenizer[0], "--name", "toy"]
    out, states = tmp_path / "out", []
    original = prepare_tokens.write_state

    def write_state(options, state):
        original(options, state)
        states.append(((out / "toy.state.json").read_text(), len(state.shard_tokens)))

    prepare_tokens.write_state = write_state
    try:
        assert prepare_tokens.main(list(map(str, [*arguments, "--out", out]))) == 0
        expected = {p.name: p.read_bytes() for p in out.glob("*.bin")}
        assert np.concatenate(list(shards(out).values())).tolist() == tokens_of(tokenizer, documents)
        for text, complete in list(states):
            for path in list(shards(out))[complete:]:
                (out / path).unlink()
            (out / "toy.state.json").write_text(text)
            assert prepare_tokens.main(list(map(str, [*arguments, "--out", out, "--resume"]))) == 0
            assert {p.name: p.read_bytes() for p in out.glob("*.bin")} == expected
    finally:
        prepare_tokens.write_state = original


def test_going_on_needs_the_same_input_and_options(tokenizer, tmp_path):
    source, out = write_jsonl(tmp_path / "a.jsonl", DOCUMENTS), tmp_path / "out"
    arguments = [source, "--val-tokens", 700, "--shard-tokens", 3000, "--processes", 1]
    run(tokenizer, out, *arguments)
    assert "toy_" in (error := run(tokenizer, out, *arguments, expect=2)) and "--resume goes on" in error
    assert "val_tokens is another" in run(tokenizer, out, *arguments, "--resume", "--val-tokens", 701, expect=2)
    other = tmp_path / "other.json"
    changed = tokenizers.Tokenizer.from_file(str(tokenizer[0]))
    changed.add_tokens(["more"])
    changed.save(str(other))
    assert "tokenizer is another" in run((other,), out, *arguments, "--resume", expect=2)
    (out / "toy_train_000002.bin").write_bytes(b"short")
    assert "toy_train_000002.bin is missing or has another size" in run(
        tokenizer, out, *arguments, "--resume", expect=2
    )
    with open(source, "a") as file:
        file.write('{"text": "more"}\n')
    assert "inputs is another" in run(tokenizer, out, *arguments, "--resume", expect=2)


# --- what is wrong is named -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name, content, parts",
    [
        ("a.txt", b"fine\n" * 1000 + b"caf\xe9 au lait", ["a.txt: byte 0xe9 at offset 5003 is not UTF-8", "iconv"]),
        ("a.jsonl", b'{"text": "x"}\n{"text": "\xff"}\n', ["a.jsonl: byte 0xff at offset 24 is not UTF-8"]),
        ("a.jsonl", b'{"text": "x"}\n\n{"text": \n', ["a.jsonl: line 3: not JSON"]),
        (
            "a.jsonl",
            b'{"text": "x"}\n{"content": "y", "id": 1}\n',
            ["a.jsonl: line 2: no 'text' (keys content, id)", "--text-key"],
        ),
        ("a.jsonl", b'["x"]\n', ["a.jsonl: line 1: no 'text' (list)"]),
        ("a.jsonl", b'{"text": null}\n', ["a.jsonl: line 1: the value of 'text' is NoneType, expected text"]),
        ("a.jsonl", b'{"text": "ab\\ud800"}\n', ["a.jsonl: line 1: 'text' has half a surrogate pair at character 2"]),
        ("a.txt.gz", b"not gzip", ["a.txt.gz: Not a gzipped file"]),
        ("a.txt.gz", gzip.compress(b"text" * 1000)[:-20], ["a.txt.gz: Compressed file ended"]),
        ("a.parquet", b"not parquet, but some bytes", ["a.parquet: Parquet"]),
        ("a.txt", b"", ["the input has no text"]),
    ],
)
@pytest.mark.parametrize("processes", [1, 2])
def test_input_that_cannot_be_read(tokenizer, tmp_path, name, content, parts, processes):
    (tmp_path / name).write_bytes(content)
    error = run(tokenizer, tmp_path / "out", tmp_path / name, "--val-tokens", 0, "--processes", processes, expect=3)
    for part in parts:
        assert part in error
    assert not list((tmp_path / "out").glob("*.bin"))


def test_other_input_that_cannot_be_read(tokenizer, tmp_path):
    assert "absent: there is no such file" in run(tokenizer, tmp_path / "out", tmp_path / "absent", expect=3)
    (tmp_path / "none").mkdir()
    assert "none: no file below it is named *.txt" in run(tokenizer, tmp_path / "out", tmp_path / "none", expect=3)
    pyarrow.parquet.write_table(pyarrow.table({"body": ["x"]}), tmp_path / "a.parquet")
    assert "no column 'text' (body)" in run(tokenizer, tmp_path / "out", tmp_path / "a.parquet", expect=3)
    (tmp_path / "a.txt").write_text("the quick")
    assert "fewer than --val-tokens 100000000" in run(tokenizer, tmp_path / "out", tmp_path / "a.txt", expect=3)


def test_wrong_calls(tokenizer, tmp_path):
    (tmp_path / "a.txt").write_text("text")
    arguments = [tokenizer, tmp_path / "out", tmp_path / "a.txt"]
    assert "either INPUT or --dataset" in run(*arguments, "--dataset", "x", expect=2)
    assert "--shard-tokens" in run(*arguments, "--shard-tokens", 0, expect=2)
    assert "--resume cannot go on" in run(tokenizer, tmp_path / "out", "-", "--resume", expect=2, stdin=b"")
    assert "--end-of-text: the vocabulary has no <|eot|>" in run(*arguments, "--end-of-text", "<|eot|>", expect=2)
    assert "--name" in run(*arguments, "--name", "retrieval", expect=2)
    (tmp_path / "broken.json").write_text("{}")
    assert "broken.json: not a tokenizer.json" in run((tmp_path / "broken.json",), *arguments[1:], expect=2)
    two = tokenizers.Tokenizer.from_file(str(tokenizer[0]))
    two.add_special_tokens(["</s>"])
    two.save(str(tmp_path / "two.json"))
    assert "has <|endoftext|>, </s>. Name the" in run((tmp_path / "two.json",), *arguments[1:], expect=2)
    run((tmp_path / "two.json",), *arguments[1:], "--end-of-text", "</s>", "--val-tokens", 0)
    assert shards(tmp_path / "out")["toy_train_000001.bin"][0] == two.token_to_id("</s>")


@pytest.mark.parametrize(
    "package, arguments",
    [
        ("tokenizers", ["a.txt"]),
        ("tiktoken", ["a.txt", "--tokenizer", "gpt2"]),
        ("numpy", ["a.txt"]),
        ("pyarrow", ["a.parquet"]),
        ("datasets", ["--dataset", "HuggingFaceFW/fineweb"]),
    ],
)
def test_a_missing_package_is_named_with_what_installs_it(tokenizer, tmp_path, package, arguments):
    (tmp_path / "a.txt").write_text("text")
    pyarrow.parquet.write_table(pyarrow.table({"text": ["x"]}), tmp_path / "a.parquet")
    arguments = [tmp_path / a if a.startswith("a.") else a for a in arguments]
    without = (
        f"import runpy, sys; sys.modules[{package!r}] = None; sys.argv.pop(0); sys.path.insert(0, {str(SCRIPTS)!r}); "
        "runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    program = [sys.executable, "-c", without, SCRIPTS / "prepare_tokens.py"]
    error = run(tokenizer, tmp_path / "out", *arguments, "--processes", 1, expect=2, program=program)
    assert f"needs the Python package {package}" in error
    assert "-m pip install -r scripts/requirements-data.txt" in error


def test_a_stream_of_the_hub_is_gone_on_with_where_it_stopped(monkeypatch):
    """The part of `datasets` that is called: a stream of records that can be skipped."""

    class Stream:
        def __init__(self, records):
            self.records = records

        def skip(self, count):
            return Stream(self.records[count:])

        def __iter__(self):
            return iter(self.records)

    calls = []

    class Datasets:
        @staticmethod
        def load_dataset(*arguments, **options):
            calls.append((arguments, options))
            return Stream([{"text": text} for text in DOCUMENTS[:5]] + [{"body": "x"}])

    monkeypatch.setitem(sys.modules, "datasets", Datasets)
    got = text_documents.dataset_documents("some/set", "sample", "train", "text", 2)
    assert list(itertools.islice(got, 3)) == [(DOCUMENTS[i], f"some/set: document {i}") for i in (2, 3, 4)]
    with pytest.raises(text_documents.InputError, match="document 5: no 'text' .body."):
        next(got)
    assert calls == [(("some/set",), {"name": "sample", "split": "train", "streaming": True})]
