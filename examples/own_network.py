"""Two networks in Python for `sdp-train --network examples/own_network.py:NAME` (docs/own_network.md)."""

import torch
from torch import Tensor, nn
from transformers import GPT2Config
from transformers.models.gpt2.modeling_gpt2 import GPT2MLP, GPT2Attention

import sdp_train


class ConvNeXtBranch(nn.Module):
    """scale * W2 gelu(W1 norm(depthwise(x))) (Liu et al. 2022), without the addition of x."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.scale = nn.Parameter(torch.empty(width))

    def reset_parameters(self) -> None:
        nn.init.constant_(self.scale, 0.1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        return (self.scale * self.down(nn.functional.gelu(self.up(x)))).permute(0, 3, 1, 2)


class SmallConvNeXt(sdp_train.Network):
    """For images of 32x32 pixels: model: {name: own, num_classes: 10}."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 48, 4, stride=4)
        self.blocks = nn.ModuleList(ConvNeXtBranch(48) for _ in range(6))
        self.norm, self.fc = nn.LayerNorm(48), nn.Linear(48, 10)

    def branches(self) -> list[nn.Module]:
        return list(self.blocks)

    def scaled_parameters(self, i: int) -> list[nn.Parameter]:
        return [self.blocks[i].scale]

    def head(self, x: Tensor) -> Tensor:
        return self.fc(self.norm(x.mean((2, 3))))


class GptBranch(nn.Module):
    """A part of a GPT-2 block of transformers, with its norm and without the addition of x."""

    def __init__(self, part: nn.Module, width: int) -> None:
        super().__init__()
        self.norm, self.part = nn.LayerNorm(width), part

    def forward(self, x: Tensor) -> Tensor:
        out = self.part(self.norm(x))
        return out[0] if isinstance(out, tuple) else out


class SmallGpt(sdp_train.Network):
    """For tokens: model: {name: own, reads_tokens: true, vocab_size: 8192}."""

    branches_per_block = 2
    whole_init = True  # transformers' layers set their values when they are made

    def __init__(self) -> None:
        super().__init__()
        config = GPT2Config(n_embd=128, n_layer=4, n_head=4, n_positions=256, vocab_size=8192, attn_implementation="sdpa")
        self.tokens, self.positions = nn.Embedding(8192, 128), nn.Embedding(256, 128)
        parts = [lambda: GPT2Attention(config), lambda: GPT2MLP(512, config)]
        self.blocks = nn.ModuleList(GptBranch(parts[i % 2](), 128) for i in range(8))
        self.norm, self.head = nn.LayerNorm(128), nn.Linear(128, 8192, bias=False)

    def stem(self, tokens: Tensor) -> Tensor:
        return self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))

    def branches(self) -> list[nn.Module]:
        return list(self.blocks)

    def after(self, i: int, x: Tensor) -> Tensor:
        return self.norm(x) if i + 1 == len(self.blocks) else x
