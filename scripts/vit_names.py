#!/usr/bin/env python3
"""Renames the tensors of a Vision Transformer of timm or transformers as torchvision and sdp-train name them.

    vit_names.py FROM --out torchvision.safetensors

FROM is a safetensors file, or a folder with model.safetensors. transformers has query, key and value as separate tensors,
which are joined. A config.json beside the file must describe what torchvision's model computes. Needs safetensors and torch.
Exit codes: 0, 2 usage, 3 a tensor or a setting that torchvision's model lacks.
"""

import argparse
import json
import pathlib
import re
import sys
from typing import Any

from safetensors.torch import load_file, save_file
import torch

BLOCK = r"encoder.layers.encoder_layer_\1."
RENAMED = [  # patterns of both libraries, without the name of the part ("vit.") before them
    (r"(?:embeddings\.)?cls_token", "class_token"),
    (r"pos_embed|embeddings\.position_embeddings", "encoder.pos_embedding"),
    (r"(?:patch_embed\.proj|embeddings\.patch_embeddings\.projection)\.", "conv_proj."),
    (r"(?:blocks|encoder\.layer)\.(\d+)\.(?:norm1|layernorm_before)\.", BLOCK + "ln_1."),
    (r"(?:blocks|encoder\.layer)\.(\d+)\.(?:norm2|layernorm_after)\.", BLOCK + "ln_2."),
    (r"(?:blocks|encoder\.layer)\.(\d+)\.(?:attn\.qkv|attention\.qkv)\.", BLOCK + "self_attention.in_proj_"),
    (r"(?:blocks|encoder\.layer)\.(\d+)\.(?:attn\.proj|attention\.output\.dense)\.", BLOCK + "self_attention.out_proj."),
    (r"(?:blocks|encoder\.layer)\.(\d+)\.(?:mlp\.fc1|intermediate\.dense)\.", BLOCK + "mlp.0."),
    (r"(?:blocks|encoder\.layer)\.(\d+)\.(?:mlp\.fc2|output\.dense)\.", BLOCK + "mlp.3."),
    (r"(?:norm|layernorm)\.", "encoder.ln."),
    (r"(?:head|classifier)\.", "heads.head."),
]
ATTENTION = ".attention.attention."
# Keys of both libraries' config.json that change what is computed, with the values of torchvision's model. Of epsilons up to
# 1e-5, the outputs differ by less than fp32 can tell.
COMPUTED = {
    "hidden_act": lambda value: value == "gelu",
    "qkv_bias": lambda value: value is True,
    "layer_norm_eps": lambda value: 0 <= value <= 1e-5,
    "global_pool": lambda value: value == "token",
    "model_args": lambda value: not value,
}


def other_settings(config: dict[str, Any]) -> list[str]:
    return [f"{key}: {config[key]!r}" for key, fits in COMPUTED.items() if key in config and not fits(config[key])]


def joined(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """With query, key and value of transformers as one tensor, in torchvision's order."""
    result = dict(tensors)
    for name in [name for name in tensors if f"{ATTENTION}query." in name]:
        parts = [result.pop(name.replace("query.", f"{part}.")) for part in ("query", "key", "value")]
        result[name.replace(f"{ATTENTION}query.", ".attention.qkv.")] = torch.cat(parts)
    return result


def new_name(name: str) -> str | None:
    short = name.removeprefix("vit.")
    for pattern, replacement in RENAMED:
        if found := re.match(pattern, short):
            return found.expand(replacement) + short[found.end() :]
    return None


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", metavar="FROM", type=pathlib.Path)
    parser.add_argument("--out", metavar="FILE", type=pathlib.Path, required=True)
    options = parser.parse_args(arguments)
    if options.out.exists():
        parser.error(f"--out: {options.out} exists")
    source = options.source / "model.safetensors" if options.source.is_dir() else options.source
    config = source.parent / "config.json"
    if config.exists() and (others := other_settings(json.loads(config.read_text()))):
        print(f"error: {config}: torchvision's ViT computes otherwise than with {', '.join(others)}", file=sys.stderr)
        return 3
    tensors = joined(load_file(source))
    names = {name: new_name(name) for name in tensors}
    if unknown := [name for name, new in names.items() if new is None]:
        print(f"error: {source}: torchvision's ViT has no tensor for {', '.join(unknown[:5])}", file=sys.stderr)
        return 3
    save_file({names[name]: values.contiguous() for name, values in tensors.items()}, options.out)
    print(f"{options.out}: {len(names)} tensors")
    return 0


if __name__ == "__main__":
    sys.exit(main())
