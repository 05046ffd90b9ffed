#!/usr/bin/env python3
"""Measures the memory per parameter under data parallelism, ZeRO-1, ZeRO-2 and subnetworks, with the same engine.

    bench/memory.py [--workers N] [--coverage P/N] [--width W] [--depth D] [--steps N] [--out FILE]

A LLaMA whose parameters are nearly all in units, one process per worker on the CPU, bf16 with AdamW, one short sequence
per step. State is weights, gradients, master weights and optimizer moments at the memory peak of a step, counted by the
allocator of every process; activations and buckets are listed separately. Bytes per parameter of the units: state minus
that of the shared parameters (embedding, head, last norm, by the formula), divided by the number of the full model's
parameters in units.
"""
import argparse
import json
import pathlib
import subprocess
import tempfile

import runs

VOCABULARY, LENGTH = 512, 32
KINDS = ("weights", "gradients", "optimizer", "activations", "buckets")


def schemes(n, coverage):
    """Name, settings, and by the formula: bytes per parameter of the units, and per shared parameter."""
    p = int(coverage.split("/")[0])
    whole = {"workers": n, "coverage": "1"}
    part = {"workers": n, "coverage": coverage}
    split = (2 + 16 / n, 2 + 16 / n)
    return [
        ("DDP", whole, {"shard": False}, {}, (16, 16)),
        ("ZeRO-1", whole, {}, {"release_gradients": False}, (4 + 12 / n, 4 + 12 / n)),
        ("ZeRO-2", whole, {}, {}, split),
        (f"SDP {coverage} forward", part | {"masking": "forward"}, {}, {}, (2 * p / n + 16 / n, split[1])),
        (f"SDP {coverage} backward", part | {"masking": "backward"}, {}, {}, split),
    ]


def measure(folder, arguments, index, subnetwork, optimizer, train):
    name = f"scheme{index}"
    spec = runs.write_spec(folder, name, {
        "model": {"name": "llama_tiny", "vocab_size": VOCABULARY, "width": arguments.width, "depth": arguments.depth,
                  "hidden_width": arguments.width * 11 // 4, "heads": 8},
        "data": {"name": "tokens", "path": str(folder / "tokens"), "sequence_length": LENGTH},
        "subnetwork": subnetwork,
        "optimizer": {"name": "adamw"} | optimizer,
        "train": {"max_steps": arguments.steps, "log_every_steps": 1, "batch_size_per_worker": 1, "precision": "bf16",
                  "device": "cpu", "bucket_megabytes": arguments.bucket_megabytes} | train,
    })
    command = [runs.BINARY, "--config", spec, "--nproc", str(arguments.workers)]
    done = subprocess.run([*map(str, command)], env=runs.environment(), capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"sdp-train ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    plan = json.loads((folder / "runs" / name / "plan.json").read_text())
    memory = runs.train_lines(folder / "runs" / name)[-1]["memory"]
    return plan, {kind: memory[f"{kind}_bytes"] for kind in KINDS}


def row(name, plan, memory, formula):
    units = sum(unit["parameters"] for unit in plan["units"])
    shared = plan["dense"]["parameters"] - units
    state = [sum(memory[kind][rank] for kind in KINDS[:3]) for rank in range(len(memory["weights"]))]
    mean = sum(state) / len(state)
    a_parameter = (mean - formula[1] * shared) / units
    of = lambda kind: f"{sum(memory[kind]) / len(memory[kind]) / units:.2f}"
    return [name, f"{a_parameter:.2f}", f"{formula[0]:.2f}", f"{max(state) / mean:.3f}", *map(of, KINDS)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--coverage", default="4/8")
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--depth", type=int, default=8)
    parser.add_argument("--bucket-megabytes", type=float, default=1)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--out", type=pathlib.Path, help="also write the table to this file")
    arguments = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        runs.write_tokens(folder / "tokens", VOCABULARY)
        for index, (name, subnetwork, optimizer, train, formula) in enumerate(schemes(arguments.workers, arguments.coverage)):
            plan, memory = measure(folder, arguments, index, subnetwork, optimizer, train)
            rows.append(row(name, plan, memory, formula))
            print(name, "done", flush=True)
    header = ["scheme", "bytes per parameter", "formula", "max/mean", *KINDS]
    runs.print_table(header, rows, arguments.out)


if __name__ == "__main__":
    main()
