"""The models of the tests as sections `model` of an experiment, and tokens for those that read them. A new model is added to
MODELS; the tests that are the same for every model then include it."""

import numpy as np
import torch

TOKENS = 12
VOCABULARY = 64
RESNET18 = {"name": "resnet18", "width": 4}
MLP = {"name": "mlp", "width": 16, "depth": 3, "hidden_width": 24}
SWIN = {  # with and without shifted windows in every stage
    "name": "swin_t", "width": 24, "depths": [2, 2, 2, 2], "num_heads": [3, 6, 12, 24], "patch_size": 4, "window_size": 4,
    "image_size": 32,
}
VIT = {"name": "vit_s_16", "width": 24, "depth": 2, "heads": 6, "patch_size": 8, "image_size": 32}
LLAMA = {"name": "llama_tiny", "width": 32, "depth": 3, "hidden_width": 48, "heads": 8, "vocab_size": VOCABULARY}
GPT2 = {"name": "gpt2", "width": 32, "depth": 2, "heads": 8, "vocab_size": VOCABULARY, "context_length": 20}
# Of the wavelengths 6.3, 135 and 2,900 tokens, one is kept, one interpolated and one scaled.
SCALING = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_context": 256}
LLAMA_3 = LLAMA | {"kv_heads": 4, "head_size": 6, "rope_scaling": SCALING}
MODELS = {
    "resnet18": RESNET18, "resnet50": RESNET18 | {"name": "resnet50"}, "mlp": MLP, "swin": SWIN, "vit": VIT, "llama": LLAMA,
    "llama_3": LLAMA_3, "gpt2": GPT2,
}
# Models that differ from one in the list only in what a test does not depend on.
VARIANTS = "resnet50", "llama_3", "gpt2"


def reads_tokens(model):
    return "vocab_size" in model


def write_shard(path, tokens, bits=16):
    """In llm.c's format: 256 int32 of header, then the tokens."""
    header = np.zeros(256, np.int32)
    header[:3] = *{16: (20240520, 1), 32: (20240801, 7)}[bits], len(tokens)
    path.write_bytes(header.tobytes() + np.asarray(tokens).astype(f"u{bits // 8}").tobytes())


def write_tokens(folder, samples=200):
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(5)
    for name in ("toy_train_000000.bin", "toy_val_000000.bin"):
        write_shard(folder / name, rng.integers(0, VOCABULARY, size=samples * TOKENS + 1))
    return folder


def read_tokens(folder, name="toy_train_000000.bin"):
    """Inputs and labels of all samples."""
    tokens = torch.from_numpy(np.fromfile(folder / name, dtype=np.uint16)[512:].astype(np.int64))
    samples = (len(tokens) - 1) // TOKENS
    return tuple(tokens[i : i + samples * TOKENS].view(samples, TOKENS) for i in (0, 1))
