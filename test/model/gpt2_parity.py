"""GPT-2 against transformers' GPT2LMHeadModel."""

from subnetworks import EIGHT, FOUR, THREE, Parity, regimes

SIZES = {"name": "gpt2", "width": 32, "hidden_width": 128, "heads": 8, "depth": 2, "vocab_size": 256, "context_length": 40}


class TestGpt2(Parity):
    full = bf16 = {"gpt2": SIZES}
    attentions = ["eager", "sdpa"]
    cases = [(SIZES | {"depth": 3}, regime) for regime in regimes(THREE, EIGHT, FOUR)]
    kept = {"wide": (SIZES | {"depth": 4, "width": 64, "hidden_width": 256}, "fp32")}
    tiny = SIZES
    batch, spread = 3, 0.2
