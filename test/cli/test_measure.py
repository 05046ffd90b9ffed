"""The memory that `plan` predicts, compared with a real step's, counted by the allocator (`plan --measure`)."""

import math
from pathlib import Path

import pytest
import torch

import harness

CONFIGS = Path(__file__).parents[2] / "configs"
# What oneDNN's kernels allocate inside is planned for processors with AVX-512.
WITHIN = 0.03 if torch.backends.cpu.get_cpu_capability() == "AVX512" else 0.05

IMAGES = ["train.precision=fp32", "train.batch_size_per_worker=16"]
TOKENS = ["train.precision=fp32", "train.batch_size_per_worker=1", "data.sequence_length=256", "model.vocab_size=8192"]
# Models of full width; language models of a part of their depth.
CASES = [
    ("resnet18_cifar10", "ddp", IMAGES), ("swin_t_cifar10", "bbsdp", IMAGES),
    *((f"{name}_imagenet", "nsdp", [*IMAGES, "train.batch_size_per_worker=4"])
      for name in ("resnet18", "swin_t", "vit_s_16")),
    ("resnet50_imagenet", "nbsdp", [*IMAGES, "model.image_size=64"]),
    ("llama_134m_fineweb", "bbsdp", [*TOKENS, "model.depth=4"]),
    ("gpt2_fineweb", "nbsdp", [*TOKENS, "model.depth=2", "model.dropout=0.1"]),
    ("llama_1b_fineweb", "nsdp", [*TOKENS, "train.precision=bf16", "data.sequence_length=64", "model.depth=2"]),
    ("swin_t_cifar10", "bsdp", [*IMAGES, "train.checkpoint_activations=true"]),
    *(("resnet18_cifar10", regime, [*IMAGES, *settings]) for regime, *settings in [
        ("bbsdp", "train.checkpoint_activations=true"), ("bsdp", "train.precision=bf16"),
        ("bsdp", "train.accumulate_steps=2"), ("bsdp", "train.accumulate_steps=2", "train.reduce_every=micro_batch"),
        ("bsdp", "train.release_gradients=false"), ("bbsdp", "train.bucket_megabytes=1"),
        ("bbsdp", "train.batch_size_per_worker=1"), ("bbsdp", "optimizer.shard=false"),
    ]),
]


# Times are predicted from a data sheet, as measuring this machine's rates takes seconds; for two processes, from those.
@pytest.mark.parametrize("model,regime,settings,arguments", [
    *((*case, ["--device", "h100"]) for case in CASES), ("resnet18_cifar10", "nsdp", IMAGES, ["--nproc", 2]),
])
def test_predicted_memory_is_measured(model, regime, settings, arguments):
    configs = [word for name in (model, f"regime/{regime}") for word in ("--config", CONFIGS / f"{name}.yaml")]
    settings = harness.sets("data.path=/none", "train.device=cpu", "train.accumulate_steps=1", *settings)
    result = harness.run_json("plan", "--measure", *configs, *settings, *arguments, timeout=900)
    predicted, measured = result["predicted_bytes"]["peak"], result["measured_bytes"]
    assert predicted == pytest.approx(measured["peak"], rel=WITHIN), result
    assert sum(bytes for kind, bytes in measured.items() if kind != "peak") == measured["peak"]
    for key in ("step_ms", "predicted_step_ms"):
        assert 0 < result[key] < math.inf, result
