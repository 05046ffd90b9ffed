"""What the benchmark trains: one description of each model for sdp-train and for PyTorch."""

import dataclasses
import re


@dataclasses.dataclass(frozen=True)
class Model:
    kind: str  # resnet18 with a 3x3 stem, swin_t on 32x32 images, or llama
    batch: int  # samples of each process
    width: int
    heads: int = 0  # Swin's: of its first stage
    depth: int = 0
    hidden_width: int = 0
    vocabulary: int = 0
    length: int = 0  # tokens of a sequence

    @property
    def is_text(self) -> bool:
        return self.kind == "llama"

    def sizes(self) -> dict[str, dict]:
        """The sections of a spec of sdp-train with only the sizes."""
        model: dict[str, object] = {"width": self.width}
        data = {}
        if self.is_text:
            model |= {
                "depth": self.depth,
                "hidden_width": self.hidden_width,
                "heads": self.heads,
                "vocab_size": self.vocabulary,
            }
            data = {"sequence_length": self.length}
        elif self.kind == "swin_t":
            model |= {"num_heads": [self.heads << stage for stage in range(4)]}
        return {"model": model, "data": data, "train": {"batch_size_per_worker": self.batch}}

    def spec(self) -> dict[str, dict]:
        sizes = self.sizes()
        names = {
            "resnet18": {"name": "resnet18", "stem": "cifar"},
            "swin_t": {"name": "swin_t", "image_size": 32, "patch_size": 2, "window_size": 4, "stochastic_depth": 0.1},
            "llama": {"name": "llama_tiny"},
        }
        data = {"name": "tokens"} if self.is_text else {"name": "cifar10", "augment": []}
        return sizes | {"model": names[self.kind] | sizes["model"], "data": data | sizes["data"], "optimizer": self.optimizer()}

    def optimizer(self) -> dict[str, object]:
        if self.kind == "resnet18":
            return {"name": "sgd", "lr": 0.001, "momentum": 0.9, "weight_decay": 5e-4}
        return {"name": "adamw", "lr": 1e-4, "weight_decay": 0.1}


MODELS = {
    "resnet18": Model("resnet18", batch=16, width=64),
    "swin_t": Model("swin_t", batch=16, width=96, heads=3),
    "llama_1.3m": Model("llama", 4, 128, heads=4, depth=4, hidden_width=352, vocabulary=1024, length=64),
    "llama_tiny": Model("llama", 4, 64, heads=4, depth=4, hidden_width=176, vocabulary=50257, length=128),
    "llama_host": Model("llama", 1, 32, heads=2, depth=4, hidden_width=88, vocabulary=128, length=16),
    "llama_134m": Model("llama", 16, 768, heads=12, depth=12, hidden_width=2048, vocabulary=50304, length=1024),
    "llama_1b": Model("llama", 8, 2048, heads=16, depth=18, hidden_width=5120, vocabulary=50304, length=1024),
}
DEFAULT_MODELS = {"cpu": ["resnet18_w16_b16", "llama_1.3m"], "cuda": ["resnet18_w64_b64", "llama_134m"]}
NAMES = f"{', '.join(MODELS)}; images with _wN for the width, all with _bN for the batch: resnet18_w16_b64"


def model_of(name: str) -> Model:
    """The model of a name like resnet18_w16_b64. Throws ValueError."""
    base, width, batch = re.fullmatch(r"(.*?)(?:_w(\d+))?(?:_b(\d+))?", name).groups()  # matches every line
    if base not in MODELS or (width and MODELS[base].is_text):
        raise ValueError(f"found {name!r}, expected one of {NAMES}")
    sizes = {"width": width, "batch": batch}
    return dataclasses.replace(MODELS[base], **{key: int(size) for key, size in sizes.items() if size})
