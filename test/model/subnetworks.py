"""The tests of a model against its library: the full model on the same weights, and every worker's subnetwork against the
dense model with 0/1 masks on its hidden units. A file NAME_parity.py derives from Parity and says on which sizes."""

import json

import pytest
import torch
from safetensors.torch import save_file
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count

from library_models import library_model
from run_model import one_pass

torch.set_num_threads(1)  # for both programs: most passes here are tiny
TOKENS = 24
# Workers, coverage, unit, slices of a branch in neuron construction. Of two slices, some of four workers own none.
THREE, EIGHT, FOUR = (3, "2/3", "block", None), (8, "4/8", "branch", None), (4, "1/4", "branch", 2)


def regimes(*splits):
    """Sections `subnetwork`."""
    return [
        {"workers": workers, "coverage": coverage, "construction": construction, "masking": masking, "unit": unit}
        | ({"slices_per_branch": slices} if slices and construction == "neuron" else {})
        for construction in ("block", "neuron") for masking in ("forward", "backward")
        for workers, coverage, unit, slices in splits
    ]


HALF = regimes((4, "2/4", "branch", None))


class Runner:
    """Passes of the program and of the library on the same weights and batch. model: the section of the experiment"""

    def __init__(self, folder, model, precision, batch, spread=None):
        self.folder, self.model, self.precision = folder, model, precision
        self.library = library_model(model).randomize(spread)
        self.inputs, self.labels = self.batch(batch)
        weights = [*self.library.named_parameters(), *self.library.named_buffers()]
        tensors = {name: values.detach().contiguous() for name, values in weights}
        save_file(tensors | {"input": self.inputs, "labels": self.labels}, folder / "in.safetensors")
        # The reference is computed in fp64 on these same values: in fp32 a ReLU near zero may flip, which changes the
        # library's own gradients by far more than rounding.
        self.library.double()
        if self.inputs.is_floating_point():
            self.inputs = self.inputs.double()

    def batch(self, size):
        generator = torch.Generator().manual_seed(2)
        if vocabulary := self.model.get("vocab_size"):
            return tuple(torch.randint(vocabulary, (size, TOKENS), generator=generator) for _ in range(2))
        shape = size, self.model.get("image_channels", 3), self.model["image_size"], self.model["image_size"]
        labels = torch.randint(self.model.get("num_classes", 10), (size,), generator=generator)
        return torch.randn(shape, generator=generator), labels

    def run(self, worker=-1, mode="train", checkpoint=False, **subnetwork):
        data = {"path": "none"}
        if "vocab_size" in self.model:
            data |= {"name": "tokens", "sequence_length": TOKENS}
        spec = {
            "name": "parity", "model": self.model, "data": data, "subnetwork": subnetwork or {"workers": 1, "coverage": "1"},
            "train": {"precision": self.precision, "checkpoint_activations": checkpoint},
        }
        (self.folder / "spec.yaml").write_text(json.dumps(spec))
        return one_pass(self.folder, worker, mode)

    def expected(self, masks={}, construction="block"):
        """Logits, loss, and gradients by name."""
        logits = self.library(self.inputs, masks, construction)
        loss = F.cross_entropy(logits.flatten(0, -2), self.labels.flatten())
        parameters = dict(self.library.named_parameters())
        return logits.detach(), loss.item(), dict(zip(parameters, torch.autograd.grad(loss, parameters.values())))

    def units(self, construction, workers, slices_per_branch=None, **_):
        """The division of the hidden units: [(branch, begin, end)]."""
        result = []
        for name, branch in self.library.branches.items():
            count = 1 if construction == "block" else min(slices_per_branch or workers, branch.width)
            grain = branch.granularity
            while grain > 1 and (branch.width % grain or branch.width // grain < count):
                grain //= 2
            bounds = [branch.width // grain * i // count * grain for i in range(count + 1)]
            result += [(name, begin, end) for begin, end in zip(bounds, bounds[1:])]
        return result

    def owned_units(self, out):
        """Those of the parts that have gradients."""
        branches = enumerate(self.library.branches.values())
        parts = [(number, branch.last, part) for number, branch in branches for part in (0, 1)]
        owned = [f"units|{number}|{part}" for number, last, part in parts if f"grad|{last}.weight|{part}" in out]
        return [unit for key in owned for unit in out[key].tolist()]

    def masks(self, units):
        """branch -> 1 for every hidden unit in `units`, 0 for the others"""
        masks = {name: torch.zeros(branch.width, dtype=torch.float64) for name, branch in self.library.branches.items()}
        for name, begin, end in units:
            masks[name][begin:end] = 1
        return masks

    def cut(self, gradient, name, masks, construction):
        """The worker's share of a parameter's gradient; None if it has none."""
        mask, rule = masks.get(self.library.branch_of(name)), self.library.slice_of(name)
        if mask is None or (construction == "neuron" and rule is None):
            return gradient
        if not mask.any() or rule is None:
            return gradient if mask.any() else None
        dim, blocks = rule
        each = gradient.shape[dim] // blocks // len(mask)
        rows = mask.repeat_interleave(each).nonzero().flatten()
        return gradient.unflatten(dim, (blocks, -1)).index_select(dim + 1, rows).flatten(dim, dim + 1)


def largest_difference(actual, expected):
    """Relative to the largest entry expected."""
    assert actual.shape == expected.shape
    return ((actual - expected).abs().max() / expected.abs().max().clamp_min(1e-30)).item()


def cosine(a, b):
    return F.cosine_similarity(a.float().flatten(), b.float().flatten(), dim=0)


def gradients_of(out):
    gradients = {key.split("|")[1]: values for key, values in out.items() if key.startswith("grad|")}
    assert {f"grad|{name}|0" for name in gradients} == {key for key in out if key.startswith("grad|")}  # nothing frozen
    return gradients


def counted_flops(work):
    """The result of `work`, and the FLOPs of its products."""
    # FlopCounterMode has no formula for CPU attention; that of the other fused kernels counts the same products.
    aten = torch.ops.aten
    counter = FlopCounterMode(display=False, custom_mapping={
        aten._scaled_dot_product_flash_attention_for_cpu: lambda *shapes, **_: sdpa_flop_count(*shapes[:3]),
        aten._scaled_dot_product_flash_attention_for_cpu_backward:
            lambda *shapes, **_: sdpa_backward_flop_count(*shapes[:4])})
    with counter:
        return work(), counter.get_total_flops()


# Of logits, the loss, and gradients relative to their largest entry.
WITHIN = {"fp32": (1e-4, 1e-5, 1e-3), "fp64": (1e-10, 1e-10, 1e-8)}


class Parity:
    """What a model sets; models are sections of an experiment."""

    full = {}  # name -> model, compared with the library as a whole
    full_precision = "fp32"
    attentions = [None]  # transformers' implementations; the last one computes in fused kernels
    cases = []  # (model, regime): every worker's subnetwork
    kept = {}  # name -> (model, precision); workers' saved activations are compared with the full model's
    kept_regimes = HALF
    most_kept = 0.8  # of the full model's, by any worker
    bf16 = {}  # name -> model
    tiny = {}  # the model of the other tests
    batch = 4
    spread = None  # of weights (LibraryModel.randomize)

    def pytest_generate_tests(self, metafunc):
        for name in ("full", "kept", "bf16"):
            if name in metafunc.fixturenames:
                metafunc.parametrize(name, getattr(self, name).values(), ids=getattr(self, name))
        if "attention" in metafunc.fixturenames:
            metafunc.parametrize("attention", self.attentions)
        if "case" in metafunc.fixturenames:
            metafunc.parametrize("case", self.cases, ids=lambda case: "-".join(map(str, case[1].values())))

    def runner(self, folder, model, precision):
        return Runner(folder, model, precision, self.batch, self.spread)

    def test_full_model(self, tmp_path, full, attention):
        runner = self.runner(tmp_path, full, self.full_precision)
        if attention:
            runner.library.net.set_attn_implementation(attention)
        of_logits, of_loss, of_gradients = WITHIN[self.full_precision]
        out = runner.run()
        (logits, loss, expected), flops = counted_flops(runner.expected)
        print("largest difference of logits", (out["logits"] - logits).abs().max().item())
        assert (out["logits"] - logits).abs().max() < of_logits
        assert abs(out["loss"].item() - loss) < of_loss
        gradients = gradients_of(out)
        assert gradients.keys() == expected.keys()
        for name, gradient in expected.items():
            assert largest_difference(gradients[name], gradient) < of_gradients, name
        if attention == self.attentions[-1]:
            assert out["planned_flops"].item() * self.batch == flops

    def test_evaluation(self, tmp_path, full):
        runner = self.runner(tmp_path, full, "fp64")
        runner.library.net.eval()
        expected = runner.library(runner.inputs).detach()
        for runner.precision, (within, *_) in WITHIN.items():  # fp32 has these weights, too
            evaluated = runner.run(mode="eval")["logits"]
            assert (evaluated - expected).abs().max() < within * max(1, expected.abs().max())
            if "vocab_size" in full:
                assert torch.equal(runner.run()["logits"], evaluated)
        for regime in (regime for regime in HALF if regime["masking"] == "backward"):  # the full model, in parts
            out = runner.run(1, "eval", **regime)
            torch.testing.assert_close(out["logits"], expected, rtol=0, atol=1e-10)

    def test_subnetworks(self, tmp_path, case):
        model, regime = case
        construction, masking = regime["construction"], regime["masking"]
        runner = self.runner(tmp_path, model, "fp64")
        units = runner.units(**regime)
        slices = [name for name, *_ in units]
        times_owned, some_lack = [0] * len(units), False
        full_model = None if masking == "forward" else runner.expected()
        for worker in range(regime["workers"]):
            out = runner.run(worker, **regime)
            owned = runner.owned_units(out)
            for unit in owned:
                times_owned[unit] += 1
            some_lack |= {slices[unit] for unit in owned} != set(slices)
            present = {key: out[key].tolist() for key in out if key.startswith("units|")}
            expected_units = owned if masking == "forward" else range(len(units))
            assert sorted(unit for part in present.values() for unit in part) == list(expected_units)
            for key, part in present.items():
                hidden = [i for unit in part for i in range(*units[unit][1:])]
                assert out[key.replace("units", "hidden")].tolist() == hidden
            masks = runner.masks(units[unit] for unit in owned)
            _, loss, gradients = full_model or runner.expected(masks, construction)
            assert abs(out["loss"].item() - loss) < 1e-10
            self.check_gradients(runner, gradients_of(out), gradients, masks, construction)
        assert set(times_owned) == {int(regime["coverage"].partition("/")[0])}
        if construction == "block" or "slices_per_branch" in regime:
            assert some_lack
        elif all(slices.count(name) == regime["workers"] for name in slices):
            assert not some_lack

    def check_gradients(self, runner, actual, dense, masks, construction):
        """Exactly the slices that the worker owns have a gradient: that of the dense model."""
        shares = {name: runner.cut(gradient, name, masks, construction) for name, gradient in dense.items()}
        expected = {name: share for name, share in shares.items() if share is not None}
        assert actual.keys() == expected.keys()
        for name, gradient in expected.items():
            # A bias of keys does not change the attention weights: its gradient is zero up to rounding.
            assert actual[name].shape == gradient.shape
            assert (actual[name] - gradient).abs().max() < 1e-9 * gradient.abs().max().clamp_min(1e-6), name

    def test_bf16(self, tmp_path, bf16):
        runner = self.runner(tmp_path, bf16, "bf16")
        out, (logits, loss, expected) = runner.run(), runner.expected()
        assert out["logits"].dtype == torch.bfloat16
        assert largest_difference(out["logits"].float(), logits) < 0.1
        assert abs(out["loss"] - loss) < 0.02 * loss
        norms, gradients = runner.library.norms(), gradients_of(out)
        for name, gradient in expected.items():
            assert gradients[name].dtype == (torch.float32 if name in norms else torch.bfloat16), name
            assert cosine(gradients[name], gradient) > 0.98, name

    def test_kept_activations(self, tmp_path, kept):
        """On every device. On a CPU they are those of formulas (test/cost/test_kept.cpp)."""
        runner = self.runner(tmp_path, *kept)
        whole = runner.run()["kept_bytes"].item()
        for regime in self.kept_regimes:
            for worker in (0, regime["workers"] - 1):
                assert runner.run(worker, **regime)["kept_bytes"].item() < self.most_kept * whole

    @pytest.mark.parametrize("regime", [{}, *HALF], ids=lambda regime: "-".join(map(str, regime.values())) or "full")
    def test_checkpointing(self, tmp_path, regime):
        """Losses and gradients are unchanged, and much fewer activations are saved."""
        runner = self.runner(tmp_path, self.tiny, "fp64")
        plain, checkpointed = (runner.run(1 if regime else -1, checkpoint=on, **regime) for on in (False, True))
        assert plain.keys() == checkpointed.keys()
        assert len(gradients_of(plain)) > 10
        for name in ("loss", *(key for key in plain if key.startswith("grad|"))):
            difference = (plain[name] - checkpointed[name]).abs().max()
            assert difference <= 1e-11 * plain[name].abs().max().clamp_min(1e-6), name
        assert checkpointed["kept_bytes"] < 0.75 * plain["kept_bytes"]
