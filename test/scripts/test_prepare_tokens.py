"""scripts/prepare_tokens.py: shards compared with the tokenizer called directly, and read by lib/data."""

import gzip
import json
import os
import subprocess
import sys

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import tokenizers

from conftest import SCRIPTS
from toy_tokens import DOCUMENTS, END, run, shards, tokenizer, tokens_of, write_jsonl


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
    assert {p.name for p in out.iterdir()} == {*got, "toy.state.json", "toy.tokenizer.json"}
    assert (out / "toy.tokenizer.json").read_bytes() == tokenizer[0].read_bytes()

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
    """An encoding of bytes and some pairs of bytes, added as tiktoken finds encodings of other packages."""
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


def test_bytes_need_no_package(tokenizer, tmp_path):
    texts = ["the quick\n<|endoftext|>é", "two"]
    for i, text in enumerate(texts):
        (tmp_path / f"{i}.txt").write_text(text)
    inputs = [tmp_path / f"{i}.txt" for i in range(len(texts))]
    without = "import runpy, sys; sys.modules.update(dict.fromkeys(['numpy', 'tiktoken', 'tokenizers'])); sys.argv.pop(0); "
    path = f"sys.path.insert(0, {str(SCRIPTS)!r}); runpy.run_path(sys.argv[0], run_name='__main__')"
    program = [sys.executable, "-c", without + path, SCRIPTS / "prepare_tokens.py"]
    arguments = [*inputs, "--val-tokens", 0, "--tokenizer", "bytes", "--processes", 1]
    run(tokenizer, tmp_path / "out", *arguments, program=program)
    (tokens,) = shards(tmp_path / "out").values()
    assert tokens.dtype == np.uint16
    assert tokens.tolist() == [token for text in texts for token in [256, *text.encode()]]


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


# --- messages name the error -------------------------------------------------------------------------------------


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
    assert "--resume cannot continue" in run(tokenizer, tmp_path / "out", "-", "--resume", expect=2, stdin=b"")
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
