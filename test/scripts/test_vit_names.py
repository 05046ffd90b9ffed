"""scripts/vit_names.py: a ViT that computes otherwise than torchvision's is not renamed."""

import json

import pytest
import torch
from safetensors.torch import save_file
from transformers import ViTConfig

from conftest import load_script

main = load_script("vit_names.py").main


def rename(folder, config):
    save_file({"norm.weight": torch.ones(3)}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
    return main([str(folder), "--out", str(folder / "out.safetensors")])


@pytest.mark.parametrize(
    "config", [{}, ViTConfig().to_dict(), {"architecture": "vit_base_patch16_224", "global_pool": "token", "model_args": {}}]
)
def test_the_libraries_own_defaults_are_renamed(tmp_path, config):
    assert rename(tmp_path, config) == 0


@pytest.mark.parametrize(
    "key,value",
    [("hidden_act", "gelu_new"), ("qkv_bias", False), ("layer_norm_eps", 1e-3), ("global_pool", "avg"), ("model_args", {"class_token": False})],
)
def test_other_settings_are_refused(tmp_path, capsys, key, value):
    assert rename(tmp_path, {key: value}) == 3
    assert key in capsys.readouterr().err
    assert not (tmp_path / "out.safetensors").exists()
