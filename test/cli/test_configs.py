"""configs/: every experiment, in every regime, is planned without a warning and is what its comments say."""

import itertools
import json
import re
from pathlib import Path

import pytest
import yaml

import harness

CONFIGS = Path(__file__).parents[2] / "configs"
SWEEPS = [CONFIGS / "sweep_demo.yaml", *sorted((CONFIGS / "paper").glob("*.yaml"))]
EXPERIMENTS = sorted(set(CONFIGS.glob("*.yaml")) - set(SWEEPS))
REGIMES = sorted((CONFIGS / "regime").glob("*.yaml"))
REGIME = {  # construction, masking, coverage; data parallelism is any of them at coverage 1
    "ddp": ("block", "forward", 1),
    "n_sdp": ("neuron", "forward", 0.5),
    "b_sdp": ("block", "forward", 0.5),
    "nb_sdp": ("neuron", "backward", 0.5),
    "bb_sdp": ("block", "backward", 0.5),
}
LLAMAS = {"llama_134m": 134e6, "llama_500m": 500e6, "llama_1b": 1e9}
LLAMA_VOCABULARY = 32000


def name_of(path):
    return path.stem


def merged(*files) -> dict:
    """The keys that files set, a later one winning; read without sdp-train. Single numbers may be texts."""
    result = {}
    for file in files:
        own = yaml.safe_load(file.read_text())
        base = own.pop("base", None)
        for layer in ([merged(file.parent / base)] if base else []) + [own]:
            for key, value in layer.items():
                result[key] = {**result.get(key, {}), **value} if isinstance(value, dict) else value
    return result


def comments_of(file) -> str:
    """The comments at the beginning of a file and of its base, in one line each."""
    lines = itertools.takewhile(lambda line: line.startswith("#"), file.read_text().splitlines())
    text = " ".join(line.lstrip("# ") for line in lines)
    base = yaml.safe_load(file.read_text()).get("base")
    return f"{text}\n{comments_of(file.parent / base)}" if base else text


def plan(*files, overrides=()) -> dict:
    configs = [argument for file in files for argument in ("--config", file)]
    result = harness.run("plan", *configs, "--json", *[a for o in overrides for a in ("--set", o)])
    assert result.stderr == ""
    return json.loads(result.stdout)


def sequences_or_images_per_step(spec) -> int:
    train = spec["train"]
    return train["batch_size_per_worker"] * train.get("accumulate_steps", 1) * spec["subnetwork"]["workers"]


def test_every_experiment_is_there():
    images = itertools.product(
        ["resnet18", "wide_resnet18", "swin_t"], ["cifar10", "cifar100", "svhn", "imagenet"]
    )
    experiments = [*images, *itertools.product(LLAMAS, ["fineweb"]), ("llama_tiny", "tokens")]
    assert {name_of(file) for file in EXPERIMENTS} == {"quickstart", *map("_".join, experiments)}
    assert {name_of(file) for file in REGIMES} == set(REGIME)
    for model, data in experiments:
        spec = merged(CONFIGS / f"{model}_{data}.yaml")
        assert spec["model"]["name"] == model
        assert spec["data"]["name"] == ("tokens" if data == "fineweb" else data)
        assert spec["data"]["path"] == f"data/{data}"


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=name_of)
def test_plan_in_every_regime(experiment):
    workers = 4 if name_of(experiment) == "llama_tiny_tokens" else 8
    assert plan(experiment)["workers"] == workers
    for regime in REGIMES:
        result = plan(experiment, regime)
        construction, masking, coverage = REGIME[name_of(regime)]
        assert result["workers"] == workers
        assert result["coverage"] == coverage
        if coverage < 1:
            assert (result["construction"], result["masking"]) == (construction, masking)
            assert result["flops_share"] < 1


def test_run_folders_differ():
    runs = [merged(*files) for files in itertools.product(EXPERIMENTS, REGIMES)] + [merged(e) for e in EXPERIMENTS]
    folders = {(run.get("output", {}).get("dir", "runs"), run["name"]) for run in runs}
    assert len(folders) == len(runs)
    assert all(merged(file)["name"] == name_of(file) for file in EXPERIMENTS)


@pytest.mark.parametrize("file", sorted(CONFIGS.rglob("*.yaml")), ids=lambda file: str(file.relative_to(CONFIGS)))
def test_file_begins_with_a_comment(file):
    assert file.read_text().startswith("# ")


@pytest.mark.parametrize("experiment", [e for e in EXPERIMENTS if name_of(e) != "quickstart"], ids=name_of)
def test_comments_say_what_the_keys_say(experiment):
    spec, comments = merged(experiment), comments_of(experiment)
    (batch,) = re.findall(r"Batch (\d+) (?:sequences )?in total", comments)
    assert sequences_or_images_per_step(spec) == int(batch)
    falls = re.findall(r"lr falls after ([^.]*) epochs", comments)
    milestones = spec["schedule"].get("milestones", [])
    assert len(falls) == bool(milestones)
    if falls:
        assert [round(share * spec["train"]["epochs"]) for share in milestones] == [
            int(number) for number in re.findall(r"\d+", falls[0])
        ]


@pytest.mark.parametrize("model", LLAMAS)
def test_size_and_length_of_llama(model):
    experiment = CONFIGS / f"{model}_fineweb.yaml"
    spec = merged(experiment)
    assert spec["model"]["vocab_size"] == 50304
    parameters = plan(experiment)["dense"]["parameters"]
    with_llamas = plan(experiment, overrides=[f"model.vocab_size={LLAMA_VOCABULARY}"])["dense"]["parameters"]
    assert with_llamas == pytest.approx(LLAMAS[model], rel=0.02)
    tokens_per_step = sequences_or_images_per_step(spec) * spec["data"]["sequence_length"]
    assert spec["train"]["max_steps"] * tokens_per_step == pytest.approx(20 * parameters, rel=1e-3)
    assert spec["schedule"]["warmup_steps"] * tokens_per_step == pytest.approx(375e6, rel=2e-3)


@pytest.mark.parametrize("experiment,parameters", [("resnet18_imagenet", 11689512), ("swin_t_imagenet", 28288354)])
def test_imagenet_models_are_torchvisions(experiment, parameters):
    assert plan(CONFIGS / f"{experiment}.yaml")["dense"]["parameters"] == parameters


RUNS = {  # values of the axes multiplied, and what is beside the grid
    "sweep_demo": 3 * 2 * 2 + 2 * 2,
    "images": 9 * 3 * 3 * 3 + 9 * 3,
    "imagenet": 3 * 3 * 2 + 3,
    "fineweb": 3 * 3 * 2 + 3,
    "budget": 3 * 3 * 3 * 3 + 3,
    "baselines": 3 * 3 + 9 * 3,
}


@pytest.mark.parametrize("sweep", SWEEPS, ids=name_of)
def test_sweeps_can_start(sweep):
    """Every point is loaded and planned, without its data."""
    result = harness.run("sweep", "--config", sweep, "--dry-run", "--set", "data.path=nowhere")
    assert result.stderr == ""
    lines = result.stdout.splitlines()
    assert lines[0].startswith(f"sweep {yaml.safe_load(sweep.read_text())['name']}: {RUNS[name_of(sweep)]} runs in runs/")
    assert len(lines) == 3 + RUNS[name_of(sweep)]


def test_memory_of_the_baselines():
    """That what is called equal memory is, by the plan, to 6 %, as the comments of the sweeps say."""

    def megabytes(regime, *overrides, experiment="resnet18_cifar10"):
        cost = plan(CONFIGS / f"{experiment}.yaml", CONFIGS / "regime" / f"{regime}.yaml", overrides=overrides)["per_worker"]
        keys = ("parameter_bytes", "gradient_bytes", "optimizer_bytes", "activation_bytes")
        return max(sum(worker[key] for key in keys) for worker in cost) / 1e6

    n_sdp = megabytes("n_sdp")
    told = comments_of(CONFIGS / "paper" / "baselines.yaml")
    for name, value in {
        "N-SDP": n_sdp,
        "ZeRO-2 at batch 8": megabytes("ddp", "train.batch_size_per_worker=8"),
        "ZeRO-2 at width 52": megabytes("ddp", "model.width=52"),
    }.items():
        assert f"{name} {value:.1f} MB" in told
        assert value == pytest.approx(n_sdp, rel=0.06)
    demo = {"n_sdp": megabytes("n_sdp", experiment="quickstart"),
            "ddp": megabytes("ddp", "model.width=12", experiment="quickstart")}
    assert f"({demo['ddp']:.1f} MB a worker, {demo['n_sdp']:.1f} MB" in comments_of(CONFIGS / "sweep_demo.yaml")
    assert demo["ddp"] == pytest.approx(demo["n_sdp"], rel=0.06)


def test_svhn_is_not_flipped():
    for experiment in CONFIGS.glob("*_svhn.yaml"):
        assert "flip" not in merged(experiment)["data"]["augment"]
