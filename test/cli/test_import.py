"""Weights of torchvision and transformers are imported and exported unchanged in every regime, whatever stands before
their names; one worker's subnetwork is exported as a smaller model; and files that do not fit are refused."""

import json
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import tokenizers
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM, ViTConfig, ViTForImageClassification

import harness
import oracle
import small_models
from comparison import REGIMES
from library_models import library_model
from small_models import TOKENS, VARIANTS, VOCABULARY, read_tokens, reads_tokens, write_tokens

LLAMA = small_models.LLAMA | {"hidden_width": 64}  # for slices of the same size
TIED = {"tied_embeddings": True}
GPT2 = small_models.GPT2
MODELS = small_models.MODELS | {
    "resnet18": {"name": "resnet18", "stem": "imagenet", "image_size": 32, "width": 64},
    "llama": LLAMA, "llama_gqa_tied": LLAMA | TIED | {"kv_heads": 2},
}


def library(model):
    return library_model(model).randomize().net.eval()


def state_of(net):
    """As it is saved, without a head that is the embedding."""
    left_out = "lm_head.weight" if getattr(getattr(net, "config", None), "tie_word_embeddings", False) else None
    return {name: values.contiguous() for name, values in net.state_dict().items() if name != left_out}


def write_spec(folder, data, model, subnetwork=(), **sections):
    """A run that leaves the weights as they are: a negligible learning rate, no correction."""
    if reads_tokens(model):
        sections["data"] = {"name": "tokens", "path": str(data), "sequence_length": TOKENS}
    return harness.write_config(
        folder, sections.pop("name", "run"), data, model=model, subnetwork={"coverage": "2/4"} | dict(subnetwork),
        train={"precision": "fp32", "max_steps": 1, "batch_size_per_worker": 2}, eval={"recalibrate_batches": 0},
        **sections,
    )


def import_from(folder, spec, source, *options, expect=0):
    """A refusal begins no run."""
    before = (folder / "runs").exists()
    result = harness.run("import", "--config", spec, "--from", source, *options, expect=expect)
    assert expect == 0 or (folder / "runs").exists() == before
    return result


def import_state(folder, data, model, state, subnetwork=(), expect=0):
    """What the program says of a file with these tensors."""
    save_file(state, folder / "source.safetensors")
    spec = write_spec(folder, data, model, subnetwork)
    result = import_from(folder, spec, folder / "source.safetensors", expect=expect)
    return result.stdout + result.stderr


def export_of(tmp_path, *more, run="run", out="out"):
    """The exported tensors; they are in tmp_path / out / model.safetensors."""
    file = tmp_path / out / "model.safetensors"
    harness.run("export", "--run", tmp_path / "runs" / run, "--out", file, *more)
    return load_file(file)


def assert_same(exported, state):
    assert exported.keys() == state.keys()
    for key, values in state.items():
        assert exported[key].dtype == values.dtype and torch.equal(exported[key], values), key


def prefixed(prefix, instead_of=""):
    """As saved from a module that DistributedDataParallel, torch.compile or a training program wraps."""
    return lambda state: {prefix + key.removeprefix(instead_of): values for key, values in state.items()}


def with_tensor(name, shape, copies=1, before=dict):
    return lambda state: before(state) | {name.format(i): torch.ones(shape).tril() for i in range(copies)}


# All regimes for one model. For the others, whole branches and slices; once for those whose branches another model has.
OF_MODEL = {"resnet18": REGIMES} | dict.fromkeys(VARIANTS, REGIMES[2:3])
# Model, the file's state from that of the model, what is left out before all names, regime.
CASES = [(name, dict, "", regime) for name in MODELS for regime in OF_MODEL.get(name, REGIMES[1:3])]
CASES += [(name, prefixed(prefix, instead_of), prefix, REGIMES[0]) for name, prefix, instead_of in [
    ("resnet18", "module.", ""), ("llama", "module._orig_mod.", ""), ("mlp", "student.", ""),
    ("llama_gqa_tied", "net.backbone.", ""), ("llama_gqa_tied", "", "model."), ("gpt2", "module._orig_mod.model.", ""),
    ("gpt2", "module.", "transformer."),
]]  # fmt: skip
CASES += [(name, change, "", REGIMES[0]) for name, change in [
    ("llama_gqa_tied", lambda state: state | {"lm_head.weight": state["model.embed_tokens.weight"].clone()}),
    # What no version of transformers reads, and GPT-2 as it was published.
    ("llama", with_tensor("model.layers.{}.self_attn.rotary_emb.inv_freq", [2, 1], 3)),
    ("gpt2", with_tensor("h.{}.attn.bias", [1, 1, 20, 20], 2, prefixed("", "transformer."))),
]]  # fmt: skip


@pytest.mark.parametrize("name,change,prefix,regime", CASES)
def test_import_then_export_keeps_every_byte(tmp_path, data_of, name, change, prefix, regime):
    model = MODELS[name]
    net, folder = library(model), data_of(model)
    state = state_of(net)
    said = import_state(tmp_path, folder, model, change(state), dict(zip(("construction", "masking"), regime)))
    assert not prefix or f'"{prefix}"' in said
    exported = export_of(tmp_path)
    assert_same(exported, state)
    if reads_tokens(model):
        loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "out").eval()
        tokens, _ = read_tokens(folder)
        with torch.no_grad():
            assert torch.equal(loaded(tokens[:4]).logits, net(tokens[:4]).logits)
    else:  # config.json is enough to build the model and its input
        config = json.loads((tmp_path / "out" / "config.json").read_text())["sdp_train"]
        library(config["model"]).load_state_dict(exported, strict=True)
        assert config["normalization"] == harness.NORMALIZATION


@pytest.mark.parametrize("name", [name for name in small_models.MODELS if name not in ("resnet50", "llama_3")])
def test_a_new_head_is_drawn_as_in_a_run_from_scratch(tmp_path, data_of, name):
    """The file has more classes or tokens than the experiment."""
    model = MODELS[name]
    net = library(model | ({"vocab_size": VOCABULARY + 5} if reads_tokens(model) else {"num_classes": 12}))
    source = tmp_path / ("source" if reads_tokens(model) else "source.safetensors")
    if reads_tokens(model):
        net.save_pretrained(source)
    else:
        save_file(state_of(net), source)
    regime = {"construction": "neuron", "masking": "backward"} if name == "swin" else {}
    spec, scratch = (write_spec(tmp_path, data_of(model), model, regime, name=name) for name in ("run", "scratch"))
    assert "--new-head" in import_from(tmp_path, spec, source, expect=3).stderr
    import_from(tmp_path, spec, source, "--new-head")
    harness.run("--config", scratch, "--nproc", 1)
    imported, drawn = (export_of(tmp_path, "--checkpoint", 0, run=run, out=run) for run in ("run", "scratch"))
    state = net.state_dict()
    heads = {key for key, values in imported.items() if values.shape != state[key].shape}
    assert 0 < len(heads) < len(imported)
    for key, values in imported.items():
        assert torch.equal(values, drawn[key] if key in heads else state[key]), key


@pytest.mark.parametrize("regime", [
    {}, {"construction": "neuron", "assignment": "window"}, {"unit": "branch", "assignment": "window"},
])
def test_a_workers_subnetwork_is_a_model_of_its_own(tmp_path, tokens, regime):
    """Without whole blocks, or with the same slices in every block, a subnetwork is a smaller LLaMA for transformers."""
    full = library_model(LLAMA).randomize()
    import_state(tmp_path, tokens, LLAMA, state_of(full.net.eval()), regime)
    plan = harness.plan_of(tmp_path / "runs" / "run")
    samples = read_tokens(tokens)[0][:4]
    sizes = set()
    for worker in range(4):
        out = tmp_path / f"worker{worker}"
        exported = export_of(tmp_path, "--worker", worker, out=out.name)
        config = json.loads((out / "config.json").read_text())
        owned = config["sdp_train"]["hidden"]
        for unit in plan["units"]:
            inside = any(b <= unit["begin"] and unit["end"] <= e for b, e in owned[unit["branch"]])
            assert inside == (worker in unit["owners"])
        sizes.add(sum(values.numel() for values in exported.values()))
        width = lambda branch: sum(end - begin for begin, end in owned[branch])
        blocks = {(width(f"model.layers.{i}.self_attn"), width(f"model.layers.{i}.mlp")) for i in range(3)} - {(0, 0)}
        alike = len(blocks) == 1 and all(*blocks)
        assert ("architectures" in config) == alike and (alike or "unit" in regime)
        if alike:
            smaller = LlamaForCausalLM.from_pretrained(out).eval()
            assert sum(p.numel() for p in smaller.parameters()) == sum(v.numel() for v in exported.values())
            masks = oracle.Regime(plan).forward_masks(worker, torch.float32)
            with torch.no_grad():
                expected = full(samples, masks, plan["construction"])
                assert (smaller(samples).logits - expected).abs().max() < 1e-5
        else:
            for branch, ranges in owned.items():
                last = branch + (".o_proj.weight" if branch.endswith("attn") else ".down_proj.weight")
                assert (last in exported) == bool(ranges)
    assert max(sizes) < sum(p.numel() for p in full.net.parameters())


def word_tokenizer():
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({f"w{i}": i for i in range(VOCABULARY)}, unk_token="w0"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    return words


def test_an_exported_language_model_knows_its_tokenizer(tmp_path):
    """End of text and tokenizer, as scripts/prepare_tokens.py leaves them beside the shards."""
    folder, out = write_tokens(tmp_path / "tokens"), tmp_path / "out"
    words = word_tokenizer()
    words.add_special_tokens(["w7"])
    words.save(str(folder / "toy.tokenizer.json"))
    (folder / "toy.state.json").write_text(json.dumps({"settings": {"end_of_text": 7}}))
    import_state(tmp_path, folder, LLAMA, state_of(library(LLAMA)))
    export_of(tmp_path)
    model = LlamaForCausalLM.from_pretrained(out)
    assert (model.config.bos_token_id, model.config.eos_token_id, model.generation_config.eos_token_id) == (7, 7, 7)
    loaded = AutoTokenizer.from_pretrained(out)
    assert (loaded.eos_token, loaded.eos_token_id, loaded("w3 w5")["input_ids"]) == ("w7", 7, [3, 5])
    # If no end-of-text token is known, generation must not stop at transformers' default, id 2.
    (folder / "toy.state.json").unlink()
    (out / "model.safetensors").unlink()
    export_of(tmp_path)
    assert LlamaForCausalLM.from_pretrained(out).generation_config.eos_token_id is None
    # Files that are not export's own are not replaced: its config.json, the shards' tokenizer, what was imported.
    imported = tmp_path / "runs" / "run" / "imported" / "generation_config.json"
    imported.parent.mkdir(exist_ok=True)
    imported.write_text('{"top_k": 7}')
    for name in ("config.json", "tokenizer.json", imported.name):
        foreign = tmp_path / f"beside {name}" / name
        foreign.parent.mkdir()
        foreign.write_text("{}")
        weights = foreign.with_name("model.safetensors")
        refused = harness.run("export", "--run", tmp_path / "runs" / "run", "--out", weights, expect=2).stderr
        assert str(foreign) in refused and foreign.read_text() == "{}" and not weights.exists()


VIT = {"name": "vit_s_16", "width": 24, "depth": 2, "heads": 6, "hidden_width": 40, "patch_size": 8, "image_size": 32}
VIT_NAMES_SCRIPT = str(Path(__file__).parents[2] / "scripts" / "vit_names.py")
VIT_NAMES = {  # torchvision's names -> timm's, transformers'; in the order in which they are replaced
    "class_token": ("cls_token", "vit.embeddings.cls_token"),
    "encoder.pos_embedding": ("pos_embed", "vit.embeddings.position_embeddings"),
    "conv_proj.": ("patch_embed.proj.", "vit.embeddings.patch_embeddings.projection."),
    "encoder.layers.encoder_layer_": ("blocks.", "vit.encoder.layer."),
    "self_attention.in_proj_": ("attn.qkv.", "attention.attention.{}."),
    "self_attention.out_proj.": ("attn.proj.", "attention.output.dense."),
    ".ln_1.": (".norm1.", ".layernorm_before."), ".ln_2.": (".norm2.", ".layernorm_after."),
    "mlp.0.": ("mlp.fc1.", "intermediate.dense."), "mlp.3.": ("mlp.fc2.", "output.dense."),
    "encoder.ln.": ("norm.", "vit.layernorm."), "heads.head.": ("head.", "classifier."),
}  # fmt: skip


@pytest.mark.parametrize("is_of_transformers", [False, True])
def test_names_of_a_vit_elsewhere_are_renamed_by_the_line_that_is_printed(tmp_path, data, is_of_transformers):
    """Those of timm, or of transformers, which has query, key and value apart."""
    net, renamed = library(VIT), {}
    for key, values in net.state_dict().items():
        for name, others in VIT_NAMES.items():
            key = key.replace(name, others[is_of_transformers])
        parts = values.chunk(3) if "{}" in key else [values]
        renamed |= {key.format(name): part.contiguous() for name, part in zip(("query", "key", "value"), parts)}
    if is_of_transformers:
        theirs = ViTForImageClassification(ViTConfig(
            hidden_size=24, num_hidden_layers=2, num_attention_heads=6, intermediate_size=40, image_size=32, patch_size=8,
            num_labels=10,
        ))
        theirs.load_state_dict(renamed, strict=True)
    refused = import_state(tmp_path, data, VIT, renamed, expect=3)
    arguments = shlex.split(re.search(r"python3 scripts/vit_names.py (.*)", refused)[1])
    subprocess.run([sys.executable, VIT_NAMES_SCRIPT, *arguments], check=True, cwd=tmp_path)
    import_from(tmp_path, tmp_path / "run.yaml", tmp_path / "torchvision.safetensors")
    assert_same(export_of(tmp_path), net.state_dict())


@pytest.mark.parametrize("config,refused", [
    *((config, "") for config in ({}, ViTConfig().to_dict(), {"global_pool": "token", "model_args": {}})),
    *(({key: value}, key) for key, value in {
        "hidden_act": "gelu_new", "qkv_bias": False, "layer_norm_eps": 1e-3, "global_pool": "avg",
        "model_args": {"class_token": False},
    }.items()),
])  # fmt: skip
def test_a_vit_that_computes_otherwise_is_not_renamed(tmp_path, capsys, config, refused):
    save_file({"norm.weight": torch.ones(3)}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(config))
    out = tmp_path / "out.safetensors"
    assert runpy.run_path(VIT_NAMES_SCRIPT)["main"]([str(tmp_path), "--out", str(out)]) == (3 if refused else 0)
    assert refused in capsys.readouterr().err and out.exists() == (not refused)


def without(name):
    return lambda state: {key: values for key, values in state.items() if key != name}


def bare_first(state):
    """A prefix before all names but one."""
    first = next(iter(state))
    return {key if key == first else f"module.{key}": values for key, values in state.items()}


def refusal(model, name, change=None, own=(), *parts):
    """A tensor more, or changed; the message names it."""
    return model, change or with_tensor(name, [4, 1]), dict(own), [name, *parts]


another_part = with_tensor("criterion.weight", [2, 1], before=prefixed("module."))
REFUSALS = {  # model, what is different in the file, what the spec has, parts of the message
    "shape": refusal("resnet18", "fc.weight", dict, {"num_classes": 12}, "[10, 512]", "[12, 512]"),
    "missing": refusal("resnet18", "layer3.1.conv2.weight", without("layer3.1.conv2.weight"), {}, "[256, 256, 3, 3]"),
    "unknown": refusal("resnet18", "another.weight"),
    "not finite": refusal("resnet18", "fc.bias", lambda state: state | {"fc.bias": torch.full([10], float("nan"))}),
    "no counter": refusal("resnet18", "bn1.num_batches_tracked", lambda state: state | {
        "bn1.num_batches_tracked": torch.tensor([1, 2])}),
    "deeper": refusal("llama", "model.layers.3.mlp.up_proj.weight"),
    "own head": refusal("llama", "lm_head.weight", dict, TIED, "model.tied_embeddings=false"),
    "smaller head": refusal("llama", "lm_head.weight", lambda state: state | {
        "lm_head.weight": state["model.embed_tokens.weight"][:-1].clone()}, TIED),
    "head of gpt2": refusal("gpt2", "lm_head.weight", lambda state: state | {
        "lm_head.weight": state["transformer.wte.weight"] + 1}),
    **{name: ("llama", lambda _, name=name: {name: torch.ones(2, 2)}, {}, ["adapter"]) for name in [
        "layers.0.attn.q_proj.lora_a.weight", "base_model.model.model.layers.0.mlp.down_proj.ia3_l"]},
    **{f"part of {name}": refusal(name, "criterion.weight", another_part) for name in ("resnet18", "llama")},
    **{f"bare name of {name}": (name, bare_first, {}, []) for name in ("mlp", "gpt2")},
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSALS)
def test_weights_that_do_not_fit_are_refused(tmp_path, data_of, case):
    name, change, own, expected = REFUSALS[case]
    model = MODELS[name]
    refused = import_state(tmp_path, data_of(model), model | own, change(state_of(library(model))), expect=3)
    assert all(part in refused for part in expected), refused


def test_files_that_are_in_the_way(tmp_path, data):
    """A run is not replaced; an export is named as what it is."""
    model = {"name": "mlp", "width": 8, "depth": 1, "hidden_width": 8}
    import_state(tmp_path, data, model, state_of(library(model)), {"masking": "backward"})
    assert "--resume" in import_from(tmp_path, tmp_path / "run.yaml", tmp_path / "source.safetensors", expect=2).stderr
    other = write_spec(tmp_path, data, model, name="other")
    assert "cannot" in import_from(tmp_path, other, tmp_path / "missing.safetensors", expect=3).stderr
    export = lambda *out: harness.run("export", "--run", tmp_path / "runs" / "run", "--out", *out, expect=2).stderr
    assert "backward masking" in export(tmp_path / "out.safetensors", "--worker", 0)
    for name in ("x.pt", "x", "x.onnx"):
        assert "x.safetensors" in export(tmp_path / name) and not (tmp_path / name).exists()
