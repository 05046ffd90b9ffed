"""ResNet-18, WideResNet-18 and ResNet-50 against torchvision's."""

import json

import pytest

from subnetworks import Parity, regimes

THREE, FOUR = (3, "2/3", None), (4, "1/4", 2)


def sizes(name, stem, width, image_size, **more):
    return {"name": name, "stem": stem, "width": width, "image_size": image_size} | more


CIFAR = sizes("resnet18", "cifar", 8, 16)
OTHERS = {
    "imagenet": sizes("resnet18", "imagenet", 8, 32),
    "odd": sizes("resnet18", "imagenet", 8, 50),  # feature maps of width 25, 13, 7, 4 and 2
    "wide": sizes("wide_resnet18", "cifar", 8, 16, width_multiplier=2),
}
KEPT = {f"{stem} {size}": sizes("resnet18", stem, 16, size) for stem, size in (("cifar", 32), ("imagenet", 32), ("imagenet", 50))}


class TestResNet18(Parity):
    full = {"resnet18": sizes("resnet18", "imagenet", 64, 64, num_classes=1000), "cifar": CIFAR} | OTHERS
    # Every regime with the stem for small images; only those of three workers with the other variants.
    cases = [(CIFAR, regime) for regime in regimes(units=["block"])]
    cases += [(other, regime) for other in OTHERS.values() for regime in regimes([THREE], ["block"])]
    kept, kept_regimes, most_kept = KEPT, regimes(units=["block"]), 1
    test_bf16 = None  # BatchNorm over few values amplifies rounding
    tiny = CIFAR

    @pytest.mark.parametrize("stem", ["cifar", "imagenet"])
    def test_frozen_branches_keep_less(self, tmp_path, stem):
        """Two workers: the first owns the first branches, the second the others. From case to case, the first has one more."""
        runner = self.runner(tmp_path, KEPT[f"{stem} 32"], "fp32")
        branches = runner.library.branches
        kept = {0: [], 1: []}
        for first in range(len(branches) + 1):
            units = [
                {"branch": name, "begin": 0, "end": branch.width, "owners": [0 if i < first else 1]}
                for i, (name, branch) in enumerate(branches.items())
            ]
            (tmp_path / "units.json").write_text(json.dumps({"units": units}))
            regime = {"workers": 2, "coverage": "1/2", "construction": "block", "masking": "backward"}
            for worker in (0, 1):
                out = runner.run(worker, **regime, assignment="file", assignment_file=str(tmp_path / "units.json"))
                assert len(runner.owned_units(out)) == (first if worker == 0 else 8 - first)
                kept[worker].append(out["kept_bytes"].item())
        growing = lambda values: all(a < b for a, b in zip(values, values[1:]))
        assert growing(kept[0]) and growing(kept[1][::-1])
        assert kept[0][-1] == kept[1][0] == runner.run()["kept_bytes"].item()
        assert kept[0][0] == kept[1][-1]
        print(f"{stem}: nothing owned keeps {kept[0][0] / kept[0][-1]:.3f} of the full model")


SMALL = {"cifar": sizes("resnet50", "cifar", 4, 16), "odd": sizes("resnet50", "imagenet", 4, 50)}


class TestResNet50(Parity):
    full = {"resnet50": sizes("resnet50", "imagenet", 64, 64, num_classes=1000)} | SMALL
    full_precision = "fp64"  # its many norms of few values amplify rounding
    cases = [(model, regime) for model in SMALL.values() for regime in regimes([THREE, FOUR], ["block"])]
    kept = {"cifar": sizes("resnet50", "cifar", 8, 32), "imagenet": sizes("resnet50", "imagenet", 8, 64)}
    kept_regimes, most_kept = regimes([THREE, FOUR], ["block"]), 1
    test_bf16 = None
    tiny = SMALL["cifar"]
