"""ResNet-18 and WideResNet-18 against torchvision's: the full model on the same weights, and every worker's subnetwork
against the dense model with 0/1 masks on its hidden units."""

import dataclasses
import json

import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional as F
from torchvision.models.resnet import BasicBlock, ResNet

from run_model import one_pass

torch.set_num_threads(1)  # for both programs: most passes here are tiny
BRANCHES = [f"layer{stage}.{i}" for stage in (1, 2, 3, 4) for i in (0, 1)]


@dataclasses.dataclass
class Sizes:
    name: str
    stem: str
    width: int
    width_multiplier: int
    image_size: int
    num_classes: int = 10
    batch: int = 4


RESNET18 = Sizes("resnet18", "imagenet", 64, 1, 64, num_classes=1000, batch=2)
CIFAR = Sizes("resnet18", "cifar", 8, 1, 16)
IMAGENET = Sizes("resnet18", "imagenet", 8, 1, 32)
ODD = Sizes("resnet18", "imagenet", 8, 1, 50)  # feature maps of width 25, 13, 7, 4 and 2
WIDE = Sizes("wide_resnet18", "cifar", 8, 2, 16)
SMALL = {"cifar": CIFAR, "imagenet": IMAGENET, "odd": ODD, "wide": WIDE}


def torchvision_model(sizes, dtype):
    """With norms and statistics that differ from those of a new model."""
    torch.manual_seed(1)
    model = ResNet(BasicBlock, [2, 2, 2, 2], num_classes=sizes.num_classes)
    width = model.inplanes = sizes.width * sizes.width_multiplier
    if sizes.stem == "cifar":
        model.conv1 = nn.Conv2d(3, width, 3, padding=1, bias=False)
        model.maxpool = nn.Identity()
    elif width != 64:
        model.conv1 = nn.Conv2d(3, width, 7, stride=2, padding=3, bias=False)
    if width != 64:
        model.bn1 = nn.BatchNorm2d(width)
        for stage in range(4):
            layer = model._make_layer(BasicBlock, width << stage, 2, stride=1 if stage == 0 else 2)
            setattr(model, f"layer{stage + 1}", layer)
        model.fc = nn.Linear(width << 3, sizes.num_classes)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.weight, 1, 0.2)
            nn.init.normal_(module.bias, 0, 0.2)
            module.running_mean.normal_(0, 0.2)
            module.running_var.uniform_(0.5, 2)
    return model.to(dtype)


def batch(sizes, dtype):
    generator = torch.Generator().manual_seed(2)
    shape = (sizes.batch, 3, sizes.image_size, sizes.image_size)
    images = torch.randn(shape, generator=generator, dtype=dtype)
    return images, torch.randint(sizes.num_classes, (sizes.batch,), generator=generator)


class Runner:
    def __init__(self, folder, sizes, precision, model, images, labels):
        self.folder, self.sizes, self.precision = folder, sizes, precision
        tensors = {name: value.contiguous() for name, value in model.state_dict().items()}
        save_file(tensors | {"input": images, "labels": labels}, folder / "in.safetensors")

    def run(self, worker, mode="train", **subnetwork):
        model = {key: value for key, value in dataclasses.asdict(self.sizes).items() if key != "batch"}
        spec = {
            "name": "parity",
            "model": model,
            "data": {"path": "none"},
            "subnetwork": subnetwork or {"workers": 1, "coverage": "1"},
            "train": {"precision": self.precision},
        }
        (self.folder / "spec.yaml").write_text(json.dumps(spec))
        return one_pass(self.folder, worker, mode)


def runner_of(folder, sizes, precision):
    """Also returns the model and the batch."""
    dtype = torch.float64 if precision == "fp64" else torch.float32
    model = torchvision_model(sizes, dtype)
    images, labels = batch(sizes, dtype)
    return Runner(folder, sizes, precision, model, images, labels), model, images, labels


def largest_difference(actual, expected):
    """Relative to the largest entry expected."""
    assert actual.shape == expected.shape
    return ((actual - expected).abs().max() / expected.abs().max().clamp_min(1e-30)).item()


def gradients_of(out):
    return {key.split("|")[1]: value for key, value in out.items() if key.startswith("grad|")}


@pytest.mark.parametrize("sizes", [RESNET18, *SMALL.values()], ids=["resnet18", *SMALL])
def test_full_model(tmp_path, sizes):
    runner, model, images, labels = runner_of(tmp_path, sizes, "fp32")
    out = runner.run(-1)
    logits = model.train()(images)
    loss = F.cross_entropy(logits, labels)
    loss.backward()
    assert (out["logits"] - logits).abs().max() < 1e-4
    assert abs(out["loss"].item() - loss.item()) < 1e-4
    gradients = gradients_of(out)
    assert gradients.keys() == dict(model.named_parameters()).keys()
    for name, parameter in model.named_parameters():
        assert largest_difference(gradients[name], parameter.grad) < 1e-3, name


@pytest.mark.parametrize("sizes", SMALL.values(), ids=SMALL)
def test_evaluation_uses_the_running_statistics(tmp_path, sizes):
    runner, model, images, _ = runner_of(tmp_path, sizes, "fp64")
    expected = model.eval()(images).detach()
    torch.testing.assert_close(runner.run(-1, "eval")["logits"], expected, rtol=0, atol=1e-10)
    # A worker that owns everything has the full model, in parts.
    for construction in ("block", "neuron"):
        out = runner.run(1, "eval", workers=4, coverage="2/4", construction=construction, masking="backward")
        torch.testing.assert_close(out["logits"], expected, rtol=0, atol=1e-10)


# ---- subnetworks ----

CASES = [("block", 3, "2/3", None), ("block", 8, "4/8", None), ("neuron", 3, "2/3", None), ("neuron", 8, "4/8", None)]
# Two slices for four workers: some own none of a branch.
CASES.append(("neuron", 4, "1/4", 2))
REGIMES = [(masking, *case) for case in CASES for masking in ("forward", "backward")]


def regime_of(masking, construction, workers, coverage, slices):
    regime = {"workers": workers, "coverage": coverage, "construction": construction, "masking": masking}
    return regime | ({"slices_per_branch": slices} if slices else {})


def branch_of(parameter):
    """None: shared, as stem, projections and head are."""
    block = ".".join(parameter.split(".")[:2])
    return block if block in BRANCHES and ".downsample." not in parameter else None


def hidden_dim(parameter):
    """The dimension along which the hidden width lies; None for bn2, which acts on the sum."""
    layer = parameter.split(".")[2]
    return {"conv1": 0, "bn1": 0, "conv2": 1}.get(layer)


def hidden_width(sizes, branch):
    return sizes.width * sizes.width_multiplier << (int(branch[5]) - 1)


def owned_hidden(out, sizes):
    """branch -> owned hidden units: those of the part that has gradients."""
    owned = {}
    for number, branch in enumerate(BRANCHES):
        present = [out[key] for part in (0, 1) if (key := f"hidden|{number}|{part}") in out]
        has_owned = f"grad|{branch}.conv1.weight|0" in out
        owned[branch] = present[0] if has_owned else torch.empty(0, dtype=torch.int64)
        assert f"grad|{branch}.conv1.weight|1" not in out  # frozen
    return owned


def present_hidden(out):
    """branch -> all hidden units that the worker has, owned or frozen."""
    return {
        branch: sorted(
            unit for part in (0, 1) if (key := f"hidden|{number}|{part}") in out for unit in out[key].tolist()
        )
        for number, branch in enumerate(BRANCHES)
    }


def masked_loss(model, sizes, construction, has, images, labels):
    """has: branch -> hidden units"""
    hooks = []
    for branch, hidden in has.items():
        block = model.get_submodule(branch)
        mask = torch.zeros(hidden_width(sizes, branch), dtype=torch.float64)
        mask[hidden] = 1
        if construction == "block":
            hooks.append(block.bn2.register_forward_hook(lambda module, inputs, out, mask=mask: out * mask[0]))
        else:
            masked = lambda module, inputs, mask=mask: (inputs[0] * mask.view(1, -1, 1, 1),)
            hooks.append(block.conv2.register_forward_pre_hook(masked))
    loss = F.cross_entropy(model.train()(images), labels)
    for hook in hooks:
        hook.remove()
    return loss


# Every regime with the stem for small images; only those of three workers with the other variants.
VARIANTS = [("cifar", *regime) for regime in REGIMES] + [
    (variant, *regime) for variant in ("imagenet", "odd", "wide") for regime in REGIMES if regime[2] == 3
]


@pytest.mark.parametrize("variant, masking, construction, workers, coverage, slices", VARIANTS)
def test_subnetworks(tmp_path, variant, masking, construction, workers, coverage, slices):
    sizes = SMALL[variant]
    runner, model, images, labels = runner_of(tmp_path, sizes, "fp64")
    times_owned = {branch: torch.zeros(hidden_width(sizes, branch), dtype=torch.int64) for branch in BRANCHES}
    for worker in range(workers):
        out = runner.run(worker, **regime_of(masking, construction, workers, coverage, slices))
        owned = owned_hidden(out, sizes)
        assert slices is None or any(len(hidden) == 0 for hidden in owned.values())
        for branch, hidden in owned.items():
            times_owned[branch][hidden] += 1
        everything = {branch: list(range(hidden_width(sizes, branch))) for branch in BRANCHES}
        assert present_hidden(out) == (
            everything if masking == "backward" else {branch: hidden.tolist() for branch, hidden in owned.items()}
        )
        has = owned if masking == "forward" else {}
        model.zero_grad()
        loss = masked_loss(model, sizes, construction, has, images, labels)
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

KEPT = {
    "cifar 32": Sizes("resnet18", "cifar", 16, 1, 32, batch=8),
    "imagenet 32": Sizes("resnet18", "imagenet", 16, 1, 32, batch=8),
    "imagenet 50": Sizes("resnet18", "imagenet", 16, 1, 50, batch=8),
}


@pytest.mark.parametrize("sizes", KEPT.values(), ids=KEPT)
def test_kept_activations(tmp_path, sizes):
    runner, *_ = runner_of(tmp_path, sizes, "fp32")
    whole = runner.run(-1)["kept_bytes"].item()
    for masking, construction, workers, coverage, slices in REGIMES:
        regime = regime_of(masking, construction, workers, coverage, slices)
        some = sorted({0, 1, workers - 1})
        shares = [runner.run(worker, **regime)["kept_bytes"].item() / whole for worker in some]
        print(f"{construction} {masking} {coverage}: {sum(shares) / len(shares):.3f} of {whole} bytes")
        assert max(shares) < 1


@pytest.mark.parametrize("stem", ["cifar", "imagenet"])
def test_frozen_branches_keep_less(tmp_path, stem):
    """Two workers: the first owns the first branches, the second the others. From case to case, the first has one more."""
    sizes = dataclasses.replace(KEPT[f"{stem} 32"], batch=4)
    runner, *_ = runner_of(tmp_path, sizes, "fp32")
    kept = {0: [], 1: []}
    for first in range(len(BRANCHES) + 1):
        units = [
            {"branch": branch, "begin": 0, "end": hidden_width(sizes, branch), "owners": [0 if i < first else 1]}
            for i, branch in enumerate(BRANCHES)
        ]
        (tmp_path / "units.json").write_text(json.dumps({"units": units}))
        regime = {"workers": 2, "coverage": "1/2", "construction": "block", "masking": "backward"}
        for worker in (0, 1):
            out = runner.run(worker, **regime, assignment="file", assignment_file=str(tmp_path / "units.json"))
            assert sum(len(hidden) > 0 for hidden in owned_hidden(out, sizes).values()) in (first, 8 - first)
            kept[worker].append(out["kept_bytes"].item())
    growing = lambda values: all(a < b for a, b in zip(values, values[1:]))
    assert growing(kept[0]) and growing(kept[1][::-1])
    assert kept[0][-1] == kept[1][0] == runner.run(-1)["kept_bytes"].item()
    assert kept[0][0] == kept[1][-1]
    print(f"{stem}: nothing owned keeps {kept[0][0] / kept[0][-1]:.3f} of the full model")
