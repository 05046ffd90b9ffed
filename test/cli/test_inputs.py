"""Bad input is refused before anything starts, with exit code 2 (spec) or 3 (data); its messages, of which these are the few of
the whole program, name the place, what was found and what to do. Others: test/experiment, test/data, test/fuzz."""

import re
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import harness
from small_models import TOKENS, VOCABULARY, write_tokens

MLP = {"name": "mlp", "width": 16, "depth": 2, "hidden_width": 8}
LLAMA = {"name": "llama_tiny", "width": 32, "depth": 2, "hidden_width": 32, "heads": 8, "vocab_size": VOCABULARY}


def spec_of(tmp_path, folder, model, **sections):
    """An experiment on tokens for a language model, on images for the others."""
    if model["name"].startswith("llama"):
        sections["data"] = {"name": "tokens", "sequence_length": TOKENS} | sections.get("data", {})
    return harness.write_config(tmp_path, "run", folder, model=model, **sections)


def refused(tmp_path, arguments, expected, code):
    """`expected`: parts of the message."""
    message = harness.run(*arguments, expect=code).stderr
    assert all(str(part) in message for part in expected) and "internal error" not in message, message
    for file in ("metrics.jsonl", "trace.jsonl", "checkpoints", "latest"):
        assert not (tmp_path / "runs" / "run" / file).exists(), f"{file}: something was started"
    return message


# The options, parts of the message, and the commands: one process trains directly, several are started by the launcher;
# a plan starts none.
SPEC_ERRORS = {
    "unknown key": (["optimizer.learning_rate=0.1"], ["--set optimizer.learning_rate=0.1", "lr"], [["--nproc", 1]]),
    "missing key": (["subnetwork.assignment=file"], ["run.yaml:1:", "subnetwork.assignment_file"], [["--nproc", 2]]),
    "of several sections": (["subnetwork.coverage=0.4"], ["subnetwork.coverage", "4 workers", "1/4", "2/4"], [["plan"]]),
    "of the layout": (
        ["subnetwork.construction=neuron", "subnetwork.slices_per_branch=16"], ["subnetwork.slices_per_branch", "blocks.0", 16, 8],
        [["--nproc", 1], ["--nproc", 2], ["plan"]],
    ),
    "processes": ([], ["4 workers", "1, 2, 4"], [["--nproc", 3], ["--nproc", 0]]),
}


@pytest.mark.parametrize("case", SPEC_ERRORS)
def test_spec_errors(tmp_path, data, case):
    overrides, expected, ways = SPEC_ERRORS[case]
    config = spec_of(tmp_path, data, MLP)
    for way in ways:
        refused(tmp_path, [*way, "--config", config, *harness.sets(*overrides)], expected, code=2)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("text,place,is_told", [
    ("model:\n  name: mlp\n\twidth: 8\n", "3", True), ("model: [\n", "", False),
    ("name: bad\ndata: {path: .}\noptimizer:\n  lr: 0.1\n  momentun: 0.9\n", "5:3: optimizer.momentun", False),
])
def test_files_that_are_no_spec(tmp_path, text, place, is_told):
    """With file, line and column, and whether tabs are why. Others: test/experiment/load_test.cpp."""
    config = tmp_path / "spec.yaml"
    config.write_text(text)
    message = harness.run("--config", config, expect=2).stderr
    assert f"{config}:{place}" in message and ("tab" in message.replace(str(config), "")) == is_told


def test_more_slices_than_heads_are_as_many_as_heads(tmp_path):
    config = spec_of(tmp_path, tmp_path, LLAMA, subnetwork={"construction": "neuron", "slices_per_branch": 16})
    units = harness.run_json("plan", "--config", config)["units"]
    of_branch = lambda name: [(u["begin"], u["end"]) for u in units if u["branch"] == f"model.layers.0.{name}"]
    assert of_branch("self_attn") == [(head, head + 1) for head in range(8)]
    assert of_branch("mlp") == [(2 * i, 2 * i + 2) for i in range(16)]


def test_a_folder_of_another_data_set(tmp_path, data):
    config = harness.write_config(tmp_path, "run", data, data={"name": "imagenet"})
    harness.run("plan", "--config", config)  # which reads no data
    for processes in (1, 2):
        refused(tmp_path, ["--config", config, "--nproc", processes], [data, "ImageNet", "train/CLASS/*.JPEG"], code=3)
    # A run that was refused before its first step does not block the corrected command.
    config = harness.write_config(tmp_path, "run", data, model={"num_classes": 7})
    refused(tmp_path, ["--config", config, "--nproc", 1], ["model.num_classes", 7, 10], code=2)
    harness.run("--config", harness.write_config(tmp_path, "run", data, train={"max_steps": 1}), "--nproc", 1)


# ---- shards of tokens ----


VALUES = np.arange(500) % VOCABULARY


def write_shard(path, tokens, bits=16):
    magic, version = {16: (20240520, 1), 32: (20240801, 7)}[bits]
    header = np.zeros(256, np.int32)
    header[:3] = magic, version, len(tokens)
    path.write_bytes(header.tobytes() + np.asarray(tokens).astype(f"u{bits // 8}").tobytes())
    return path


@pytest.mark.parametrize("split,processes", [("train", 2), ("val", 1)])
def test_tokens_outside_the_vocabulary(tmp_path, split, processes):
    folder = write_tokens(tmp_path / "tokens")
    values = VALUES.copy()
    values[37], values[321], values[400] = 1999, 2001, VOCABULARY
    shard = write_shard(folder / f"toy_{split}_000001.bin", values)
    config = spec_of(tmp_path, folder, LLAMA)
    expected = ["model.vocab_size", shard, VOCABULARY, 2001, 321, 2002]
    refused(tmp_path, ["--config", config, "--nproc", processes], expected, code=2)
    # The number that the message names is enough.
    config = spec_of(tmp_path, folder, LLAMA | {"vocab_size": 2002}, train={"max_steps": 1})
    harness.run("--config", config, "--nproc", processes)


@pytest.mark.parametrize("bits,negative", [(16, -100), (32, -1)])
def test_a_negative_number_is_no_reason_for_a_larger_vocabulary(tmp_path, bits, negative):
    """Labels that a loss ignores, padding and other negative numbers, written as unsigned ones."""
    values = VALUES.copy()
    values[321] = negative
    for split in ("train", "val"):
        write_shard(tmp_path / f"toy_{split}_000000.bin", values, bits)
    config = spec_of(tmp_path, tmp_path, LLAMA)
    for arguments, code in ((["--config", config, "--nproc", 1], 2), (["data", "check", "--config", config], 3)):
        result = harness.run(*arguments, expect=code)
        said = result.stdout + result.stderr
        assert "321" in said and str(negative) in said and f"model.vocab_size: {negative % 2**bits + 1}" not in said
        assert ("ignore" in said) == (negative == -100)


def test_shards_of_training_and_validation_have_one_tokenizer(tmp_path):
    train, val = write_shard(tmp_path / "a_train.bin", VALUES, 16), write_shard(tmp_path / "a_val.bin", VALUES, 32)
    config = spec_of(tmp_path, tmp_path, LLAMA)
    refused(tmp_path, ["--config", config, "--nproc", 1], [train, val, 16, 32], code=3)
    assert f"{val}: tokens of 32 bits" in harness.run("data", "check", "--config", config, expect=3).stdout


@pytest.mark.parametrize("vocab_size,bits,is_told", [(65537, 16, True), (128256, 16, True), (65536, 16, False), (65537, 32, False)])
def test_a_vocabulary_that_16_bits_cannot_hold_is_told(tmp_path, vocab_size, bits, is_told):
    for split in ("train", "val"):
        write_shard(tmp_path / f"a_{split}.bin", VALUES, bits)
    config = spec_of(tmp_path, tmp_path, LLAMA | {"width": 8, "depth": 1, "heads": 2, "hidden_width": 8, "vocab_size": vocab_size})
    assert ("65535" in harness.run("data", "check", "--config", config).stdout) == is_told


BARE = np.tile(VALUES, 3)


def bare_nanogpt(folder, split):
    BARE.astype(np.uint16).tofile(folder / f"{split}.bin")


def bare_npy(folder, split):
    np.save(folder / f"edu_{split}_000001.npy", BARE.astype(np.int64 if split == "train" else np.uint16))


def bare_megatron(folder, split):
    BARE.astype(np.int32).tofile(folder / f"{split}_document.bin")
    header = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 4, 1, 2) + struct.pack("<iqqq", len(BARE), 0, 0, 1)
    (folder / f"{split}_document.idx").write_bytes(header)


@pytest.mark.parametrize("write", [bare_nanogpt, bare_npy, bare_megatron])
def test_bare_tokens_are_converted_by_the_line_that_is_printed(tmp_path, write):
    folder = tmp_path / "the tokens"
    folder.mkdir()
    for split in ("train", "val"):
        write(folder, split)
    config = spec_of(tmp_path, folder, LLAMA)
    message = refused(tmp_path, ["--config", config, "--nproc", 1], [str(folder)], code=3)
    command = re.search(r"python3 (scripts/convert_tokens\.py .*/shards')", message)[1]
    subprocess.run(f"{sys.executable} {command}", shell=True, check=True, cwd=Path(__file__).parents[2])
    report = harness.run_json("data", "check", "--config", config, "--set", f"data.path={folder}/shards")
    for split in ("train", "test"):
        (shard,) = report[split]["shards"]
        assert (shard["tokens"], shard["smallest"], shard["largest"]) == (len(BARE), BARE.min(), BARE.max())
