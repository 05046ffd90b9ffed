"""Activation checkpointing: losses and gradients are unchanged, and the saved activations are those of the plan."""

import pytest
import torch

import gpt2_parity
import llama_parity
import resnet50_parity
import resnet_parity
import swin_parity
from run_model import one_pass

REGIMES = [{}] + [dict(workers=4, coverage="2/4", construction=construction, masking=masking, unit="branch")
                  for construction in ("block", "neuron") for masking in ("forward", "backward")]
PRECISIONS = {"fp64": torch.float64, "fp32": torch.float32}


def resnet(folder, precision, worker, regime):
    return resnet_parity.runner_of(folder, resnet_parity.CIFAR, precision)[0].run(worker, **regime)


def swin(folder, precision, worker, regime):
    model = swin_parity.torchvision_model(swin_parity.SMALL, PRECISIONS[precision])
    images, labels = swin_parity.batch(swin_parity.SMALL, 4, PRECISIONS[precision])
    return swin_parity.Runner(folder, swin_parity.SMALL, precision, model, images, labels).run(worker, **regime)


def llama(folder, precision, worker, regime):
    return llama_parity.run_model(folder, llama_parity.SIZES, worker, precision, **regime)


def gpt2(folder, precision, worker, regime):
    return gpt2_parity.run_model(folder, gpt2_parity.SIZES, worker, precision, **regime)


def resnet50(folder, precision, worker, regime):
    return resnet50_parity.runner_of(folder, resnet50_parity.CIFAR, precision)[0].run(worker, **regime)


def again_with_checkpointing(folder, worker):
    spec = (folder / "spec.yaml").read_text()
    for before, after in (('"train": {', '"train": {"checkpoint_activations": true, '),
                          ("train: {", "train: {checkpoint_activations: true, ")):
        spec = spec.replace(before, after)
    (folder / "spec.yaml").write_text(spec)
    return one_pass(folder, worker)


@pytest.mark.parametrize("regime", REGIMES, ids=lambda r: "-".join(str(v) for v in r.values()) or "full")
@pytest.mark.parametrize("run", [resnet, resnet50, swin, llama, gpt2])
def test_checkpointing(tmp_path, run, regime):
    worker = 1 if regime else -1
    plain = run(tmp_path, "fp64", worker, regime)
    checkpointed = again_with_checkpointing(tmp_path, worker)
    assert plain.keys() == checkpointed.keys()
    gradients = [name for name in plain if name.startswith("grad|")]
    assert len(gradients) > 10
    for name in gradients + ["loss"]:
        difference = (plain[name] - checkpointed[name]).abs().max()
        assert difference <= 1e-11 * plain[name].abs().max().clamp_min(1e-6), name

    plain = run(tmp_path, "fp32", worker, regime)["kept_bytes"].item()
    checkpointed = again_with_checkpointing(tmp_path, worker)
    assert checkpointed["kept_bytes"].item() < 0.75 * plain
