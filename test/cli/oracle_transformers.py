"""Swin of torchvision, LLaMA and GPT-2 of transformers, in the form that oracle.py's training loop expects."""

import math
import types

import torch
from torchvision.models.swin_transformer import SwinTransformer
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM


class LibraryModel:
    """A branch's output is linear in its hidden units, so a mask on the units is a mask on the last layer's weight along
    `hidden_dim`. An absent branch lacks that layer's bias, too. `branches`: name -> (hidden width, name of the last
    layer)."""

    def __init__(self, net, branches, slices, branch_of, hidden_dim=1):
        self.net, self.branches, self.slices, self.branch_of = net, branches, slices, branch_of
        self.hidden_dim = hidden_dim

    def named_parameters(self):
        return self.net.named_parameters()

    def parameters(self):
        return self.net.parameters()

    def named_buffers(self):
        return []

    def to(self, dtype):
        self.net = self.net.to(dtype)
        return self

    def slice_of(self, parameter):
        return next((rule for end, rule in self.slices.items() if parameter.endswith(end)), None)

    def run(self, buffers, inputs, masks, construction):
        parameters = dict(self.net.named_parameters())
        for branch, mask in masks.items():
            width, last = self.branches[branch]
            weight = parameters[last + ".weight"]
            each = mask.repeat_interleave(weight.shape[self.hidden_dim] // width)
            parameters[last + ".weight"] = weight * (each if self.hidden_dim == 1 else each[:, None])
            if construction == "block" and last + ".bias" in parameters:
                parameters[last + ".bias"] = parameters[last + ".bias"] * mask[0]
        out = torch.func.functional_call(self.net, parameters, (inputs,))
        return out.logits if hasattr(out, "logits") else out


DEPTHS = [2, 2, 2, 2]  # with and without shifted windows in every stage


def swin(width, heads, patch_size, window_size, classes=10):
    net = SwinTransformer(
        patch_size=[patch_size] * 2,
        embed_dim=width,
        depths=DEPTHS,
        num_heads=[heads << stage for stage in range(4)],
        window_size=[window_size] * 2,
        stochastic_depth_prob=0.0,
        num_classes=classes,
    )
    branches = {}
    for stage, depth in enumerate(DEPTHS):
        for i in range(depth):
            block = f"features.{2 * stage + 1}.{i}"
            branches[block + ".attn"] = (heads << stage, block + ".attn.proj")
            branches[block + ".mlp"] = (4 * width << stage, block + ".mlp.3")

    def branch_of(parameter):
        block = ".".join(parameter.split(".")[:3])
        if block + ".attn" not in branches:
            return None
        return block + (".attn" if ".attn." in parameter or ".norm1." in parameter else ".mlp")

    slices = {
        ".attn.qkv.weight": (0, 3),
        ".attn.qkv.bias": (0, 3),
        ".attn.proj.weight": (1, 1),
        ".attn.relative_position_bias_table": (1, 1),
        ".mlp.0.weight": (0, 1),
        ".mlp.0.bias": (0, 1),
        ".mlp.3.weight": (1, 1),
    }
    return LibraryModel(net, branches, slices, branch_of)


def llama_3_frequencies(frequencies, factor, low_freq_factor, high_freq_factor, original_context):
    """Meta's apply_scaling, one frequency after another."""
    scaled = []
    for frequency in frequencies.tolist():
        wavelength = 2 * math.pi / frequency
        if wavelength < original_context / high_freq_factor:
            scaled.append(frequency)
        elif wavelength > original_context / low_freq_factor:
            scaled.append(frequency / factor)
        else:
            smooth = (original_context / wavelength - low_freq_factor) / (high_freq_factor - low_freq_factor)
            scaled.append((1 - smooth) * frequency / factor + smooth * frequency)
    return torch.tensor(scaled, dtype=frequencies.dtype)


def llama(width, depth, hidden_width, heads, kv_heads, vocab_size, tied=False, head_size=None, rope_scaling=None):
    """With norms and rotary angles in the type of the weights; transformers computes them in fp32."""
    head_size = head_size or width // heads
    config = LlamaConfig(
        hidden_size=width,
        intermediate_size=hidden_width,
        num_hidden_layers=depth,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=head_size,
        vocab_size=vocab_size,
        rms_norm_eps=1e-5,
        tie_word_embeddings=tied,
        use_cache=False,
    )
    net = LlamaForCausalLM(config)

    def rms_norm(self, x):
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)

    def rotary(self, x, position_ids):
        frequency = 10000.0 ** (-torch.arange(0, head_size, 2, dtype=torch.float64) / head_size)
        if rope_scaling:
            frequency = llama_3_frequencies(frequency, **rope_scaling)
        angle = position_ids[:, :, None].double() * frequency
        angle = torch.cat((angle, angle), dim=-1)
        return angle.cos().to(x.dtype), angle.sin().to(x.dtype)

    for module in net.modules():
        if type(module).__name__ == "LlamaRMSNorm":
            module.forward = types.MethodType(rms_norm, module)
    net.model.rotary_emb.forward = types.MethodType(rotary, net.model.rotary_emb)
    branches = {}
    for i in range(depth):
        layer = f"model.layers.{i}"
        branches[layer + ".self_attn"] = (kv_heads, layer + ".self_attn.o_proj")
        branches[layer + ".mlp"] = (hidden_width, layer + ".mlp.down_proj")

    def branch_of(parameter):
        layer = ".".join(parameter.split(".")[:3])
        if layer + ".mlp" not in branches:
            return None
        return layer + (".self_attn" if ".self_attn." in parameter or ".input_layernorm." in parameter else ".mlp")

    rows = ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj")
    slices = {f".{name}.weight": (0, 1) for name in rows} | {".o_proj.weight": (1, 1), ".down_proj.weight": (1, 1)}
    return LibraryModel(net, branches, slices, branch_of)


def gpt2(width, depth, heads, vocab_size, context_length):
    config = GPT2Config(
        n_embd=width, n_layer=depth, n_head=heads, vocab_size=vocab_size, n_positions=context_length,
        resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, use_cache=False,
    )
    net = GPT2LMHeadModel(config)
    branches = {}
    for i in range(depth):
        block = f"transformer.h.{i}"
        branches[block + ".attn"] = (heads, block + ".attn.c_proj")
        branches[block + ".mlp"] = (4 * width, block + ".mlp.c_proj")

    def branch_of(parameter):
        block = ".".join(parameter.split(".")[:3])
        if block + ".attn" not in branches:
            return None
        return block + (".attn" if ".attn." in parameter or ".ln_1." in parameter else ".mlp")

    # Weights are [in, out].
    slices = {
        ".attn.c_attn.weight": (1, 3),
        ".attn.c_attn.bias": (0, 3),
        ".attn.c_proj.weight": (0, 1),
        ".mlp.c_fc.weight": (1, 1),
        ".mlp.c_fc.bias": (0, 1),
        ".mlp.c_proj.weight": (0, 1),
    }
    return LibraryModel(net, branches, slices, branch_of, hidden_dim=0)
