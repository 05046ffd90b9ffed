"""The memory that `plan` predicts, compared with a real step's, counted by the allocator (`plan --measure`)."""

import json
import math
from pathlib import Path

import pytest
import torch

import harness

CONFIGS = Path(__file__).parents[2] / "configs"
# What oneDNN's kernels allocate inside is planned for processors with AVX-512.
WITHIN = 0.03 if torch.backends.cpu.get_cpu_capability() == "AVX512" else 0.05


def measure(model, regime, *overrides, device="h100", **options):
    """Memory is measured; times are predicted from a data sheet, because measuring this machine's rates takes seconds."""
    arguments = ["plan", "--measure", *(["--device", device] if device else []), "--json", "--config", CONFIGS / f"{model}.yaml"]
    arguments += ["--config", CONFIGS / "regime" / f"{regime}.yaml"]
    for override in ("data.path=/none", "train.device=cpu", "train.accumulate_steps=1", *overrides):
        arguments += ["--set", override]
    for name, value in options.items():
        arguments += [f"--{name}", value]
    return json.loads(harness.run(*arguments, timeout=900).stdout)


def check(result):
    predicted, measured = result["predicted_bytes"]["peak"], result["measured_bytes"]["peak"]
    assert predicted == pytest.approx(measured, rel=WITHIN), result
    kinds = [name for name in result["measured_bytes"] if name != "peak"]
    assert sum(result["measured_bytes"][kind] for kind in kinds) == measured
    for key in ("step_ms", "predicted_step_ms"):
        assert 0 < result[key] < math.inf, result


IMAGES = ["train.precision=fp32", "train.batch_size_per_worker=16"]
TOKENS = ["train.batch_size_per_worker=1", "data.sequence_length=256", "model.vocab_size=8192"]


@pytest.mark.parametrize("model,regime", [
    ("resnet18_cifar10", "ddp"),
    ("resnet18_cifar10", "bsdp"),
    ("resnet18_cifar10", "nbsdp"),
    ("swin_t_cifar10", "nsdp"),
    ("swin_t_cifar10", "bbsdp"),
])
def test_image_models_at_full_size(model, regime):
    check(measure(model, regime, *IMAGES))


@pytest.mark.parametrize("model,regime", [("resnet18_cifar10", "bbsdp"), ("swin_t_cifar10", "bsdp")])
def test_activation_checkpointing(model, regime):
    check(measure(model, regime, *IMAGES, "train.checkpoint_activations=true"))


@pytest.mark.parametrize("model", ["resnet18_imagenet", "swin_t_imagenet", "vit_s_16_imagenet"])
def test_imagenet_models_at_full_size(model):
    check(measure(model, "nsdp", *IMAGES, "train.batch_size_per_worker=4"))


def test_resnet50_on_small_images():
    check(measure("resnet50_imagenet", "nbsdp", *IMAGES, "model.image_size=64"))


def test_llama_134m_of_a_third_of_the_depth():
    check(measure("llama_134m_fineweb", "bbsdp", *TOKENS, "train.precision=fp32", "model.depth=4"))


def test_gpt2_of_a_sixth_of_the_depth():
    check(measure("gpt2_fineweb", "nbsdp", *TOKENS, "train.precision=fp32", "model.depth=2", "model.dropout=0.1"))


def test_llama_of_the_widths_of_1b_in_bf16():
    check(measure("llama_1b_fineweb", "nsdp", *TOKENS, "data.sequence_length=64", "model.depth=2"))


@pytest.mark.parametrize("regime,setting", [
    ("bsdp", "train.precision=bf16"),
    ("bsdp", "train.accumulate_steps=2"),
    ("bsdp", "train.accumulate_steps=2 train.reduce_every=micro_batch"),
    ("bsdp", "train.release_gradients=false"),
    ("bbsdp", "train.bucket_megabytes=1"),
    ("bbsdp", "train.batch_size_per_worker=1"),
    ("bbsdp", "optimizer.shard=false"),
])
def test_settings(regime, setting):
    check(measure("resnet18_cifar10", regime, *IMAGES, *setting.split()))


def test_several_workers_a_process():
    check(measure("resnet18_cifar10", "nsdp", *IMAGES, device=None, nproc=2))
