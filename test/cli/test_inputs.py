"""Bad input is refused before anything starts, with exit code 2 (spec) or 3 (data); its messages, of which these are the few of
the whole program, name the place, what was found and what to do. Others: test/experiment, test/data, test/fuzz."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

import harness
import small_models
from small_models import TOKENS, VOCABULARY, write_shard
from test_import import MODELS, export_of, import_from, library, write_spec

ROOT = Path(__file__).parents[2]
MLP = {"name": "mlp", "width": 16, "depth": 2, "hidden_width": 8}
LLAMA = {"name": "llama_tiny", "width": 32, "depth": 2, "hidden_width": 32, "heads": 8, "vocab_size": VOCABULARY}

STARTED = "metrics.jsonl", "trace.jsonl", "checkpoints", "latest"


def spec_of(tmp_path, folder, model, **sections):
    """An experiment on tokens for a language model, on images for the others."""
    if model["name"].startswith("llama"):
        sections["data"] = {"name": "tokens", "sequence_length": TOKENS} | sections.get("data", {})
    return harness.write_config(tmp_path, "run", folder, model=model, **sections)


def refused(tmp_path, arguments, expected, code):
    """`expected`: parts of the message."""
    message = harness.run(*arguments, expect=code).stderr
    assert all(str(part) in message for part in expected) and "internal error" not in message, message
    assert not any((tmp_path / "runs" / "run" / file).exists() for file in STARTED)
    return message


NEURON, HALVES = ["subnetwork.construction=neuron", "subnetwork.coverage=1"], "[1, 1, 1/2, 1/2]"
# The options, parts of the message, and the commands: one process trains directly, several are started by the launcher;
# a plan starts none.
SPEC_ERRORS = {
    "unknown key": (["optimizer.learning_rate=0.1"], ["--set optimizer.learning_rate=0.1", "lr"], [["--nproc", 1]]),
    "missing key": (["subnetwork.assignment=file"], ["run.yaml:1:", "subnetwork.assignment_file"], [["--nproc", 2]]),
    "of several sections": (["subnetwork.coverage=0.4"], ["subnetwork.coverage", "4 workers", "1/4", "2/4"], [["plan"]]),
    "of the layout": (["subnetwork.construction=neuron", "subnetwork.slices_per_branch=16"],
                      ["subnetwork.slices_per_branch", "blocks.0", 16, 8], [["--nproc", 1], ["--nproc", 2], ["plan"]]),
    **{case: ([f"subnetwork.{key}={value}", *more], [f"subnetwork.{named or key}", *said], [["plan"]])
       for case, key, value, more, named, said in [
        ("one capacity too few", "capacities", "[1, 1, 1/2]", NEURON, "", ["3 capacities", "4 workers"]),
        ("beside coverage", "capacities", HALVES, [NEURON[0]], "", ["subnetwork.coverage 2/4"]),
        ("of whole branches", "capacities", HALVES, [NEURON[1]], "", ["neuron"]),
        ("of windows", "capacities", HALVES, [*NEURON, "subnetwork.assignment=window"], "", ["window"]),
        ("no share of 4", "rules", "[{match: '*', coverage: 1/3}]", [], "rules[0].coverage", ["4 workers"]),
        ("both", "rules", "[{match: '*', coverage: 1}]", [*NEURON, f"subnetwork.capacities={HALVES}"], "rules[0].coverage",
         ["subnetwork.capacities"]),
    ]},
    "processes": ([], ["4 workers", "1, 2, 4"], [["--nproc", 3], ["--nproc", 0]]),
}  # fmt: skip


@pytest.mark.parametrize("case", SPEC_ERRORS)
def test_spec_errors(tmp_path, data, case):
    overrides, expected, ways = SPEC_ERRORS[case]
    config = spec_of(tmp_path, data, MLP)
    for way in ways:
        refused(tmp_path, [*way, "--config", config, *harness.sets(*overrides)], expected, code=2)
    assert not (tmp_path / "runs").exists()


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


BEYOND = {37: 1999, 321: 2001, 400: VOCABULARY}
SMALL = LLAMA | {"width": 8, "depth": 1, "heads": 2, "hidden_width": 8}
PLACE = ["model.vocab_size", f"{VOCABULARY}", "2001", "321", "2002"]
# Bits in training and validation, other values there, the model's vocabulary, the tokenizer's; the exit codes of a run
# and of `data check`, what they say, and what they do not say.
SHARDS = {
    "beyond the vocabulary": ((16, 16), (BEYOND, {}), VOCABULARY, None, (2, None), ["{train}", *PLACE], []),
    "beyond it in validation": ((16, 16), ({}, BEYOND), VOCABULARY, None, (2, None), ["{val}", *PLACE], []),
    "the number that is named is enough": ((16, 16), (BEYOND, BEYOND), 2002, None, (0, None), [], []),
    # Labels that a loss ignores, padding and other negative numbers, written as unsigned ones.
    "-100": ((16, 16), ({321: -100},) * 2, VOCABULARY, None, (2, 3), ["321", "-100", "ignore"], ["vocab_size: 65437"]),
    "-1": ((32, 32), ({321: -1},) * 2, VOCABULARY, None, (2, 3), ["321", "-1"], ["ignore", f"vocab_size: {2**32}"]),
    "two tokenizers": ((16, 32), ({}, {}), VOCABULARY, None, (3, 3), ["{val}", "tokens of 32 bits", "16"], []),
    **{f"{size} in {bits} bits": ((bits, bits), ({}, {}), size, None, (None, 0), told, ["65535"][len(told):])
       for size, bits, told in [(65537, 16, ["65535"]), (128256, 16, ["65535"]), (65536, 16, []), (65537, 32, [])]},
    # Without the tokenizer's size, the largest token that was read counts. A multiple of 128 is usual.
    "larger than what was read": ((16, 16), ({}, {}), 5000, None, (None, 0), [f"model.vocab_size: {VOCABULARY}"], []),
    "as large": ((16, 16), ({}, {}), VOCABULARY, None, (0, 0), [], ["model.vocab_size: "]),
    "larger than the tokenizer's": ((16, 16), ({}, {}), 5000, 3000, (0, 0), ["model.vocab_size: 3000"], []),
    "rounded": ((16, 16), ({}, {}), 3072, 3000, (0, 0), [], ["vocab_size: 3000"]),
}  # fmt: skip


@pytest.mark.parametrize("case", SHARDS)
def test_tokens_and_the_vocabulary(tmp_path, case):
    bits, changed, vocab_size, of_tokenizer, codes, told, not_told = SHARDS[case]
    shards = {split: tmp_path / f"a_{split}.bin" for split in ("train", "val")}
    for shard, of_split, values in zip(shards.values(), bits, changed):
        write_shard(shard, [values.get(i, value) for i, value in enumerate(VALUES.tolist())], of_split)
    if of_tokenizer:
        state = {"settings": {"end_of_text": 0, "vocab_size": of_tokenizer}}
        (tmp_path / "a.state.json").write_text(json.dumps(state))
    config = spec_of(tmp_path, tmp_path, SMALL | {"vocab_size": vocab_size}, train={"max_steps": 1})
    for arguments, code in zip((["--config", config, "--nproc", 1], ["data", "check", "--config", config]), codes):
        if code is not None:
            result = harness.run(*arguments, expect=code)
            said = result.stdout + result.stderr
            assert all(part.format(**shards) in said for part in told), said
            assert not any(part in said for part in not_told), said
            assert code == 0 or not any((tmp_path / "runs" / "run" / file).exists() for file in STARTED)


BARE = np.tile(VALUES, 3)


def bare_nanogpt(folder, split):
    BARE.astype(np.uint16).tofile(folder / f"{split}.bin")


def bare_npy(folder, split):
    np.save(folder / f"edu_{split}_000001.npy", BARE.astype(np.int64 if split == "train" else np.uint16))


@pytest.mark.parametrize("write", [bare_nanogpt, bare_npy])
def test_bare_tokens_are_converted_by_the_line_that_is_printed(tmp_path, write):
    folder = tmp_path / "the tokens"
    folder.mkdir()
    for split in ("train", "val"):
        write(folder, split)
    config = spec_of(tmp_path, folder, LLAMA)
    message = refused(tmp_path, ["--config", config, "--nproc", 1], [str(folder)], code=3)
    command = re.search(r"python3 (scripts/convert_tokens\.py .*/shards')", message)[1]
    subprocess.run(f"{sys.executable} {command}", shell=True, check=True, cwd=ROOT)
    report = harness.run_json("data", "check", "--config", config, "--set", f"data.path={folder}/shards")
    for split in ("train", "test"):
        (shard,) = report[split]["shards"]
        assert (shard["tokens"], shard["smallest"], shard["largest"]) == (len(BARE), BARE.min(), BARE.max())


# ---- commands that messages print do in bash, as they are printed, what they say ----

NAME = """it's 5$ {a,b} "q" & (c)"""
RECORDER = f"""#!{sys.executable}
import json, pathlib, sys
pathlib.Path(sys.argv[0] + ".json").write_text(json.dumps(sys.argv[1:]))
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / NAME).mkdir()
    return tmp_path / NAME


def bash(command, cwd):
    """With the commands of `cwd/bin` and this Python first in the PATH."""
    path = os.pathsep.join([str(cwd / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]])
    env = harness.environment({"PATH": path})
    return subprocess.run(["bash", "-c", command], cwd=cwd, env=env, capture_output=True, text=True)


def arguments_of(command, program, cwd):
    """The arguments that a program receives from a command in bash."""
    file = cwd / program if "/" in program else cwd / "bin" / program
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(RECORDER)
    file.chmod(0o755)
    result = bash(command, cwd)
    assert result.returncode == 0, f"{command}\n{result.stderr}"
    return json.loads(Path(f"{file}.json").read_text())


def printed(pattern, message):
    """The only command of that form in the message."""
    (command,) = re.findall(pattern, message, re.MULTILINE)
    return command


def test_commands_that_get_data(tmp_path, folder):
    """From a run without data, with the authors' file in its place, and from the script that fetches others."""
    none, fetch = folder / "none", ROOT / "scripts" / "fetch_data"
    (folder / "train_32x32.mat").touch()
    svhn = lambda path: harness.write_config(tmp_path, "run", path, data={"name": "svhn"}, model={"width": 8})
    tokens = lambda path: write_spec(tmp_path, path, small_models.GPT2)
    told = lambda *words, expect: harness.run(*words, expect=expect).stderr
    fetched = lambda name: subprocess.run([sys.executable, fetch, name, folder], capture_output=True, text=True).stderr
    for message, program, expected in [
        (told("--config", svhn(none), expect=2), "scripts/fetch_data", [str(none)]),
        (told("--config", svhn(folder), "--nproc", 1, expect=3), "scripts/fetch_data",
         ["svhn", "--from", str(folder), str(folder)]),
        (told("--config", tokens(none), expect=2), "scripts/prepare_tokens.py", ["--out", str(none)]),
        (fetched("imagenet"), "scripts/fetch_data", None), (fetched("fineweb"), "scripts/prepare_tokens.py", None),
    ]:  # fmt: skip
        start = "^  " if expected else r"(?:2\. |python3 )"
        command = printed(rf"{start}({program} {'--dataset ' if expected and 'out' in expected[0] else ''}.*)", message)
        arguments = arguments_of(command, program, tmp_path)
        assert arguments[-len(expected) :] == expected if expected else str(folder) in arguments


def test_commands_with_the_file_that_was_given(tmp_path, folder):
    experiment = harness.write_config(folder, "run", folder / "none")
    sweep = folder / "sweep.yaml"
    sweep.write_text(json.dumps({"name": "s", "configs": ["run.yaml"], "grid": {"seed": [0, 1]}}))
    for arguments, pattern, expected in [
        (["--config", sweep], r"(sdp-train sweep .*)", ["sweep", "--config", str(sweep)]),
        ([experiment], r"(sdp-train --config .*)", ["--config", str(experiment)]),
        (["sweep", "--config", experiment], r"(sdp-train --config .*); or", ["--config", str(experiment)]),
        (["plan", "--config", experiment, "--device", sweep], r"`(sdp-train doctor .*)`", ["doctor", "--save", str(sweep)]),
    ]:
        if arguments[0] == "plan":
            arguments[-1] = expected[-1] = str(sweep.rename(folder / "profile.json"))
        command = printed(pattern, harness.run(*arguments, expect=2).stderr)
        assert arguments_of(command, "sdp-train", tmp_path) == expected


def test_the_line_that_exports_a_finished_run(tmp_path, folder, data):
    config = harness.write_config(folder, NAME, data, train={"max_steps": 1}, model={"width": 8})
    command = printed(r"^(sdp-train export .*) writes the model$", harness.run("--config", config, "--nproc", 2).stdout)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "sdp-train").symlink_to(harness.BINARY)
    assert bash(command, tmp_path).returncode == 0 and (tmp_path / "model.safetensors").exists()


def test_commands_that_arrange_images(tmp_path, folder):
    """Tiny ImageNet's validation set as it is unpacked, and images too deep in a class folder."""
    images = folder / "images"
    for path in ("train/cat/0.jpg", "train/it's a dog/0.jpg", "train/it's a dog/more & more/1.jpg",
                 "val/images/val_0.jpg", "val/images/val_1.jpg"):
        (images / path).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (40, 40), (9, 99, 199)).save(images / path)
    (images / "val" / "val_annotations.txt").write_text("val_0.jpg\tcat\t0\t0\t62\t57\nval_1.jpg\tn02\t1\t2\t3\t4\n")
    model = {"width": 8, "image_size": 32, "num_classes": 2}
    config = harness.write_config(tmp_path, "run", images, data={"name": "imagenet"}, model=model)
    for pattern in (r"(cd .* && mv \S+ \.\.)", r"(find .* \\;)"):
        message = harness.run("data", "check", "--config", config, expect=3).stdout
        assert bash(printed(pattern, message), tmp_path).returncode == 0
    assert sorted(p.name for p in (images / "train" / "it's a dog").glob("*.jpg")) == ["0.jpg", "1.jpg"]
    assert (images / "val" / "cat" / "val_0.jpg").exists() and (images / "val" / "n02" / "val_1.jpg").exists()


@pytest.mark.parametrize("model,names", [
    ("llama_gqa_tied", ["pytorch_model.bin"]), ("gpt2", ["pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin"]),
    ("resnet18", ["best model.pth.tar"]), ("mlp", ["checkpoint.pt"]),
])
def test_the_line_that_converts_a_file_of_torch_save(tmp_path, folder, data_of, model, names):
    net = library(MODELS[model])
    source = folder if hasattr(net, "config") else folder / names[0]
    for part, name in enumerate(names):
        state = dict(list(net.state_dict().items())[part :: len(names)])
        torch.save(state if source == folder else {"epoch": 3, "state_dict": state, "sgd": {"state": {}}}, folder / name)
    if source == folder:
        net.config.save_pretrained(folder)
    spec = write_spec(tmp_path, data_of(MODELS[model]), MODELS[model])
    result = bash(printed(r"Convert it: (python3 .*)", import_from(tmp_path, spec, source, expect=3).stderr), tmp_path)
    assert result.returncode == 0, result.stderr
    (written,) = folder.glob("*.safetensors")
    import_from(tmp_path, spec, source if source.is_dir() else written)
    state = net.state_dict()
    assert all(torch.equal(values, state[name]) for name, values in export_of(tmp_path).items())


def test_tied_embeddings_are_not_advised_against_each_other(tmp_path, tokens):
    """A head of its own beside a config.json that ties it: following what is printed ends in an import."""
    net, hub = library(MODELS["llama_gqa_tied"]), tmp_path / "hub"
    state = {name: values.clone() for name, values in net.state_dict().items()}
    state["lm_head.weight"] += 1
    net.save_pretrained(hub, state_dict=state)
    save_file(state, hub / "model.safetensors")
    spec = write_spec(tmp_path, tokens, MODELS["llama_gqa_tied"])
    message = import_from(tmp_path, spec, hub, expect=3).stderr
    option, key, value = re.search(r"(model.tied_embeddings=false).* (tie_word_embeddings): (false)", message).groups()
    config = json.loads((hub / "config.json").read_text())
    (hub / "config.json").write_text(json.dumps(config | {key: json.loads(value)}))
    import_from(tmp_path, spec, hub, "--set", option)
