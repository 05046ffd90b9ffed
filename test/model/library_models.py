"""The models that sdp-train's are compared with: torchvision's, transformers' and a plain MLP, made from the `model`
section of an experiment; how they are divided into branches and hidden units; and masks on these. It is written
independently of the layouts in lib/model."""

import math
import types
from dataclasses import dataclass

import torch
from torch import nn
from torchvision.models.resnet import BasicBlock, Bottleneck, ResNet
from torchvision.models.swin_transformer import SwinTransformer
from torchvision.models.vision_transformer import VisionTransformer
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM


@dataclass(frozen=True)
class Branch:
    """`width` hidden units, divided at multiples of `granularity`. `last`: the layer that reads them, in which the branch
    is linear. `output`: the layer without which it adds nothing. `prefixes`: of the names of its parameters."""

    width: int
    granularity: int
    last: str
    output: str
    prefixes: tuple


class LibraryModel:
    """`branches`: name -> Branch, in order of depth. `slices`: end of a parameter's name -> (dimension along which the
    hidden units lie, number of stacked blocks in it). `in_fp64`: makes the library compute in fp64 throughout."""

    def __init__(self, net, branches, slices, in_fp64=None):
        self.net, self.branches, self.slices, self.in_fp64 = net, branches, slices, in_fp64
        self.parameters, self.named_parameters = net.parameters, net.named_parameters

    def named_buffers(self):
        """Statistics of BatchNorm."""
        for name, module in self.net.named_modules():
            if isinstance(module, nn.BatchNorm2d):
                yield from ((f"{name}.{own}", buffer) for own, buffer in module.named_buffers())

    def to(self, dtype):
        self.net.to(dtype)
        if dtype == torch.float64 and self.in_fp64:
            self.in_fp64(self.net)
        return self

    def double(self):
        return self.to(torch.float64)

    def branch_of(self, parameter):
        """None: shared by all workers."""
        return next((name for name, branch in self.branches.items() if parameter.startswith(branch.prefixes)), None)

    def slice_of(self, parameter):
        """None: not divided."""
        if self.branch_of(parameter) is None:
            return None
        return next((rule for end, rule in self.slices.items() if parameter.endswith(end)), None)

    def norms(self):
        """Names of the parameters of norms."""
        modules = self.net.named_modules()
        return {f"{name}.{own}" for name, module in modules if "Norm" in type(module).__name__ for own in ("weight", "bias")}

    def randomize(self, spread=None):
        """Values with which every part matters to the loss. `spread` of the weights of layers; the default keeps the size of
        what they read."""
        torch.manual_seed(1)
        norms = self.norms()
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                own = 1 if name.endswith("table") else spread or parameter[0].numel() ** -0.5 if parameter.dim() > 1 else 0.3
                parameter.normal_(float(name in norms and name.endswith("weight")), own)
            for name, buffer in self.named_buffers():
                if name.endswith("running_mean"):
                    buffer.normal_(0, 0.2)
                if name.endswith("running_var"):
                    buffer.uniform_(0.5, 2)
                if name.endswith("num_batches_tracked"):
                    buffer.fill_(70)
        return self

    def masked_parameters(self, masks, construction):
        """`masks`: branch -> a factor for every hidden unit. In block construction, the first is that of the branch with its
        norms and biases. In neuron construction, norms and biases of the output stay."""
        parameters = dict(self.named_parameters())
        for name, mask in masks.items():
            branch = self.branches[name]
            weight = branch.last + ".weight"
            if construction == "block":
                for key in {branch.output + ".weight", branch.output + ".bias"} & parameters.keys():
                    parameters[key] = parameters[key] * mask[0]
            else:
                dim, _ = self.slice_of(weight)
                each = mask.repeat_interleave(parameters[weight].shape[dim] // branch.width)
                parameters[weight] = parameters[weight] * along(each, dim, parameters[weight].dim())
        return parameters

    def __call__(self, inputs, masks={}, construction="block", buffers={}):
        """Logits. `buffers` replace the model's own."""
        out = torch.func.functional_call(self.net, self.masked_parameters(masks, construction) | buffers, (inputs,))
        return out.logits if hasattr(out, "logits") else out


def along(values, dim, dims):
    return values.view([-1 if d == dim else 1 for d in range(dims)])


def branch(block, name, norm, last, width, granularity=8):
    """One that begins with its norm and ends with a linear layer."""
    layer = f"{block}.{name}.{last}"
    return {f"{block}.{name}": Branch(width, granularity, layer, layer, (f"{block}.{name}.", f"{block}.{norm}."))}


def residual(model, block, depths, hidden_layer, last, output):
    """`hidden_layer`: the number of the convolution whose channels are the hidden units."""
    width, classes = model.get("width", 64) * model.get("width_multiplier", 1), model.get("num_classes", 10)
    kernel, stride = (3, 1) if (stem := model.get("stem", "cifar")) == "cifar" else (7, 2)
    net = ResNet(block, depths, num_classes=classes)
    net.inplanes = width
    net.conv1 = nn.Conv2d(model.get("image_channels", 3), width, kernel, stride, kernel // 2, bias=False)
    net.bn1, net.fc = nn.BatchNorm2d(width), nn.Linear((width << 3) * block.expansion, classes)
    if stem == "cifar":
        net.maxpool = nn.Identity()
    branches = {}
    for stage, depth in enumerate(depths):
        setattr(net, f"layer{stage + 1}", net._make_layer(block, width << stage, depth, stride=1 if stage == 0 else 2))
        for name in (f"layer{stage + 1}.{i}" for i in range(depth)):
            prefixes = f"{name}.conv", f"{name}.bn"  # projections of the shortcut are shared
            branches[name] = Branch(width << stage, 8, f"{name}.{last}", f"{name}.{output}", prefixes)
    own = "weight", "bias", "running_mean", "running_var"
    rows = {f".{kind}{hidden_layer}.{name}": (0, 1) for kind in ("conv", "bn") for name in own}
    return LibraryModel(net, branches, rows | {f".{last}.weight": (1, 1)})


def resnet18(model):
    return residual(model, BasicBlock, [2, 2, 2, 2], 1, "conv2", "bn2")


def resnet50(model):
    return residual(model, Bottleneck, [3, 4, 6, 3], 2, "conv3", "bn3")


def swin(model):
    net = SwinTransformer(
        patch_size=[model["patch_size"]] * 2, embed_dim=model["width"], depths=model["depths"], num_heads=model["num_heads"],
        window_size=[model["window_size"]] * 2, stochastic_depth_prob=0.0, num_classes=model.get("num_classes", 10),
    )
    if model.get("image_channels", 3) != 3:
        patch = [model["patch_size"]] * 2
        net.features[0][0] = nn.Conv2d(model["image_channels"], model["width"], patch, patch)
    branches = {}
    for stage, (depth, heads) in enumerate(zip(model["depths"], model["num_heads"])):
        for block in (f"features.{2 * stage + 1}.{i}" for i in range(depth)):
            branches |= branch(block, "attn", "norm1", "proj", heads, 1)
            branches |= branch(block, "mlp", "norm2", "3", 4 * model["width"] << stage)
    slices = {f".attn.qkv.{own}": (0, 3) for own in ("weight", "bias")}
    slices |= {".attn.proj.weight": (1, 1), ".attn.relative_position_bias_table": (1, 1)}
    slices |= {".mlp.0.weight": (0, 1), ".mlp.0.bias": (0, 1), ".mlp.3.weight": (1, 1)}
    return LibraryModel(net, branches, slices)


def vit(model):
    hidden_width, patch = model.get("hidden_width", 4 * model["width"]), model["patch_size"]
    net = VisionTransformer(
        model["image_size"], patch, model["depth"], model["heads"], model["width"], hidden_width,
        num_classes=model.get("num_classes", 10),
    )
    if model.get("image_channels", 3) != 3:
        net.conv_proj = nn.Conv2d(model["image_channels"], model["width"], patch, patch)
    branches = {}
    for block in (f"encoder.layers.encoder_layer_{i}" for i in range(model["depth"])):
        branches |= branch(block, "self_attention", "ln_1", "out_proj", model["heads"], 1)
        branches |= branch(block, "mlp", "ln_2", "3", hidden_width)
    slices = {f".self_attention.in_proj_{own}": (0, 3) for own in ("weight", "bias")}
    slices |= {".self_attention.out_proj.weight": (1, 1)}
    slices |= {".mlp.0.weight": (0, 1), ".mlp.0.bias": (0, 1), ".mlp.3.weight": (1, 1)}
    return LibraryModel(net, branches, slices)


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


def llama(model):
    heads = model["heads"]
    head_size, kv_heads = model.get("head_size", model["width"] // heads), model.get("kv_heads", heads)
    theta, scaling = model.get("rope_theta", 10000.0), model.get("rope_scaling")
    config = LlamaConfig(
        hidden_size=model["width"], intermediate_size=model["hidden_width"], num_hidden_layers=model["depth"],
        num_attention_heads=heads, num_key_value_heads=kv_heads, head_dim=head_size, vocab_size=model["vocab_size"],
        rms_norm_eps=model.get("norm_eps", 1e-5), tie_word_embeddings=model.get("tied_embeddings", False), rope_theta=theta,
        use_cache=False,
    )
    if scaling:
        own = {"rope_type": "llama3", "original_max_position_embeddings": scaling["original_context"]}
        config.rope_scaling = own | {key: value for key, value in scaling.items() if key != "original_context"}
    branches = {}
    for layer in (f"model.layers.{i}" for i in range(model["depth"])):
        branches |= branch(layer, "self_attn", "input_layernorm", "o_proj", kv_heads, 1)
        branches |= branch(layer, "mlp", "post_attention_layernorm", "down_proj", model["hidden_width"])

    def in_fp64(net):
        """transformers computes norms and rotary angles in fp32 for every type of the weights."""

        def rms_norm(self, x):
            return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)

        def rotary(self, x, position_ids):
            frequency = theta ** (-torch.arange(0, head_size, 2, dtype=torch.float64) / head_size)
            if scaling:
                frequency = llama_3_frequencies(frequency, **scaling)
            angle = position_ids[:, :, None].double() * frequency
            angle = torch.cat((angle, angle), dim=-1)
            return angle.cos(), angle.sin()

        for module in net.modules():
            if type(module).__name__ == "LlamaRMSNorm":
                module.forward = types.MethodType(rms_norm, module)
        net.model.rotary_emb.forward = types.MethodType(rotary, net.model.rotary_emb)

    slices = {f".{name}_proj.weight": (0, 1) for name in ("q", "k", "v", "gate", "up")}
    slices |= {".o_proj.weight": (1, 1), ".down_proj.weight": (1, 1)}
    return LibraryModel(LlamaForCausalLM(config), branches, slices, in_fp64)


def gpt2(model):
    hidden_width = model.get("hidden_width", 4 * model["width"])
    config = GPT2Config(
        n_embd=model["width"], n_inner=hidden_width, n_layer=model["depth"], n_head=model["heads"],
        vocab_size=model["vocab_size"], n_positions=model["context_length"], resid_pdrop=0, embd_pdrop=0, attn_pdrop=0,
        bos_token_id=None, eos_token_id=None, use_cache=False,
    )
    branches = {}
    for block in (f"transformer.h.{i}" for i in range(model["depth"])):
        branches |= branch(block, "attn", "ln_1", "c_proj", model["heads"], 1)
        branches |= branch(block, "mlp", "ln_2", "c_proj", hidden_width)
    # Weights are [in, out].
    slices = {".attn.c_attn.weight": (1, 3), ".attn.c_attn.bias": (0, 3), ".c_proj.weight": (0, 1)}
    slices |= {".mlp.c_fc.weight": (1, 1), ".mlp.c_fc.bias": (0, 1)}
    return LibraryModel(GPT2LMHeadModel(config), branches, slices)


class MlpBlock(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Dropout(0), nn.Linear(hidden, width))

    def forward(self, x):
        return self.mlp(self.norm(x))


class Mlp(nn.Module):
    def __init__(self, width, depth, hidden, classes):
        super().__init__()
        self.stem = nn.Linear(3 * 32 * 32, width)
        self.blocks = nn.ModuleList(MlpBlock(width, hidden) for _ in range(depth))
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        x = self.stem(x.flatten(1))
        for block in self.blocks:
            x = x + block(x)
        return self.head(x)


def mlp(model):
    net = Mlp(model["width"], model["depth"], model["hidden_width"], model.get("num_classes", 10))
    branches = {}
    for i in range(model["depth"]):
        own = branch(f"blocks.{i}", "mlp", "norm", "3", model["hidden_width"])
        branches[f"blocks.{i}"] = own[f"blocks.{i}.mlp"]
    return LibraryModel(net, branches, {".mlp.0.weight": (0, 1), ".mlp.0.bias": (0, 1), ".mlp.3.weight": (1, 1)})


LIBRARIES = {
    "resnet18": resnet18, "wide_resnet18": resnet18, "resnet50": resnet50, "swin_t": swin, "vit_s_16": vit, "llama_tiny": llama, "gpt2": gpt2,
    "mlp": mlp,
}


def library_model(model):
    """model: the section of an experiment"""
    return LIBRARIES[model["name"]](model)
