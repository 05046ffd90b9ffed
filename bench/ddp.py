#!/usr/bin/env python3
"""Compares a step of sdp-train on CPU with PyTorch's DistributedDataParallel over gloo, same wheel and same host.

    bench/ddp.py [--models resnet18 llama] [--processes 2 4] [--rounds N] [--steps N] [--out FOLDER]

Same model (ResNet-18 of torchvision's blocks with a 3x3 stem and 16 channels; LLaMA of transformers), batch, fp32, SGD
with momentum (PyTorch's foreach form and its fused one) and threads per process: cores / processes, at least 1. Programs
take turns, so that other load on the machine affects all of them. Figures are medians over rounds; a round's figure
is the median over its intervals of 10 steps, without the first. sdp-train reads its samples in a separate thread;
PyTorch's tensors are in memory before the first step. --out: results.json and results.md.

sdp-train's variants: DDP (coverage 1, optimizer.shard false), sharded (coverage 1, optimizer.shard true, as ZeRO-1), and
subnetworks (coverage 1/2, forward masking, blocks).
"""
import argparse
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import time

import runs

INTERVAL = 10
VOCABULARY, LENGTH = 1024, 64
LLAMA = {"width": 128, "depth": 4, "hidden_width": 352, "heads": 4}
MODELS = {
    "resnet18": {
        "model": {"name": "resnet18", "stem": "cifar", "width": 16},
        "data": {"name": "cifar10", "augment": []},
        "train": {"batch_size_per_worker": 16},
    },
    "llama": {
        "model": {"name": "llama_tiny", "vocab_size": VOCABULARY} | LLAMA,
        "data": {"name": "tokens", "sequence_length": LENGTH},
        "train": {"batch_size_per_worker": 4},
    },
}
OURS = {
    "ours, DDP": {"subnetwork": {"coverage": 1}, "optimizer": {"shard": False}},
    "ours, sharded": {"subnetwork": {"coverage": 1}, "optimizer": {"shard": True}},
    "ours, C = 1/2": {"subnetwork": {"coverage": "1/2", "construction": "block", "masking": "forward"}},
}
PYTORCH = {"PyTorch DDP, foreach": "foreach", "PyTorch DDP, fused": "fused"}


def threads_of(processes):
    return max(1, len(os.sched_getaffinity(0)) // processes)


# --- PyTorch's side: one process per rank -------------------------------------------------------------------


def make_resnet18(width):
    from torch import nn
    from torchvision.models.resnet import BasicBlock

    layers = [nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
    channels = width
    for stage in range(4):
        for block in range(2):
            out, stride = width << stage, 2 if stage > 0 and block == 0 else 1
            shortcut = None
            if stride != 1 or channels != out:
                shortcut = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))
            layers.append(BasicBlock(channels, out, stride, shortcut))
            channels = out
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10))


def make_llama():
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=LLAMA["width"],
        intermediate_size=LLAMA["hidden_width"],
        num_hidden_layers=LLAMA["depth"],
        num_attention_heads=LLAMA["heads"],
        vocab_size=VOCABULARY,
        use_cache=False,
    )
    return LlamaForCausalLM(config)


def model_and_batches(name):
    import torch

    batch = MODELS[name]["train"]["batch_size_per_worker"]
    if name == "resnet18":
        images = torch.randn(8, batch, 3, 32, 32)
        return make_resnet18(MODELS[name]["model"]["width"]), images, torch.randint(10, (8, batch))
    tokens = torch.randint(VOCABULARY, (8, batch, LENGTH + 1))
    return make_llama(), tokens[:, :, :-1].contiguous(), tokens[:, :, 1:].contiguous()


def pytorch_rank(name, optimizer_form, steps):
    """One rank, from torchrun's variables. Rank 0 prints the milliseconds per step of each interval."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(threads_of(int(os.environ["WORLD_SIZE"])))
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    model, inputs, targets = model_and_batches(name)
    model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(
        model.parameters(), lr=0.001, momentum=0.9, weight_decay=5e-4, **{optimizer_form: True}
    )
    times, began = [], time.perf_counter()
    for step in range(steps):
        out = model(inputs[step % len(inputs)])
        out = getattr(out, "logits", out)
        loss = torch.nn.functional.cross_entropy(out.flatten(0, -2), targets[step % len(inputs)].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if (step + 1) % INTERVAL == 0:
            losses = [torch.zeros(1) for _ in range(dist.get_world_size())]
            dist.all_gather(losses, loss.detach().view(1))  # as sdp-train does for each line of its metrics
            times.append((time.perf_counter() - began) * 1000 / INTERVAL)
            began = time.perf_counter()
    if dist.get_rank() == 0:
        print(json.dumps(times), flush=True)
    dist.barrier()
    os._exit(0)  # avoids an abort if Gloo's threads still run when the interpreter ends


def run_pytorch(name, processes, optimizer_form, steps):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    threads = str(threads_of(processes))
    ranks = [
        subprocess.Popen(
            [sys.executable, __file__, "--pytorch-rank", name, optimizer_form, "--steps", str(steps)],
            env=runs.environment(
                RANK=str(rank),
                WORLD_SIZE=str(processes),
                MASTER_ADDR="127.0.0.1",
                MASTER_PORT=port,
                OMP_NUM_THREADS=threads,
                GLOO_SOCKET_IFNAME="lo",
            ),
            stdout=subprocess.PIPE if rank == 0 else None,
            text=True,
        )
        for rank in range(processes)
    ]
    out = ranks[0].communicate()[0]
    if any(rank.wait() for rank in ranks):
        sys.exit("a rank of PyTorch failed")
    return json.loads(out.splitlines()[-1])


# --- sdp-train's side --------------------------------------------------------------------------------------


def run_ours(binary, name, processes, variant, steps, folder, data):
    fixed = {
        "data": {"path": str(data)},
        "subnetwork": {"workers": processes},
        "train": {"precision": "fp32", "device": "cpu", "max_steps": steps, "log_every_steps": INTERVAL},
    }
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        config = runs.write_spec(pathlib.Path(scratch), "run", MODELS[name], fixed, OURS[variant])
        command = [binary, "--config", config, "--nproc", str(processes)]
        result = subprocess.run(command, env=runs.environment(), capture_output=True, text=True)
        if result.returncode:
            sys.exit(f"sdp-train ended with {result.returncode}\n{result.stdout}{result.stderr}")
        lines = runs.train_lines(pathlib.Path(scratch) / "runs" / "run")
    return [line["step_ms"] for line in lines], lines[-1]["bytes_sent"]


# --- the comparison ----------------------------------------------------------------------------------------


def measure(arguments, name, processes, folder, data):
    """Variant -> milliseconds per step, one for each round."""
    result = {"model": name, "processes": processes, "threads": threads_of(processes), "load": [], "bytes_sent": {}}
    step_ms = {variant: [] for variant in [*PYTORCH, *OURS]}
    for _ in range(arguments.rounds):
        result["load"].append(runs.load())
        for variant in step_ms:
            if variant in PYTORCH:
                times = run_pytorch(name, processes, PYTORCH[variant], arguments.steps)
            else:
                times, sent = run_ours(
                    arguments.binary, name, processes, variant, arguments.steps, folder, data
                )
                result["bytes_sent"][variant] = sent
            step_ms[variant].append(statistics.median(times[1:]))
    result["step_ms"] = step_ms
    return result


def report(results, rounds):
    rows = []
    for result in results:
        step_ms = result["step_ms"]
        fastest = min(PYTORCH, key=lambda variant: statistics.median(step_ms[variant]))
        for variant, times in step_ms.items():
            to_own = variant == "ours, C = 1/2"
            rows.append(
                [
                    f"{result['model']}, {result['processes']} processes",
                    variant,
                    f"{statistics.median(times):.1f}",
                    f"{min(times):.1f} to {max(times):.1f}",
                    f"{runs.median_ratio(times, step_ms[fastest]):.2f}",
                    f"{runs.median_ratio(times, step_ms['ours, DDP']):.2f}" if to_own else "",
                    f"{runs.median_ratio(times, step_ms['ours, sharded']):.2f}" if to_own else "",
                ]
            )
    header = ["run", "variant", "ms/step", "range", "/ PyTorch's faster", "/ ours, DDP", "/ ours, sharded"]
    loads = ", ".join(f"{load:.1f}" for result in results for load in result["load"])
    return (
        f"{runs.table(header, rows)}\n\nMedians of {rounds} rounds; ratios are medians of pairs of a round. "
        f"Load of the machine before each round: {loads}."
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--processes", nargs="+", type=int, default=[2, 4])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=110, help=f"steps per run, at least {2 * INTERVAL}")
    parser.add_argument("--binary", type=pathlib.Path, default=runs.BINARY)
    parser.add_argument("--out", type=pathlib.Path, help="folder for results.json and results.md")
    parser.add_argument("--pytorch-rank", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.steps < 2 * INTERVAL:
        parser.error(f"--steps {arguments.steps}: the first interval of {INTERVAL} is dropped, and others are needed")
    if arguments.pytorch_rank:
        return pytorch_rank(*arguments.pytorch_rank, arguments.steps)

    results = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        data = {
            "resnet18": runs.write_cifar10(folder / "images"),
            "llama": runs.write_tokens(folder / "tokens", VOCABULARY),
        }
        for name in arguments.models:
            for processes in arguments.processes:
                results.append(measure(arguments, name, processes, folder, data[name]))
    text = report(results, arguments.rounds)
    print(text)
    if arguments.out:
        runs.write_results(arguments.out, results, text)


if __name__ == "__main__":
    main()
