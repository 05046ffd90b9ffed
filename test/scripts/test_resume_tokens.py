"""scripts/prepare_tokens.py --resume: a resumed call gives the shards of an uninterrupted one, or is refused."""

import collections
import json
import os
import signal
import subprocess
import sys
import time
import types

import pytest
import tokenizers

from toy_tokens import (
    BYTES, DOCUMENTS, PROGRAM, command, document, documents_in, jsonl, prepare_tokens, put, run, shards, split_of,
    tokenizer,
)  # fmt: skip
import token_shards


def contents(folder, pattern="*"):
    return {path.name: path.read_bytes() for path in folder.glob(pattern)}


@pytest.fixture
def prepared(tokenizer, tmp_path):
    """The arguments of a call that made shards, and their folder."""
    [source], out = put(tmp_path, {"a.jsonl": jsonl(DOCUMENTS)}), tmp_path / "out"
    arguments = [source, "--val-tokens", 700, "--shard-tokens", 3000, "--resume"]
    run(tokenizer, out, *arguments)
    return arguments, out


@pytest.fixture(scope="session")
def long_input(tokenizer, tmp_path_factory):
    """A file that takes seconds to tokenize, and the shards of an uninterrupted call."""
    folder = tmp_path_factory.mktemp("long")
    (source,) = put(folder, {"a.jsonl": jsonl(document(i, 2000) for i in range(800))})
    run(tokenizer, folder / "whole", source, "--val-tokens", 5000, "--shard-tokens", 30_000)
    return source, contents(folder / "whole", "*.bin")


@pytest.mark.parametrize("kind, shards_before", [(signal.SIGKILL, 2), (signal.SIGTERM, 9)])
def test_a_resumed_call_writes_what_an_uninterrupted_one_does(tokenizer, long_input, tmp_path, kind, shards_before):
    source, whole = long_input
    arguments = [source, "--val-tokens", 5000, "--shard-tokens", 30_000, "--resume", "--processes", 2]
    program = [*PROGRAM, *command(tokenizer, tmp_path, *arguments)]
    with subprocess.Popen(program, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while len(list(tmp_path.glob("*.bin"))) < shards_before and process.poll() is None:
            time.sleep(0.001)
        process.send_signal(kind)
    state = json.loads((tmp_path / "toy.state.json").read_text())
    assert not state["complete"] and len(state["shard_tokens"]) >= shards_before - 1
    assert len(whole) > len(list(tmp_path.glob("*.bin"))) >= shards_before
    kept = {path.name: path.stat().st_mtime_ns for path in tmp_path.glob("*.bin")}
    run(tokenizer, tmp_path, *arguments)
    assert contents(tmp_path, "*.bin") == whole
    assert not list(tmp_path.glob("*.part"))
    again = [name for name, changed in kept.items() if (tmp_path / name).stat().st_mtime_ns != changed]
    assert len(again) <= 1  # a call whose state was not written yet
    run(tokenizer, tmp_path, *arguments)
    assert contents(tmp_path, "*.bin") == whole


@pytest.mark.parametrize("shard_tokens", [1, 7, 64])
def test_shards_may_begin_anywhere_in_a_document(tokenizer, tmp_path, monkeypatch, shard_tokens):
    """Resuming from every state that a call passes through gives the same shards."""
    (source,) = put(tmp_path, {"a.jsonl": jsonl(["", "the quick fox", "x", "", "über dog", "", "the", "fox", ""])})
    arguments = [source, "--val-tokens", 5, "--shard-tokens", shard_tokens]
    run(tokenizer, tmp_path / "one", *arguments, "--shard-tokens", 10_000)
    out, states = tmp_path / "out", []
    original = token_shards.write_state

    def write_state(options, state):
        original(options, state)
        states.append(((out / "toy.state.json").read_text(), len(state.shard_tokens)))

    for module in (prepare_tokens, token_shards):
        monkeypatch.setattr(module, "write_state", write_state)
    run(tokenizer, out, *arguments)
    expected = contents(out, "*.bin")
    assert split_of(out)[1].tolist() == split_of(tmp_path / "one")[1].tolist()
    assert [complete for _, complete in states][:2] == [0, 1]
    for text, complete in list(states):
        for path in list(shards(out))[complete:]:
            (out / path).unlink()
        (out / "toy.state.json").write_text(text)
        run(tokenizer, out, *arguments, "--resume")
        assert contents(out, "*.bin") == expected


def test_going_on_needs_the_same_input_options_and_shards(tokenizer, prepared, tmp_path):
    arguments, out = prepared
    source, *_ = arguments
    changed = tokenizers.Tokenizer.from_file(str(tokenizer[0]))
    changed.add_tokens(["more"])
    changed.save(str(tmp_path / "other.json"))
    status, before = source.stat(), contents(out)
    state = json.loads(before["toy.state.json"])
    refused = lambda *more, using=tokenizer: run(using, out, *arguments, *more, expect=2)
    assert "--resume" in run(tokenizer, out, *arguments[:-1], expect=2)
    assert "val_tokens differs from" in refused("--val-tokens", 701)
    assert "tokenizer differs from" in refused(using=(tmp_path / "other.json",))
    # Shards and states that do not belong together: one too short, one too many, one more than the state has, no state.
    files = {"toy_train_000002.bin": b"short", f"toy_train_{len(shards(out)):06d}.bin": b"of another call"}
    shorter = state | {"complete": False, "shard_tokens": state["shard_tokens"][:2]}
    files |= {"toy.state.json": json.dumps(shorter).encode()}
    for name, content in files.items():
        (out / name).write_bytes(content)
        assert (name if "train" in name else "toy_train_000003.bin") in refused()
        (out / name).unlink()
        if name in before:
            (out / name).write_bytes(before[name])
    (out / "toy.state.json").unlink()
    error = refused()
    assert "toy_train_000001.bin exists" in error and "toy.state.json" in error
    del before["toy.state.json"]
    assert contents(out) == before
    # Shards of another name that begins in the same way are not touched.
    for path in out.iterdir():
        path.rename(out / path.name.replace("toy_", "toy_old_"))
    run(tokenizer, out, *arguments)
    # Another size at the same time, and the same size at another time.
    for documents, later_ns in ((DOCUMENTS + ["more"], 0), (DOCUMENTS[:5] + [DOCUMENTS[5][::-1]] + DOCUMENTS[6:], 1)):
        source.write_bytes(jsonl(documents))
        assert (source.stat().st_size == status.st_size) == bool(later_ns)
        os.utime(source, ns=(status.st_atime_ns, status.st_mtime_ns + later_ns))
        assert "inputs differs from" in refused()


def test_a_torn_state_is_a_clear_error(tmp_path):
    arguments = [*put(tmp_path, {"a.jsonl": jsonl(DOCUMENTS[:20])}), "--val-tokens", 0, "--resume"]
    run(BYTES, tmp_path / "out", *arguments)
    path = tmp_path / "out" / "toy.state.json"
    good = path.read_bytes()
    torn = [good[:size] for size in range(0, len(good.strip()), 40)] + [bytes(len(good)), good[:50] + b"\xff"]
    for state in (*torn, b"[]", b"{}", b'{"settings": {}, "documents": "x"}', b'{"settings": {}, "more": 1}'):
        path.write_bytes(state)
        assert f"{path} is damaged" in run(BYTES, tmp_path / "out", *arguments, expect=2), state


def test_a_state_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    """Also its name, before the next shard is begun: the order of system calls."""
    calls, fsync, replace = [], os.fsync, os.replace

    def note_fsync(descriptor):
        calls.append(("sync", os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}"))))
        fsync(descriptor)

    def note_replace(source, target):
        calls.append(("name", os.path.basename(target)))
        replace(source, target)

    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(os, "replace", note_replace)
    run(BYTES, tmp_path / "out", *put(tmp_path, {"a.jsonl": jsonl(DOCUMENTS[:5])}), "--val-tokens", 0)
    state = [("sync", "toy.state.json.part"), ("name", "toy.state.json"), ("sync", "out")]
    shard = [("sync", "toy_train_000001.bin.part"), ("name", "toy_train_000001.bin")]
    assert calls == [*state, *shard, *state, *state]


# --- data sets of the hub -----------------------------------------------------------------------------------------


class Hub:
    """A data set with several commits; the last one is current."""

    def __init__(self, monkeypatch, commits, reachable=True):
        self.commits, self.reachable, self.loaded = commits, reachable, set()
        monkeypatch.setitem(sys.modules, "datasets", self)
        monkeypatch.setitem(sys.modules, "huggingface_hub", self)
        monkeypatch.setattr(prepare_tokens, "BATCH_CHARACTERS", 1000)

    def HfApi(self):
        return self

    def dataset_info(self, name):
        if not self.reachable:
            raise RuntimeError("no network")
        return types.SimpleNamespace(sha=list(self.commits)[-1])

    def load_dataset(self, *_, revision, **options):
        self.loaded.add(revision)
        for text in self.commits[revision or list(self.commits)[-1]]:
            if isinstance(text, Exception):
                raise text
            yield {"text": text}


CUT = [*DOCUMENTS[:300], OSError("the connection is lost")]
STREAM = ["--dataset", "some/set", "--val-tokens", 3000, "--shard-tokens", 500]


def documents_of(folder):
    """The documents of validation and of training, as tokens."""
    return [documents_in(tokens, 256) for tokens in split_of(folder)]


EVERY = [tuple(text.encode()) for text in DOCUMENTS]


@pytest.mark.parametrize("reachable", [True, False])
def test_a_data_set_is_gone_on_with_at_the_commit_it_was_begun_at(tmp_path, monkeypatch, reachable):
    """Where the commit cannot be known, it is said."""
    hub = Hub(monkeypatch, {"c0ffee": CUT}, reachable)
    error = run(BYTES, tmp_path, *STREAM, expect=3)
    assert "the connection is lost" in error and ("no network" in error and "some/set" in error) != reachable
    assert 2 < len(shards(tmp_path)) < 120 and json.loads((tmp_path / "toy.state.json").read_text())["documents"] > 50
    hub.commits = {"c0ffee": DOCUMENTS, "decade": DOCUMENTS[::-1]} if reachable else {"c0ffee": DOCUMENTS}
    hub.reachable = not reachable  # it is not asked again
    assert ("--resume cannot detect" in run(BYTES, tmp_path, *STREAM, "--resume")) != reachable
    assert hub.loaded == {"c0ffee" if reachable else None}
    val, train = documents_of(tmp_path)
    assert collections.Counter(val + train) == collections.Counter(EVERY)


def test_of_a_data_set_validation_takes_documents_of_its_first_part(tmp_path, monkeypatch):
    """One in ten until there are enough, as its size is unknown."""
    Hub(monkeypatch, {"c0ffee": [*DOCUMENTS, " "] * 3})
    assert "3 blank" in run(BYTES, tmp_path, *STREAM)
    val, train = documents_of(tmp_path)
    assert collections.Counter(val + train) == collections.Counter(EVERY * 3)
    assert 2000 < sum(map(len, val)) < 4500
    places = [EVERY.index(document) for document in val]
    assert places == sorted(places) and 100 < places[-1] < 300
    Hub(monkeypatch, {"c0ffee": DOCUMENTS})  # small: a tenth of it and not 10M tokens
    run(BYTES, tmp_path / "small", *STREAM, "--val-tokens", "10M")
    val, _ = documents_of(tmp_path / "small")
    assert 0.05 < len(val) / len(DOCUMENTS) < 0.15
