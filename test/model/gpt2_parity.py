"""GPT-2 against transformers' GPT2LMHeadModel: the full model, and every regime's subnetworks against the full model with
0/1 masks on its hidden units."""

import json

import pytest
import torch
from safetensors.torch import save_file
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count
from transformers import GPT2Config, GPT2LMHeadModel

from run_model import one_pass

torch.set_num_threads(1)  # for both programs: most passes here are tiny
BATCH, TOKENS = 3, 24
SIZES = dict(width=32, hidden_width=128, heads=8, depth=2, vocab_size=256, context_length=40)


def hugging_face(sizes, attention="sdpa"):
    """Random weights, large enough for every part of the model to matter to the loss."""
    torch.manual_seed(7)
    config = GPT2Config(
        n_embd=sizes["width"], n_inner=sizes["hidden_width"], n_head=sizes["heads"], n_layer=sizes["depth"],
        vocab_size=sizes["vocab_size"], n_positions=sizes["context_length"], resid_pdrop=0, embd_pdrop=0, attn_pdrop=0,
        attn_implementation=attention, use_cache=False)
    model = GPT2LMHeadModel(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            is_norm = ".ln_" in name and name.endswith("weight")
            parameter.copy_(is_norm + 0.2 * torch.randn_like(parameter))
    return model


def mask_hidden(model, has, sizes, construction):
    """Zeroes the hidden units that are not in has[branch]; in block construction also the bias of a branch without any."""
    def hook(module, hidden, width):
        mask = torch.zeros(width, dtype=torch.float64)
        mask[hidden] = 1
        module.register_forward_pre_hook(
            lambda module, inputs: (inputs[0] * mask.repeat_interleave(inputs[0].shape[-1] // width),))
        if construction == "block":
            module.register_forward_hook(lambda module, inputs, out: out * mask[0])

    for i, block in enumerate(model.transformer.h):
        hook(block.attn.c_proj, has[2 * i], sizes["heads"])
        hook(block.mlp.c_proj, has[2 * i + 1], sizes["hidden_width"])


def batch(vocab_size):
    generator = torch.Generator().manual_seed(3)
    return tuple(torch.randint(vocab_size, (BATCH, TOKENS), generator=generator) for _ in range(2))


def loss_of(model, sizes):
    tokens, labels = batch(sizes["vocab_size"])
    logits = model(tokens).logits
    return logits, torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())


def run_model(folder, sizes, worker=-1, precision="fp32", mode="train", **subnetwork):
    spec = {
        "name": "parity",
        "model": {"name": "gpt2", **sizes},
        "data": {"name": "tokens", "path": "/nowhere", "sequence_length": TOKENS},
        "subnetwork": subnetwork or {"workers": 1, "coverage": "1"},
        "train": {"precision": precision, "device": "cpu"},
    }
    (folder / "spec.yaml").write_text(json.dumps(spec))
    if not (folder / "in.safetensors").exists():
        tokens, labels = batch(sizes["vocab_size"])
        weights = {name: value.detach() for name, value in hugging_face(sizes).named_parameters()}
        save_file({"input": tokens, "labels": labels} | weights, folder / "in.safetensors")
    return one_pass(folder, worker, mode)


def branch_of(name):
    if not name.startswith("transformer.h."):
        return None
    return 2 * int(name.split(".")[2]) + (0 if ".attn." in name or ".ln_1." in name else 1)


def indices_of_hidden(name, hidden, sizes):
    """Dimension and indices of a parameter that belong to hidden units; None for one that is not sliced."""
    head, width = sizes["width"] // sizes["heads"], sizes["width"]
    if ".attn.c_attn." in name:
        of_heads = (hidden[:, None] * head + torch.arange(head)).flatten()
        return (1 if name.endswith("weight") else 0), torch.cat([of_heads, of_heads + width, of_heads + 2 * width])
    if name.endswith(".attn.c_proj.weight"):
        return 0, (hidden[:, None] * head + torch.arange(head)).flatten()
    if ".mlp.c_fc." in name:
        return (1 if name.endswith("weight") else 0), hidden
    return (0, hidden) if name.endswith(".mlp.c_proj.weight") else None


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_full_model(tmp_path, attention):
    model = hugging_face(SIZES, attention)
    logits, loss = loss_of(model, SIZES)
    loss.backward()
    ours = run_model(tmp_path, SIZES)
    print("largest difference of logits", (ours["logits"] - logits).abs().max().item())
    assert (ours["logits"] - logits).abs().max() < 1e-4
    assert abs(ours["loss"] - loss) < 1e-5
    parameters = dict(model.named_parameters())
    assert {key for key in ours if key.startswith("grad|")} == {f"grad|{name}|0" for name in parameters}
    for name, parameter in parameters.items():
        difference = (ours[f"grad|{name}|0"] - parameter.grad).abs().max()
        assert difference < 1e-3 * parameter.grad.abs().max(), name
    assert torch.equal(run_model(tmp_path, SIZES, mode="eval")["logits"], ours["logits"])


def test_bf16(tmp_path):
    _, loss = loss_of(hugging_face(SIZES), SIZES)
    ours = run_model(tmp_path, SIZES, precision="bf16")
    assert ours["logits"].dtype == torch.bfloat16
    assert ours["grad|transformer.ln_f.weight|0"].dtype == torch.float32
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
    assert run_model(tmp_path, SIZES, mode="eval")["planned_flops"].item() * BATCH == counter.get_total_flops()


REGIMES = [(construction, masking) for construction in ("block", "neuron") for masking in ("forward", "backward")]


@pytest.mark.parametrize("workers,coverage,slices", [(3, "2/3", None), (8, "4/8", None), (4, "1/4", 2)])
@pytest.mark.parametrize("construction,masking", REGIMES)
@pytest.mark.parametrize("unit", ["block", "branch"])
def test_subnetworks(tmp_path, workers, coverage, slices, construction, masking, unit):
    """Two slices for four workers: some own none of a branch."""
    split = dict(workers=workers, coverage=coverage, construction=construction, masking=masking, unit=unit)
    if slices and construction == "neuron":
        split["slices_per_branch"] = slices
    sizes = SIZES | dict(depth=3)
    widths = [sizes["heads"], sizes["hidden_width"]] * sizes["depth"]
    some_empty = False
    for worker in range(workers if workers < 8 else 2):
        ours = run_model(tmp_path, sizes, worker, "fp64", **split)
        gradients = {key.split("|")[1]: value for key, value in ours.items() if key.startswith("grad|")}
        owned = {branch_of(name) for name in gradients if ".c_attn." in name or ".c_fc." in name}
        has = {branch: torch.cat([torch.empty(0, dtype=torch.int64)] +
                                 [ours[key] for part in (0, 1) if (key := f"hidden|{branch}|{part}") in ours])
               for branch in range(len(widths))}
        assert all(len(has[b]) == width for b, width in enumerate(widths)) == (masking == "backward")
        some_empty = some_empty or len(owned) < len(widths)
        model = hugging_face(sizes).double()
        mask_hidden(model, has, sizes, construction)
        _, loss = loss_of(model, sizes)
        loss.backward()
        assert abs(ours["loss"] - loss) < 1e-10
        for name, parameter in model.named_parameters():
            branch = branch_of(name)
            sliced = indices_of_hidden(name, torch.empty(0, dtype=torch.int64), sizes) is not None
            if branch is not None and branch not in owned and (construction == "block" or sliced):
                assert name not in gradients
                continue
            expected = parameter.grad
            if construction == "neuron" and sliced:
                dim, indices = indices_of_hidden(name, ours[f"hidden|{branch}|0"], sizes)
                expected = expected.index_select(dim, indices)
            assert (gradients[name] - expected).abs().max() < 1e-9, name
    assert some_empty == (construction == "block" or slices is not None)


@pytest.mark.parametrize("construction", ["neuron", "block"])
def test_frozen_keeps_less(tmp_path, construction):
    sizes = SIZES | dict(depth=4, width=64, hidden_width=256)
    split = dict(workers=4, coverage="2/4", construction=construction, masking="backward", unit="branch")
    dense = run_model(tmp_path, sizes, -1, **split)
    shares = [run_model(tmp_path, sizes, worker, **split)["kept_bytes"].item() / dense["kept_bytes"].item()
              for worker in range(4)]
    print(f"{construction}: backward masking at C = 1/2 keeps {sum(shares) / 4:.3f} of what C = 1 keeps")
    assert sum(shares) / 4 < 0.8
