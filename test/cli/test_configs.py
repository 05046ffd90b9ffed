"""configs/: every experiment, in every regime, is planned without a warning and agrees with its comments."""

import itertools
import json
import re
from pathlib import Path

import pytest
import yaml

import harness

CONFIGS = Path(__file__).parents[2] / "configs"
FINE_TUNING = [CONFIGS / "evidence/pretrained.yaml", CONFIGS / "evidence/fine_tuning.yaml"]
EVIDENCE = sorted(set(CONFIGS.glob("evidence/*.yaml")) - set(FINE_TUNING))
SWEEPS = [CONFIGS / "sweep_demo.yaml", *sorted(CONFIGS.glob("paper/*.yaml")), *EVIDENCE]
MODELS = {"resnet18": "cifar10", "wide_resnet18": "cifar10", "swin_t": "cifar10"}  # and their first data sets
MODELS |= dict.fromkeys(["llama_134m", "llama_500m", "llama_1b", "gpt2"], "fineweb")
MODELS |= dict.fromkeys(["resnet50", "vit_s_16"], "imagenet")
NAMED = [CONFIGS / f"{model}_{regime}.yaml" for model in MODELS for regime in ("bsdp", "nsdp", "bbsdp", "nbsdp", "ddp")]
EXPERIMENTS = sorted(set(CONFIGS.glob("*.yaml")) - set(SWEEPS) - set(NAMED))
REGIMES = sorted((CONFIGS / "regime").glob("*.yaml"))
REGIME = {  # construction, masking, coverage; data parallelism is any of them at coverage 1
    "ddp": ("block", "forward", 1),
    "zero1": ("block", "forward", 1),
    "zero2": ("block", "forward", 1),
    "nsdp": ("neuron", "forward", 0.5),
    "bsdp": ("block", "forward", 0.5),
    "nbsdp": ("neuron", "backward", 0.5),
    "bbsdp": ("block", "backward", 0.5),
}
# Models whose other regimes are covered by the plans of similar models, and by the sweeps.
ONE_PLAN = {"gpt2": "nsdp", "resnet50": "bbsdp", "wide_resnet18": "nbsdp", "llama_134m": "bsdp", "llama_500m": "nsdp"}
LLAMAS = {"llama_134m": 134e6, "llama_500m": 500e6, "llama_1b": 1e9}
LLAMA_VOCABULARY = 32000


def name_of(path):
    return path.stem


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
    result = harness.run("plan", *configs, "--json", *[a for o in overrides for a in ("--set", o)])
    assert result.stderr == ""
    return json.loads(result.stdout)


def sequences_or_images_per_step(spec) -> int:
    train = spec["train"]
    return train["batch_size_per_worker"] * train.get("accumulate_steps", 1) * spec["subnetwork"]["workers"]


def test_every_experiment_is_there():
    images = itertools.product(["resnet18", "wide_resnet18", "swin_t"], ["cifar10", "cifar100", "svhn", "imagenet"])
    experiments = [*images, *itertools.product(LLAMAS, ["fineweb"]), ("llama_tiny", "tokens")]
    experiments += [("gpt2", "fineweb"), ("resnet50", "imagenet"), ("vit_s_16", "imagenet")]
    experiments += [("resnet18", "mnist"), ("resnet18", "fashion_mnist")]
    assert {name_of(file) for file in EXPERIMENTS} == {"quickstart", *map("_".join, experiments)}
    assert {name_of(file) for file in REGIMES} == set(REGIME)
    for model, data in experiments:
        spec = merged(CONFIGS / f"{model}_{data}.yaml")
        assert spec["model"]["name"] == model
        assert spec["data"]["name"] == ("tokens" if data == "fineweb" else data)
        assert spec["data"]["path"] == f"data/{data}"


def check_plan(result, regime, workers):
    construction, masking, coverage = REGIME[regime]
    assert result["workers"] == workers
    assert result["coverage"] == coverage
    assert result["warnings"] == []
    if coverage < 1:
        assert (result["construction"], result["masking"]) == (construction, masking)
        assert result["flops_share"] < 1


@pytest.mark.parametrize("file", NAMED, ids=name_of)
def test_plan_of_every_named_file(file):
    """MODEL_REGIME.yaml sets the same keys as the model's first experiment in that regime, but for the name."""
    regime = name_of(file).split("_")[-1]
    model = name_of(file).removesuffix(f"_{regime}")
    if model not in ONE_PLAN or regime == ONE_PLAN[model]:
        check_plan(plan(file), regime, workers=8)
    expected = merged(CONFIGS / f"{model}_{MODELS[model]}.yaml", CONFIGS / "regime" / f"{regime}.yaml")
    assert merged(file) == expected | {"name": name_of(file)}


@pytest.mark.parametrize("regime", REGIME)
def test_plan_of_experiment_and_regime(regime):
    check_plan(plan(CONFIGS / "llama_tiny_tokens.yaml", CONFIGS / "regime" / f"{regime}.yaml"), regime, workers=4)


OTHERS = [file for file in EXPERIMENTS if name_of(file).split("_")[-1] in ("cifar100", "svhn", "mnist", "imagenet")]


@pytest.mark.parametrize("experiment", OTHERS + FINE_TUNING, ids=name_of)
def test_plan_of_other_data_sets(experiment):
    assert plan(experiment)["workers"] == 8


def test_runs_have_the_names_of_their_files():
    for file in [*EXPERIMENTS, *NAMED]:
        run = merged(file)
        assert run["name"] == name_of(file) and "output" not in run


@pytest.mark.parametrize("file", REGIMES, ids=name_of)
def test_a_regime_file_holds_only_what_a_regime_is(file):
    """So that it changes nothing else of an experiment that it is combined with, such as the run's folder."""
    regime = merged(file)
    assert set(regime) <= {"subnetwork", "optimizer", "train"}
    assert set(regime["subnetwork"]) <= {"coverage", "construction", "masking"}
    assert set(regime.get("optimizer", {})) <= {"shard"}
    assert set(regime.get("train", {})) <= {"release_gradients", "reduce_every"}


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


RUNS = {  # values of the axes multiplied, and what is beside the grid
    "sweep_demo": 3 * 2 * 2 + 2 * 2,
    "images": 9 * 4 * 4 * 2 * 3 + 9 * 3,
    "imagenet": 3 * 4 * 4 * 2 * 3 + 3 * 3,
    "fineweb": 3 * 4 * 4 * 2 * 3 + 3 * 3,
    "budget": 3 * 4 * 3 * 3 + 3,
    "baselines": 4 * 2 * 3 + 10 * 3,
    "lr": 2 * 3,
    "full": 3 * 2 + 5,
    "full60": 2,
    "whole": 2 * 3 * 2,
    "full_width": 3 * 3,
    "curve20": 3 * 3,
    "curve60": 3 * 3 + 2,
    "curve200": 3 * 3,
    "llama": 2 * 2 + 3,
}


@pytest.mark.parametrize("sweep", SWEEPS, ids=name_of)
def test_sweeps_can_start(sweep, tmp_path):
    """Every point is loaded and planned, without its data."""
    settings = ["--set", "data.path=nowhere", "--set", f"output.dir={tmp_path}"]
    result = harness.run("sweep", "--config", sweep, "--dry-run", *settings)
    assert result.stderr == ""
    lines = result.stdout.splitlines()
    assert lines[0].startswith(f"sweep {yaml.safe_load(sweep.read_text())['name']}: {RUNS[name_of(sweep)]} runs in {tmp_path}/")
    assert sum("to do" in line for line in lines) == RUNS[name_of(sweep)]


def test_memory_of_the_baselines():
    """What the sweeps' comments call equal memory agrees to 6 % in the plans."""

    def megabytes(regime, *overrides, experiment="resnet18_cifar10"):
        cost = plan(CONFIGS / f"{experiment}.yaml", CONFIGS / "regime" / f"{regime}.yaml", overrides=overrides)["per_worker"]
        keys = ("parameter_bytes", "gradient_bytes", "optimizer_bytes", "activation_bytes")
        return max(sum(worker[key] for key in keys) for worker in cost) / 1e6

    batch = "train.batch_size_per_worker=64"
    nsdp = megabytes("nsdp", batch)
    alike = {
        "ZeRO-2 at batch 48": megabytes("zero2", "train.batch_size_per_worker=48"),
        "ZeRO-2 at width 52": megabytes("zero2", batch, "model.width=52"),
    }
    others = {
        "N-SDP": nsdp,
        "N-SDP with shard false": megabytes("nsdp", batch, "optimizer.shard=false"),
        "ZeRO-2": megabytes("zero2", batch),
        "DDP": megabytes("ddp", batch),
    }
    told = comments_of(CONFIGS / "paper" / "baselines.yaml")
    for name, value in (alike | others).items():
        assert f"{name} {value:.1f} MB" in told
    assert list(alike.values()) == pytest.approx([nsdp] * len(alike), rel=0.06)
    demo = {"nsdp": megabytes("nsdp", experiment="quickstart"),
            "ddp": megabytes("ddp", "model.width=11", experiment="quickstart")}
    assert f"({demo['ddp']:.1f} MB per worker, {demo['nsdp']:.1f} MB" in comments_of(CONFIGS / "sweep_demo.yaml")
    assert demo["ddp"] == pytest.approx(demo["nsdp"], rel=0.06)


def test_svhn_is_not_flipped():
    for experiment in CONFIGS.glob("*_svhn.yaml"):
        assert "flip" not in merged(experiment)["data"]["augment"]
