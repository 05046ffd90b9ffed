"""Memory that `plan` predicts against what a worker's real step takes, counted by the allocator (`plan --measure`)."""

import json
from pathlib import Path

import pytest

import harness

CONFIGS = Path(__file__).parents[2] / "configs"
WITHIN = 0.05


def measure(model, regime, *overrides, **options):
    arguments = ["plan", "--measure", "--json", "--config", CONFIGS / f"{model}.yaml"]
    arguments += ["--config", CONFIGS / "regime" / f"{regime}.yaml"]
    for override in ("data.path=/none", "train.device=cpu", "train.accumulate_steps=1", *overrides):
        arguments += ["--set", override]
    for name, value in options.items():
        arguments += [f"--{name}", value]
    return json.loads(harness.run(*arguments, timeout=900).stdout)


def check(result, within=WITHIN):
    predicted, measured = result["predicted_bytes"]["peak"], result["measured_bytes"]["peak"]
    assert predicted == pytest.approx(measured, rel=within), result
    kinds = [name for name in result["measured_bytes"] if name != "peak"]
    assert sum(result["measured_bytes"][kind] for kind in kinds) == measured
    assert result["step_ms"] > 0


IMAGES = ["train.precision=fp32", "train.batch_size_per_worker=16"]
TOKENS = ["train.batch_size_per_worker=1", "data.sequence_length=256"]


@pytest.mark.parametrize("regime", ["ddp", "b_sdp", "bb_sdp", "n_sdp", "nb_sdp"])
@pytest.mark.parametrize("model", ["resnet18_cifar10", "swin_t_cifar10"])
def test_image_models_at_full_size(model, regime):
    check(measure(model, regime, *IMAGES))


@pytest.mark.parametrize("model,regime", [
    ("resnet18_cifar10", "ddp"),
    ("resnet18_cifar10", "bb_sdp"),
    ("resnet18_cifar10", "n_sdp"),
    ("resnet18_cifar10", "nb_sdp"),
    ("swin_t_cifar10", "b_sdp"),
    ("swin_t_cifar10", "bb_sdp"),
])
def test_activation_checkpointing(model, regime):
    check(measure(model, regime, *IMAGES, "train.checkpoint_activations=true"))


@pytest.mark.parametrize("model", ["wide_resnet18_cifar10", "resnet18_imagenet", "swin_t_imagenet"])
def test_wide_and_imagenet_models_at_full_size(model):
    check(measure(model, "n_sdp", *IMAGES, "train.batch_size_per_worker=4"))


@pytest.mark.parametrize("regime", ["ddp", "n_sdp", "bb_sdp"])
def test_llama_134m(regime):
    check(measure("llama_134m_fineweb", regime, *TOKENS, "train.precision=fp32"))


@pytest.mark.parametrize("model", ["llama_500m_fineweb", "llama_1b_fineweb"])
def test_larger_llamas_in_bf16(model):
    check(measure(model, "n_sdp", *TOKENS, "data.sequence_length=64"))


@pytest.mark.parametrize("regime,setting", [
    ("b_sdp", "train.precision=bf16"),
    ("b_sdp", "train.accumulate_steps=2"),
    ("b_sdp", "train.release_gradients=false"),
    ("b_sdp", "train.checkpoint_activations=true"),
    ("b_sdp", "train.bucket_megabytes=1"),
    ("bb_sdp", "train.bucket_megabytes=1"),
    ("bb_sdp", "train.batch_size_per_worker=1"),
    ("bb_sdp", "optimizer.shard=false"),
])
def test_settings(regime, setting):
    check(measure("resnet18_cifar10", regime, *IMAGES, setting))


def test_several_workers_a_process():
    check(measure("resnet18_cifar10", "n_sdp", *IMAGES, nproc=2))
