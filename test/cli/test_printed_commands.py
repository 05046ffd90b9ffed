"""Commands that messages print do in bash, as they are printed, what they say; also with names that a shell takes apart."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from PIL import Image
from safetensors import safe_open
from safetensors.torch import save_file

import harness
import small_models
from small_models import write_tokens
from test_import import MODELS, import_from, library, write_spec

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
    for data in ("cifar10", "svhn", "mnist", "imagenet"):
        config = harness.write_config(tmp_path, "run", folder / "none", data={"name": data}, model={"width": 8})
        message = harness.run("--config", config, expect=2).stderr
        *_, last = arguments_of(printed(r"^  (scripts/fetch_data .*)", message), "scripts/fetch_data", tmp_path)
        assert last == str(folder / "none")
    (folder / "train_32x32.mat").touch()
    config = harness.write_config(tmp_path, "run", folder, data={"name": "svhn"}, model={"width": 8})
    message = harness.run("--config", config, "--nproc", 1, expect=3).stderr
    arguments = arguments_of(printed(r"^  (scripts/fetch_data .*)", message), "scripts/fetch_data", tmp_path)
    assert arguments == ["svhn", "--from", str(folder), str(folder)]
    spec = write_spec(tmp_path, folder / "none", small_models.GPT2, {})
    command = printed(r"^  (scripts/prepare_tokens.py --dataset .*)", harness.run("--config", spec, expect=2).stderr)
    assert arguments_of(command, "scripts/prepare_tokens.py", tmp_path)[-2:] == ["--out", str(folder / "none")]
    fetch = Path(__file__).parents[2] / "scripts" / "fetch_data"
    for name, program in (("imagenet", "scripts/fetch_data"), ("fineweb", "scripts/prepare_tokens.py")):
        message = subprocess.run([sys.executable, fetch, name, folder], capture_output=True, text=True).stderr
        command = printed(rf"(?:2\. |python3 )({program} .*)", message)
        assert str(folder) in arguments_of(command, program, tmp_path)


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
    done = harness.run("--config", config, "--nproc", 2).stdout
    command = printed(r"^(sdp-train export .*) writes the model$", done)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "sdp-train").symlink_to(harness.BINARY)
    assert bash(command, tmp_path).returncode == 0
    assert (tmp_path / "model.safetensors").exists()


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
def test_the_line_that_converts_a_file_of_torch_save(tmp_path, folder, data, model, names):
    net = library(MODELS[model])
    source = folder if hasattr(net, "config") else folder / names[0]
    for part, name in enumerate(names):
        state = dict(list(net.state_dict().items())[part :: len(names)])
        torch.save(state if source == folder else {"epoch": 3, "state_dict": state, "sgd": {"state": {}}}, folder / name)
    if source == folder:
        net.config.save_pretrained(folder)
        data = write_tokens(tmp_path / "tokens")
    spec = write_spec(tmp_path, data, MODELS[model], {})
    result = bash(printed(r"Convert it: (python3 .*)", import_from(tmp_path, spec, source, expect=3).stderr), tmp_path)
    assert result.returncode == 0, result.stderr
    (written,) = folder.glob("*.safetensors")
    import_from(tmp_path, spec, source if source.is_dir() else written)
    out = tmp_path / "out.safetensors"
    harness.run("export", "--run", tmp_path / "runs" / "run", "--out", out)
    exported = safe_open(out, framework="pt")
    assert all(torch.equal(exported.get_tensor(name), net.state_dict()[name]) for name in exported.keys())


def test_tied_embeddings_are_not_advised_against_each_other(tmp_path):
    """A head of its own beside a config.json that ties it: following what is printed ends in an import."""
    net = library(MODELS["llama_gqa_tied"])
    state = {name: values.clone() for name, values in net.state_dict().items()}
    state["lm_head.weight"] += 1
    hub = tmp_path / "hub"
    net.save_pretrained(hub, state_dict=state)
    save_file(state, hub / "model.safetensors")
    spec = write_spec(tmp_path, write_tokens(tmp_path / "tokens"), MODELS["llama_gqa_tied"], {})
    message = import_from(tmp_path, spec, hub, expect=3).stderr
    option, key, value = re.search(r"(model.tied_embeddings=false).* (tie_word_embeddings): (false)", message).groups()
    config = json.loads((hub / "config.json").read_text())
    (hub / "config.json").write_text(json.dumps(config | {key: json.loads(value)}))
    harness.run("import", "--config", spec, "--from", hub, "--set", option)
