"""scripts/cut_vocabulary.py compared with numpy: ids that are kept, the id of all others, refused input."""

import functools
import json

import numpy as np
import pytest

from conftest import call, load_script
from toy_tokens import read_shard, write_shard

run = functools.partial(call, load_script("cut_vocabulary.py").main)


@pytest.mark.parametrize("dtype", [np.uint16, np.uint32])
def test_ids_are_ranks_in_the_training_shards(tmp_path, dtype):
    random = np.random.default_rng(3)
    source = tmp_path / "source"
    source.mkdir()
    shards = {f"toy_{kind}_{n:06d}.bin": random.geometric(0.02, 5000) for n, kind in enumerate(["val", "train", "train"])}
    for name, tokens in shards.items():
        write_shard(source / name, tokens, dtype)
    output = run(source, tmp_path / "cut", "--keep", 40)

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
    assert "*train*.bin" in run(tmp_path, tmp_path / "cut", "--keep", 4, expect=2)
    write_shard(tmp_path / "toy_train_000001.bin", [1, 2, 3])
    assert "70000" in run(tmp_path, tmp_path / "cut", "--keep", 70000, expect=2)
    assert "DST" in run(tmp_path, tmp_path, "--keep", 4, expect=2)
    whole = (tmp_path / "toy_train_000001.bin").read_bytes()
    (tmp_path / "toy_train_000001.bin").write_bytes(whole[:-2])
    assert "2 tokens" in run(tmp_path, tmp_path / "cut", "--keep", 4, expect=3)
    (tmp_path / "toy_train_000001.bin").write_bytes(b"no shard")
    assert "not a token shard" in run(tmp_path, tmp_path / "cut", "--keep", 4, expect=3)
    assert not (tmp_path / "cut").exists()
