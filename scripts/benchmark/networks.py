"""The models of the benchmark in PyTorch. LLaMA and ResNet-18 are written out here; Swin-T is torchvision's."""

from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import nn

from benchmark.models import Model

Rotation = tuple[torch.Tensor, torch.Tensor]  # cosine and sine [L, D]


def turned(x: torch.Tensor, rotation: Rotation) -> torch.Tensor:
    first, second = x.chunk(2, -1)
    return x * rotation[0] + torch.cat((-second, first), -1) * rotation[1]


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))

    def forward(self, x: torch.Tensor, rotation: Rotation) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = (part(x).view(batch, length, self.heads, -1).transpose(1, 2) for part in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(turned(q, rotation), turned(k, rotation), v, is_causal=True)
        return self.o(y.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width: int, hidden_width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.attention = Attention(width, heads)
        self.gate, self.up = (nn.Linear(width, hidden_width, bias=False) for _ in range(2))
        self.down = nn.Linear(hidden_width, width, bias=False)

    def forward(self, x: torch.Tensor, rotation: Rotation) -> torch.Tensor:
        x = x + self.attention(self.norm1(x), rotation)
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self, sizes: Model) -> None:
        super().__init__()
        self.embedding = nn.Embedding(sizes.vocabulary, sizes.width)
        self.blocks = nn.ModuleList(Block(sizes.width, sizes.hidden_width, sizes.heads) for _ in range(sizes.depth))
        self.norm = nn.RMSNorm(sizes.width)
        self.head = nn.Linear(sizes.width, sizes.vocabulary, bias=False)
        side = sizes.width // sizes.heads
        angles = torch.outer(torch.arange(sizes.length), 10000.0 ** (-torch.arange(0, side, 2) / side)).repeat(1, 2)
        self.register_buffer("cosine", angles.cos())
        self.register_buffer("sine", angles.sin())

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        rotation = self.cosine.to(x.dtype), self.sine.to(x.dtype)
        for block in self.blocks:
            x = block(x, rotation)
        return self.head(self.norm(x))


class BasicBlock(nn.Module):
    def __init__(self, channels: int, out: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(channels, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out)
        self.conv2, self.norm2 = nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out)
        self.shortcut = nn.Sequential()
        if stride != 1 or channels != out:
            self.shortcut = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.norm1(self.conv1(x)), inplace=True)
        y = self.norm2(self.conv2(y))
        y += self.shortcut(x)
        return F.relu(y, inplace=True)


def resnet18(width: int) -> nn.Module:
    layers, channels = [nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True)], width
    for stage in range(4):
        for block in range(2):
            out = width << stage
            layers.append(BasicBlock(channels, out, 2 if stage > 0 and block == 0 else 1))
            channels = out
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10))


def swin_t(width: int, heads: int) -> nn.Module:
    from torchvision.models.swin_transformer import SwinTransformer

    return SwinTransformer(
        patch_size=[2, 2],
        embed_dim=width,
        depths=[2, 2, 6, 2],
        num_heads=[heads << i for i in range(4)],
        window_size=[4, 4],
        stochastic_depth_prob=0.1,
        num_classes=10,
    )


def network(model: Model) -> nn.Module:
    if model.is_text:
        return Llama(model)
    return resnet18(model.width) if model.kind == "resnet18" else swin_t(model.width, model.heads)


def optimizer_of(model: Model, parameters: Iterable[nn.Parameter], **form: bool) -> torch.optim.Optimizer:
    """`form`: fused or foreach."""
    settings = model.optimizer()
    rule = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW}[settings.pop("name")]
    return rule(parameters, **settings, **form)


def blocks_of(module: nn.Module) -> list[nn.Module]:
    """Compiled one by one, so that equal blocks are compiled once, and sharded one by one, so that exchanges overlap."""
    return [part for part in module.modules() if type(part).__name__ in ("Block", "BasicBlock", "SwinTransformerBlock")]
