"""Weights of torchvision and transformers are imported and exported unchanged in every regime, and one worker's subnetwork
is exported as a smaller model."""

import json

import pytest
import tokenizers
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer, GPT2LMHeadModel, LlamaForCausalLM

import harness
import small_models
from comparison import REGIMES
from library_models import library_model
from small_models import TOKENS, VARIANTS, VOCABULARY, read_tokens, reads_tokens, write_tokens

SUBNETWORK = {"workers": 4, "coverage": "2/4"}
LLAMA = small_models.LLAMA | {"hidden_width": 64}  # for slices of the same size
GPT2 = small_models.GPT2
MODELS = small_models.MODELS | {
    "resnet18": {"name": "resnet18", "stem": "imagenet", "image_size": 32, "width": 64},
    "llama": LLAMA, "llama_gqa_tied": LLAMA | {"kv_heads": 2, "tied_embeddings": True},
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
    out = tmp_path / "out" / "model.safetensors"
    out.parent.mkdir()
    harness.run("export", "--run", tmp_path / "runs" / "run", "--out", out)
    exported = load_file(out)
    assert exported.keys() == state.keys()
    for key, values in state.items():
        assert exported[key].dtype == values.dtype and torch.equal(exported[key], values), key
    if reads_tokens(model):
        loaded = AutoModelForCausalLM.from_pretrained(out.parent).eval()
        tokens, _ = read_tokens(folder)
        with torch.no_grad():
            assert torch.equal(loaded(tokens[:4]).logits, net(tokens[:4]).logits)
    else:
        library(model).load_state_dict(exported, strict=True)


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

    def first_weights(name):
        out = tmp_path / f"{name}.safetensors"
        harness.run("export", "--run", tmp_path / "runs" / name, "--checkpoint", 0, "--out", out)
        return load_file(out)

    imported, drawn, state = first_weights("run"), first_weights("scratch"), net.state_dict()
    heads = {key for key, values in imported.items() if values.shape != state[key].shape}
    assert 0 < len(heads) < len(imported)
    for key, values in imported.items():
        assert torch.equal(values, drawn[key] if key in heads else state[key]), key


def test_files_of_gpt2(tmp_path):
    """A folder from transformers; one of the model without its head, as GPT-2 was published; and folders that do not fit."""
    net = library(GPT2)
    net.save_pretrained(tmp_path / "whole")
    net.transformer.save_pretrained(tmp_path / "headless")
    old = {name: values.contiguous() for name, values in load_file(tmp_path / "headless" / "model.safetensors").items()}
    assert "wte.weight" in old and not any(name.startswith("transformer.") for name in old)
    masks = {f"h.{i}.attn.bias": torch.ones(1, 1, 20, 20).tril() for i in range(2)}  # as in files of old versions
    save_file(old | masks, tmp_path / "headless" / "model.safetensors")
    folder = write_tokens(tmp_path / "tokens")
    for name in ("whole", "headless"):
        regime = {"construction": "neuron" if name == "whole" else "block"}
        spec = write_spec(tmp_path, folder, GPT2, regime, name=name)
        import_from(tmp_path, spec, tmp_path / name)
        out = tmp_path / f"{name}_out" / "model.safetensors"
        out.parent.mkdir()
        harness.run("export", "--run", tmp_path / "runs" / name, "--out", out)
        loaded = GPT2LMHeadModel.from_pretrained(out.parent).eval()
        tokens, _ = read_tokens(folder)
        with torch.no_grad():
            difference = (loaded(tokens[:4]).logits - net(tokens[:4]).logits).abs().max().item()
        assert difference < 1e-4

    save_file(old | {"lm_head.weight": old["wte.weight"] + 1}, tmp_path / "untied.safetensors")
    spec = write_spec(tmp_path, folder, GPT2, {}, name="untied")
    assert "lm_head.weight" in import_from(tmp_path, spec, tmp_path / "untied.safetensors", expect=3).stderr
    spec = write_spec(tmp_path, folder, GPT2 | {"heads": 4, "context_length": 16}, {}, name="other")
    refused = import_from(tmp_path, spec, tmp_path / "whole", expect=3).stderr
    assert "--set model.heads=8" in refused and "--set model.context_length=20" in refused
    config = json.loads((tmp_path / "whole" / "config.json").read_text())
    (tmp_path / "whole" / "config.json").write_text(json.dumps(config | {"activation_function": "relu"}))
    refused = import_from(tmp_path, spec, tmp_path / "whole", expect=3).stderr
    assert "relu" in refused and "cannot be imported" in refused


def test_training_starts_from_the_imported_weights(tmp_path):
    net = library(LLAMA)
    save(net, tmp_path / "source.safetensors")
    folder = write_tokens(tmp_path / "tokens")
    spec = write_spec(tmp_path, folder, LLAMA, {"coverage": "1"})
    import_from(tmp_path, spec, tmp_path / "source.safetensors")
    harness.run("--config", spec, "--nproc", 2, "--resume")
    run_dir = tmp_path / "runs" / "run"
    tokens, labels = read_tokens(folder)
    for (step, worker, _), samples in harness.trace_samples(run_dir).items():
        index = torch.tensor(samples)
        with torch.no_grad():
            logits = net(tokens[index]).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels[index].flatten()).item()
        assert harness.trace_losses(run_dir)[step, worker, 0] == pytest.approx(loss, abs=1e-5)


def masked_logits(net, owned, tokens):
    """The full model without the hidden units that are not in owned[branch]."""
    parameters = dict(net.named_parameters())
    for layer in range(3):
        for branch, last, width in ((".self_attn", ".self_attn.o_proj.weight", 8), (".mlp", ".mlp.down_proj.weight", 64)):
            mask = torch.zeros(width)
            for begin, end in owned[f"model.layers.{layer}{branch}"]:
                mask[begin:end] = 1
            name = f"model.layers.{layer}{last}"
            parameters[name] = parameters[name] * mask.repeat_interleave(parameters[name].shape[1] // width)
    with torch.no_grad():
        return torch.func.functional_call(net, parameters, (tokens,)).logits


def is_alike(owned):
    """Whether all remaining blocks have the same widths of attention and MLP."""
    width = lambda branch: sum(end - begin for begin, end in owned[branch])
    blocks = {(width(f"model.layers.{i}.self_attn"), width(f"model.layers.{i}.mlp")) for i in range(3)} - {(0, 0)}
    return len(blocks) == 1 and all(blocks.pop())


@pytest.mark.parametrize("construction", ["block", "neuron", "branches"])
def test_a_workers_subnetwork_is_a_model_of_its_own(tmp_path, construction):
    """Without whole blocks, or with the same slices in every block, a subnetwork is a smaller LLaMA for transformers."""
    net = library(LLAMA)
    save(net, tmp_path / "source.safetensors")
    folder = write_tokens(tmp_path / "tokens")
    regime = {"construction": "neuron", "assignment": "window"} if construction == "neuron" else {"construction": "block"}
    if construction == "branches":
        regime |= {"unit": "branch", "assignment": "window"}
    spec = write_spec(tmp_path, folder, LLAMA, regime)
    import_from(tmp_path, spec, tmp_path / "source.safetensors")
    run_dir = tmp_path / "runs" / "run"
    tokens, _ = read_tokens(folder)
    sizes = set()
    for worker in range(4):
        out = tmp_path / f"worker{worker}" / "model.safetensors"
        out.parent.mkdir()
        harness.run("export", "--run", run_dir, "--worker", worker, "--out", out)
        config = json.loads((out.parent / "config.json").read_text())
        owned = config["sdp_train"]["hidden"]
        plan = json.loads((run_dir / "plan.json").read_text())
        for unit in plan["units"]:
            inside = any(b <= unit["begin"] and unit["end"] <= e for b, e in owned[unit["branch"]])
            assert inside == (worker in unit["owners"])
        exported = load_file(out)
        sizes.add(sum(values.numel() for values in exported.values()))
        alike = is_alike(owned)
        assert alike or construction == "branches"
        assert ("architectures" in config) == alike
        if alike:
            smaller = LlamaForCausalLM.from_pretrained(out.parent).eval()
            assert sum(p.numel() for p in smaller.parameters()) == sum(v.numel() for v in exported.values())
            with torch.no_grad():
                logits = smaller(tokens[:4]).logits
            assert (logits - masked_logits(net, owned, tokens[:4])).abs().max() < 1e-5
        else:
            for branch, ranges in owned.items():
                last = branch + (".o_proj.weight" if branch.endswith("attn") else ".down_proj.weight")
                assert (last in exported) == bool(ranges)
    assert max(sizes) < sum(p.numel() for p in net.parameters())


def test_what_does_not_fit_is_refused(tmp_path, data):
    model = MODELS["resnet18"]
    source = tmp_path / "source.safetensors"
    state = save(library(MODELS["resnet18"]), source)
    spec = write_spec(tmp_path, data, model | {"num_classes": 12}, {})
    refused = import_from(tmp_path, spec, source, expect=3).stderr
    assert "fc.weight has shape [10, 512], expected [12, 512]" in refused
    assert not (tmp_path / "runs").exists()
    spec = write_spec(tmp_path, data, model, {})
    save_file({name: values for name, values in state.items() if name != "layer3.1.conv2.weight"}, source)
    refused = import_from(tmp_path, spec, source, expect=3).stderr
    assert "no tensor layer3.1.conv2.weight, expected one of shape [256, 256, 3, 3]" in refused
    assert not (tmp_path / "runs").exists()
    assert "cannot" in import_from(tmp_path, spec, tmp_path / "missing.safetensors", expect=3).stderr
    save_file(state | {"another.weight": torch.zeros(3)}, source)
    assert "another.weight" in import_from(tmp_path, spec, source, expect=3).stderr
    save_file(state, source)
    import_from(tmp_path, spec, source)
    assert "--resume" in import_from(tmp_path, spec, source, expect=2).stderr  # the folder exists now


def test_a_folder_of_the_hub_is_imported_and_its_config_compared(tmp_path):
    """Several files and an index, as transformers saves large models."""
    net = library(LLAMA | {"kv_heads": 2})
    hub = tmp_path / "hub"
    net.save_pretrained(hub, max_shard_size="20KB")
    assert (hub / "model.safetensors.index.json").exists() and len(list(hub.glob("*.safetensors"))) > 2
    folder = write_tokens(tmp_path / "tokens")
    wrong = LLAMA | {"depth": 5, "heads": 4, "kv_heads": 4, "norm_eps": 1e-3}
    spec = write_spec(tmp_path, folder, wrong, {})
    refused = import_from(tmp_path, spec, hub, expect=3).stderr
    repairs = ["model.depth=3", "model.heads=8", "model.kv_heads=2", "model.norm_eps=1e-05"]
    for repair in repairs:
        assert f"--set {repair}" in refused
    assert not (tmp_path / "runs" / "run" / "checkpoints").exists()
    harness.run("import", "--config", spec, "--from", hub, *(part for repair in repairs for part in ("--set", repair)))
    out = tmp_path / "out" / "model.safetensors"
    out.parent.mkdir()
    harness.run("export", "--run", tmp_path / "runs" / "run", "--out", out)
    exported = load_file(out)
    assert exported.keys() == net.state_dict().keys()
    assert all(torch.equal(exported[name], values) for name, values in net.state_dict().items())

    config = json.loads((hub / "config.json").read_text())
    spec = write_spec(tmp_path, folder, LLAMA | {"kv_heads": 2}, {}, name="another")
    for change, part in [
        ({"attention_bias": True}, "attention_bias"),
        ({"rope_scaling": {"rope_type": "linear", "factor": 2.0}}, "linear"),
        ({"model_type": "mistral"}, "mistral"),
    ]:
        (hub / "config.json").write_text(json.dumps(config | change))
        refused = import_from(tmp_path, spec, hub, expect=3).stderr
        assert part in refused and "cannot be imported" in refused
    # An architecture of the program, but not the spec's.
    (hub / "config.json").write_text(json.dumps(config | {"model_type": "gpt2"}))
    refused = import_from(tmp_path, spec, hub, expect=3).stderr
    assert "model.name" in refused and "gpt2_medium" in refused and "cannot be imported" not in refused


def test_a_file_of_torch_save_is_named_as_one(tmp_path, data):
    source = tmp_path / "weights.pth"
    torch.save(library(MODELS["resnet18"]).state_dict(), source)
    spec = write_spec(tmp_path, data, MODELS["resnet18"], {})
    assert "torch.save" in import_from(tmp_path, spec, source, expect=3).stderr


def test_config_of_an_image_model_is_enough_to_build_it(tmp_path, data):
    net = library(MODELS["swin"])
    save(net, tmp_path / "source.safetensors")
    spec = write_spec(tmp_path, data, MODELS["swin"], {})
    import_from(tmp_path, spec, tmp_path / "source.safetensors")
    out = tmp_path / "out" / "model.safetensors"
    out.parent.mkdir()
    harness.run("export", "--run", tmp_path / "runs" / "run", "--out", out)
    config = json.loads((out.parent / "config.json").read_text())["sdp_train"]
    model = config["model"]
    assert model["name"] == "swin_t"
    built = library(model)
    built.load_state_dict(load_file(out), strict=True)
    # The exported normalization gives the input that training used.
    normalized, _ = harness.read_cifar10(data, "test")
    shape = (1, 3, 1, 1)
    mean, std = (torch.tensor(config["normalization"][key]).view(shape) for key in ("mean", "std"))
    pixels = (normalized * std + mean) * 255
    assert (pixels - pixels.round()).abs().max() < 1e-3 and pixels.min() >= -1e-3
    with torch.no_grad():
        assert torch.equal(built(normalized[:2]), net.eval()(normalized[:2]))
    # The export can be imported again; wrong sizes are found in the file.
    spec = write_spec(tmp_path, data, MODELS["swin"] | {"window_size": 2, "num_classes": 12}, {}, name="again")
    refused = import_from(tmp_path, spec, out, expect=3).stderr
    assert "--set model.window_size=4" in refused and "--set model.num_classes=10" in refused


def test_an_exported_language_model_knows_its_tokenizer(tmp_path):
    """End of text and tokenizer, as scripts/prepare_tokens.py leaves them beside the shards."""
    folder = write_tokens(tmp_path / "tokens")
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({f"w{i}": i for i in range(VOCABULARY)}, unk_token="w0"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    words.add_special_tokens(["w7"])
    words.save(str(folder / "toy.tokenizer.json"))
    (folder / "toy.state.json").write_text(json.dumps({"settings": {"end_of_text": 7}}))
    save(library(LLAMA), tmp_path / "source.safetensors")
    spec = write_spec(tmp_path, folder, LLAMA, {})
    import_from(tmp_path, spec, tmp_path / "source.safetensors")
    out = tmp_path / "out" / "model.safetensors"
    out.parent.mkdir()
    harness.run("export", "--run", tmp_path / "runs" / "run", "--out", out)
    model = LlamaForCausalLM.from_pretrained(out.parent)
    assert (model.config.bos_token_id, model.config.eos_token_id) == (7, 7)
    assert model.generation_config.eos_token_id == 7
    loaded = AutoTokenizer.from_pretrained(out.parent)
    assert loaded.eos_token == "w7" and loaded.eos_token_id == 7
    assert loaded("w3 w5")["input_ids"] == [3, 5]
    # If no end-of-text token is known, generation must not stop at transformers' default, id 2.
    (folder / "toy.state.json").unlink()
    out.unlink()
    harness.run("export", "--run", tmp_path / "runs" / "run", "--out", out)
    assert LlamaForCausalLM.from_pretrained(out.parent).generation_config.eos_token_id is None
    # A tokenizer that is not export's own is not replaced.
    foreign = tmp_path / "foreign" / "tokenizer.json"
    foreign.parent.mkdir()
    foreign.write_text("{}")
    weights = foreign.parent / "model.safetensors"
    refused = harness.run("export", "--run", tmp_path / "runs" / "run", "--out", weights, expect=2).stderr
    assert str(foreign) in refused and foreign.read_text() == "{}" and not weights.exists()


def test_worker_export_has_its_limits(tmp_path, data):
    save(library(MODELS["resnet18"]), tmp_path / "source.safetensors")
    spec = write_spec(tmp_path, data, MODELS["resnet18"], {"masking": "backward"})
    import_from(tmp_path, spec, tmp_path / "source.safetensors")
    run_dir = tmp_path / "runs" / "run"
    out = tmp_path / "out.safetensors"
    refused = harness.run("export", "--run", run_dir, "--worker", 0, "--out", out, expect=2).stderr
    assert "every worker has the whole model" in refused
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    assert "was not written by sdp-train" in harness.run("export", "--run", run_dir, "--out", out, expect=2).stderr
    assert json.loads((tmp_path / "config.json").read_text()) == {"model_type": "bert"}
