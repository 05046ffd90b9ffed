"""ViT against torchvision's."""

import os

from subnetworks import EIGHT, FOUR, THREE, Parity, regimes


def sizes(width, depth, heads, patch_size, image_size, **more):
    return {"name": "vit_s_16", "width": width, "depth": depth, "heads": heads, "patch_size": patch_size,
            "image_size": image_size} | more


VIT_S = sizes(384, 12, 6, 16, 64, num_classes=1000)
SMALL = sizes(32, 3, 8, 8, 32)
# An MLP that is narrower than the stream, and gray images.
OTHER = sizes(24, 2, 4, 7, 28, hidden_width=16, image_channels=1)


class TestVit(Parity):
    full = {"vit_s": VIT_S, "small": SMALL, "other": OTHER}
    cases = [(SMALL, regime) for regime in regimes(THREE, EIGHT, FOUR)]
    kept = {"wide": (sizes(64, 4, 8, 4, 32), "fp32")}
    most_kept = 0.8 if os.environ.get("SDP_TEST_DEVICE", "cpu") == "cpu" else 0.85  # a GPU keeps more of every branch
    bf16 = {"small": SMALL}
    tiny = SMALL
    batch = 2
