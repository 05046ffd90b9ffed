"""ViT against torchvision's."""

from subnetworks import Parity, regimes


def sizes(width, depth, heads, patch_size, image_size, **more):
    return {"name": "vit_s_16", "width": width, "depth": depth, "heads": heads, "patch_size": patch_size,
            "image_size": image_size} | more


VIT_S = sizes(384, 12, 6, 16, 224, num_classes=1000)
SMALL = sizes(32, 3, 8, 8, 32)
# An MLP that is narrower than the stream, and gray images.
OTHER = sizes(24, 2, 4, 7, 28, hidden_width=16, image_channels=1)


class TestVit(Parity):
    full = {"vit_s": VIT_S, "small": SMALL, "other": OTHER}
    cases = [(SMALL, regime) for regime in regimes()]
    kept = {"wide": sizes(64, 4, 8, 4, 32)}
    bf16 = {"small": SMALL}
    tiny = SMALL
    batch = 2
