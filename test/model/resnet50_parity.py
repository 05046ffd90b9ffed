"""ResNet-50 against torchvision's: the full model on the same weights, and every worker's subnetwork against the dense
model with 0/1 masks on its hidden units, which are conv2's channels."""

import dataclasses

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torchvision.models.resnet import Bottleneck, ResNet

from resnet_parity import Runner, batch, gradients_of, largest_difference, regime_of

torch.set_num_threads(1)  # for both programs: most passes here are tiny
DEPTHS = [3, 4, 6, 3]
BRANCHES = [f"layer{stage + 1}.{i}" for stage in range(4) for i in range(DEPTHS[stage])]


@dataclasses.dataclass
class Sizes:
    name: str
    stem: str
    width: int
    image_size: int
    num_classes: int = 10
    batch: int = 4


RESNET50 = Sizes("resnet50", "imagenet", 64, 64, num_classes=1000, batch=2)
CIFAR = Sizes("resnet50", "cifar", 4, 16)
ODD = Sizes("resnet50", "imagenet", 4, 50)  # feature maps of width 25, 13, 7, 4 and 2
SMALL = {"cifar": CIFAR, "odd": ODD}


def torchvision_model(sizes, dtype):
    """With norms and statistics that differ from those of a new model."""
    torch.manual_seed(1)
    model = ResNet(Bottleneck, DEPTHS, num_classes=sizes.num_classes)
    width = model.inplanes = sizes.width
    if sizes.stem == "cifar":
        model.conv1 = nn.Conv2d(3, width, 3, padding=1, bias=False)
        model.maxpool = nn.Identity()
    elif width != 64:
        model.conv1 = nn.Conv2d(3, width, 7, stride=2, padding=3, bias=False)
    if width != 64:
        model.bn1 = nn.BatchNorm2d(width)
        for stage, depth in enumerate(DEPTHS):
            layer = model._make_layer(Bottleneck, width << stage, depth, stride=1 if stage == 0 else 2)
            setattr(model, f"layer{stage + 1}", layer)
        model.fc = nn.Linear(width << 5, sizes.num_classes)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.weight, 1, 0.2)
            nn.init.normal_(module.bias, 0, 0.2)
            module.running_mean.normal_(0, 0.2)
            module.running_var.uniform_(0.5, 2)
    return model.to(dtype)


def runner_of(folder, sizes, precision):
    """Also returns the model and the batch."""
    dtype = torch.float64 if precision == "fp64" else torch.float32
    model = torchvision_model(sizes, dtype)
    images, labels = batch(sizes, dtype)
    return Runner(folder, sizes, precision, model, images, labels), model, images, labels


@pytest.mark.parametrize("sizes", [RESNET50, *SMALL.values()], ids=["resnet50", *SMALL])
def test_full_model(tmp_path, sizes):
    runner, model, images, labels = runner_of(tmp_path, sizes, "fp32")
    evaluated = runner.run(-1, "eval")["logits"]
    expected = model.eval()(images).detach()
    print("largest difference of logits", (evaluated - expected).abs().max().item(), "of", expected.abs().max().item())
    assert (evaluated - expected).abs().max() < 1e-4 * expected.abs().max().clamp_min(1)
    runner, model, images, labels = runner_of(tmp_path, sizes, "fp64")
    out = runner.run(-1)
    loss = F.cross_entropy(model.train()(images), labels)
    loss.backward()
    assert abs(out["loss"].item() - loss.item()) < 1e-10
    gradients = gradients_of(out)
    assert gradients.keys() == dict(model.named_parameters()).keys()
    for name, parameter in model.named_parameters():
        assert largest_difference(gradients[name], parameter.grad) < 1e-8, name


# Two slices for four workers: some own none of a branch.
CASES = [("block", 3, "2/3", None), ("neuron", 3, "2/3", None), ("neuron", 4, "1/4", 2)]
REGIMES = [(masking, *case) for case in CASES for masking in ("forward", "backward")]
VARIANTS = [(variant, *regime) for variant in SMALL for regime in REGIMES]


def branch_of(parameter):
    """None: shared, as stem, projections and head are."""
    block = ".".join(parameter.split(".")[:2])
    return block if block in BRANCHES and ".downsample." not in parameter else None


def hidden_dim(parameter):
    """The dimension along which the hidden width lies; None for conv1, bn1 and bn3."""
    return {"conv2": 0, "bn2": 0, "conv3": 1}.get(parameter.split(".")[2])


def hidden_width(sizes, branch):
    return sizes.width << (int(branch[5]) - 1)


def hidden_of(out):
    """branch -> (owned hidden units, all that the worker has, owned or frozen)"""
    owned, present = {}, {}
    for number, branch in enumerate(BRANCHES):
        parts = [out[key] for part in (0, 1) if (key := f"hidden|{number}|{part}") in out]
        has_owned = f"grad|{branch}.conv2.weight|0" in out
        owned[branch] = parts[0] if has_owned else torch.empty(0, dtype=torch.int64)
        present[branch] = torch.cat([torch.empty(0, dtype=torch.int64), *parts])
    return owned, present


def masked_loss(model, sizes, construction, present, images, labels):
    hooks = []
    for branch, hidden in present.items():
        block = model.get_submodule(branch)
        mask = torch.zeros(hidden_width(sizes, branch), dtype=torch.float64)
        mask[hidden] = 1
        if construction == "block":
            hooks.append(block.bn3.register_forward_hook(lambda module, inputs, out, mask=mask: out * mask[0]))
        else:
            masked = lambda module, inputs, mask=mask: (inputs[0] * mask.view(1, -1, 1, 1),)
            hooks.append(block.conv3.register_forward_pre_hook(masked))
    loss = F.cross_entropy(model.train()(images), labels)
    for hook in hooks:
        hook.remove()
    return loss


@pytest.mark.parametrize("variant, masking, construction, workers, coverage, slices", VARIANTS)
def test_subnetworks(tmp_path, variant, masking, construction, workers, coverage, slices):
    sizes = SMALL[variant]
    runner, model, images, labels = runner_of(tmp_path, sizes, "fp64")
    times_owned = {branch: torch.zeros(hidden_width(sizes, branch), dtype=torch.int64) for branch in BRANCHES}
    for worker in range(workers):
        out = runner.run(worker, **regime_of(masking, construction, workers, coverage, slices))
        owned, present = hidden_of(out)
        assert slices is None or any(len(hidden) == 0 for hidden in owned.values())
        for branch, hidden in owned.items():
            times_owned[branch][hidden] += 1
            whole = hidden_width(sizes, branch) if masking == "backward" else len(hidden)
            assert len(present[branch]) == whole
        model.zero_grad()
        loss = masked_loss(model, sizes, construction, present, images, labels)
        loss.backward()
        assert abs(out["loss"].item() - loss.item()) < 1e-10
        check_gradients(gradients_of(out), model, construction, owned)
    owners = int(coverage.partition("/")[0])
    assert all((times == owners).all() for times in times_owned.values())


def check_gradients(gradients, model, construction, owned):
    """Exactly the slices that the worker owns have a gradient: that of the dense model's slice."""
    expected = {}
    for name, parameter in model.named_parameters():
        branch = branch_of(name)
        if branch is None or (construction == "neuron" and hidden_dim(name) is None):
            expected[name] = parameter.grad
        elif len(owned[branch]):
            expected[name] = (
                parameter.grad if construction == "block" else parameter.grad.index_select(hidden_dim(name), owned[branch])
            )
    assert gradients.keys() == expected.keys()
    for name, gradient in expected.items():
        assert gradients[name].shape == gradient.shape
        assert (gradients[name] - gradient).abs().max() < 1e-9 * gradient.abs().max().clamp_min(1e-3), name


# ---- saved activations ----


@pytest.mark.parametrize("stem,image_size", [("cifar", 32), ("imagenet", 64)])
def test_kept_activations(tmp_path, stem, image_size):
    runner, *_ = runner_of(tmp_path, Sizes("resnet50", stem, 8, image_size, batch=4), "fp32")

    whole = runner.run(-1)["kept_bytes"].item()
    for masking, construction, workers, coverage, slices in REGIMES:
        regime = regime_of(masking, construction, workers, coverage, slices)
        shares = [runner.run(worker, **regime)["kept_bytes"].item() / whole for worker in (0, workers - 1)]
        print(f"{construction} {masking} {coverage}: {sum(shares) / len(shares):.3f} of {whole} bytes")
        assert max(shares) < 1
