"""Small models in every regime on the device: losses against those recorded on a CPU.

fp64: within 1e-9 after six steps and an evaluation, on one process and on two. bf16, whose rounding error grows with every
step: in the first four steps, within four times the difference between the CPU's bf16 and fp64 losses, or 0.1 % if that
is larger."""

import concurrent.futures
import json
import pathlib

from gpuhour.jobs import Context, Job, Row, judged
from gpuhour.runs import Ranks, largest_difference, losses_of, write_spec

STEPS = 6
FP64_TOLERANCE = 1e-9
ONE_THREAD = {"OMP_NUM_THREADS": "1"}  # for small runs at the same time
BF16_STEPS = 4
BF16_LEAST_TOLERANCE = 1e-3

MODELS = {
    "resnet": {"model": {"name": "resnet18", "width": 8}},
    "swin": {"model": {"name": "swin_t", "width": 24, "heads": 3, "patch_size": 2, "window_size": 4, "image_size": 32,
                       "stochastic_depth": 0.1}},
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


def one_run(context: Context, folder: pathlib.Path, model: str, regime: str, precision: str, backend: str,
            processes: int) -> list[float]:
    spec = small_spec(model, regime, precision, folder / "runs")
    arguments = ["--config", write_spec(folder, spec), "--set", f"train.device={context.device}"]
    if processes == 1:
        context.sdp(*arguments, "--nproc", 1, log_name=f"{regime}-{precision}", env=ONE_THREAD)
    else:
        codes = Ranks(context, arguments, processes, backend=backend, label=regime,
                      env_of=lambda rank: ONE_THREAD).wait()
        if any(codes):
            raise RuntimeError(f"exit codes {codes}; see {regime}-rank-N.txt")
    return losses_of(folder / "runs" / spec["name"])


def compare(context: Context, model: str, precision: str, backend: str, processes: int) -> list[Row]:
    reference = json.loads((context.home / "pack" / "reference.json").read_text())
    folder = context.fresh(f"parity-{model}-{precision}-{backend}-{processes}")

    def row(regime: str) -> Row:
        what = f"{model} {regime} {precision}, {processes} process{'es by ' + backend if processes > 1 else ''}"
        expected = reference[f"{model}/{regime}/fp64"]
        tolerance = FP64_TOLERANCE
        if precision == "bf16":
            expected = expected[:BF16_STEPS]
            own = largest_difference(reference[f"{model}/{regime}/bf16"][:BF16_STEPS], expected)
            tolerance = max(BF16_LEAST_TOLERANCE, 4 * own)
        try:
            losses = one_run(context, folder, model, regime, precision, backend, processes)
            difference = largest_difference(losses[:BF16_STEPS] if precision == "bf16" else losses, expected)
        except RuntimeError as error:
            return Row(what, str(error), "FAIL")
        return judged(what, f"largest difference {difference:.1e} (allowed {tolerance:.1e})", difference <= tolerance)

    with concurrent.futures.ThreadPoolExecutor(context.parallel_runs // processes or 1) as pool:
        return list(pool.map(row, REGIMES))


def jobs(device: str) -> list[Job]:
    gpu = device == "cuda"
    backends = ("nccl", "gloo") if gpu else ("gloo",)
    result = []
    for model in MODELS:
        cases = [("fp64", "", 1), ("bf16", "", 1)] + [("fp64", backend, 2) for backend in backends]
        for precision, backend, processes in cases:
            name = f"{model} {precision} {processes} {backend}".strip()
            result.append(Job("parity", name, 25 if gpu else 30, 120 if gpu else 240,
                              lambda context, case=(model, precision, backend, processes): compare(context, *case)))
    # All models with one process first.
    return sorted(result, key=lambda job: (" 2 " in job.name, "bf16" in job.name))
