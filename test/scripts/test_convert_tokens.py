"""scripts/convert_tokens.py on the files of bare tokens that other programs write, read back with numpy."""

import functools
import struct

import numpy as np
import pytest

from conftest import call, load_script
from toy_tokens import read_shard

run = functools.partial(call, load_script("convert_tokens.py").main)


def write_megatron(path, tokens, dtype):
    """As megatron.core.datasets.indexed_dataset.IndexWriter: one document of all tokens."""
    code = {np.uint8: 1, np.int8: 2, np.int16: 3, np.int32: 4, np.int64: 5, np.uint16: 8}[dtype]
    path.with_suffix(".bin").write_bytes(np.asarray(tokens, dtype).tobytes())
    index = b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, code, 1, 2)
    path.with_suffix(".idx").write_bytes(index + struct.pack("<iqqq", len(tokens), 0, 0, 1))


TOKENS = np.random.default_rng(2).integers(0, 50_000, 3001)
LARGE = TOKENS * 2 + 17  # need 32 bits


@pytest.mark.parametrize("tokens,bits", [(TOKENS, 16), (LARGE, 32)])
def test_every_kind_of_file_is_converted(tmp_path, tokens, bits):
    source, out = tmp_path / "the source", tmp_path / "out"
    source.mkdir()
    tokens.astype(f"u{bits // 8}").tofile(source / "train.bin")  # nanoGPT
    tokens[:100].astype(f"u{bits // 8}").tofile(source / "val.bin")
    np.save(source / "numbers_val.npy", tokens.astype(np.int64))
    write_megatron(source / "corpus_text_document", tokens, np.int32)
    (source / "notes.txt").write_text("no tokens")
    run(source, "--out", out)
    found = {path.name: read_shard(path) for path in out.iterdir()}
    expected = {"train.bin": tokens, "val.bin": tokens[:100], "numbers_val.bin": tokens, "corpus_text_document_train.bin": tokens}
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        assert found[name].dtype.itemsize == bits // 8 and np.array_equal(found[name], values), name
    # Shards are no bare tokens, and nothing is replaced.
    assert "no .npy" in run(out, "--out", tmp_path / "again", expect=3)
    assert "exists" in run(source, "--out", out, expect=2)


@pytest.mark.parametrize("name,values,part", [
    ("labels.npy", np.array([5, 9, -100, 4], np.int64), "-100 at position 2"),
    ("padded.npy", np.array([5, -1], np.int16), "-1 at position 1"),
    ("table.npy", np.zeros((4, 5), np.int64), "one-dimensional"),
    ("shares.npy", np.zeros(4, np.float32), "one-dimensional"),
    ("empty.npy", np.zeros(0, np.uint16), "no tokens"),
])
def test_what_is_no_token_is_refused(tmp_path, name, values, part):
    np.save(tmp_path / name, values)
    assert part in run(tmp_path, "--out", tmp_path / "out", expect=3)
    assert not (tmp_path / "out").exists()


def test_half_a_number_is_refused(tmp_path):
    (tmp_path / "train.bin").write_bytes(b"\1" * 2001)
    assert "1 bytes too many" in run(tmp_path / "train.bin", "--out", tmp_path / "out", expect=3)
