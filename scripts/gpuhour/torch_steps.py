#!/usr/bin/env python3
"""Times a training step of plain PyTorch on the shapes of configs/: one JSON line with step_ms, peak_bytes, parameters.

    torch_steps.py --model llama_1b|llama_134m|swin_t|resnet18 --device cuda|cpu --how eager|compiled [--batch N] [--small]

LLaMA and ResNet-18 are written out here; Swin-T is torchvision's. bf16 parameters and AdamW or SGD without master
values, so that PyTorch keeps less state than sdp-train does; --small: fp32, and the sizes of a trial on a CPU, whose
compiled graphs run without generated code. compiled: block by block, so that equal blocks are compiled once; ResNet-18,
whose blocks differ, as a whole."""

import argparse
import json
import statistics
import time

import torch
import torch.nn.functional as F
from torch import nn

STEPS, WARM_UP = 8, 3
LLAMA = {  # width, depth, hidden width, heads, vocabulary, batch, length
    "llama_1b": (2048, 18, 5120, 16, 50304, 8, 1024),
    "llama_134m": (768, 12, 2048, 12, 50304, 16, 1024),
}
LLAMA_SMALL = (128, 4, 352, 4, 1024, 2, 64)


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))

    def forward(self, x, rotation):
        batch, length, width = x.shape
        split = lambda y: y.view(batch, length, self.heads, -1).transpose(1, 2)
        turn = lambda y: y * rotation[0] + torch.cat((-y.chunk(2, -1)[1], y.chunk(2, -1)[0]), -1) * rotation[1]
        y = F.scaled_dot_product_attention(turn(split(self.q(x))), turn(split(self.k(x))), split(self.v(x)), is_causal=True)
        return self.o(y.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width, hidden_width, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.attention = Attention(width, heads)
        self.gate, self.up = (nn.Linear(width, hidden_width, bias=False) for _ in range(2))
        self.down = nn.Linear(hidden_width, width, bias=False)

    def forward(self, x, rotation):
        x = x + self.attention(self.norm1(x), rotation)
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self, width, depth, hidden_width, heads, vocabulary, batch, length):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(Block(width, hidden_width, heads) for _ in range(depth))
        self.norm = nn.RMSNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        side = width // heads
        angles = torch.outer(torch.arange(length), 10000.0 ** (-torch.arange(0, side, 2) / side)).repeat(1, 2)
        self.register_buffer("cosine", angles.cos())
        self.register_buffer("sine", angles.sin())

    def forward(self, tokens, labels):
        x = self.embedding(tokens)
        rotation = self.cosine.to(x.dtype), self.sine.to(x.dtype)
        for block in self.blocks:
            x = block(x, rotation)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1).float(), labels.flatten())


class BasicBlock(nn.Module):
    def __init__(self, channels, out, stride):
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(channels, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out)
        self.conv2, self.norm2 = nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out)
        self.shortcut = nn.Sequential()
        if stride != 1 or channels != out:
            self.shortcut = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x):
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


def resnet18(width):
    layers, channels = [nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()], width
    for stage in range(4):
        for block in range(2):
            out = width << stage
            layers.append(BasicBlock(channels, out, 2 if stage > 0 and block == 0 else 1))
            channels = out
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10))


def swin_t(width, heads):
    from torchvision.models.swin_transformer import SwinTransformer

    return SwinTransformer(patch_size=[2, 2], embed_dim=width, depths=[2, 2, 6, 2], num_heads=[heads << i for i in range(4)],
                           window_size=[4, 4], stochastic_depth_prob=0.1, num_classes=10)


def make(arguments):
    """The model, a batch, its loss and its optimizer."""
    dtype = torch.float32 if arguments.small else torch.bfloat16
    if arguments.model in LLAMA:
        sizes = LLAMA_SMALL if arguments.small else LLAMA[arguments.model]
        model = Llama(*sizes)
        batch = [torch.randint(sizes[4], sizes[5:]) for _ in range(2)]
        model = model.to(dtype)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
        return model, lambda run: run(*batch), optimizer
    if arguments.model == "resnet18":
        model, samples = resnet18(16 if arguments.small else 64), arguments.batch or 16
    else:
        model, samples = (swin_t(24, 3), 2) if arguments.small else (swin_t(96, 3), 16)
    model = model.to(dtype).to(memory_format=torch.channels_last)
    images = torch.randn(samples, 3, 32, 32, dtype=dtype).to(memory_format=torch.channels_last)
    labels = torch.randint(10, (samples,))
    if arguments.model == "resnet18":
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, fused=True)
    else:
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    return model, lambda run: F.cross_entropy(run(images).float(), labels), optimizer


def compile_blocks(model, compiler):
    torch._dynamo.config.recompile_limit = 64  # the sizes and drop rates of Swin's blocks
    blocks = [module for module in model.modules() if type(module).__name__ in ("Block", "SwinTransformerBlock")]
    for part in blocks or [model]:
        part.compile(dynamic=False, backend=compiler)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, choices=[*LLAMA, "swin_t", "resnet18"])
    parser.add_argument("--device", required=True, choices=["cpu", "cuda"])
    parser.add_argument("--how", required=True, choices=["eager", "compiled"])
    parser.add_argument("--batch", type=int, help="of ResNet-18 (default 16)")
    parser.add_argument("--small", action="store_true")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    with torch.device(arguments.device):
        model, loss_of, optimizer = make(arguments)
    if arguments.how == "compiled":
        compile_blocks(model, "aot_eager" if arguments.small else "inductor")
    synchronize = torch.cuda.synchronize if arguments.device == "cuda" else lambda: None
    times_ms = []
    for step in range(WARM_UP + STEPS):
        synchronize()
        began = time.perf_counter()
        loss_of(model).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        synchronize()
        if step == WARM_UP - 1 and arguments.device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        if step >= WARM_UP:
            times_ms.append((time.perf_counter() - began) * 1000)
    peak_bytes = torch.cuda.max_memory_allocated() if arguments.device == "cuda" else 0
    print(json.dumps({"step_ms": statistics.median(times_ms), "peak_bytes": peak_bytes,
                      "parameters": sum(p.numel() for p in model.parameters())}))


if __name__ == "__main__":
    main()
