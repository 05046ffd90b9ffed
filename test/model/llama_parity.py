"""LLaMA against transformers' LlamaForCausalLM: the full model, and every regime's subnetworks against the full
model with 0/1 masks on its hidden units."""

import types

import pytest
import torch
from safetensors.torch import save_file
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count
from transformers import LlamaConfig, LlamaForCausalLM

from run_model import one_pass

BATCH, TOKENS = 3, 24
SIZES = dict(width=64, hidden_width=176, heads=8, kv_heads=8, depth=2, vocab_size=256, tied_embeddings=False)
THETA, EPS = 500.0, 1e-4


def hugging_face(sizes, attention="sdpa"):
    """Random weights, large enough for every part of the model to matter to the loss."""
    torch.manual_seed(7)
    config = LlamaConfig(
        hidden_size=sizes["width"], intermediate_size=sizes["hidden_width"], num_attention_heads=sizes["heads"],
        num_key_value_heads=sizes["kv_heads"], num_hidden_layers=sizes["depth"], vocab_size=sizes["vocab_size"],
        tie_word_embeddings=sizes["tied_embeddings"], rope_theta=THETA, rms_norm_eps=EPS,
        max_position_embeddings=TOKENS, attn_implementation=attention, use_cache=False)
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(1 + 0.3 * torch.randn_like(parameter) if "norm" in name else
                            0.2 * torch.randn_like(parameter))
    return model


def in_fp64(model):
    """transformers computes norms and rotary angles in fp32 for every type of the model."""
    model = model.double()

    def rms_norm(self, x):
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)

    def rotary(self, x, position_ids):
        size = model.config.hidden_size // model.config.num_attention_heads
        frequency = THETA ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
        angle = position_ids[:, :, None].double() * frequency
        angle = torch.cat((angle, angle), dim=-1)
        return angle.cos(), angle.sin()

    for module in model.modules():
        if type(module).__name__ == "LlamaRMSNorm":
            module.forward = types.MethodType(rms_norm, module)
    model.model.rotary_emb.forward = types.MethodType(rotary, model.model.rotary_emb)
    return model


def mask_hidden(model, has):
    """Zeroes the hidden units that are not in has[branch]."""
    def zero_others(hidden, width):
        mask = torch.zeros(width, dtype=torch.float64)
        mask[hidden] = 1
        def hook(module, inputs):
            return (inputs[0] * mask.repeat_interleave(inputs[0].shape[-1] // width),)
        return hook

    for i, layer in enumerate(model.model.layers):
        layer.self_attn.o_proj.register_forward_pre_hook(zero_others(has[2 * i], model.config.num_key_value_heads))
        layer.mlp.down_proj.register_forward_pre_hook(zero_others(has[2 * i + 1], model.config.intermediate_size))


def batch(vocab_size):
    generator = torch.Generator().manual_seed(3)
    return (torch.randint(vocab_size, (BATCH, TOKENS), generator=generator),
            torch.randint(vocab_size, (BATCH, TOKENS), generator=generator))


def loss_of(model, sizes):
    tokens, labels = batch(sizes["vocab_size"])
    logits = model(tokens).logits
    return logits, torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())


def run_model(folder, sizes, worker=-1, precision="fp32", mode="train", **subnetwork):
    model = ", ".join(f"{key}: {str(value).lower()}" for key, value in sizes.items())
    split = ", ".join(f"{key}: {value}" for key, value in subnetwork.items())
    (folder / "spec.yaml").write_text(
        f"name: parity\nmodel: {{name: llama_tiny, rope_theta: {THETA}, norm_eps: {EPS}, {model}}}\n"
        f"data: {{name: tokens, path: /nowhere, sequence_length: {TOKENS}}}\n"
        f"subnetwork: {{{split}}}\ntrain: {{precision: {precision}, device: cpu}}\n")
    if not (folder / "in.safetensors").exists():
        tokens, labels = batch(sizes["vocab_size"])
        weights = dict(hugging_face(sizes).named_parameters())
        save_file({"input": tokens, "labels": labels} | {name: value.detach() for name, value in weights.items()},
                  folder / "in.safetensors")
    return one_pass(folder, worker, mode)


def rows_of_hidden(name, hidden, sizes):
    """Dimension and indices of a parameter that belong to hidden units; None for one that is not sliced."""
    head = sizes["width"] // sizes["heads"]
    group = head * (sizes["heads"] // sizes["kv_heads"])
    for layer, dim, each in (("q_proj", 0, group), ("k_proj", 0, head), ("v_proj", 0, head), ("o_proj", 1, group),
                             ("gate_proj", 0, 1), ("up_proj", 0, 1), ("down_proj", 1, 1)):
        if layer in name:
            return dim, (hidden[:, None] * each + torch.arange(each)).flatten()
    return None


def branch_of(name):
    if not name.startswith("model.layers."):
        return None
    is_attention = "self_attn" in name or "input_layernorm" in name
    return 2 * int(name.split(".")[2]) + (0 if is_attention else 1)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("kv_heads", [8, 2])
@pytest.mark.parametrize("tied", [False, True])
def test_full_model(tmp_path, attention, kv_heads, tied):
    sizes = SIZES | dict(kv_heads=kv_heads, tied_embeddings=tied)
    model = hugging_face(sizes, attention)
    logits, loss = loss_of(model, sizes)
    loss.backward()
    ours = run_model(tmp_path, sizes)
    assert (ours["logits"] - logits).abs().max() < 1e-4
    assert abs(ours["loss"] - loss) < 1e-5
    parameters = dict(model.named_parameters())
    assert {key for key in ours if key.startswith("grad|")} == {f"grad|{name}|0" for name in parameters}
    for name, parameter in parameters.items():
        difference = (ours[f"grad|{name}|0"] - parameter.grad).abs().max()
        assert difference < 1e-3 * parameter.grad.abs().max(), name
    without_labels = run_model(tmp_path, sizes, mode="eval")
    assert torch.equal(without_labels["logits"], ours["logits"])


def test_bf16(tmp_path):
    _, loss = loss_of(hugging_face(SIZES), SIZES)
    ours = run_model(tmp_path, SIZES, precision="bf16")
    assert ours["logits"].dtype == torch.bfloat16
    assert ours["grad|model.norm.weight|0"].dtype == torch.float32
    assert abs(ours["loss"] - loss) < 0.02 * loss


def test_flops(tmp_path):
    # FlopCounterMode has no formula for CPU attention; that of the other fused kernels counts the same products.
    aten = torch.ops.aten
    counter = FlopCounterMode(display=False, custom_mapping={
        aten._scaled_dot_product_flash_attention_for_cpu: lambda *shapes, **_: sdpa_flop_count(*shapes[:3]),
        aten._scaled_dot_product_flash_attention_for_cpu_backward:
            lambda *shapes, **_: sdpa_backward_flop_count(*shapes[:4])})
    model = hugging_face(SIZES)
    with counter:
        loss_of(model, SIZES)[1].backward()
    angles = counter.get_flop_counts()["Global"].pop(aten.bmm)  # transformers multiplies positions by frequencies
    assert angles == 2 * TOKENS * SIZES["width"] // SIZES["heads"] // 2
    counted = counter.get_total_flops() - angles
    assert run_model(tmp_path, SIZES, mode="eval")["planned_flops"].item() * BATCH == counted


@pytest.mark.parametrize("workers,coverage", [(3, "2/3"), (8, "4/8")])
@pytest.mark.parametrize("construction", ["neuron", "block"])
@pytest.mark.parametrize("masking", ["forward", "backward"])
@pytest.mark.parametrize("unit", ["block", "branch"])
def test_subnetworks(tmp_path, workers, coverage, construction, masking, unit):
    """Grouped queries with block construction, a tied head with neuron construction."""
    sizes = SIZES | dict(kv_heads=4 if unit == "block" else 8, tied_embeddings=construction == "neuron", depth=3)
    split = dict(workers=workers, coverage=coverage, construction=construction, masking=masking, unit=unit)
    for worker in sorted({0, 1, workers - 1}):
        ours = run_model(tmp_path, sizes, worker, "fp64", **split)
        has = {branch: torch.cat([torch.empty(0, dtype=torch.int64)] +
                                 [ours[key] for part in (0, 1) if (key := f"hidden|{branch}|{part}") in ours])
               for branch in range(2 * sizes["depth"])}
        whole = [len(has[b]) == (sizes["hidden_width"] if b % 2 else sizes["kv_heads"]) for b in has]
        assert all(whole) == (masking == "backward")
        model = in_fp64(hugging_face(sizes))
        mask_hidden(model, has)
        _, loss = loss_of(model, sizes)
        loss.backward()
        assert abs(ours["loss"] - loss) < 1e-10
        parameters = dict(model.named_parameters())
        gradients = {key.split("|")[1]: value for key, value in ours.items() if key.startswith("grad|")}
        owned_branches = {branch_of(name) for name in gradients if "proj" in name}
        smaller = False
        for name, parameter in parameters.items():
            branch = branch_of(name)
            if branch is not None and branch not in owned_branches and (construction == "block" or "proj" in name):
                assert name not in gradients
                continue
            expected = parameter.grad
            if construction == "neuron" and branch is not None and "proj" in name:
                expected = expected.index_select(*rows_of_hidden(name, ours[f"hidden|{branch}|0"], sizes))
                smaller = smaller or expected.numel() < parameter.numel()
            assert (gradients[name] - expected).abs().max() < 1e-9, name
        assert smaller == (construction == "neuron")


@pytest.mark.parametrize("construction", ["neuron", "block"])
def test_frozen_keeps_less(tmp_path, construction):
    sizes = SIZES | dict(depth=4, width=128, hidden_width=344)
    split = dict(workers=4, coverage="2/4", construction=construction, masking="backward", unit="branch")
    dense = run_model(tmp_path, sizes, -1, **split)
    share = sum(run_model(tmp_path, sizes, worker, **split)["kept_bytes"].item() for worker in range(4)) / 4 / \
        dense["kept_bytes"].item()
    print(f"{construction}: backward masking at C = 1/2 keeps {share:.3f} of what C = 1 keeps")
    assert share < 0.8
