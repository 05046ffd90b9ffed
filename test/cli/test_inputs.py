"""Bad input is refused before anything starts, with exit code 2 (spec) or 3 (data). The message names the key or file, the
number found and the one expected."""

import json
import re
import struct
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import harness
from small_models import TOKENS, VOCABULARY, write_tokens

MLP = {"name": "mlp", "width": 16, "depth": 2, "hidden_width": 8}
LLAMA = {"name": "llama_tiny", "width": 32, "depth": 2, "hidden_width": 32, "heads": 8, "vocab_size": VOCABULARY}
SWIN = {"name": "swin_t", "width": 24, "num_heads": [3, 6, 12, 24], "patch_size": 4, "window_size": 4, "image_size": 32}
SHARD = "toy_train_000000.bin"


@pytest.fixture(scope="module")
def tokens(tmp_path_factory):
    return write_tokens(tmp_path_factory.mktemp("tokens"))


def spec_of(tmp_path, images, tokens, model, **sections):
    """An experiment on tokens for a language model, on images for the others."""
    is_language = model["name"].startswith("llama")
    of_model = {"name": "tokens", "sequence_length": TOKENS} if is_language else {}
    sections["data"] = of_model | sections.get("data", {})
    return harness.write_config(tmp_path, "run", tokens if is_language else images, model=model, **sections)


def refused(tmp_path, arguments, expected, code):
    """`expected`: parts of the message; a number is looked for as a number of its own."""
    message = harness.run(*arguments, expect=code).stderr
    for part in expected:
        found = part in message if isinstance(part, str) else re.search(rf"(?<![\d.]){part}(?![\d.]*\d)", message)
        assert found, f"{part} is not in: {message}"
    assert "internal error" not in message
    for file in ("metrics.jsonl", "trace.jsonl", "checkpoints", "latest"):
        assert not (tmp_path / "runs" / "run" / file).exists(), f"{file}: something was started"
    return message


NEURON = {"construction": "neuron"}
SPEC_ERRORS = {  # others: test/spec/validate_test.cpp
    "slices of an mlp": (
        MLP, {"subnetwork": NEURON | {"slices_per_branch": 16}}, ["subnetwork.slices_per_branch", "blocks.0", 16, 8],
    ),
    "slices of a resnet": (
        {"name": "resnet18", "width": 4}, {"subnetwork": NEURON | {"slices_per_branch": 5}},
        ["subnetwork.slices_per_branch", "layer1.0", 5, 4],
    ),
    "slices of a llama's mlp": (
        LLAMA, {"subnetwork": NEURON | {"slices_per_branch": 33}}, ["subnetwork.slices_per_branch", ".mlp", 33, 32],
    ),
    "more key/value heads than heads": (LLAMA | {"kv_heads": 16}, {}, ["model.heads", "model.kv_heads", 8, 16]),
    "odd heads": (LLAMA | {"width": 24}, {}, ["model.heads", "even", 8, 3]),
    "cutmix of tokens": (LLAMA, {"data": {"cutmix_alpha": 1.5}}, ["data.cutmix_alpha", 1.5, "0"]),
    "dropout of everything": (LLAMA | {"dropout": 1}, {}, ["model.dropout", 1]),
    "depth of everything": (SWIN | {"stochastic_depth": 1.5}, {}, ["model.stochastic_depth", 1.5, 1]),
    "data set": (MLP, {"data": {"name": "cifar11"}}, ["data.name", "cifar11", "cifar10"]),
    "coverage": (MLP, {"subnetwork": {"coverage": "2/3"}}, ["subnetwork.coverage", "2/3", 4]),
}


# One process trains directly, several are started by the launcher; a plan starts none.
WAYS = [["--nproc", 1], ["--nproc", 2], ["plan"]]


@pytest.mark.parametrize("case", SPEC_ERRORS)
def test_spec_errors(tmp_path, data, tokens, case):
    """The first input with every command, the others with one each, in turn."""
    model, sections, expected = SPEC_ERRORS[case]
    config = spec_of(tmp_path, data, tokens, model, **sections)
    number = list(SPEC_ERRORS).index(case)
    for way in WAYS if number == 0 else [WAYS[number % len(WAYS)]]:
        refused(tmp_path, [*way, "--config", config], expected, code=2)
    assert not (tmp_path / "runs").exists()


def test_more_slices_than_heads_are_as_many_as_heads(tmp_path, data, tokens):
    config = spec_of(tmp_path, data, tokens, LLAMA, subnetwork=NEURON | {"slices_per_branch": 16})
    units = json.loads(harness.run("plan", "--config", config, "--json").stdout)["units"]
    of_branch = lambda name: [(u["begin"], u["end"]) for u in units if u["branch"] == f"model.layers.0.{name}"]
    assert of_branch("self_attn") == [(head, head + 1) for head in range(8)]
    assert of_branch("mlp") == [(2 * i, 2 * i + 2) for i in range(16)]


IN_PLACE_OF_CIFAR10 = {
    "cifar100": ["train.safetensors", "class_names", 10, 100],
    "svhn": ["train.safetensors", "class_names", "airplane", "scripts/fetch_data svhn"],
    "mnist": ["train.safetensors", "images", "[200, 32, 32, 3]", "[N, 28, 28, 1]"],
    "imagenet": ["ImageNet", "train/CLASS/*.JPEG", "*train*.tar"],
}


@pytest.mark.parametrize("name", IN_PLACE_OF_CIFAR10)
def test_a_folder_of_another_data_set(tmp_path, data, name):
    config = harness.write_config(tmp_path, "run", data, data={"name": name})
    harness.run("plan", "--config", config)  # which reads no data
    for processes in (1, 2) if name == "imagenet" else (1,):
        refused(tmp_path, ["--config", config, "--nproc", processes], [str(data), *IN_PLACE_OF_CIFAR10[name]], code=3)


def test_images_of_another_size(tmp_path, data):
    config = harness.write_config(tmp_path, "run", data, model={"image_size": 64})
    refused(tmp_path, ["--config", config, "--nproc", 1], ["model.image_size", 64, 32], code=2)


# ---- shards of tokens ----


def shard_of(tokens, magic=20240520, version=1, stated=None):
    header = np.zeros(256, dtype=np.int32)
    header[:3] = magic, version, len(tokens) if stated is None else stated
    return header.tobytes() + np.asarray(tokens, dtype=np.uint16).tobytes()


VALUES = np.arange(500) % VOCABULARY
DAMAGED = {
    "magic number": (shard_of(VALUES, magic=20240521), ["magic", 20240521, 20240520]),
    "version": (shard_of(VALUES, version=7), ["version", 7, 1]),
    "cut off": (shard_of(VALUES)[:-100], [1024 + 1000 - 100, 1024 + 1000, 500]),
    "cut off in a token": (shard_of(VALUES)[:-1], [2023, 2024, 500]),
    "longer than stated": (shard_of(VALUES, stated=400), [1024 + 1000, 1024 + 800, 400]),
    "negative": (shard_of(VALUES, stated=-500), [2024, 2**32 - 500]),  # the number is meant modulo 2^32
    "cut off in the header": (shard_of(VALUES)[:1000], [1000, 1024]),
    "empty": (b"", [0, 1024]),
}


@pytest.mark.parametrize("case,split", [*((case, "train") for case in DAMAGED), ("cut off", "val"), ("empty", "val")])
def test_damaged_shards(tmp_path, data, case, split):
    content, expected = DAMAGED[case]
    folder = write_tokens(tmp_path / "tokens")
    damaged = folder / f"toy_{split}_000001.bin"  # after a valid one
    damaged.write_bytes(content)
    config = spec_of(tmp_path, data, folder, LLAMA)
    for processes in (1, 2) if (case, split) == ("cut off", "train") else (1,):
        refused(tmp_path, ["--config", config, "--nproc", processes], [str(damaged), *expected], code=3)


def test_shards_without_a_sample(tmp_path, data):
    folder = write_tokens(tmp_path / "tokens", samples=2)
    config = spec_of(tmp_path, data, folder, LLAMA, data={"sequence_length": 100})
    refused(tmp_path, ["--config", config, "--nproc", 1], [SHARD, "data.sequence_length", 2 * TOKENS + 1, 101], code=3)


def test_a_folder_without_a_split(tmp_path, data):
    folder = write_tokens(tmp_path / "tokens")
    (folder / "toy_val_000000.bin").unlink()
    config = spec_of(tmp_path, data, folder, LLAMA)
    refused(tmp_path, ["--config", config, "--nproc", 1], ["data.path", str(folder), "val"], code=3)


@pytest.mark.parametrize("split,processes", [("train", 2), ("val", 1)])
def test_tokens_outside_the_vocabulary(tmp_path, data, split, processes):
    folder = write_tokens(tmp_path / "tokens")
    values = VALUES.copy()
    values[37], values[321], values[400] = 1999, 2001, VOCABULARY
    shard = folder / f"toy_{split}_000001.bin"
    shard.write_bytes(shard_of(values))
    config = spec_of(tmp_path, data, folder, LLAMA)
    expected = ["model.vocab_size", str(shard), VOCABULARY, 2001, 321, 2002]
    refused(tmp_path, ["--config", config, "--nproc", processes], expected, code=2)
    # The number that the message names is enough.
    config = spec_of(tmp_path, data, folder, LLAMA | {"vocab_size": 2002}, train={"max_steps": 1})
    harness.run("--config", config, "--nproc", processes)


def write_shard(path, tokens, bits):
    magic, version = {16: (20240520, 1), 32: (20240801, 7)}[bits]
    header = np.zeros(256, np.int32)
    header[:3] = magic, version, len(tokens)
    path.write_bytes(header.tobytes() + np.asarray(tokens).astype(f"u{bits // 8}").tobytes())


@pytest.mark.parametrize("bits,negative", [(32, -100), (16, -100), (32, -1), (32, -(2**31))])
def test_a_negative_number_is_no_reason_for_a_larger_vocabulary(tmp_path, data, bits, negative):
    """Labels that a loss ignores, padding and other negative numbers, written as unsigned ones."""
    folder = tmp_path / "tokens"
    folder.mkdir()
    values = VALUES.copy()
    values[321] = negative
    for split in ("train", "val"):
        write_shard(folder / f"toy_{split}_000000.bin", values, bits)
    config = spec_of(tmp_path, data, folder, LLAMA)
    for arguments, code in ((["--config", config, "--nproc", 1], 2), (["data", "check", "--config", config], 3)):
        result = harness.run(*arguments, expect=code)
        said = result.stdout + result.stderr
        assert "321" in said and str(negative) in said and f"model.vocab_size: {negative % 2**bits + 1}" not in said
        assert ("ignore" in said) == (negative == -100)


@pytest.mark.parametrize("train,val", [(16, 32), (32, 16)])
def test_shards_of_training_and_validation_have_one_tokenizer(tmp_path, data, train, val):
    folder = tmp_path / "tokens"
    folder.mkdir()
    write_shard(folder / "a_train.bin", VALUES, train)
    write_shard(folder / "a_val.bin", VALUES, val)
    config = spec_of(tmp_path, data, folder, LLAMA)
    refused(tmp_path, ["--config", config, "--nproc", 1], [str(folder / "a_val.bin"), str(folder / "a_train.bin"), 16, 32], code=3)
    found = harness.run("data", "check", "--config", config, expect=3).stdout
    assert f"{folder / 'a_val.bin'}: tokens of {val} bits" in found


@pytest.mark.parametrize("vocab_size,bits,is_told", [(65537, 16, True), (128256, 16, True), (65536, 16, False), (65537, 32, False)])
def test_a_vocabulary_that_16_bits_cannot_hold_is_told(tmp_path, data, vocab_size, bits, is_told):
    folder = tmp_path / "tokens"
    folder.mkdir()
    for split in ("train", "val"):
        write_shard(folder / f"a_{split}.bin", VALUES, bits)
    config = spec_of(tmp_path, data, folder, LLAMA | {"width": 8, "depth": 1, "heads": 2, "hidden_width": 8, "vocab_size": vocab_size})
    assert ("65535" in harness.run("data", "check", "--config", config).stdout) == is_told


BARE = np.tile(VALUES, 3)


def bare_nanogpt(folder):
    BARE.astype(np.uint16).tofile(folder / "train.bin")
    BARE.astype(np.uint16).tofile(folder / "val.bin")


def bare_npy(folder):
    np.save(folder / "edu_train_000001.npy", BARE.astype(np.int64))
    np.save(folder / "edu_val_000000.npy", BARE.astype(np.uint16))


def bare_megatron(folder):
    for name in ("train_document", "val_document"):
        BARE.astype(np.int32).tofile(folder / f"{name}.bin")
        header = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 4, 1, 2)
        (folder / f"{name}.idx").write_bytes(header + struct.pack("<iqqq", len(BARE), 0, 0, 1))


@pytest.mark.parametrize("write", [bare_nanogpt, bare_npy, bare_megatron])
def test_bare_tokens_are_converted_by_the_line_that_is_printed(tmp_path, data, write):
    folder = tmp_path / "the tokens"
    folder.mkdir()
    write(folder)
    config = spec_of(tmp_path, data, folder, LLAMA)
    message = refused(tmp_path, ["--config", config, "--nproc", 1], [str(folder)], code=3)
    command = re.search(r"python3 (scripts/convert_tokens\.py .*/shards')", message)[1]
    subprocess.run(f"{sys.executable} {command}", shell=True, check=True, cwd=Path(__file__).parents[2])
    report = json.loads(harness.run("data", "check", "--config", config, "--set", f"data.path={folder}/shards", "--json").stdout)
    for split in ("train", "test"):
        (shard,) = report[split]["shards"]
        assert (shard["tokens"], shard["smallest"], shard["largest"]) == (len(BARE), BARE.min(), BARE.max())


# ---- variables and files that are left over ----


@pytest.mark.parametrize("variables", [
    {"RANK": "0", "WORLD_SIZE": "2"}, {"RANK": "2", "WORLD_SIZE": "3", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"},
    {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "0", "OMPI_COMM_WORLD_LOCAL_SIZE": "4"},
])
def test_who_waits_for_others_says_so_at_once(tmp_path, data, variables):
    """Long before the time-out, which a run with variables of another program otherwise waits for in silence."""
    config = spec_of(tmp_path, data, None, MLP, train={"collective_timeout_s": 600})
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(harness.free_port())}
    waiting = harness.start("--config", config, "--set", "subnetwork.workers=12", "--set", "subnetwork.coverage=1",
                            env=place | variables, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    timer = threading.Timer(120, waiting.kill)
    timer.start()
    try:
        said = next((line for line in waiting.stderr if "wait" in line), "")
        # Those that share a folder meet in it.
        assert waiting.poll() is None and (place["MASTER_PORT"] in said or str(tmp_path) in said)
        assert all(name in said for name in variables if name.endswith(("RANK", "SIZE")) and "LOCAL" not in name)
    finally:
        timer.cancel()
        waiting.kill()
        waiting.communicate()


@pytest.mark.parametrize("text,is_told", [
    ("model:\n\tname: mlp\n", True), ("model:\n  name: mlp\n\twidth: 8\n", True),
    ("data:\n  name: cifar10\ntrain:\n \tmax_steps: 3\n", True), ("model: [\n", False),
])
def test_yaml_indented_with_tabs(tmp_path, text, is_told):
    config = tmp_path / "tabs.yaml"
    config.write_text(text)
    message = harness.run("--config", config, expect=2).stderr
    assert str(config) in message and ("tab" in message.replace(str(config), "")) == is_told

# ---- base ----


@pytest.mark.parametrize(
    "files,expected",
    [
        ({"top": {"base": "middle.yaml"}, "middle": {"base": "./top.yaml"}}, ["middle.yaml:1:", "base", "top.yaml", "cycle"]),
        ({"top": {"base": {"file": "middle.yaml"}}, "middle": {}}, ["top.yaml:1:", "base", "a YAML file"]),
        ({"top": {"base": "."}}, ["folder"]),
        # An error in a base is reported where it is.
        ({"top": {"base": "middle.yaml"}, "middle": {"optimizer": {"lr": -3}}}, ["middle.yaml:1:", "optimizer.lr", -3]),
        ({"top": {"model": {"base": "middle.yaml"}}, "middle": {}}, ["top.yaml:1:", "model.base"]),
    ],
    ids=["cycle", "mapping", "folder", "error in it", "inside"],
)
def test_bases(tmp_path, data, files, expected):
    for name, content in files.items():
        own = json.loads(harness.write_config(tmp_path, "run", data).read_text()) if name == "top" else {}
        (tmp_path / f"{name}.yaml").write_text(json.dumps(content | {k: v for k, v in own.items() if k not in content}))
    refused(tmp_path, ["--config", tmp_path / "top.yaml"], expected, code=2)
    assert not (tmp_path / "runs").exists()
