"""scripts/vit_names.py: a ViT that computes otherwise than torchvision's is not renamed."""

import json

import pytest
import torch
from safetensors.torch import save_file
from transformers import ViTConfig

from conftest import call, load_script

main = load_script("vit_names.py").main
TIMM = {"architecture": "vit_base_patch16_224", "global_pool": "token", "model_args": {}}
OTHERS = {
    "hidden_act": "gelu_new", "qkv_bias": False, "layer_norm_eps": 1e-3, "global_pool": "avg",
    "model_args": {"class_token": False},
}  # fmt: skip


def rename(folder, config, expect):
    save_file({"norm.weight": torch.ones(3)}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
    return call(main, folder, "--out", folder / "out.safetensors", expect=expect)


@pytest.mark.parametrize("config", [{}, ViTConfig().to_dict(), TIMM])
def test_the_libraries_own_defaults_are_renamed(tmp_path, config):
    rename(tmp_path, config, expect=0)


@pytest.mark.parametrize("key", OTHERS)
def test_other_settings_are_refused(tmp_path, key):
    assert key in rename(tmp_path, {key: OTHERS[key]}, expect=3)
    assert not (tmp_path / "out.safetensors").exists()
