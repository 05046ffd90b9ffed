"""scripts/prepare_tokens.py: shards compared with the tokenizer called directly, and read by lib/data."""

import codecs
import collections
import gzip
import io
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import tokenizers

from conftest import SCRIPTS
from toy_tokens import (
    BYTES, DOCUMENTS, END, documents_in, jsonl, launch, prepare_tokens, put, run, shards, split_of, texts, tokenizer,
    tokens_of,
)  # fmt: skip


def parquet(documents, type_=None, **options):
    out = io.BytesIO()
    column = pyarrow.array(documents, type_)
    pyarrow.parquet.write_table(pyarrow.table({"n": list(range(len(documents))), "text": column}), out, **options)
    return out.getvalue()


def zstd(data):
    return pyarrow.compress(data, codec="zstd", asbytes=True)


def name_only(value):
    """Of the parameters of a test, only names of files are in its own name."""
    return value if isinstance(value, str) else ""


def test_shards_hold_the_tokens_of_all_documents_in_order(tokenizer, tmp_path):
    [source], out = put(tmp_path, {"a.jsonl": jsonl(DOCUMENTS)}), tmp_path / "out"
    run(tokenizer, out, source, "--val-tokens", 2000, "--shard-tokens", 3000, "--processes", 2)
    got = shards(out)
    sizes = [len(tokens) for tokens in got.values()]
    total = len(tokens_of(tokenizer, DOCUMENTS))
    assert sizes[1:] == [3000] * ((total - sizes[0]) // 3000) + [(total - sizes[0]) % 3000]
    assert list(got) == ["toy_val_000000.bin"] + [f"toy_train_{i:06d}.bin" for i in range(1, len(sizes))]
    _, encode, end = tokenizer
    val, train = (documents_in(tokens, end) for tokens in split_of(out))
    expected = [tuple(encode(text)) for text in DOCUMENTS]
    assert collections.Counter(val + train) == collections.Counter(expected)
    for part in (val, train):  # in the order of the input
        rest = iter(expected)
        assert all(document in rest for document in part)
    assert abs(sizes[0] - 2000) <= max(map(len, expected)) + 100  # the number of tokens per character is an estimate
    assert next(iter(got.values())).dtype == np.uint16
    assert {p.name for p in out.iterdir()} == {*got, "toy.state.json", "toy.tokenizer.json"}
    assert (out / "toy.tokenizer.json").read_bytes() == tokenizer[0].read_bytes()
    settings = json.loads((out / "toy.state.json").read_text())["settings"]
    ids = tokenizers.Tokenizer.from_file(str(tokenizer[0])).get_vocab().values()
    assert settings["vocab_size"] == max(ids) + 1 and settings["end_of_text"] == end

    # Validation depends neither on the number of processes nor on the size of shards.
    run(tokenizer, tmp_path / "other", source, "--val-tokens", 2000, "--shard-tokens", 1000)
    assert all(np.array_equal(a, b) for a, b in zip(split_of(out), split_of(tmp_path / "other"), strict=True))

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
    run((tmp_path / "wide.json",), tmp_path / "out", tmp_path / "a.txt", "--val-tokens", 0)
    ((name, tokens),) = shards(tmp_path / "out").items()
    assert name == "toy_train_000001.bin" and tokens.dtype == np.uint32
    assert tokens.tolist() == [wide.token_to_id(END), *wide.encode("the quick tokenbeyond fox").ids]
    assert tokens.max() > 1 << 16
    scan = [os.environ["DUMP_DATA"], tmp_path / "out", "scan", "train", "70000"]
    line = subprocess.run(scan, check=True, stdout=subprocess.PIPE, text=True).stdout
    assert line == f"{name} 32 {len(tokens)} {tokens.min()} {tokens.max()} 0\n"


def test_an_encoding_of_tiktoken(tokenizer, tmp_path, monkeypatch):
    """An encoding of bytes and some pairs of bytes, added as tiktoken finds encodings of other packages."""
    module = """def toy():
    ranks = {bytes([i]): i for i in range(256)} | {b'th': 256, b'the': 257, b' q': 258}
    special = {'<|endoftext|>': 259}
    return {'name': 'toy', 'pat_str': r' ?\\S+|\\s+', 'mergeable_ranks': ranks, 'special_tokens': special}
ENCODING_CONSTRUCTORS = {'toy': toy}
"""
    source, _ = put(tmp_path, {"a.txt": "the quick\n<|endoftext|>é", "tiktoken_ext/toy.py": module})
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    arguments = [source, "--val-tokens", 0, "--tokenizer", "toy"]
    launch(tokenizer, tmp_path / "out", *arguments, "--processes", 2)
    expected = [259, 257, 258, *b"uick", *b"\n<|endoftext|>", *"é".encode()]
    assert shards(tmp_path / "out")["toy_train_000001.bin"].tolist() == expected
    assert "tiktoken's encodings" in run(tokenizer, tmp_path / "out", *arguments[:-1], "absent", expect=2)


def test_bytes_need_no_package(tmp_path):
    sources = put(tmp_path, {"a.txt": "the quick\n<|endoftext|>é", "b.txt": "two"})
    without = "import runpy, sys; sys.modules.update(dict.fromkeys(['numpy', 'tiktoken', 'tokenizers'])); sys.argv.pop(0); "
    path = f"sys.path.insert(0, {str(SCRIPTS)!r}); runpy.run_path(sys.argv[0], run_name='__main__')"
    program = [sys.executable, "-c", without + path, SCRIPTS / "prepare_tokens.py"]
    launch(BYTES, tmp_path / "out", *sources, "--val-tokens", 0, program=program)
    (tokens,) = shards(tmp_path / "out").values()
    assert tokens.dtype == np.uint16
    assert tokens.tolist() == [256, *"the quick\n<|endoftext|>é".encode(), 256, *b"two"]


def test_a_folder_in_the_order_of_names_other_files_and_standard_input(tokenizer, tmp_path):
    put(tmp_path / "in", {
        "a.txt": "one\r\n\r\nte¼xt\n", "b/c.jsonl": jsonl(DOCUMENTS[:3]), "h.txt": b"",
        "b/d.ndjson.gz": gzip.compress(b"\n" + jsonl(["packed"]) + b"\n"),
        "e.parquet": parquet(DOCUMENTS[3:8], row_group_size=2),
    })  # fmt: skip
    (alone,) = put(tmp_path, {"alone.text": "alone"})
    expected = ["one\r\n\r\nte¼xt\n", *DOCUMENTS[:3], "packed", *DOCUMENTS[3:8], "alone", "from stdin\n\nrest"]
    arguments = [tmp_path / "in", alone, "-", "--val-tokens", 0, "--processes", 2]
    launch(tokenizer, tmp_path / "out", *arguments, stdin=b"from stdin\n\nrest")
    _, got = split_of(tmp_path / "out")
    assert got.tolist() == tokens_of(tokenizer, expected)
    assert not list((tmp_path / "out").glob("*.txt"))  # the copy of standard input


TWO = ["one \u2028 ü", 'two "[{']
PRETTY = json.dumps([{"id": i, "text": text} for i, text in enumerate(TWO)], indent=2).encode()
PLAIN = b"\n\nfirst\nsecond\r\n \nthird\n\n\nfourth"


@pytest.mark.parametrize(
    "name, content, expected",
    [
        ("pretty.json", PRETTY, TWO),
        ("array.jsonl", PRETTY, TWO),
        ("array.json.zst", zstd(PRETTY), TWO),
        ("one.json", b'{\n  "text": "one",\n  "more": {"text": "no"}\n}\n', ["one"]),
        ("objects.json", b'{\n "text": "one"\n}\n\n{\n "text": "two"\n}', ["one", "two"]),
        ("c4-train.00000-of-01024.json.gz", gzip.compress(jsonl(TWO)), TWO),
        ("unpacked.jsonl.gz", jsonl(TWO), TWO),
        ("packed.jsonl", gzip.compress(jsonl(TWO)), TWO),
        ("frames.jsonl.zst", zstd(jsonl(["a"])) + zstd(jsonl(["b"])), ["a", "b"]),
        ("book.txt.zst", zstd(b"a\nbook"), ["a\nbook"]),
        ("packed", gzip.compress(jsonl(TWO)), TWO),
        ("crlf.jsonl", jsonl(TWO, "\r\n"), TWO),
        ("UPPER.JSONL", jsonl(TWO) + b"\n \n", TWO),
        ("unterminated.jsonl", jsonl(TWO).rstrip(), TWO),
        ("mark.jsonl", codecs.BOM_UTF8 + jsonl(TWO), TWO),
        ("mark.txt.gz", gzip.compress(codecs.BOM_UTF8 + b"a\xef\xbb\xbfb"), ["a\ufeffb"]),
        ("lines.txt", jsonl(TWO), TWO),
        ("page.txt", b"<html>a text about pages</html>", ["<html>a text about pages</html>"]),
        ("brackets.txt", b"[1] a footnote {not JSON}", ["[1] a footnote {not JSON}"]),
        *((name, parquet(TWO, pyarrow.large_string()), TWO) for name in ("a.parquet", "a.bin", "a.json")),
        ("file.txt", PLAIN, [PLAIN.decode()]),
        ("paragraph.txt", PLAIN, ["first\nsecond", "third", "fourth"]),
        ("line.txt", PLAIN, ["first", "second", "third", "fourth"]),
    ],
    ids=name_only,
)
def test_the_content_decides_how_a_file_is_read(tmp_path, name, content, expected):
    sources = put(tmp_path, {name: content, "last.txt": "last"})
    division = ["--document", name.partition(".")[0]] if content is PLAIN else []
    run(BYTES, tmp_path / "out", *sources, "--val-tokens", 0, *division)
    assert texts(tmp_path / "out") == ([], [*expected, "last"])


def test_other_files_are_named_text_or_left_out(tmp_path):
    names = ("a.txt", "b.log", "c.LOG", "notes/d", "notes/e.jsonl", ".cache/f.metadata")
    put(tmp_path / "in", {name: f'{{"text": "{name}"}} ' if name.endswith("jsonl") else name for name in names})
    run(BYTES, tmp_path / "out", tmp_path / "in", "--val-tokens", 0, expect=3)
    patterns = ["--text", "*.log", "--text", "notes", "--skip", ".cache", "--skip", "*.LOG"]
    run(BYTES, tmp_path / "out", tmp_path / "in", "--val-tokens", 0, *patterns)
    assert texts(tmp_path / "out")[1] == ["a.txt", "b.log", "notes/d", '{"text": "notes/e.jsonl"} ']


def test_blank_documents_are_left_out_and_counted(tmp_path):
    files = {"a.jsonl": jsonl(["", "one", " \n\t", "two", "\u3000"]), "b.txt": " \n", "c.txt": ""}
    sources = put(tmp_path, files | {"d.parquet": parquet(["", "three"])})
    assert "6 blank" in run(BYTES, tmp_path / "out", *sources, "--val-tokens", 0)
    assert texts(tmp_path / "out")[1] == ["one", "two", "three"]


# --- validation ---------------------------------------------------------------------------------------------------


def test_validation_comes_from_all_files(tmp_path):
    """In proportion to their sizes, and every document is in one of both."""
    parts = {name: [f"{name} {i} {text}" for i, text in enumerate(DOCUMENTS)] for name in ("lines", "array", "plain")}
    parts["table"] = [f"table {i} {text}" for i, text in enumerate(DOCUMENTS[:100])]
    parts["plain"] = [text.replace("\n", " ") for text in parts["plain"]]
    array = json.dumps([{"text": text} for text in parts["array"]])
    put(tmp_path / "in", {"a.jsonl": jsonl(parts["lines"]), "b.parquet": parquet(parts["table"]), "c.json": array,
                          "d.txt": "\n".join(parts["plain"])})  # fmt: skip
    options = ["--val-tokens", "20k", "--document", "line", "--shard-tokens", "50k"]
    run(BYTES, tmp_path / "out", tmp_path / "in", *options)
    val, train = texts(tmp_path / "out")
    every = [text for documents in parts.values() for text in documents]
    assert collections.Counter(val + train) == collections.Counter(every)
    tokens = lambda documents: sum(len(text.encode()) + 1 for text in documents)
    for name, documents in parts.items():
        share = 20_000 * tokens(documents) / tokens(every)
        got = tokens(text for text in val if text.startswith(name))
        assert abs(got - share) <= 2 * max(len(text.encode()) for text in every), name


def test_validation_does_not_follow_a_regular_order(tmp_path):
    documents = [f"{'even' if i % 2 == 0 else 'odd_'} {i:06d} {'x' * 90}" for i in range(4000)]
    run(BYTES, tmp_path / "out", *put(tmp_path, {"a.jsonl": jsonl(documents)}), "--val-tokens", "20k")
    val, _ = texts(tmp_path / "out")
    places = [int(text.split()[1]) for text in val]
    even = sum(text.startswith("even") for text in val)
    assert 0.3 < even / len(val) < 0.7
    assert max(np.diff([0, *places, 4000])) < 4 * 4000 / len(val)  # nowhere a large gap


def test_long_documents_give_their_ends(tmp_path):
    books = [" ".join(f"{name}{i}" for i in range(3000)) + "\n" for name in ("a", "b", "c")]
    run(BYTES, tmp_path / "out", *put(tmp_path, {f"{book[0]}.txt": book for book in books}), "--val-tokens", "1k")
    val, train = texts(tmp_path / "out")
    assert [begin + end for begin, end in zip(train, val, strict=True)] == books
    assert all(begin.endswith(" ") for begin in train)  # between words
    assert all(300 < len(text) < 500 for text in val)


@pytest.mark.parametrize("copies", [1, 20])
def test_by_default_validation_is_a_20th_of_the_input(tmp_path, copies):
    run(BYTES, tmp_path / "out", *put(tmp_path, {"a.jsonl": jsonl(DOCUMENTS * copies)}))
    val, train = split_of(tmp_path / "out")
    assert abs(len(val) - (len(val) + len(train)) / 20) < 800  # a document or two


LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"
PAGE = b"\xef\xbb\xbf\n<!DOCTYPE html>\n<html><title>404 Not Found</title></html>\n"


# --- messages name the error -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name, content, parts",
    [
        ("a.txt", b"fine\n" * 1000 + b"caf\xe9 au lait", ["a.txt: byte 0xe9 at offset 5003 is not UTF-8", "iconv"]),
        ("a.jsonl", b'{"text": "x"}\n\n{"text": \n', ["a.jsonl: line 3: not JSON"]),
        ("a.jsonl", b'{"text": "x"}\n{"a": 1, "b": 2}\n', ["a.jsonl: line 2: no 'text' (keys a, b)", "--text-key"]),
        ("a.json", b'[{"text": "x"},\n {"text": "y"}', ["a.json: not JSON", "line 2", "--text"]),
        ("a.jsonl", b'{"text": null}\n', ["a.jsonl: line 1: the value of 'text' is NoneType, expected text"]),
        ("a.jsonl", b'{"text": "ab\\ud800"}\n', ["a.jsonl: line 1: 'text' has half a surrogate pair at character 2"]),
        ("a.txt.gz", gzip.compress(b"text" * 1000)[:-20], ["a.txt.gz: Compressed file ended"]),
        ("a.parquet", b"not parquet, but some bytes", ["a.parquet: not Parquet"]),
        ("a.jsonl.zst", zstd(jsonl(["x"] * 50_000))[:-40], ["a.jsonl.zst: "]),
        ("a.txt", b"", ["the input has no text"]),
        *((name, LFS, [f"{name}: a Git LFS pointer"]) for name in ("a.parquet", "a.jsonl.gz", "a.txt", "a")),
        *((name, PAGE, [f"{name}: an HTML or XML page"]) for name in ("a.parquet", "a.json.gz", "a.txt.gz", "a.gz", "a.jsonl")),
        ("a.txt", "text".encode("utf-16"), ["a.txt: UTF-16"]),
        ("a.jsonl", codecs.BOM_UTF16_BE + '{"text": "x"}'.encode("utf-16-be"), ["a.jsonl: UTF-16"]),
        ("a.txt", "text".encode("utf-16-le"), ["a.txt: binary"]),
        ("a.md", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", ["a.md: binary"]),
        ("a.txt.gz", gzip.compress(gzip.compress(b"text")), ["a.txt.gz: binary"]),
        ("a.log", b"text", ["a.log: may not be text", "--text '*.log'"]),
        ("a.html", PAGE, ["a.html: may not be text"]),
    ],
    ids=name_only,
)
def test_input_that_cannot_be_read(tmp_path, name, content, parts):
    (tmp_path / name).write_bytes(content)
    error = run(BYTES, tmp_path / "out", tmp_path / name, "--val-tokens", 0, expect=3)
    assert [part for part in parts if part not in error] == [], error
    assert not list((tmp_path / "out").iterdir())


def test_all_errors_are_reported_at_once_before_the_work(tmp_path, monkeypatch):
    """Also those in the last documents of large files."""
    folder = tmp_path / "in"
    put(folder, {"a.txt": "good\n", "b.jsonl": jsonl(DOCUMENTS) + b'{"text": 1}\n{"text": 2}\n', "d.parquet": LFS,
                 "deep/c.txt": b"good\n" * 50_000 + b"\xe9", "f.pdf": b"%PDF-1.7"})  # fmt: skip
    pyarrow.parquet.write_table(pyarrow.table({"body": ["x"]}), folder / "e.parquet")
    (folder / "g.txt").symlink_to(folder / "gone.txt")
    os.mkfifo(folder / "h.txt")
    monkeypatch.setattr(prepare_tokens, "tokenized", lambda *_: pytest.fail("the work has begun"))
    problems = run(BYTES, tmp_path / "out", folder, tmp_path / "absent", expect=3).splitlines()
    named = ["b.jsonl: line", "c.txt: byte 0xe9 at offset 250000", "d.parquet: a Git LFS", "e.parquet: no column 'text' (body)"]
    named += ["f.pdf: may not be text", "g.txt: there is no such file", "h.txt: there is", "absent: there is no such file"]
    assert len(problems) == len(named)
    assert all(sum(part in problem for problem in problems) == 1 for part in named)
    assert not list((tmp_path / "out").iterdir())


def test_numbers_of_tokens():
    parsed = lambda text: prepare_tokens.parse(["a.txt", "--out", "x", f"--val-tokens={text}"]).val_tokens
    for text, tokens in {"60000": 60_000, "1.5M": 1_500_000, "1e6": 10**6, "0.5k": 500, "3b": 3 * 10**9}.items():
        assert parsed(text) == tokens
    for text in ("", "k", "60kk", "1.5", "-1k", "1.2345k", "nan", "60 tokens"):
        with pytest.raises(SystemExit):
            parsed(text)


def test_wrong_calls(tokenizer, tmp_path):
    out = tmp_path / "out"
    source, broken = put(tmp_path, {"a.txt": "x" * 999, "broken.json": "{}"})
    (tmp_path / "none").mkdir()
    two = tokenizers.Tokenizer.from_file(str(tokenizer[0]))
    two.add_special_tokens(["</s>"])
    two.save(str(tmp_path / "two.json"))
    for arguments, status, part in [
        ([tmp_path / "none"], 3, "none: no file below it"),
        ([source, "--val-tokens", "501"], 2, "--val-tokens"),
        ([source, "--dataset", "x"], 2, "--dataset"), ([source, "--shard-tokens", 0], 2, "--shard-tokens"),
        (["-", "--resume"], 2, "--resume cannot continue"), ([source, "--name", "retrieval"], 2, "--name"),
        ([source, "--end-of-text", "<|eot|>"], 2, "the vocabulary has no <|eot|>"),
        ([source, "--tokenizer", broken], 2, "broken.json: not a tokenizer.json"),
        ([source, "--tokenizer", tmp_path / "two.json"], 2, "has <|endoftext|>, </s>. Name the"),
    ]:  # fmt: skip
        using = BYTES if "--val-tokens" in arguments else tokenizer
        assert part in run(using, out, *arguments, expect=status)
    assert not list(out.iterdir())
    run((tmp_path / "two.json",), out, source, "--end-of-text", "</s>", "--val-tokens", 0)
    assert shards(out)["toy_train_000001.bin"][0] == two.token_to_id("</s>")


@pytest.mark.parametrize("package, arguments", [("tokenizers", ["a.txt"]), ("pyarrow", ["a.parquet"])])
def test_a_missing_package_is_named_with_what_installs_it(tokenizer, tmp_path, monkeypatch, package, arguments):
    put(tmp_path, {"a.txt": "text", "a.parquet": parquet(["x"])})
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, package, None)
    error = run(tokenizer, tmp_path / "out", *arguments, expect=2)
    assert f"needs the Python package {package}" in error
    *command, requirements = shlex.split(error.splitlines()[-1])
    assert command == [sys.executable, "-m", "pip", "install", "-r"] and Path(requirements).exists()
