#!/usr/bin/env python3
"""Compares the numbers of two builds of sdp-train bit by bit, which a refactoring must not change.

    bench/same_numbers.py OLD NEW [--configs DIR] [--plans PART] [--tolerance KEY=X ...] [--jobs N]

OLD, NEW: the programs. Plans of every configuration in --configs, by default configs/ of this tree, which OLD may not know
(`plan --json`; --plans: only files whose name contains PART), then small runs of every model, regime, optimizer and number
of processes: losses and memory of every step, the evaluations, the checkpoint's files, and the exported model. Prints
every difference; exit code 1 if there is one.
--tolerance lambda2=1e-12 allows this relative difference for that key in plans.
"""
import argparse
import concurrent.futures
import hashlib
import json
import pathlib
import subprocess
import sys
import tempfile

import runs

REGIMES = {
    "bsdp": {"coverage": "2/4", "construction": "block", "masking": "forward"},
    "nsdp": {"coverage": "2/4", "construction": "neuron", "masking": "forward"},
    "bbsdp": {"coverage": "2/4", "construction": "block", "masking": "backward"},
    "nbsdp": {"coverage": "2/4", "construction": "neuron", "masking": "backward"},
    "ddp": {"coverage": 1},
}
ADAMW = {"name": "adamw", "lr": 0.003, "weight_decay": 0.1, "clip_norm": 1.0}
MODELS = {
    "resnet": {"model": {"name": "resnet18", "width": 8}},
    "swin": {"model": {"name": "swin_t", "width": 24, "num_heads": [3, 6, 12, 24], "patch_size": 4, "window_size": 4, "image_size": 32},
             "optimizer": ADAMW, "train": {"precision": "bf16"}, "data": {"mixup_alpha": 0.2}},
    "llama": {"model": {"name": "llama_tiny", "vocab_size": 256, "width": 32, "depth": 4, "hidden_width": 88, "heads": 4},
              "data": {"name": "tokens", "sequence_length": 32}, "optimizer": ADAMW,
              "train": {"accumulate_steps": 2, "checkpoint_activations": True}},
    "gpt2": {"model": {"name": "gpt2", "vocab_size": 256, "width": 32, "depth": 2, "heads": 4, "context_length": 32},
             "data": {"name": "tokens", "sequence_length": 32}, "optimizer": ADAMW | {"ema_decay": 0.9}},
    "resnet50": {"model": {"name": "resnet50", "width": 8}, "train": {"precision": "bf16"}},
    "mlp": {"model": {"name": "mlp", "width": 32, "depth": 4, "hidden_width": 64},
            "train": {"precision": "fp64", "on_nonfinite": "skip"}, "optimizer": {"shard": False, "nesterov": True}},
}
TIMES = ("_ms", "_s", "_per_s", "overlap")  # suffixes of keys that differ between any two runs
# Whether buckets of several processes exist at the same time depends on the order in which processes run.
VOLATILE = {"time", "slowest_rank", "peak_process_memory_bytes", "peak_tensor_memory_bytes", "memory"}


def call(program, *arguments, cwd=runs.ROOT):
    done = subprocess.run([str(program), *map(str, arguments)], capture_output=True, text=True, cwd=cwd,
                          env=runs.environment(OMP_NUM_THREADS="1"))
    return done.stdout if done.returncode == 0 else f"exit code {done.returncode}: {done.stderr.strip()}"


def plans(arguments):
    """Differences between the plans of every configuration."""
    files = [file for file in sorted(arguments.configs.rglob("*.yaml")) if arguments.plans in str(file)]

    def difference(file):
        old, new = (call(program, "plan", "--config", file, "--json") for program in (arguments.old, arguments.new))
        if old == new or (old.startswith("exit") and new.startswith("exit")):
            return []
        try:
            return compare(json.loads(old), json.loads(new), f"{file.relative_to(arguments.configs)}: plan", arguments.tolerance)
        except json.JSONDecodeError:
            return [f"{file.relative_to(arguments.configs)}: {old[:200]!r} became {new[:200]!r}"]

    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        return len(files), [line for lines in pool.map(difference, files) for line in lines]


def compare(old, new, where, tolerance, key=""):
    if isinstance(old, dict) and isinstance(new, dict):
        lines = [f"{where}.{k}: only in one" for k in old.keys() ^ new.keys()]
        return lines + [line for k in old if k in new for line in compare(old[k], new[k], f"{where}.{k}", tolerance, k)]
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return [line for i, (a, b) in enumerate(zip(old, new)) for line in compare(a, b, f"{where}[{i}]", tolerance, key)]
    allowed = max((limit for part, limit in tolerance.items() if part in key), default=0)
    if old == new or (allowed and abs(old - new) <= allowed * max(abs(old), abs(new), 1)):
        return []
    return [f"{where}: {old!r} became {new!r}"]


def records(file):
    """Lines of a metrics file without times and other values that differ between runs."""
    def kept(value):
        if not isinstance(value, dict):
            return value
        return {k: kept(v) for k, v in value.items() if not k.endswith(TIMES) and k not in VOLATILE}

    return [kept(json.loads(line)) for line in file.read_text().splitlines()]


def digest(file):
    return hashlib.sha256(file.read_bytes()).hexdigest()[:16]


def trained(program, folder, name, model, regime, processes):
    """Results of a run, by name; the data sets are in the folder's parent."""
    data = folder.parent / ("tokens" if "data" in model and model["data"].get("name") == "tokens" else "cifar10")
    spec = runs.write_spec(folder, name, {
        "data": {"name": "cifar10", "path": str(data)},
        "subnetwork": {"workers": 4} | REGIMES[regime],
        "train": {"max_steps": 6, "log_every_steps": 1, "batch_size_per_worker": 4, "device": "cpu"},
        "eval": {"recalibrate_batches": 2, "max_samples": 16},
    }, model)
    said = call(program, "--config", spec, "--nproc", processes)
    run_dir = folder / "runs" / name
    if not (run_dir / "latest").exists():
        return {"run": said}
    found = {f"metrics {i}": record for i, record in enumerate(records(run_dir / "metrics.jsonl"))}
    for file in sorted((run_dir / "checkpoints").rglob("*.safetensors")):
        found[f"checkpoint {file.name}"] = digest(file)
    said = call(program, "export", "--run", run_dir, "--out", folder / f"{name}.safetensors")
    exported = folder / f"{name}.safetensors"
    return found | {"export": digest(exported) if exported.exists() else said}


def training(arguments, folder):
    runs.write_cifar10(folder / "cifar10", per_part=40)
    runs.write_tokens(folder / "tokens", 256, tokens=10_000)
    cases = [(model, regime, processes) for model in MODELS for regime in REGIMES for processes in (1, 2)]

    def difference(case):
        model, regime, processes = case
        name = f"{model}-{regime}-{processes}"
        sides = []
        for side in ("old", "new"):
            (folder / side).mkdir(exist_ok=True)
            sides.append(trained(getattr(arguments, side), folder / side, name, MODELS[model], regime, processes))
        old, new = sides
        failed = [f"{name}: {side['run']}" for side in sides if "run" in side]
        return failed or compare(old, new, name, {})

    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        return len(cases), [line for lines in pool.map(difference, cases) for line in lines]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=pathlib.Path)
    parser.add_argument("new", type=pathlib.Path)
    parser.add_argument("--configs", type=pathlib.Path, default=runs.ROOT / "configs", metavar="DIR")
    parser.add_argument("--plans", default="", metavar="PART")
    parser.add_argument("--tolerance", nargs="*", default=[], metavar="KEY=X")
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    arguments.old, arguments.new = arguments.old.resolve(), arguments.new.resolve()
    arguments.tolerance = {key: float(value) for key, value in (entry.split("=") for entry in arguments.tolerance)}
    count, lines = plans(arguments)
    print(f"{count} plans, {len(lines)} differences", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        runs_count, more = training(arguments, pathlib.Path(folder))
    print(f"{runs_count} runs, {len(more)} differences")
    print("\n".join((lines + more)[:60]))
    return 1 if lines or more else 0


if __name__ == "__main__":
    sys.exit(main())
