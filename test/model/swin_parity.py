"""Swin-T against torchvision's."""

from subnetworks import EIGHT, THREE, Parity, regimes


def sizes(width, depths, num_heads, patch_size, window_size, image_size, **more):
    return {"name": "swin_t", "width": width, "depths": depths, "num_heads": num_heads, "patch_size": patch_size,
            "window_size": window_size, "image_size": image_size} | more


# Feature maps of width 14, 7, 4 and 2 in windows of 7.
SWIN_T = sizes(96, [2, 2, 6, 2], [3, 6, 12, 24], 4, 7, 56, num_classes=1000)
# Feature maps of width 16, 8, 4 and 2: the last is padded to one window.
SMALL = sizes(24, [2, 2, 6, 2], [3, 6, 12, 24], 2, 4, 32)
# Width 14, 7, 4 and 2: shifted windows on padded maps, and merging of an odd map.
ODD = SMALL | {"image_size": 28}
# Three stages, in which the size of a head differs, of gray images.
OTHER = sizes(24, [1, 3, 2], [6, 4, 24], 2, 4, 32, image_channels=1)


class TestSwin(Parity):
    full = {"swin_t": SWIN_T, "small": SMALL, "odd": ODD, "other": OTHER}
    cases = [(SMALL, regime) for regime in regimes(THREE, EIGHT)]
    cases += [(OTHER, regime) for regime in regimes((3, "2/3", "branch", None)) if regime["construction"] == "neuron"]
    kept = {"small": (SMALL, "fp32"), "odd": (ODD, "bf16")}
    kept_regimes = regimes(EIGHT)
    bf16 = {"small": SMALL, "odd": ODD}
    tiny = SMALL
    batch = 2
