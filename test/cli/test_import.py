"""Weights of torchvision and transformers are imported and exported unchanged in every regime, whatever stands before their names;
one worker's subnetwork is exported as a smaller model; and files that do not fit are refused."""

import json
import re
import shlex
import shutil
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

SUBNETWORK = {"workers": 4, "coverage": "2/4"}
LLAMA = small_models.LLAMA | {"hidden_width": 64}  # for slices of the same size
TIED = {"tied_embeddings": True}
GPT2 = small_models.GPT2
MODELS = small_models.MODELS | {
    "resnet18": {"name": "resnet18", "stem": "imagenet", "image_size": 32, "width": 64},
    "llama": LLAMA, "llama_gqa_tied": LLAMA | TIED | {"kv_heads": 2},
}


def library(model):
    return library_model(model).randomize().net.eval()


def tokens_or(data, model, folder):
    return write_tokens(folder / "tokens") if reads_tokens(model) else data


def save(net, path):
    state = {name: tensor.contiguous() for name, tensor in net.state_dict().items()}
    if getattr(getattr(net, "config", None), "tie_word_embeddings", False):
        del state["lm_head.weight"]
    save_file(state, path)
    return state


def write_spec(folder, data, model, subnetwork, **sections):
    """A run that leaves the weights as they are: a negligible learning rate, no correction."""
    if reads_tokens(model):
        sections["data"] = {"name": "tokens", "path": str(data), "sequence_length": TOKENS}
    return harness.write_config(
        folder, sections.pop("name", "run"), data, model=model, subnetwork=SUBNETWORK | subnetwork,
        train={"precision": "fp32", "max_steps": 1, "batch_size_per_worker": 2, **sections.pop("train", {})},
        eval={"recalibrate_batches": 0}, **sections,
    )


def import_from(folder, spec, source, expect=0):
    return harness.run("import", "--config", spec, "--from", source, expect=expect)


def export_of(tmp_path, *more, run="run", out="out"):
    """The exported tensors; they are in tmp_path / out / model.safetensors."""
    file = tmp_path / out / "model.safetensors"
    harness.run("export", "--run", tmp_path / "runs" / run, "--out", file, *more)
    return load_file(file)


def assert_same(exported, state):
    assert exported.keys() == state.keys()
    for key, values in state.items():
        assert exported[key].dtype == values.dtype and torch.equal(exported[key], values), key


# All regimes for one model. For the others, whole branches and slices; once for those whose branches another model has.
OF_MODEL = {"resnet18": REGIMES} | dict.fromkeys(VARIANTS, REGIMES[2:3])
CASES = [(name, *regime) for name in MODELS for regime in OF_MODEL.get(name, REGIMES[1:3])]


@pytest.mark.parametrize("name,construction,masking", CASES)
def test_import_then_export_keeps_every_byte(tmp_path, data, name, construction, masking):
    model = MODELS[name]
    net = library(model)
    source = tmp_path / "source.safetensors"
    state = save(net, source)
    folder = tokens_or(data, model, tmp_path)
    spec = write_spec(tmp_path, folder, model, {"construction": construction, "masking": masking})
    import_from(tmp_path, spec, source)
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
def test_a_new_head_is_drawn_as_in_a_run_from_scratch(tmp_path, data, name):
    """The file has more classes or tokens than the experiment."""
    model = MODELS[name]
    net = library(model | ({"vocab_size": VOCABULARY + 5} if reads_tokens(model) else {"num_classes": 12}))
    source = tmp_path / "source"
    if reads_tokens(model):
        net.save_pretrained(source)
    else:
        save(net, source := tmp_path / "source.safetensors")
    folder = tokens_or(data, model, tmp_path)
    regime = {"construction": "neuron", "masking": "backward"} if name == "swin" else {}
    spec = write_spec(tmp_path, folder, model, regime)
    assert "--new-head" in import_from(tmp_path, spec, source, expect=3).stderr
    harness.run("import", "--config", spec, "--from", source, "--new-head")
    scratch = write_spec(tmp_path, folder, model, regime, name="scratch")
    harness.run("--config", scratch, "--nproc", 1)

    imported, drawn = (export_of(tmp_path, "--checkpoint", 0, run=run, out=run) for run in ("run", "scratch"))
    state = net.state_dict()
    heads = {key for key, values in imported.items() if values.shape != state[key].shape}
    assert 0 < len(heads) < len(imported)
    for key, values in imported.items():
        assert torch.equal(values, drawn[key] if key in heads else state[key]), key


def is_alike(owned):
    """Whether all remaining blocks have the same widths of attention and MLP."""
    width = lambda branch: sum(end - begin for begin, end in owned[branch])
    blocks = {(width(f"model.layers.{i}.self_attn"), width(f"model.layers.{i}.mlp")) for i in range(3)} - {(0, 0)}
    return len(blocks) == 1 and all(blocks.pop())


@pytest.mark.parametrize("construction", ["block", "neuron", "branches"])
def test_a_workers_subnetwork_is_a_model_of_its_own(tmp_path, construction):
    """Without whole blocks, or with the same slices in every block, a subnetwork is a smaller LLaMA for transformers."""
    full = library_model(LLAMA).randomize()
    save(full.net.eval(), tmp_path / "source.safetensors")
    folder = write_tokens(tmp_path / "tokens")
    regime = {"construction": "neuron", "assignment": "window"} if construction == "neuron" else {"construction": "block"}
    if construction == "branches":
        regime |= {"unit": "branch", "assignment": "window"}
    spec = write_spec(tmp_path, folder, LLAMA, regime)
    import_from(tmp_path, spec, tmp_path / "source.safetensors")
    plan = harness.plan_of(tmp_path / "runs" / "run")
    tokens, _ = read_tokens(folder)
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
        alike = is_alike(owned)
        assert alike or construction == "branches"
        assert ("architectures" in config) == alike
        if alike:
            smaller = LlamaForCausalLM.from_pretrained(out).eval()
            assert sum(p.numel() for p in smaller.parameters()) == sum(v.numel() for v in exported.values())
            masks = oracle.Regime(plan).forward_masks(worker, torch.float32)
            with torch.no_grad():
                expected = full(tokens[:4], masks, plan["construction"])
                assert (smaller(tokens[:4]).logits - expected).abs().max() < 1e-5
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
    folder = write_tokens(tmp_path / "tokens")
    words = word_tokenizer()
    words.add_special_tokens(["w7"])
    words.save(str(folder / "toy.tokenizer.json"))
    (folder / "toy.state.json").write_text(json.dumps({"settings": {"end_of_text": 7}}))
    save(library(LLAMA), tmp_path / "source.safetensors")
    spec = write_spec(tmp_path, folder, LLAMA, {})
    import_from(tmp_path, spec, tmp_path / "source.safetensors")
    out = tmp_path / "out"
    export_of(tmp_path)
    model = LlamaForCausalLM.from_pretrained(out)
    assert (model.config.bos_token_id, model.config.eos_token_id) == (7, 7)
    assert model.generation_config.eos_token_id == 7
    loaded = AutoTokenizer.from_pretrained(out)
    assert loaded.eos_token == "w7" and loaded.eos_token_id == 7
    assert loaded("w3 w5")["input_ids"] == [3, 5]
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
        weights = foreign.parent / "model.safetensors"
        refused = harness.run("export", "--run", tmp_path / "runs" / "run", "--out", weights, expect=2).stderr
        assert str(foreign) in refused and foreign.read_text() == "{}" and not weights.exists()


# ---- names of other programs ----


@pytest.mark.parametrize("name,prefix", [
    ("resnet18", "module."), ("llama", "module._orig_mod."), ("llama_gqa_tied", "net.backbone."), ("gpt2", "module._orig_mod.model."),
    ("gpt2_headless", "module."), ("mlp", "student."),
])
def test_whatever_stands_before_all_names_is_left_out(tmp_path, data, name, prefix):
    """As saved from a module that DistributedDataParallel, torch.compile or a training program wraps."""
    model = MODELS[name.removesuffix("_headless")]
    state = save(library(model), tmp_path / "plain.safetensors")
    names = {key: prefix + (key.removeprefix("transformer.") if "_headless" in name else key) for key in state}
    source = tmp_path / "source.safetensors"
    save_file({names[key]: values for key, values in state.items()}, source)
    spec = write_spec(tmp_path, tokens_or(data, model, tmp_path), model, {"coverage": "1"})
    assert f'"{prefix}"' in import_from(tmp_path, spec, source).stdout
    assert_same(export_of(tmp_path), state)
    # Another part of the same module would be lost, and a tensor without the prefix is missed.
    shutil.rmtree(tmp_path / "runs")
    save_file({names[key]: values for key, values in state.items()} | {"criterion.weight": torch.ones(2)}, source)
    assert "criterion.weight" in import_from(tmp_path, spec, source, expect=3).stderr
    first = next(iter(state))
    save_file({first if key == first else names[key]: values for key, values in state.items()}, source)
    import_from(tmp_path, spec, source, expect=3)
    assert not (tmp_path / "runs").exists()


VIT = {"name": "vit_s_16", "width": 24, "depth": 2, "heads": 6, "hidden_width": 40, "patch_size": 8, "image_size": 32}
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


def renamed_vit(net, library_index):
    """The state dict with the names of timm (0) or transformers (1), which has query, key and value apart."""
    renamed = {}
    for key, values in net.state_dict().items():
        for name, others in VIT_NAMES.items():
            key = key.replace(name, others[library_index])
        parts = values.chunk(3) if "{}" in key else [values]
        renamed |= {key.format(name): part.contiguous() for name, part in zip(("query", "key", "value"), parts)}
    return renamed


@pytest.mark.parametrize("is_of_transformers", [False, True])
def test_names_of_a_vit_elsewhere_are_renamed_by_the_line_that_is_printed(tmp_path, data, is_of_transformers):
    net = library(VIT)
    renamed = renamed_vit(net, int(is_of_transformers))
    save_file(renamed, tmp_path / "source.safetensors")
    if is_of_transformers:
        theirs = ViTForImageClassification(ViTConfig(
            hidden_size=24, num_hidden_layers=2, num_attention_heads=6, intermediate_size=40, image_size=32, patch_size=8,
            num_labels=10,
        ))
        theirs.load_state_dict(renamed, strict=True)
    spec = write_spec(tmp_path, data, VIT, {})
    refused = import_from(tmp_path, spec, tmp_path / "source.safetensors", expect=3).stderr
    command = re.search(r"python3 (scripts/vit_names.py .*)", refused)[1]
    root = Path(__file__).parents[2]
    script, *arguments = shlex.split(command)
    subprocess.run([sys.executable, root / script, *arguments], check=True, cwd=tmp_path)
    import_from(tmp_path, spec, tmp_path / "torchvision.safetensors")
    assert_same(export_of(tmp_path), net.state_dict())


def without_prefix(state, prefix):
    return {name.removeprefix(prefix): values for name, values in state.items() if name != "lm_head.weight"}


LEFT_OUT = {  # model, the state in the file from that of the model
    "a head that is the embedding": (LLAMA | TIED, lambda state: state | {
        "lm_head.weight": state["model.embed_tokens.weight"].clone()
    }),
    "what no version of transformers reads": (LLAMA, lambda state: state | {
        f"model.layers.{i}.self_attn.rotary_emb.inv_freq": torch.ones(2) for i in range(3)
    }),
    "LlamaModel": (MODELS["llama_gqa_tied"], lambda state: without_prefix(state, "model.")),
    "GPT-2 as it was published": (GPT2, lambda state: without_prefix(state, "transformer.") | {
        f"h.{i}.attn.bias": torch.ones(1, 1, 20, 20).tril() for i in range(2)
    }),
}  # fmt: skip


@pytest.mark.parametrize("case", LEFT_OUT)
def test_names_and_tensors_that_may_be_left_out(tmp_path, case):
    model, change = LEFT_OUT[case]
    source = tmp_path / "source.safetensors"
    state = save(library(model), source)
    save_file(change(state), source)
    import_from(tmp_path, write_spec(tmp_path, write_tokens(tmp_path / "tokens"), model, {}), source)
    assert_same(export_of(tmp_path), state)


# ---- what does not fit ----


def without(name):
    return lambda state: {key: values for key, values in state.items() if key != name}


def with_one_more(name):
    return lambda state: state | {name: torch.ones(4)}


def only(name):
    return lambda _: {name: torch.ones(2, 2)}


REFUSALS = {  # model, what is different in the file, what the spec has, parts of the message
    "shape": ("resnet18", dict, {"num_classes": 12}, ["fc.weight", "[10, 512]", "[12, 512]"]),
    "missing": ("resnet18", without("layer3.1.conv2.weight"), {}, ["layer3.1.conv2.weight", "[256, 256, 3, 3]"]),
    "unknown": ("resnet18", with_one_more("another.weight"), {}, ["another.weight"]),
    "not finite": ("resnet18", lambda state: state | {"fc.bias": torch.full([10], float("nan"))}, {}, ["fc.bias"]),
    "no counter": ("resnet18", lambda state: state | {"bn1.num_batches_tracked": torch.tensor([1, 2])}, {}, ["bn1.num_batches_tracked"]),
    "another task": ("llama", with_one_more("score.weight"), {}, ["score.weight"]),
    "deeper": ("llama", with_one_more("model.layers.3.mlp.up_proj.weight"), {}, ["model.layers.3.mlp.up_proj.weight"]),
    "biases": ("llama", with_one_more("model.layers.0.self_attn.q_proj.bias"), {}, ["model.layers.0.self_attn.q_proj.bias"]),
    "own head": ("llama", dict, TIED, ["lm_head.weight", "model.tied_embeddings=false"]),
    "smaller head": ("llama", lambda state: state | {"lm_head.weight": state["model.embed_tokens.weight"][:-1].clone()}, TIED, ["lm_head.weight"]),
    "head of gpt2": ("gpt2", lambda state: state | {"lm_head.weight": state["transformer.wte.weight"] + 1}, {}, ["lm_head.weight"]),
    "lora": ("llama", only("base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"), {}, ["adapter"]),
    "ia3": ("llama", only("base_model.model.model.layers.0.mlp.down_proj.ia3_l"), {}, ["adapter"]),
    "torchtune": ("llama", only("layers.0.attn.q_proj.lora_a.weight"), {}, ["adapter"]),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSALS)
def test_weights_that_do_not_fit_are_refused(tmp_path, data, case):
    name, change, own, expected = REFUSALS[case]
    model, source = MODELS[name], tmp_path / "source.safetensors"
    state = save(library(model), source)
    save_file(change(state), source)
    spec = write_spec(tmp_path, tokens_or(data, model, tmp_path), model | own, {})
    refused = import_from(tmp_path, spec, source, expect=3).stderr
    assert all(part in refused for part in expected), refused
    assert not (tmp_path / "runs").exists()


def test_files_that_are_in_the_way(tmp_path, data):
    """A run is not replaced; an export is named as what it is."""
    model = {"name": "mlp", "width": 8, "depth": 1, "hidden_width": 8}
    save(library(model), tmp_path / "source.safetensors")
    spec = write_spec(tmp_path, data, model, {"masking": "backward"})
    assert "cannot" in import_from(tmp_path, spec, tmp_path / "missing.safetensors", expect=3).stderr
    import_from(tmp_path, spec, tmp_path / "source.safetensors")
    assert "--resume" in import_from(tmp_path, spec, tmp_path / "source.safetensors", expect=2).stderr
    export = lambda *out: harness.run("export", "--run", tmp_path / "runs" / "run", "--out", *out, expect=2).stderr
    assert "every worker" in export(tmp_path / "out.safetensors", "--worker", 0)
    for name in ("x.pt", "x", "x.onnx"):
        assert "x.safetensors" in export(tmp_path / name) and not (tmp_path / name).exists()
