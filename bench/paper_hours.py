#!/usr/bin/env python3
"""Estimates the hours that the sweeps of configs/paper take on one and on eight H100s, with `sdp-train plan`.

    bench/paper_hours.py build/sdp-train

Prints a Markdown table: for every experiment of images.yaml, imagenet.yaml and fineweb.yaml the hours of one run of DDP, of
the shortest and longest run of SDP, and of all its runs (regimes, coverages, both budgets, seeds). Eight GPUs have one
worker each; one GPU runs all eight workers, one after another. Step times are the plan's estimates, without evaluation,
saving and reading. Needs PyYAML.
"""

import itertools
import json
import pathlib
import subprocess
import sys

import yaml

CONFIGS = pathlib.Path(__file__).parents[1] / "configs"
REGIMES = ["bsdp", "nsdp", "bbsdp", "nbsdp"]
# Training samples: images of the data sets, and sequences of 1024 in FineWeb's sample of 10 G tokens.
SAMPLES = {"cifar10": 50_000, "cifar100": 50_000, "svhn": 73_257, "imagenet": 1_281_167, "tokens": 10_000_000_000 // 1024}


def merged(file):
    own = yaml.safe_load(file.read_text())
    base = own.pop("base", [])
    result = {}
    for layer in [merged(file.parent / name) for name in ([base] if isinstance(base, str) else base)] + [own]:
        for key, value in layer.items():
            result[key] = {**result.get(key, {}), **value} if isinstance(value, dict) else value
    return result


def flat(settings, prefix=""):
    for key, value in settings.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def plan(program, config, regime, settings, processes):
    """(step_ms, mean share of the full model's FLOPs)"""
    command = [program, "plan", "--json", "--device", "h100", "--nproc", str(processes), "--config", config]
    command += ["--config", CONFIGS / "regime" / f"{regime}.yaml"]
    for key, value in settings.items():
        command += ["--set", f"{key}={json.dumps(value)}"]
    result = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    return result["forecast"]["methods"][0]["step_ms"], result["flops_share"]


def hours_of(program, config, settings, coverages, seeds, processes):
    """Hours of DDP, of every kind of SDP run, and of all runs together."""
    spec = merged(config)
    epochs = settings.get("train.epochs", spec["train"].get("epochs"))
    train = {**spec["train"], **{key.removeprefix("train."): value for key, value in settings.items()}}
    samples_per_step = train["batch_size_per_worker"] * train.get("accumulate_steps", 1) * spec["subnetwork"]["workers"]
    steps = epochs * SAMPLES[spec["data"]["name"]] / samples_per_step
    to_hours = steps / 3.6e6
    ddp = plan(program, config, "ddp", settings, processes)[0] * to_hours
    sdp = []
    for regime, coverage in itertools.product(REGIMES, coverages):
        step_ms, flops_share = plan(program, config, regime, settings | {"subnetwork.coverage": coverage}, processes)
        sdp += [step_ms * to_hours, step_ms * to_hours / flops_share]  # equal iterations, equal FLOPs
    return ddp, sdp, seeds * (ddp + sum(sdp))


def main():
    program = sys.argv[1]
    print("| experiment | 8 H100s: DDP | SDP | all runs | 1 H100: DDP | SDP | all runs |")
    print("|---|---|---|---|---|---|---|")
    totals = {8: 0.0, 1: 0.0}
    for sweep in ("images", "imagenet", "fineweb"):
        file = CONFIGS / "paper" / f"{sweep}.yaml"
        content = yaml.safe_load(file.read_text())
        common = dict(flat({key: value for key, value in content["set"].items() if key != "output.dir"}))
        (axis,) = content["grid"].keys() - {"regime", "subnetwork.coverage", "train.budget", "seed"}
        for name, value in content["grid"][axis].items():
            (config,) = value["configs"]
            own = {key: setting for key, setting in value.items() if key.startswith("train.")}
            cells = []
            for processes in (8, 1):
                ddp, sdp, total = hours_of(
                    program, (file.parent / config).resolve(), common | own, content["grid"]["subnetwork.coverage"],
                    len(content["grid"]["seed"]), processes,
                )
                totals[processes] += total
                cells += [f"{ddp:.3g} h", f"{min(sdp):.3g} to {max(sdp):.3g} h", f"{total:.3g} h"]
            print(f"| {sweep}: {name} | {' | '.join(cells)} |", flush=True)
    print(f"| all | | | {totals[8]:.3g} h | | | {totals[1]:.3g} h |")


if __name__ == "__main__":
    main()
