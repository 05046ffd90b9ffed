#!/usr/bin/env python3
"""Compares the step times that plans estimate from a device's profile with measured ones; prints a Markdown table.

    sdp-train doctor --device cpu --save profile.json
    bench/plan_times.py --profile profile.json [--rounds N] [--device cpu|cuda]

Every case is a process of a run on 8 workers, without the others (`plan --measure`, which replaces their data by zeros),
with one worker and with four. Cases take turns, round by round; the figures are the minimum over rounds, as other load
on the machine only makes them larger. The last two columns compare with the same model at coverage 1 on the same number of processes.
"""
import argparse
import json
import subprocess

import runs

MODELS = {
    "ResNet-18, width 16, CIFAR": ("quickstart", []),
    "Swin-T, width 24, CIFAR": ("swin_t_cifar10", ["model.width=24", "model.stochastic_depth=0", "train.precision=fp32"]),
    "LLaMA tiny, 128 tokens": ("llama_tiny_tokens", []),
}
COVERAGES = ("1", "4/8")
PROCESSES = (8, 2)


def measure(config, overrides, coverage, processes, arguments):
    """Predicted and measured milliseconds per step."""
    settings = [*overrides, "data.path=/none", f"train.device={arguments.device}", "subnetwork.workers=8",
                f"subnetwork.coverage={coverage}"]
    command = [runs.BINARY, "plan", "--measure", "--device", arguments.profile, "--json", "--worker", "0", "--nproc", str(processes)]
    command += ["--config", str(runs.ROOT / "configs" / f"{config}.yaml")]
    command += [word for setting in settings for word in ("--set", setting)]
    result = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return result["predicted_step_ms"], result["step_ms"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", required=True, metavar="FILE", help="rates of `doctor --save`")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    cases = [(model, processes, coverage) for model in MODELS for processes in PROCESSES for coverage in COVERAGES]
    least = {case: (float("inf"), float("inf")) for case in cases}
    for _ in range(arguments.rounds):
        for model, processes, coverage in cases:
            times = measure(*MODELS[model], coverage, processes, arguments)
            case = (model, processes, coverage)
            least[case] = tuple(map(min, least[case], times))
    print("| model | workers per process | C | planned | measured | planned/measured | of C = 1: planned | measured |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for model, processes, coverage in cases:
        planned, measured = least[model, processes, coverage]
        dense_planned, dense_measured = least[model, processes, "1"]
        print(f"| {model} | {8 // processes} | {coverage} | {planned:.1f} ms | {measured:.1f} ms | {planned / measured:.2f} "
              f"| {planned / dense_planned:.3f} | {measured / dense_measured:.3f} |")


if __name__ == "__main__":
    main()
