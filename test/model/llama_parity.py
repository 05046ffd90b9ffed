"""LLaMA against transformers' LlamaForCausalLM."""

from subnetworks import EIGHT, THREE, Parity, regimes

SIZES = {"name": "llama_tiny", "width": 64, "hidden_width": 176, "heads": 8, "kv_heads": 8, "depth": 2, "vocab_size": 256,
         "rope_theta": 500.0, "norm_eps": 1e-4}
# Of the wavelengths 6.3 to 660 tokens, some are kept, some interpolated and some scaled.
SCALED = SIZES | {"head_size": 12, "rope_scaling": {
    "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_context": 128}}


def case_of(regime):
    """Grouped queries with units of whole blocks, a tied head in neuron construction."""
    kv_heads = 4 if regime["unit"] == "block" else 8
    return SIZES | {"depth": 3, "kv_heads": kv_heads, "tied_embeddings": regime["construction"] == "neuron"}, regime


class TestLlama(Parity):
    full = {f"{kv_heads}{' tied' * tied}": SIZES | {"kv_heads": kv_heads, "tied_embeddings": tied}
            for kv_heads in (8, 2) for tied in (False, True)}
    full |= {"scaled": SCALED}
    attentions = ["eager", "sdpa"]
    cases = [case_of(regime) for regime in regimes(THREE, EIGHT)]
    kept = {"wide": (SIZES | {"depth": 4, "width": 128, "hidden_width": 344}, "fp32")}
    bf16 = {"llama": SIZES}
    tiny = SIZES
    batch, spread = 3, 0.2
