"""Bad input is refused before anything starts, with exit code 2 (spec) or 3 (data). The message names the key or file, the
number found and the one expected."""

import json
import re

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


EXPECTED_FILES = {
    "cifar100": ["CIFAR-100", "train.bin", "cifar-100-binary.tar.gz"],
    "svhn": ["train_32x32.mat", "missing"],
    "mnist": ["train-images-idx3-ubyte", "missing"],
    "imagenet": ["ImageNet", "train/CLASS/*.JPEG", "*train*.tar"],
}


@pytest.mark.parametrize("name", EXPECTED_FILES)
def test_a_folder_of_another_data_set(tmp_path, data, name):
    config = harness.write_config(tmp_path, "run", data, data={"name": name})
    harness.run("plan", "--config", config)  # which reads no data
    for processes in (1, 2) if name == "imagenet" else (1,):
        refused(tmp_path, ["--config", config, "--nproc", processes], [str(data), *EXPECTED_FILES[name]], code=3)


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
