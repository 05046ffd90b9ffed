"""Small models in every regime on the device: losses against those recorded on a CPU.

Two processes in fp64: within 1e-9 after six steps and an evaluation. One in bf16, whose rounding error grows with every
step: in the first four steps, within four times the difference between the CPU's bf16 and fp64 losses, or 0.1 % if that
is larger. Dropout and stochastic depth are 0: the device's random numbers are not the CPU's."""

import concurrent.futures
import json
import pathlib
from collections.abc import Iterator

from gpuhour.jobs import Context, Row, judged
from gpuhour.runs import Ranks, largest_difference, losses_of, write_spec

STEPS = 6
FP64_TOLERANCE = 1e-9
ONE_THREAD = {"OMP_NUM_THREADS": "1"}  # for small runs at the same time
BF16_STEPS = 4
BF16_LEAST_TOLERANCE = 1e-3

MODELS = {
    "resnet": {"model": {"name": "resnet18", "width": 8}},
    "swin": {"model": {"name": "swin_t", "width": 24, "num_heads": [3, 6, 12, 24], "patch_size": 2, "window_size": 4,
                       "image_size": 32, "stochastic_depth": 0}},
    "llama": {"model": {"name": "llama_tiny", "vocab_size": 512, "width": 64, "depth": 4, "hidden_width": 176, "heads": 4},
              "data": {"name": "tokens", "path": "pack/tokens", "sequence_length": 32}},
}
IMAGES = {"data": {"name": "cifar10", "path": "pack/images", "augment": ["crop", "flip"]}}
ADAMW = {"optimizer": {"name": "adamw", "lr": 5e-3, "weight_decay": 0.1, "clip_norm": 1.0}}
REGIMES = {
    "bsdp": {"coverage": "2/4", "construction": "block", "masking": "forward"},
    "nsdp": {"coverage": "2/4", "construction": "neuron", "masking": "forward"},
    "bbsdp": {"coverage": "2/4", "construction": "block", "masking": "backward"},
    "nbsdp": {"coverage": "2/4", "construction": "neuron", "masking": "backward"},
    "ddp": {"coverage": "1"},
}
DDP, FOUR = ("ddp",), tuple(regime for regime in REGIMES if regime != "ddp")


def small_spec(model: str, regime: str, precision: str, output: pathlib.Path) -> dict:
    spec = {
        "name": f"{model}_{regime}_{precision}",
        "seed": 5,
        "optimizer": {"lr": 0.05, "weight_decay": 5e-4},
        "schedule": {"name": "constant"},
        "train": {"max_steps": STEPS, "log_every_steps": 1, "batch_size_per_worker": 4, "precision": precision,
                  "deterministic": True},
        "checkpoint": {"every_epochs": 0},
        "eval": {"every_epochs": 0, "recalibrate_batches": 2, "branch_scale": "none", "max_samples": 64},
        "output": {"dir": str(output)},
    }
    if model != "resnet":
        spec |= ADAMW
    return spec | {"subnetwork": {"workers": 4} | REGIMES[regime]} | IMAGES | MODELS[model]


def record(context: Context, models=tuple(MODELS)) -> dict:
    """Losses of all small runs on this CPU, by "model/regime/precision"."""
    folder = context.fresh("reference")
    losses = {}
    for model in models:
        for regime in REGIMES:
            for precision in ("fp64", "bf16"):
                spec = small_spec(model, regime, precision, folder / "runs")
                context.sdp("--config", write_spec(folder, spec), "--nproc", 1, "--set", "train.device=cpu",
                            log_name="reference")
                losses[f"{model}/{regime}/{precision}"] = losses_of(folder / "runs" / spec["name"])
    return losses


def graphed(context: Context, model: str) -> Iterator[Row]:
    """One process in fp64 whose last three steps are a CUDA graph."""
    reference = json.loads((context.home / "pack" / "reference.json").read_text())
    folder = context.fresh(f"parity-{model}-graph")
    for regime in ("ddp", "nbsdp"):
        spec = small_spec(model, regime, "fp64", folder / "runs")
        spec["train"]["cuda_graph"] = context.on_gpu
        difference = largest_difference(run_losses(context, folder, spec, ""), reference[f"{model}/{regime}/fp64"])
        yield judged(f"{model} {regime} fp64 as a CUDA graph", f"largest difference {difference:.1e} (allowed {FP64_TOLERANCE:.1e})",
                     difference <= FP64_TOLERANCE)


def run_losses(context: Context, folder: pathlib.Path, spec: dict, backend: str) -> list[float]:
    arguments = ["--config", write_spec(folder, spec), "--set", f"train.device={context.device}"]
    if not backend:
        context.sdp(*arguments, "--nproc", 1, log_name=spec["name"], env=ONE_THREAD)
    else:
        codes = Ranks(context, arguments, 2, backend=backend, label=spec["name"], env_of=lambda rank: ONE_THREAD).wait()
        if any(codes):
            raise RuntimeError(f"exit codes {codes}; see {spec['name']}-rank-N.txt")
    return losses_of(folder / "runs" / spec["name"])


def compare(context: Context, model: str, backend: str, regimes: tuple[str, ...]) -> Iterator[Row]:
    """With a backend, two processes in fp64; without, one in bf16."""
    reference = json.loads((context.home / "pack" / "reference.json").read_text())
    precision = "fp64" if backend else "bf16"
    folder = context.fresh(f"parity-{model}-{backend or precision}-{len(regimes)}")

    def row(regime: str) -> Row:
        what = f"{model} {regime} {precision}, {'2 processes by ' + backend if backend else '1 process'}"
        expected = reference[f"{model}/{regime}/fp64"]
        tolerance = FP64_TOLERANCE
        if not backend:
            expected = expected[:BF16_STEPS]
            own = largest_difference(reference[f"{model}/{regime}/bf16"][:BF16_STEPS], expected)
            tolerance = max(BF16_LEAST_TOLERANCE, 4 * own)
        try:
            losses = run_losses(context, folder, small_spec(model, regime, precision, folder / "runs"), backend)
            difference = largest_difference(losses if backend else losses[:BF16_STEPS], expected)
        except RuntimeError as error:
            return Row(what, str(error), "FAIL")
        return judged(what, f"largest difference {difference:.1e} (allowed {tolerance:.1e})", difference <= tolerance)

    with concurrent.futures.ThreadPoolExecutor(4 if context.on_gpu else 1) as pool:  # times do not matter
        for run in concurrent.futures.as_completed([pool.submit(row, regime) for regime in regimes]):
            yield run.result()
