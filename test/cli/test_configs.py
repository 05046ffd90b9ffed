"""configs/: every experiment, in every regime, is planned without a warning and agrees with its comments."""

import itertools
import json
import math
import operator
import re
from pathlib import Path

import pytest
import yaml

import harness

CONFIGS = Path(__file__).parents[2] / "configs"
FINE_TUNING = [CONFIGS / "evidence/pretrained.yaml", CONFIGS / "evidence/fine_tuning.yaml"]
EVIDENCE = sorted(set(CONFIGS.glob("evidence/*.yaml")) - set(FINE_TUNING))
SWEEPS = [CONFIGS / "sweep_demo.yaml", *sorted(CONFIGS.glob("paper/*.yaml")), *EVIDENCE]
NAMED_REGIMES = ("bsdp", "nsdp", "bbsdp", "nbsdp", "ddp")
NAMED = {file.stem: file for file in CONFIGS.glob("*.yaml") if file.stem.split("_")[-1] in NAMED_REGIMES}
EXPERIMENTS = sorted(set(CONFIGS.glob("*.yaml")) - set(SWEEPS) - set(NAMED.values()))
REGIME = {  # construction, masking, coverage; data parallelism is any of them at coverage 1
    **dict.fromkeys(("ddp", "zero1", "zero2", "diloco", "local_sgd"), ("block", "forward", 1)),
    "nsdp": ("neuron", "forward", 0.5), "bsdp": ("block", "forward", 0.5),
    "nbsdp": ("neuron", "backward", 0.5), "bbsdp": ("block", "backward", 0.5),
    "ppu": ("neuron", "backward", 0.5),
}  # fmt: skip
LLAMAS = {"llama_134m": 134e6, "llama_500m": 500e6, "llama_1b": 1e9}  # parameters with LLaMA's own vocabulary

name_of = operator.attrgetter("stem")


def bases_of(file) -> list:
    base = yaml.safe_load(file.read_text()).get("base", [])
    return [file.parent / name for name in ([base] if isinstance(base, str) else base)]


def merged(*files) -> dict:
    """The keys that the files set, read without sdp-train; later files win. Single numbers may be strings."""
    result = {}
    for file in files:
        own = yaml.safe_load(file.read_text())
        for layer in [merged(base) for base in bases_of(file)] + [own]:
            layer.pop("base", None)
            for key, value in layer.items():
                result[key] = {**result.get(key, {}), **value} if isinstance(value, dict) else value
    return result


def comments_of(file) -> str:
    """The comments at the beginning of a file and of its bases, one line per file."""
    lines = itertools.takewhile(lambda line: line.startswith("#"), file.read_text().splitlines())
    text = " ".join(line.lstrip("# ") for line in lines)
    return "\n".join([text, *map(comments_of, bases_of(file))])


def plan(*files, overrides=()) -> dict:
    configs = [argument for file in files for argument in ("--config", file)]
    result = harness.run("plan", *configs, "--json", *harness.sets(*overrides))
    assert result.stderr == ""
    return json.loads(result.stdout)


def sequences_or_images_per_step(spec) -> int:
    train = spec["train"]
    return train["batch_size_per_worker"] * train.get("accumulate_steps", 1) * spec["subnetwork"]["workers"]


def data_of(experiment):
    """As its name says."""
    return "fashion_mnist" if experiment.stem.endswith("fashion_mnist") else experiment.stem.split("_")[-1]


@pytest.mark.parametrize("file", [e for e in EXPERIMENTS if e.stem != "quickstart"], ids=name_of)
def test_an_experiment_is_what_its_name_and_its_comments_say(file):
    spec, data, comments = merged(file), data_of(file), comments_of(file)
    assert f"{spec['model']['name']}_{data}" == file.stem == spec["name"] and "output" not in spec
    assert (spec["data"]["name"], spec["data"]["path"]) == ("tokens" if data == "fineweb" else data, f"data/{data}")
    assert data != "svhn" or "flip" not in spec["data"]["augment"]
    (batch,) = re.findall(r"Batch (\d+) (?:sequences )?in total", comments)
    assert sequences_or_images_per_step(spec) == int(batch)
    falls = re.findall(r"lr falls after ([^.]*) epochs", comments)
    milestones = [str(round(share * spec["train"]["epochs"])) for share in spec["schedule"].get("milestones", [])]
    assert len(falls) == bool(milestones) and (not falls or re.findall(r"\d+", falls[0]) == milestones)


def check_plan(result, regime, workers):
    construction, masking, coverage = REGIME[regime]
    assert (result["workers"], result["coverage"], result["warnings"]) == (workers, coverage, [])
    if coverage < 1:
        assert (result["construction"], result["masking"]) == (construction, masking)
        assert result["flops_share"] < 1


@pytest.mark.parametrize("name", sorted(NAMED))
def test_plan_of_every_named_file(name):
    """MODEL_REGIME.yaml sets the same keys as one of the model's experiments in that regime, but for the name."""
    model, regime = name.rsplit("_", 1)
    check_plan(plan(NAMED[name]), regime, workers=8)
    named = merged(NAMED[name])
    experiment = CONFIGS / f"{model}_{Path(named['data']['path']).name}.yaml"
    assert named == merged(experiment, CONFIGS / "regime" / f"{regime}.yaml") | {"name": name}


def test_every_model_and_regime_is_there():
    assert {file.stem for file in (CONFIGS / "regime").glob("*.yaml")} == set(REGIME)
    models = {merged(file)["model"]["name"] for file in EXPERIMENTS} - {"llama_tiny"}
    assert set(NAMED) == {f"{model}_{regime}" for model in models for regime in NAMED_REGIMES}


@pytest.mark.parametrize("regime", REGIME)
def test_plan_of_experiment_and_regime(regime):
    """The regime's file holds only what a regime is, so that it changes nothing else, such as the run's folder."""
    file = CONFIGS / "regime" / f"{regime}.yaml"
    check_plan(plan(CONFIGS / "llama_tiny_tokens.yaml", file), regime, workers=4)
    allowed = {"subnetwork": {"coverage", "construction", "masking"}, "optimizer": {"shard"},
               "train": {"release_gradients", "reduce_every"}, "exchange": {"every_steps", "outer"}}
    assert all(set(keys) <= allowed[section] for section, keys in merged(file).items())


OTHERS = [file for file in EXPERIMENTS if data_of(file) in ("cifar100", "svhn", "mnist", "fashion_mnist", "imagenet")]


@pytest.mark.parametrize("experiment", OTHERS + FINE_TUNING, ids=name_of)
def test_plan_of_other_data_sets(experiment):
    assert plan(experiment)["workers"] == 8


@pytest.mark.parametrize("model", LLAMAS)
def test_size_and_length_of_llama(model):
    experiment = CONFIGS / f"{model}_fineweb.yaml"
    spec = merged(experiment)
    assert spec["model"]["vocab_size"] == 50304
    parameters = plan(experiment)["dense"]["parameters"]
    with_llamas = plan(experiment, overrides=["model.vocab_size=32000"])["dense"]["parameters"]
    assert with_llamas == pytest.approx(LLAMAS[model], rel=0.02)
    tokens_per_step = sequences_or_images_per_step(spec) * spec["data"]["sequence_length"]
    assert spec["train"]["max_steps"] * tokens_per_step == pytest.approx(20 * parameters, rel=1e-3)
    assert spec["schedule"]["warmup_steps"] * tokens_per_step == pytest.approx(375e6, rel=2e-3)


@pytest.mark.parametrize("sweep", SWEEPS, ids=name_of)
def test_sweeps_can_start(sweep, tmp_path):
    """Every point is loaded and planned, without its data."""
    settings = ["--set", "data.path=nowhere", "--set", f"output.dir={tmp_path}"]
    result = harness.run("sweep", "--config", sweep, "--dry-run", *settings)
    assert result.stderr == ""
    lines = result.stdout.splitlines()
    keys = yaml.safe_load(sweep.read_text())
    assert lines[0].startswith(f"sweep {keys['name']}: ") and f" runs in {tmp_path}/" in lines[0]
    points = math.prod(len(axis) for axis in keys.get("grid", {"": ""}).values())
    assert sum("to do" in line for line in lines) == int(lines[0].split()[2]) >= points
