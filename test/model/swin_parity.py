"""Swin-T against torchvision's: the full model on the same weights, and every worker's subnetwork against the dense
model with 0/1 masks on its hidden units."""

import dataclasses

import pytest
import torch
from safetensors.torch import save_file
from torch.nn import functional as F
from torchvision.models.swin_transformer import SwinTransformer

from run_model import one_pass

torch.set_num_threads(1)  # for both programs: most passes here are tiny


@dataclasses.dataclass
class Sizes:
    width: int
    depths: list
    num_heads: list
    patch_size: int
    window_size: int
    image_size: int
    num_classes: int
    image_channels: int = 3


SWIN_T = Sizes(96, [2, 2, 6, 2], [3, 6, 12, 24], 4, 7, 224, 1000)
# Feature maps of width 16, 8, 4 and 2: the last is padded to one window.
SMALL = Sizes(24, [2, 2, 6, 2], [3, 6, 12, 24], 2, 4, 32, 10)
# Width 14, 7, 4 and 2: shifted windows on padded maps, and merging of an odd map.
ODD = Sizes(24, [2, 2, 6, 2], [3, 6, 12, 24], 2, 4, 28, 10)
# Three stages, in which the size of a head differs, of gray images.
OTHER = Sizes(24, [1, 3, 2], [6, 4, 24], 2, 4, 32, 10, image_channels=1)


def is_norm(parameter):
    return "norm" in parameter or parameter.startswith("features.0.2.")


def torchvision_model(sizes, dtype):
    """With random values that are large enough for every part to matter."""
    torch.manual_seed(1)
    model = SwinTransformer(
        patch_size=[sizes.patch_size] * 2,
        embed_dim=sizes.width,
        depths=sizes.depths,
        num_heads=sizes.num_heads,
        window_size=[sizes.window_size] * 2,
        stochastic_depth_prob=0.0,
        num_classes=sizes.num_classes,
    ).to(dtype)
    if sizes.image_channels != 3:
        patch = [sizes.patch_size] * 2
        model.features[0][0] = torch.nn.Conv2d(sizes.image_channels, sizes.width, patch, patch).to(dtype)
    for name, parameter in model.named_parameters():
        is_norm_weight = is_norm(name) and name.endswith("weight")
        spread = 1 if name.endswith("table") else parameter[0].numel() ** -0.5 if parameter.dim() > 1 else 0.3
        torch.nn.init.normal_(parameter, 1 if is_norm_weight else 0, spread)
    return model


def batch(sizes, size, dtype):
    generator = torch.Generator().manual_seed(2)
    images = torch.randn(size, sizes.image_channels, sizes.image_size, sizes.image_size, generator=generator, dtype=dtype)
    return images, torch.randint(sizes.num_classes, (size,), generator=generator)


class Runner:
    def __init__(self, folder, sizes, precision, model, images, labels):
        self.folder, self.sizes, self.precision = folder, sizes, precision
        tensors = {name: p.detach().contiguous() for name, p in model.named_parameters()}
        save_file(tensors | {"input": images, "labels": labels}, folder / "in.safetensors")

    def run(self, worker, mode="train", **subnetwork):
        keys = ", ".join(f"{key}: {value}" for key, value in (subnetwork or {"workers": 1, "coverage": 1}).items())
        sizes = ", ".join(f"{key}: {value}" for key, value in dataclasses.asdict(self.sizes).items())
        (self.folder / "spec.yaml").write_text(
            f"name: parity\nmodel: {{name: swin_t, {sizes}}}\ndata: {{path: none}}\nsubnetwork: {{{keys}}}\n"
            f"train: {{precision: {self.precision}}}\n"
        )
        return one_pass(self.folder, worker, mode)


def largest_difference(actual, expected):
    """Relative to the largest entry expected."""
    assert actual.shape == expected.shape
    return ((actual - expected).abs().max() / expected.abs().max().clamp_min(1e-30)).item()


@pytest.mark.parametrize("sizes", [SWIN_T, SMALL, ODD, OTHER], ids=["swin_t", "small", "odd", "other"])
def test_full_model(tmp_path, sizes):
    model = torchvision_model(sizes, torch.float32)
    images, labels = batch(sizes, 2, torch.float32)
    logits = model(images)
    loss = F.cross_entropy(logits, labels)
    loss.backward()
    out = Runner(tmp_path, sizes, "fp32", model, images, labels).run(-1)
    assert (out["logits"] - logits).abs().max() < 1e-4
    assert abs(out["loss"].item() - loss.item()) < 1e-4
    gradients = {name: p.grad for name, p in model.named_parameters()}
    assert {key for key in out if key.startswith("grad|")} == {f"grad|{name}|0" for name in gradients}
    for name, gradient in gradients.items():
        assert largest_difference(out[f"grad|{name}|0"], gradient) < 1e-3, name


def test_evaluation_is_the_same_pass(tmp_path):
    model = torchvision_model(SMALL, torch.float64).eval()
    images, labels = batch(SMALL, 2, torch.float64)
    out = Runner(tmp_path, SMALL, "fp64", model, images, labels).run(-1, "eval")
    torch.testing.assert_close(out["logits"], model(images).detach(), rtol=0, atol=1e-10)


# The division into units, written independently: branches in order, and slice rules by name.


def branches(sizes):
    """[(name, hidden width, granularity)] in order of depth."""
    both = [
        [(f"{name}.attn", heads, 1), (f"{name}.mlp", 4 * sizes.width << stage, 8)]
        for stage, (depth, heads) in enumerate(zip(sizes.depths, sizes.num_heads))
        for name in [f"features.{2 * stage + 1}.{i}" for i in range(depth)]
    ]
    return [branch for pair in both for branch in pair]


def units(sizes, construction, slices):
    """[(branch, begin, end)]"""
    result = []
    for name, width, granularity in branches(sizes):
        count = 1 if construction == "block" else min(slices, width)
        while granularity > 1 and width // granularity < count:
            granularity //= 2
        bounds = [width // granularity * i // count * granularity for i in range(count + 1)]
        result += [(name, begin, end) for begin, end in zip(bounds, bounds[1:])]
    return result


def branch_of(parameter):
    block, _, rest = parameter.partition(".norm")
    if rest[:1] in ("1", "2"):
        return block + (".attn" if rest[0] == "1" else ".mlp")
    for kind in (".attn", ".mlp"):
        if kind in parameter:
            return parameter.partition(kind)[0] + kind
    return None


def slice_rule(parameter, sizes):
    """(dim, stacked blocks, elements per hidden unit) or None"""
    stage = (int(parameter.split(".")[1]) - 1) // 2 if ".attn." in parameter else 0
    head_size = (sizes.width << stage) // sizes.num_heads[stage]
    for end, rule in {
        ".attn.qkv.weight": (0, 3, head_size),
        ".attn.qkv.bias": (0, 3, head_size),
        ".attn.proj.weight": (1, 1, head_size),
        ".attn.relative_position_bias_table": (1, 1, 1),
        ".mlp.0.weight": (0, 1, 1),
        ".mlp.0.bias": (0, 1, 1),
        ".mlp.3.weight": (1, 1, 1),
    }.items():
        if parameter.endswith(end):
            return rule
    return None


def cut(tensor, rule, ranges):
    dim, blocks, each = rule
    rows = torch.cat([torch.arange(begin * each, end * each) for begin, end in ranges])
    return tensor.unflatten(dim, (blocks, -1)).index_select(dim + 1, rows).flatten(dim, dim + 1)


def masked_parameters(model, sizes, construction, held):
    """A branch's output is linear in its hidden units, so a mask on the units is a mask on the columns of its last layer.
    held: branch -> ranges of its hidden width. An absent branch has no output bias either."""
    parameters = dict(model.named_parameters())
    for name, width, _ in branches(sizes):
        mask = torch.zeros(width, dtype=torch.float64)
        for begin, end in held[name]:
            mask[begin:end] = 1
        last = name + (".proj" if name.endswith(".attn") else ".3")
        weight = parameters[last + ".weight"]
        parameters[last + ".weight"] = weight * mask.repeat_interleave(weight.shape[1] // width)
        if construction == "block":
            parameters[last + ".bias"] = parameters[last + ".bias"] * mask[0]
    return parameters


def owned_units(out, sizes):
    """Units of the parts that have gradients."""
    owned = []
    for number, (name, _, _) in enumerate(branches(sizes)):
        first = f"{name}.qkv.weight" if name.endswith(".attn") else f"{name}.0.weight"
        for part in range(2):
            if f"grad|{first}|{part}" in out:
                owned += out[f"units|{number}|{part}"].tolist()
    return owned


REGIMES = [
    (construction, masking, unit, workers, coverage)
    for construction in ("block", "neuron")
    for masking in ("forward", "backward")
    for unit in ("block", "branch")
    for workers, coverage in ((3, "2/3"), (8, "4/8"))
]


CASES = [(SMALL, *regime) for regime in REGIMES] + [(OTHER, "neuron", masking, "branch", 3, "2/3") for masking in ("forward", "backward")]


@pytest.mark.parametrize("sizes, construction, masking, unit, workers, coverage", CASES)
def test_subnetworks(tmp_path, sizes, construction, masking, unit, workers, coverage):
    model = torchvision_model(sizes, torch.float64)
    images, labels = batch(sizes, 2, torch.float64)
    runner = Runner(tmp_path, sizes, "fp64", model, images, labels)
    all_units = units(sizes, construction, workers)
    times_owned = [0] * len(all_units)
    for worker in range(workers):
        out = runner.run(
            worker, workers=workers, coverage=coverage, construction=construction, masking=masking, unit=unit
        )
        owned = owned_units(out, sizes)
        for number in owned:
            times_owned[number] += 1
        present = sorted(number for key in out if key.startswith("units|") for number in out[key].tolist())
        assert present == (owned if masking == "forward" else list(range(len(all_units))))
        ranges = {name: [] for name, _, _ in branches(sizes)}
        for number in owned:
            name, begin, end = all_units[number]
            ranges[name].append((begin, end))
        parameters = masked_parameters(model, sizes, construction, ranges) if masking == "forward" else {}
        loss = F.cross_entropy(torch.func.functional_call(model, parameters, (images,)), labels)
        model.zero_grad()
        loss.backward()
        assert abs(out["loss"].item() - loss.item()) < 1e-10
        check_gradients(out, model, sizes, construction, ranges)
    assert set(times_owned) == {int(coverage.partition("/")[0])}


def check_gradients(out, model, sizes, construction, ranges):
    """Exactly the slices that the worker owns have a gradient: that of the dense model."""
    expected = {}
    for name, parameter in model.named_parameters():
        branch = branch_of(name)
        rule = slice_rule(name, sizes)
        if branch is None or (construction == "neuron" and rule is None):
            expected[name] = parameter.grad
        elif ranges[branch]:
            expected[name] = cut(parameter.grad, rule, ranges[branch]) if rule else parameter.grad
    assert {key for key in out if key.startswith("grad|")} == {f"grad|{name}|0" for name in expected}
    for name, gradient in expected.items():
        # The bias of keys does not change the attention weights: its gradient is zero up to rounding.
        assert (out[f"grad|{name}|0"] - gradient).abs().max() < 1e-9 * gradient.abs().max().clamp_min(1e-6), name


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("sizes", [SMALL, ODD], ids=["small", "odd"])
def test_kept_activations(tmp_path, sizes, precision):
    model = torchvision_model(sizes, torch.float32)
    images, labels = batch(sizes, 4, torch.float32)
    runner = Runner(tmp_path, sizes, precision, model, images, labels)
    dense = runner.run(-1)
    logits = model(images)
    F.cross_entropy(logits, labels).backward()
    assert largest_difference(dense["logits"].float(), logits.detach()) < (1e-4 if precision == "fp32" else 0.1)
    for name, parameter in model.named_parameters():
        gradient = dense[f"grad|{name}|0"]
        assert gradient.dtype == (torch.bfloat16 if precision == "bf16" and not is_norm(name) else torch.float32), name
        same_direction = F.cosine_similarity(gradient.float().flatten(), parameter.grad.flatten(), dim=0)
        assert same_direction > (0.98 if precision == "bf16" else 0.999999), name

    whole = dense["kept_bytes"].item()
    for construction in ("block", "neuron"):
        for masking in ("forward", "backward"):
            out = runner.run(0, workers=8, coverage="4/8", construction=construction, masking=masking, unit="branch")
            share = out["kept_bytes"].item() / whole
            print(f"{precision} {construction} {masking}: {share:.3f} of {whole} bytes")
            assert share < 0.8
