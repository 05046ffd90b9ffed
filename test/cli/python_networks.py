"""Networks in Python: two that equal models of the program, and two of libraries, which the program does not have."""

import os

import torch
from safetensors.torch import load_file
from small_models import GPT2
from torch import Tensor, nn
from torch.nn import functional as F

import sdp_train


def conv(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)


class Given(sdp_train.Network):
    """Begins with the values of the file VALUES."""

    whole_init = True

    def begin(self) -> None:
        if file := os.environ.get("VALUES"):
            found = self.load_state_dict(load_file(file), strict=False)
            assert not found.unexpected_keys and set(found.missing_keys) <= {"head.weight"}  # that of the embedding


class ResNet(Given):
    """ResNet-18 of width 8 with a 3x3 stem."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv(3, 8, 3), nn.BatchNorm2d(8)
        self.blocks, self.downsample = nn.ModuleList(), nn.ModuleDict()
        inputs = 8
        for i in range(8):
            outputs, stride = 8 << i // 2, 2 if i in (2, 4, 6) else 1
            first = conv(inputs, outputs, 3, stride), nn.BatchNorm2d(outputs), nn.ReLU()
            self.blocks.append(nn.Sequential(*first, conv(outputs, outputs, 3), nn.BatchNorm2d(outputs)))
            if stride > 1:
                self.downsample[str(i)] = nn.Sequential(conv(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))
            inputs = outputs
        self.fc = nn.Linear(inputs, 10)
        self.begin()

    def stem(self, images: Tensor) -> Tensor:
        return F.relu(self.bn1(self.conv1(images)))

    def branches(self) -> list[nn.Module]:
        return list(self.blocks)

    def shortcut(self, i: int, x: Tensor) -> Tensor:
        return self.downsample[str(i)](x) if str(i) in self.downsample else x

    def after(self, i: int, x: Tensor) -> Tensor:
        return F.relu(x)

    def head(self, x: Tensor) -> Tensor:
        return self.fc(x.mean((2, 3)))


class PreNorm(nn.Module):
    """down(inner(up(norm(x)))): attention or an MLP."""

    def __init__(self, width: int, hidden: int, up: int) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, up), nn.Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.inner(self.up(self.norm(x))))


class Attention(PreNorm):
    def inner(self, x: Tensor) -> Tensor:
        q, k, v = (part.unflatten(2, (GPT2["heads"], -1)).transpose(1, 2) for part in x.chunk(3, 2))
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)


class Mlp(PreNorm):
    def inner(self, x: Tensor) -> Tensor:
        return F.gelu(x, approximate="tanh")


class Gpt2(Given):
    branches_per_block = 2

    def __init__(self) -> None:
        super().__init__()
        width = GPT2["width"]
        self.wte, self.wpe = nn.Embedding(GPT2["vocab_size"], width), nn.Embedding(GPT2["context_length"], width)
        kinds = [lambda: Attention(width, width, 3 * width), lambda: Mlp(width, 4 * width, 4 * width)]
        self.blocks = nn.ModuleList(kinds[i % 2]() for i in range(2 * GPT2["depth"]))
        self.ln_f, self.head = nn.LayerNorm(width), nn.Linear(width, GPT2["vocab_size"], bias=False)
        self.head.weight = self.wte.weight
        self.begin()

    def stem(self, tokens: Tensor) -> Tensor:
        return self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1], device=tokens.device))

    def branches(self) -> list[nn.Module]:
        return list(self.blocks)

    def after(self, i: int, x: Tensor) -> Tensor:
        return self.ln_f(x) if i + 1 == len(self.blocks) else x


def own_name(name: str) -> str:
    """The name here of a tensor of the program's ResNet-18 or GPT-2."""
    parts = name.removeprefix("transformer.").split(".")
    if parts[0].startswith("layer"):
        block = 2 * (int(parts[0][5:]) - 1) + int(parts[1])
        place = {"conv1": "0", "bn1": "1", "conv2": "3", "bn2": "4"}
        inside = parts[2] == "downsample"
        return ".".join(["downsample", str(block), *parts[3:]] if inside else ["blocks", str(block), place[parts[2]], *parts[3:]])
    if parts[0] == "h":
        branch = 2 * int(parts[1]) + (parts[2] in ("mlp", "ln_2"))
        layer = {"ln_1": "norm", "ln_2": "norm", "c_attn": "up", "c_fc": "up", "c_proj": "down"}[parts[-2]]
        return f"blocks.{branch}.{layer}.{parts[-1]}"
    return ".".join(parts)


def renamed(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """A model of the program under the names here. GPT-2's layers are Conv1D, whose weights are transposed."""
    transposed = lambda name: any(name.endswith(f"{layer}.weight") for layer in ("c_attn", "c_fc", "c_proj"))
    return {own_name(name): (t.T if transposed(name) else t).contiguous() for name, t in tensors.items()}


def make_convnext() -> nn.Module:
    from torchvision.models.convnext import CNBlockConfig, ConvNeXt

    return ConvNeXt([CNBlockConfig(16, 32, 2), CNBlockConfig(32, None, 2)], num_classes=10)


def make_mixer() -> nn.Module:
    from timm.models.mlp_mixer import MlpMixer

    return MlpMixer(num_classes=10, img_size=32, patch_size=4, num_blocks=4, embed_dim=32, drop_path_rate=0.1)


convnext = sdp_train.divide(make_convnext, branches="features.[13].*")
mixer = sdp_train.divide(make_mixer, branches="blocks.*")
