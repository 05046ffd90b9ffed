"""One process of a training run of PyTorch, with torchrun's variables. Rank 0 prints a line of JSON:

step_ms      of each interval after the warm-up
parts_ms     of a step: forward (with the loss), backward, optimizer, and exchange: how much longer a backward pass with the
             exchange takes than one without (DDP's no_sync; FSDP2 cannot tell). Medians of a few steps after the timed
             ones, in which the processes begin together and the device is synchronized after every part
process_bytes  by rank: resident memory at its peak, on a GPU what the allocator has reserved
peak_bytes   of tensors on a GPU
parameters   of the whole model

In bf16 the parameters are bf16, without master values: PyTorch keeps less state than sdp-train does. With autocast they are
fp32, and each product casts them."""

import argparse
import contextlib
import json
import os
import resource
import statistics
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from benchmark.models import Model, model_of
from benchmark.networks import blocks_of, network, optimizer_of
from benchmark.peers import INTERVAL, Peer

BATCHES = 8
PART_STEPS = 5  # with the exchange, and as many without


def prepared(module: nn.Module, peer: Peer, model: Model, backend: str, device: torch.device) -> nn.Module:
    """Compiled and wrapped. ResNet-18, whose blocks differ, is compiled as a whole where it is not sharded by block."""
    size, blocks = dist.get_world_size(), blocks_of(module)
    is_whole = model.kind == "resnet18" and not peer.has("fsdp2")
    torch._dynamo.config.recompile_limit = 64  # the sizes and drop rates of Swin's blocks
    if peer.has("compiled") and not is_whole:
        for block in blocks:
            block.compile(dynamic=False, backend=backend)
    if peer.has("fsdp2"):
        mesh = init_device_mesh(device.type, (size,))  # by default of GPUs where there are some
        for part in (*blocks, module):
            fully_shard(part, mesh=mesh)
    elif size > 1:
        module = DistributedDataParallel(module)
    if peer.has("compiled") and is_whole:
        module.compile(dynamic=False, backend=backend)
    return module


class Training:
    def __init__(self, arguments: argparse.Namespace, device: torch.device) -> None:
        self.peer, model = Peer(arguments.peer), model_of(arguments.model)
        self.device = device
        dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[arguments.precision]
        self.autocast = torch.autocast(device.type, torch.bfloat16, enabled=self.peer.has("autocast"))
        layout = torch.channels_last if self.peer.has("channels_last") else torch.contiguous_format
        torch.manual_seed(dist.get_rank())
        with device:
            if model.is_text:
                tokens = torch.randint(model.vocabulary, (BATCHES, model.batch, model.length + 1))
                self.inputs, self.targets = tokens[..., :-1].contiguous(), tokens[..., 1:].contiguous()
            else:
                images = torch.randn(BATCHES, model.batch, 3, 32, 32, dtype=dtype)
                self.inputs = [batch.to(memory_format=layout) for batch in images]
                self.targets = torch.randint(10, (BATCHES, model.batch))
            module = network(model).to(torch.float32 if self.peer.has("autocast") else dtype).to(memory_format=layout)
        self.parameters = sum(parameter.numel() for parameter in module.parameters())
        self.module = prepared(module, self.peer, model, arguments.backend, device)
        self.optimizer = optimizer_of(model, self.module.parameters(), **{self.peer.form: True})

    def loss(self, step: int) -> torch.Tensor:
        with self.autocast:
            out = self.module(self.inputs[step % BATCHES])
        return F.cross_entropy(out.flatten(0, -2).float(), self.targets[step % BATCHES].flatten())

    def update(self) -> None:
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def now_ms(self) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() * 1000

    def interval_ms(self, steps: int) -> float:
        began = self.now_ms()
        for step in range(steps):
            loss = self.loss(step)
            loss.backward()
            self.update()
        losses = [torch.zeros(1, device=self.device) for _ in range(dist.get_world_size())]
        if len(losses) > 1:  # as sdp-train does for each line of its metrics
            dist.all_gather(losses, loss.detach().float().view(1))
        return (self.now_ms() - began) / steps

    def parts_ms(self) -> dict[str, float]:
        is_ddp = isinstance(self.module, DistributedDataParallel)
        times: dict[str, list[float]] = {"forward": [], "backward": [], "optimizer": [], "alone": []}
        for step in range(2 * PART_STEPS):
            is_alone = is_ddp and step % 2 == 1
            if is_ddp:
                dist.barrier()
            with self.module.no_sync() if is_alone else contextlib.nullcontext():
                marks = [self.now_ms()]
                loss = self.loss(step)
                marks.append(self.now_ms())
                loss.backward()
                marks.append(self.now_ms())
            if is_alone:
                self.optimizer.zero_grad(set_to_none=True)
                times["alone"].append(marks[2] - marks[1])
                continue
            self.update()
            marks.append(self.now_ms())
            for part, begin, end in zip(times, marks[:-1], marks[1:], strict=False):
                times[part].append(end - begin)
        parts = {part: statistics.median(values) for part, values in times.items() if values}
        if is_ddp:
            parts["exchange"] = parts["backward"] - parts.pop("alone")
        return parts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--peer", required=True)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--steps", type=int, required=True, help="timed steps, in intervals")
    parser.add_argument("--interval", type=int, default=INTERVAL)
    parser.add_argument("--warm-up", type=int, default=INTERVAL)
    parser.add_argument("--backend", default="inductor", help="of torch.compile")
    arguments = parser.parse_args()
    device = torch.device(arguments.device, int(os.environ["LOCAL_RANK"]) if arguments.device == "cuda" else None)
    if on_gpu := device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if on_gpu else "gloo")
    training = Training(arguments, device)
    training.interval_ms(arguments.warm_up)
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    step_ms = [training.interval_ms(arguments.interval) for _ in range(arguments.steps // arguments.interval)]
    peak_bytes = torch.cuda.max_memory_allocated() if on_gpu else 0
    process_bytes = torch.cuda.max_memory_reserved() if on_gpu else 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    by_rank = [0] * dist.get_world_size()
    dist.all_gather_object(by_rank, process_bytes)
    parts_ms = training.parts_ms()
    if dist.get_rank() == 0:
        told = {"step_ms": step_ms, "parts_ms": parts_ms, "process_bytes": by_rank, "peak_bytes": peak_bytes}
        print(json.dumps(told | {"parameters": training.parameters}), flush=True)
    dist.barrier()
    os._exit(0)  # without an abort if the backend's threads still run when the interpreter ends


if __name__ == "__main__":
    main()
