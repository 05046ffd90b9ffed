#!/usr/bin/env python3
"""Balance of plans, mixing of workers and bytes sent: the tables of docs/results/assignment.md.

    bench/assignment.py [--program build/sdp-train] [--out docs/results/assignment.md]

Calls `sdp-train plan --json` for eight workers and several coverages below 1. Needs no data and no GPU, and takes a
few minutes. The plans are the same on every machine.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess

import runs

WORKERS = 8
OWNERS = (2, 3, 4, 6, 7)
MODELS = {  # name: configuration, constructions
    "ResNet-18, CIFAR": ("resnet18_cifar10", ("block",)),
    "Swin-T": ("swin_t_imagenet", ("block", "neuron")),
    "LLaMA 134M": ("llama_134m_fineweb", ("block", "neuron")),
    "LLaMA 1B": ("llama_1b_fineweb", ("block", "neuron")),
}
# Only ResNet-18's eight blocks, found by long searches: FLOPs max/mean, parameters max/mean, lambda2 by unit.
REFERENCE = {
    7: (1.025, 1.135, 0.020),
    6: (1.011, 1.217, 0.095),
    4: (1.034, 1.127, 0.250),
    3: (1.011, 1.378, 0.444),
    2: (1.103, 1.745, 0.854),
}
EVEN_FLOPS = 1.05
THREE_DIGITS = 5.1e-4


class Planner:
    def __init__(self, program):
        self.program = program
        self.plans = {}

    def plan(self, config, *arguments, **subnetwork):
        key = (config, arguments, tuple(sorted(subnetwork.items())))
        if key not in self.plans:
            command = [self.program, "plan", "--json", "--config", runs.ROOT / "configs" / f"{config}.yaml", *arguments]
            for name, value in {"train.precision": "fp32", **{f"subnetwork.{k}": v for k, v in subnetwork.items()}}.items():
                command += ["--set", f"{name}={value}"]
            result = subprocess.run([str(word) for word in command], check=True, stdout=subprocess.PIPE, text=True)
            self.plans[key] = json.loads(result.stdout)
        return self.plans[key]


def balance_rows(planner):
    for name, (config, constructions) in MODELS.items():
        for construction in constructions:
            for p in OWNERS:
                plan = planner.plan(config, workers=WORKERS, coverage=f"{p}/{WORKERS}", construction=construction)
                balance, spectrum = plan["balance"], plan["spectrum"]
                figures = [balance[f"{what}_max_over_mean"] for what in ("flops", "parameters", "state_bytes")]
                for weight in ("by_unit", "by_parameters", "by_flops"):
                    figures += [spectrum[weight]["lambda2"], spectrum[weight]["lambda2_bound"]]
                texts = [f"{figure:.3f}" for figure in figures]
                lambdas = [f"{found} ({bound})" for found, bound in zip(texts[3::2], texts[4::2])]
                lacking = sum(worker["branches_by_stage"].count(0) for worker in plan["depth"])
                gap = max((worker["longest_gap_blocks"] for worker in plan["depth"]), default="")
                whole = [lacking, gap] if plan["depth"] else ["", ""]
                yield [name, construction, f"{p}/{WORKERS}", *whole, *texts[:3], *lambdas]


def of_blocks_alone(plan):
    """FLOPs and parameters max/mean, and lambda2 by unit, without what all workers share."""

    def max_over_mean(key):
        loads = [sum(unit[key] for unit in plan["units"] if k in unit["owners"]) for k in range(plan["workers"])]
        return max(loads) / statistics.mean(loads)

    return max_over_mean("flops"), max_over_mean("parameters"), plan["lambda2"]


def compare(found, reference):
    """Sort key: FLOPs within 5 %, then parameters, then lambda2."""
    if found[0] > EVEN_FLOPS * reference[0]:
        return "behind in FLOPs"
    for what, ours, theirs in zip(("parameters", "lambda2"), found[1:], reference[1:]):
        if ours < theirs - THREE_DIGITS:
            return f"ahead in {what}"
        if ours > theirs + THREE_DIGITS:
            return f"behind in {what}"
    return "equal"


def reference_rows(planner):
    for p, reference in REFERENCE.items():
        plan = planner.plan("resnet18_cifar10", workers=WORKERS, coverage=f"{p}/{WORKERS}", construction="block")
        found = of_blocks_alone(plan)
        yield [p, *(f"{ours:.3f} ({theirs:.3f})" for ours, theirs in zip(found, reference)), compare(found, reference)]


def sent_for_units(plan):
    """Bytes that each worker sends per step for the units' parameters, divided by those of data parallelism."""
    n = plan["workers"]
    units = 4 * sum(unit["parameters"] for unit in plan["units"])
    shared = 4 * plan["dense"]["parameters"] - units
    both_ways = 2 * (n - 1) / n
    return [(cost["bytes_sent_per_step"] - both_ways * shared) / (both_ways * units) for cost in plan["per_worker"]]


def sent_rows(planner):
    for name, (config, constructions) in MODELS.items():
        for construction in constructions:
            for p in OWNERS:
                cells = []
                for masking in ("forward", "backward"):
                    plan = planner.plan(
                        config, workers=WORKERS, coverage=f"{p}/{WORKERS}", construction=construction, masking=masking
                    )
                    sent = sent_for_units(plan)
                    cells += [f"{statistics.mean(sent):.4f}", f"{max(sent):.4f}"]
                forward = (p - 1) / (WORKERS - 1)
                yield [name, construction, f"{p}/{WORKERS}", cells[0], f"{forward:.4f}", cells[1]] + [
                    cells[2], f"{(forward + 1) / 2:.4f}", cells[3]
                ]


def node_rows(planner):
    def gigabytes(count):
        return f"{count / 1e9:.3g}"

    for name, config, construction, n, per_node in (
        ("ResNet-18, CIFAR", "resnet18_cifar10", "block", 8, 4),
        ("LLaMA 134M", "llama_134m_fineweb", "block", 8, 4),
        ("LLaMA 134M", "llama_134m_fineweb", "neuron", 8, 4),
        ("LLaMA 1B", "llama_1b_fineweb", "block", 64, 8),
        ("LLaMA 1B", "llama_1b_fineweb", "neuron", 64, 8),
    ):
        for p in (n // 4, n // 2):
            plans = {
                placement: planner.plan(
                    config, "--processes-per-node", per_node, workers=n, coverage=f"{p}/{n}",
                    construction=construction, placement=placement,
                )
                for placement in ("in_order", "pack")
            }
            between = [gigabytes(plan["nodes"]["sdp"]["between_bytes_per_step"]) for plan in plans.values()]
            nodes = plans["pack"]["nodes"]
            yield [name, construction, f"{p}/{n}", f"{nodes['nodes']} x {per_node}", *between] + [
                gigabytes(nodes[key]["between_bytes_per_step"]) for key in ("ddp", "ddp_ring")
            ]


def cost_rows(program):
    """Processor time and peak memory of a large plan, beyond those of a program that prints its version."""

    def measured(*words):
        """Processor time in seconds and peak memory in bytes."""
        command = [str(word) for word in (program, *words)]
        with open(os.devnull, "wb") as nothing:
            actions = [(os.POSIX_SPAWN_DUP2, nothing.fileno(), 1)]
            pid = os.posix_spawn(command[0], command, os.environ, file_actions=actions)
        _, status, usage = os.wait4(pid, 0)
        if status:
            raise SystemExit(f"failed: {' '.join(command)}")
        return usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024

    base_s, base_bytes = (min(figures) for figures in zip(*(measured("--version") for _ in range(3))))
    for construction in ("block", "neuron"):
        for p in (16, 32, 48):
            words = ["plan", "--json", "--config", runs.ROOT / "configs" / "llama_1b_fineweb.yaml"]
            for override in ("workers=64", f"coverage={p}/64", f"construction={construction}", "placement=pack"):
                words += ["--set", f"subnetwork.{override}"]
            words += ["--processes-per-node", 8]
            seconds, peak = (min(figures) for figures in zip(*(measured(*words) for _ in range(3))))
            yield [construction, f"{p}/64", f"{seconds - base_s:.2f}", f"{(peak - base_bytes) / 1e6:.0f}"]


TEXT = """# Assignment: balance, mixing, traffic

Made by `bench/assignment.py --out docs/results/assignment.md` from `sdp-train plan --json`, commit {commit}. Plans are computed,
not measured, and the same on every machine. n = 8 unless stated otherwise, `assignment: balanced`, fp32, models as in
`configs/` (Swin-T and its ImageNet windows, LLaMA with a vocabulary of 50,304), seed 0.

## Balance and mixing

Lacking: pairs of a worker and a stage of which it has no block, as few as possible; gap: longest run of blocks that a worker lacks (block
construction). Largest worker over the mean: FLOPs, parameters, state (parameters, gradients, optimizer). λ2: second eigenvalue of the co-ownership
matrix, with units weighted by 1, by parameters and by FLOPs; in brackets its general bound (tr K - λ1) / ((n-1) λ1).

{balance}

What it says:

- Slices (neuron construction) are even: parameters within 0.1 %, FLOPs within 2 %. λ2 is at most 1.12 times its bound by unit.
- Whole blocks are even if n divides p times their number, as for LLaMA 134M's 12 at 2/8, 4/8 and 6/8. Otherwise some workers
  have one block more than others.
- Every worker has a block of every stage from 4/8 on, where each stage of ResNet-18 and Swin-T has at least n/p blocks.
- ResNet-18's last two blocks have three quarters of the blocks' parameters, so some worker has far more than the mean at low
  coverage. There, and in Swin-T at 2/8, λ2 by parameters is far above λ2 by unit: the few heavy blocks decide it, and the search
  lowers λ2 by unit only.

## What whole subnetworks cost

ResNet-18's eight blocks, without the shared parameters; in brackets the best result of long searches that did not ask for an even share of
every stage. Compared in order: FLOPs within 5 %, then parameters, then λ2.

{reference}

What it says: nothing from 4/8 on. At p = 3 and 2, where some workers must lack a stage, those that have the heavy last stage cannot all lack the
next heaviest, as each stage is shared evenly: up to 4 % more parameters on the largest worker, and a larger λ2 at p = 3. At p = 6
the search uses the tolerance of 5 % in FLOPs to reduce parameters.

## Bytes sent for the units' part, against data parallelism

Gradients and updated parameters per step, divided by what data parallelism sends for the same parameters: mean over workers, its
formula, and the largest worker. Forward masking: (p-1)/(n-1). Under backward masking, every worker gathers all updated parameters:
half of that plus one half.

{sent}

What it says: the means are the formulas to every digit, whatever the owner sets (3/7 at 4/8; under backward masking 5/7). A worker
that holds more sends more. Under backward masking it also sends more updated parameters to all others: in ResNet-18 at 6/8 and 7/8 the
largest worker sends more than it would in data parallelism.

## Bytes between nodes

All processes together, one process per worker, GB per step. `subnetwork.placement` assigns processes to nodes; results are the same. Data
parallelism on as many processes: by the same exchange, and by a ring all-reduce, which passes about two full models out of each
node.

{nodes}

What it says: placement pays for few unequal units: `pack` reduces ResNet-18 at 4/8 to a third of the bytes. A balanced
assignment of many units mixes all workers evenly, and then no placement keeps much traffic inside nodes. Shared parameters
(embeddings) cannot be placed at all. Eight processes per node send several times what a ring of them would: SDP's gain in traffic is
per process, and if many processes share a node's link, a ring sends less.

## What a large plan costs

`plan --json` of LLaMA 1B on 64 workers, 8 processes per node, `placement: pack`: processor time and peak memory beyond those of
`sdp-train --version`, least of three, on {processor} with other work. The only measured figures here.

{cost}"""


def processor():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return "an unknown processor"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=pathlib.Path, default=runs.BINARY)
    parser.add_argument("--out", type=pathlib.Path, help="file to write; default: print")
    arguments = parser.parse_args()
    planner = Planner(arguments.program)
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=runs.ROOT, check=True, stdout=subprocess.PIPE, text=True
    ).stdout.strip()
    coverage = ["model", "construction", "C"]
    text = TEXT.format(
        commit=commit,
        processor=processor(),
        balance=runs.table(
            [*coverage, "lacking", "gap", "FLOPs", "parameters", "state", "λ2, units", "λ2, parameters", "λ2, FLOPs"], balance_rows(planner)
        ),
        reference=runs.table(["p", "FLOPs max/mean", "parameters max/mean", "λ2, units", "in order"], reference_rows(planner)),
        sent=runs.table(
            [*coverage, "forward, mean", "formula", "largest", "backward, mean", "formula", "largest"], sent_rows(planner)
        ),
        nodes=runs.table([*coverage, "nodes", "in_order", "pack", "DDP, exchange", "DDP, ring"], node_rows(planner)),
        cost=runs.table(["construction", "C", "processor time, s", "memory, MB"], cost_rows(arguments.program)),
    )
    if arguments.out:
        arguments.out.write_text(text)
    else:
        print(text, end="")


if __name__ == "__main__":
    main()
