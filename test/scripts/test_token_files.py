"""scripts/convert_tokens.py on the files of bare tokens that other programs write, and scripts/cut_vocabulary.py: shards
read back with numpy, ids that are kept and the id of all others."""

import functools
import json
import struct

import numpy as np
import pytest

from conftest import call, load_script
from toy_tokens import read_shard, write_shard

convert, cut = (functools.partial(call, load_script(name).main) for name in ("convert_tokens.py", "cut_vocabulary.py"))


def write_megatron(path, tokens):
    """As megatron.core.datasets.indexed_dataset.IndexWriter: one document of all tokens, of type 4, int32."""
    path.with_suffix(".bin").write_bytes(np.asarray(tokens, np.int32).tobytes())
    index = b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, 4, 1, 2)
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
    write_megatron(source / "corpus_text_document", tokens)
    (source / "notes.txt").write_text("no tokens")
    convert(source, "--out", out)
    found = {path.name: read_shard(path) for path in out.iterdir()}
    names = ("train.bin", "val.bin", "numbers_val.bin", "corpus_text_document_train.bin")
    assert found.keys() == set(names)
    for name in names:
        expected = tokens[:100] if name == "val.bin" else tokens
        assert found[name].dtype.itemsize == bits // 8 and np.array_equal(found[name], expected), name
    # Shards are no bare tokens, and nothing is replaced.
    assert "no .npy" in convert(out, "--out", tmp_path / "again", expect=3)
    assert "exists" in convert(source, "--out", out, expect=2)


@pytest.mark.parametrize("values,part", [
    (np.array([5, 9, -100, 4], np.int64), "-100 at position 2"), (np.array([5, -1], np.int16), "-1 at position 1"),
    (np.zeros((4, 5), np.int64), "one-dimensional"), (np.zeros(4, np.float32), "one-dimensional"),
    (np.zeros(0, np.uint16), "no tokens"), (b"\1" * 2001, "1 bytes too many"),
])  # fmt: skip
def test_what_is_no_token_is_refused(tmp_path, values, part):
    if isinstance(values, bytes):
        (tmp_path / "train.bin").write_bytes(values)
    else:
        np.save(tmp_path / "train.npy", values)
    assert part in convert(tmp_path, "--out", tmp_path / "out", expect=3)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("dtype", [np.uint16, np.uint32])
def test_ids_are_ranks_in_the_training_shards(tmp_path, dtype):
    random = np.random.default_rng(3)
    source = tmp_path / "source"
    source.mkdir()
    shards = {f"toy_{kind}_{n:06d}.bin": random.geometric(0.02, 5000) for n, kind in enumerate(["val", "train", "train"])}
    for name, tokens in shards.items():
        write_shard(source / name, tokens, dtype)
    output = cut(source, tmp_path / "cut", "--keep", 40)

    train = np.concatenate([tokens for name, tokens in shards.items() if "train" in name])
    ids, counts = np.unique(train, return_counts=True)
    kept = ids[np.lexsort((ids, -counts))][:40]
    for name, tokens in shards.items():
        matches = tokens[:, None] == kept[None, :]
        expected = np.where(matches.any(1), matches.argmax(1), 40)
        assert np.array_equal(read_shard(tmp_path / "cut" / name), expected)
        assert f"{np.mean(expected == 40):.2%}" in output
    assert json.loads((tmp_path / "cut" / "vocabulary.json").read_text()) == kept.tolist()


def test_what_is_refused(tmp_path):
    assert "*train*.bin" in cut(tmp_path, tmp_path / "cut", "--keep", 4, expect=2)
    write_shard(tmp_path / "toy_train_000001.bin", [1, 2, 3])
    assert "70000" in cut(tmp_path, tmp_path / "cut", "--keep", 70000, expect=2)
    assert "DST" in cut(tmp_path, tmp_path, "--keep", 4, expect=2)
    whole = (tmp_path / "toy_train_000001.bin").read_bytes()
    (tmp_path / "toy_train_000001.bin").write_bytes(whole[:-2])
    assert "2 tokens" in cut(tmp_path, tmp_path / "cut", "--keep", 4, expect=3)
    (tmp_path / "toy_train_000001.bin").write_bytes(b"no shard")
    assert "not a token shard" in cut(tmp_path, tmp_path / "cut", "--keep", 4, expect=3)
    assert not (tmp_path / "cut").exists()
