"""The memory that `plan` predicts for a step, over what the allocator counts (`plan --measure`), on the CPU.

    python bench/memory_forecast.py [SDP_TRAIN...]     # one column of ratios per program
"""

import json
import statistics
import subprocess
import sys
from pathlib import Path

CONFIGS = Path(__file__).parents[1] / "configs"
REGIMES = ["ddp", "bsdp", "nsdp", "bbsdp", "nbsdp"]
SMALL_TOKENS = ["data.sequence_length=256", "model.vocab_size=8192"]
CASES = [
    ("resnet18_cifar10", ["train.precision=fp32"], [1, 16, 64]),
    ("resnet18_cifar10", ["train.precision=bf16"], [16]),
    ("resnet50_imagenet", ["train.precision=fp32", "model.image_size=64"], [4, 16]),
    ("swin_t_cifar10", ["train.precision=fp32"], [1, 16]),
    ("swin_t_cifar10", ["train.precision=bf16"], [16]),
    ("vit_s_16_imagenet", ["train.precision=fp32", "model.depth=4"], [1, 8]),
    ("vit_s_16_imagenet", ["train.precision=bf16", "model.depth=4"], [8]),
    ("llama_134m_fineweb", ["train.precision=fp32", "model.depth=4", *SMALL_TOKENS], [1, 4]),
    ("llama_134m_fineweb", ["train.precision=bf16", "model.depth=4", *SMALL_TOKENS], [4]),
    ("gpt2_fineweb", ["train.precision=fp32", "model.depth=3", *SMALL_TOKENS], [1, 4]),
    ("gpt2_fineweb", ["train.precision=bf16", "model.depth=3", *SMALL_TOKENS], [4]),
]


def ratio(program: str, model: str, regime: str, overrides: list[str]) -> float:
    command = [program, "plan", "--measure", "--device", "h100", "--json"]
    command += ["--config", str(CONFIGS / f"{model}.yaml"), "--config", str(CONFIGS / "regime" / f"{regime}.yaml")]
    for override in ["data.path=/none", "train.device=cpu", "train.accumulate_steps=1", *overrides]:
        command += ["--set", override]
    result = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return result["predicted_bytes"]["peak"] / result["measured_bytes"]["peak"]


def main() -> None:
    programs = sys.argv[1:] or ["build/sdp-train"]
    errors: list[list[float]] = [[] for _ in programs]
    for model, settings, batch_sizes in CASES:
        for batch_size in batch_sizes:
            for regime in REGIMES:
                for checkpoint in ["false", "true"] if regime in ("bsdp", "nbsdp") else ["false"]:
                    overrides = [*settings, f"train.batch_size_per_worker={batch_size}", f"train.checkpoint_activations={checkpoint}"]
                    ratios = [ratio(program, model, regime, overrides) for program in programs]
                    for of_program, value in zip(errors, ratios, strict=True):
                        of_program.append(abs(value - 1))
                    name = f"{model} {settings[0].split('=')[1]} {regime} batch {batch_size}"
                    name += ", checkpointing" if checkpoint == "true" else ""
                    print(f"{name:62}" + "".join(f"{value:8.3f}" for value in ratios), flush=True)
    for program, of_program in zip(programs, errors, strict=True):
        print(f"{program}: {len(of_program)} cases, median {statistics.median(of_program):.2%}, worst {max(of_program):.2%}")


if __name__ == "__main__":
    main()
