#!/usr/bin/env python3
"""Estimates the GPU-hours that the sweeps of configs/paper take on H100s; prints a Markdown table.

    PYTHONPATH=python SDP_TRAIN=build/sdp-train bench/paper_hours.py

A row for every experiment of images.yaml, imagenet.yaml and fineweb.yaml: GPU-hours of one run of DDP, of the shortest and the
longest run of SDP, and of all its runs (regimes, coverages, both budgets, seeds), by the forecast of `sdp-train sweep --dry-run`,
which plans with the owner sets of `window`.
Small images are trained on one GPU, which runs all eight workers in turn, the others on eight GPUs. Where docs/results/gpu has
a measured step, the last two columns have its ratio to the planned one, of DDP and of B-SDP 4/8, and the GPU-hours of all runs by
these two ratios, the second one for all runs of SDP. Evaluation, saving and reading are not counted. Needs PyYAML.
"""

import json
import os
import pathlib
import re
import subprocess

import yaml
from sdp_lab.sweep import Sweep

CONFIGS = pathlib.Path(__file__).resolve().parents[1] / "configs"
# Of docs/results/gpu: configuration, settings, processes, and milliseconds per step of DDP and of B-SDP 4/8. ResNet-18: 512 images
# at 26,200 and 40,900 images/s, as a CUDA graph. Swin-T: 8 times the step of one worker with batch 16, which is limited by launch
# overhead and so takes as long with batch 64.
MEASURED = {
    "resnet18_(cifar|svhn)": ("resnet18_cifar10", ["train.batch_size_per_worker=64"], 1, 19.5, 12.5),
    "swin_t_(cifar|svhn)": ("swin_t_cifar10", ["train.batch_size_per_worker=64"], 1, 8 * 45.7, 8 * 23.0),
    "134m": ("llama_134m_fineweb", ["train.accumulate_steps=1"], 8, 42.1, 24.8),
    "1b": ("llama_1b_fineweb", ["train.accumulate_steps=1"], 8, 128.2, 60.7),
}


def planned_ms(config, regime, settings, processes):
    command = [os.environ["SDP_TRAIN"], "plan", "--json", "--device", "h100", "--nproc", str(processes)]
    command += ["--config", CONFIGS / f"{config}.yaml", "--config", CONFIGS / f"regime/{regime}.yaml"]
    command += [word for setting in settings for word in ("--set", setting)]
    plan = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    return plan["forecast"]["methods"][0]["step_ms"]


def gpu_hours(sweep, processes):
    """{experiment: {name of the run: GPU-hours}}. How long an epoch of tokens is, only the data tell: one step is priced there."""
    is_tokens = sweep == "fineweb"
    found = {}
    prices = {run.point.name: run.price for run in Sweep(
        CONFIGS / f"paper/{sweep}.yaml", ["train.max_steps=1"] if is_tokens else [], processes, "h100").runs}
    for name, price in prices.items():
        experiment = re.search(r"(?:experiment|model)=([^,]+)", name)[1]
        steps = 1
        if is_tokens:
            steps = yaml.safe_load((CONFIGS / f"llama_{experiment}_fineweb.yaml").read_text())["train"]["max_steps"]
            if "budget=flops" in name:
                steps *= prices[f"DDP,model={experiment},seed=0"]["flops"] / price["flops"]
        found.setdefault(experiment, {})[name] = price["hours"] * steps * processes
    return found


def main():
    print("| experiment | GPUs | DDP | SDP | all runs | measured / planned step: DDP, B-SDP 4/8 | all runs, by measured steps |")
    print("|---|---|---|---|---|---|---|")
    totals = [0.0, 0.0]
    for sweep, processes in (("images", 1), ("imagenet", 8), ("fineweb", 8)):
        for experiment, hours in gpu_hours(sweep, processes).items():
            dense = [value for name, value in hours.items() if name.startswith("DDP")]
            sdp = [value for name, value in hours.items() if not name.startswith("DDP")]
            row = [f"{sweep}: {experiment}", f"{processes}", f"{dense[0]:.3g}", f"{min(sdp):.3g} to {max(sdp):.3g}"]
            row += [f"{sum(dense + sdp):.4g}", "", ""]
            planned = measured_hours = sum(dense + sdp)
            for pattern, (config, settings, gpus, *measured) in MEASURED.items():
                if re.match(pattern, experiment):
                    ratios = [ms / planned_ms(config, regime, settings, gpus) for ms, regime in zip(measured, ("ddp", "bsdp"))]
                    measured_hours = ratios[0] * sum(dense) + ratios[1] * sum(sdp)
                    row[-2:] = [f"{ratios[0]:.2f}, {ratios[1]:.2f}", f"{measured_hours:.4g}"]
            totals = [totals[0] + planned, totals[1] + measured_hours]
            print(f"| {' | '.join(row)} |", flush=True)
    print(f"| all | | | | {totals[0]:.4g} | | {totals[1]:.4g} |")


if __name__ == "__main__":
    main()
