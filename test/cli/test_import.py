"""Weights of torchvision and transformers are imported and exported unchanged in every regime, and one worker's subnetwork
is exported as a smaller model."""

import json

import pytest
import tokenizers
import torch
import torchvision
from safetensors.torch import load_file, save_file
from torchvision.models.swin_transformer import SwinTransformer
from transformers import AutoModelForCausalLM, AutoTokenizer, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

import harness
from comparison import REGIMES
from test_transformers import TOKENS, VOCABULARY, read_tokens, write_tokens

SUBNETWORK = {"workers": 4, "coverage": "2/4"}
LLAMA = {"name": "llama_tiny", "width": 32, "depth": 3, "hidden_width": 64, "heads": 8, "vocab_size": VOCABULARY}


GPT2 = {"name": "gpt2", "width": 32, "depth": 3, "heads": 8, "vocab_size": VOCABULARY, "context_length": 20}


def resnet(make):
    torch.manual_seed(1)
    net = make(num_classes=10)
    for name, buffer in net.named_buffers():
        if name.endswith("running_mean"):
            buffer.normal_(0, 0.1)
        if name.endswith("running_var"):
            buffer.uniform_(0.5, 1.5)
        if name.endswith("num_batches_tracked"):
            buffer.fill_(70)
    return net


def resnet18():
    return resnet(torchvision.models.resnet18)


def swin():
    torch.manual_seed(1)
    return SwinTransformer(
        patch_size=[4, 4], embed_dim=24, depths=[2, 2, 6, 2], num_heads=[3, 6, 12, 24], window_size=[4, 4], num_classes=10
    )


def llama(kv_heads=8, tied=False):
    torch.manual_seed(1)
    config = LlamaConfig(
        hidden_size=32, intermediate_size=64, num_hidden_layers=3, num_attention_heads=8, num_key_value_heads=kv_heads,
        vocab_size=VOCABULARY, rms_norm_eps=1e-5, tie_word_embeddings=tied, max_position_embeddings=TOKENS,
    )
    return LlamaForCausalLM(config).eval()


def gpt2():
    torch.manual_seed(1)
    return GPT2LMHeadModel(GPT2Config(
        n_embd=32, n_layer=3, n_head=8, vocab_size=VOCABULARY, n_positions=20, bos_token_id=None, eos_token_id=None,
    )).eval()


def save(net, path):
    state = {name: tensor.contiguous() for name, tensor in net.state_dict().items()}
    if getattr(getattr(net, "config", None), "tie_word_embeddings", False):
        del state["lm_head.weight"]
    save_file(state, path)
    return state


def write_spec(folder, data, model, subnetwork, **sections):
    """A run that leaves the weights as they are: a negligible learning rate, no correction."""
    if "vocab_size" in model:
        sections["data"] = {"name": "tokens", "path": str(data), "sequence_length": TOKENS}
    return harness.write_config(
        folder, sections.pop("name", "run"), data, model=model, subnetwork=SUBNETWORK | subnetwork,
        train={"precision": "fp32", "max_steps": 1, "batch_size_per_worker": 2, **sections.pop("train", {})},
        eval={"recalibrate_batches": 0}, **sections,
    )


def import_from(folder, spec, source, expect=0):
    return harness.run("import", "--config", spec, "--from", source, expect=expect)


MODELS = {
    "resnet18": (resnet18, {"name": "resnet18", "stem": "imagenet", "image_size": 32, "width": 64}),
    "resnet50": (
        lambda: resnet(torchvision.models.resnet50),
        {"name": "resnet50", "stem": "imagenet", "image_size": 32, "width": 64},
    ),
    "swin": (swin, {"name": "swin_t", "width": 24, "num_heads": [3, 6, 12, 24], "patch_size": 4, "window_size": 4, "image_size": 32}),
    "llama": (llama, LLAMA),
    "llama_gqa_tied": (lambda: llama(2, True), LLAMA | {"kv_heads": 2, "tied_embeddings": True}),
    "gpt2": (gpt2, GPT2),
}
# All regimes for one model. For the others, whole branches and slices; resnet50's and gpt2's branches are those of models above
# or of test_files_of_gpt2.
OF_MODEL = {"resnet18": REGIMES, "resnet50": REGIMES[2:3], "gpt2": REGIMES[2:3]}
CASES = [(name, *regime) for name in MODELS for regime in OF_MODEL.get(name, REGIMES[1:3])]


@pytest.mark.parametrize("name,construction,masking", CASES)
def test_import_then_export_keeps_every_byte(tmp_path, data, name, construction, masking):
    make, model = MODELS[name]
    net = make()
    source = tmp_path / "source.safetensors"
    state = save(net, source)
    is_language = "vocab_size" in model
    folder = write_tokens(tmp_path / "tokens") if is_language else data
    spec = write_spec(tmp_path, folder, model, {"construction": construction, "masking": masking})
    import_from(tmp_path, spec, source)
    out = tmp_path / "out" / "model.safetensors"
    out.parent.mkdir()
    harness.run("export", "--run", tmp_path / "runs" / "run", "--out", out)
    exported = load_file(out)
    assert exported.keys() == state.keys()
    for key, values in state.items():
        assert exported[key].dtype == values.dtype and torch.equal(exported[key], values), key
    if is_language:
        loaded = AutoModelForCausalLM.from_pretrained(out.parent).eval()
        tokens, _ = read_tokens(folder)
        with torch.no_grad():
            assert torch.equal(loaded(tokens[:4]).logits, net(tokens[:4]).logits)
    else:
        make().load_state_dict(exported, strict=True)


HEADS = {
    "resnet18": ["fc.weight", "fc.bias"],
    "swin": ["head.weight", "head.bias"],
    "llama": ["model.embed_tokens.weight", "lm_head.weight"],
    "gpt2": ["transformer.wte.weight"],
}


@pytest.mark.parametrize("name", HEADS)
def test_a_new_head_is_drawn_as_in_a_run_from_scratch(tmp_path, data, name):
    """The file has more classes or tokens than the experiment."""
    make, model = MODELS[name]
    net = make()
    source = tmp_path / "source.safetensors"
    is_language = "vocab_size" in model
    if is_language:
        source = tmp_path / "source"
        net.resize_token_embeddings(VOCABULARY + 5)
        net.save_pretrained(source)
        state = net.state_dict()
    else:
        state = net.state_dict() | {name: torch.randn(12, *net.state_dict()[name].shape[1:]) for name in HEADS[name]}
        save_file({name: tensor.contiguous() for name, tensor in state.items()}, source)
    folder = write_tokens(tmp_path / "tokens") if is_language else data
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

    imported, drawn = first_weights("run"), first_weights("scratch")
    assert set(HEADS[name]) < imported.keys()
    for key, values in imported.items():
        expected = drawn[key] if key in HEADS[name] else state[key]
        assert torch.equal(values, expected), key


def test_files_of_gpt2(tmp_path):
    """A folder from transformers; one of the model without its head, as GPT-2 was published; and folders that do not fit."""
    net = gpt2()
    net.save_pretrained(tmp_path / "whole")
    net.transformer.save_pretrained(tmp_path / "headless")
    old = {name: values.contiguous() for name, values in load_file(tmp_path / "headless" / "model.safetensors").items()}
    assert "wte.weight" in old and not any(name.startswith("transformer.") for name in old)
    masks = {f"h.{i}.attn.bias": torch.ones(1, 1, 20, 20).tril() for i in range(3)}  # as in files of old versions
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
    net = llama()
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
    net = llama()
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
    model = MODELS["resnet18"][1]
    source = tmp_path / "source.safetensors"
    state = save(resnet18(), source)
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
    net = llama(kv_heads=2)
    hub = tmp_path / "hub"
    net.save_pretrained(hub, max_shard_size="20KB")
    assert (hub / "model.safetensors.index.json").exists() and len(list(hub.glob("*.safetensors"))) > 2
    folder = write_tokens(tmp_path / "tokens")
    wrong = LLAMA | {"depth": 5, "heads": 4, "norm_eps": 1e-3}
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
    torch.save(resnet18().state_dict(), source)
    spec = write_spec(tmp_path, data, MODELS["resnet18"][1], {})
    assert "torch.save" in import_from(tmp_path, spec, source, expect=3).stderr


def test_config_of_an_image_model_is_enough_to_build_it(tmp_path, data):
    net = swin()
    save(net, tmp_path / "source.safetensors")
    spec = write_spec(tmp_path, data, MODELS["swin"][1], {})
    import_from(tmp_path, spec, tmp_path / "source.safetensors")
    out = tmp_path / "out" / "model.safetensors"
    out.parent.mkdir()
    harness.run("export", "--run", tmp_path / "runs" / "run", "--out", out)
    config = json.loads((out.parent / "config.json").read_text())["sdp_train"]
    model = config["model"]
    assert model["name"] == "swin_t"
    built = SwinTransformer(
        patch_size=[model["patch_size"]] * 2, embed_dim=model["width"], depths=model["depths"],
        num_heads=model["num_heads"], window_size=[model["window_size"]] * 2,
        num_classes=model["num_classes"],
    ).eval()
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
    spec = write_spec(tmp_path, data, MODELS["swin"][1] | {"window_size": 2, "num_classes": 12}, {}, name="again")
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
    save(llama(), tmp_path / "source.safetensors")
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
    save(resnet18(), tmp_path / "source.safetensors")
    spec = write_spec(tmp_path, data, MODELS["resnet18"][1], {"masking": "backward"})
    import_from(tmp_path, spec, tmp_path / "source.safetensors")
    run_dir = tmp_path / "runs" / "run"
    out = tmp_path / "out.safetensors"
    refused = harness.run("export", "--run", run_dir, "--worker", 0, "--out", out, expect=2).stderr
    assert "every worker has the whole model" in refused
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    assert "was not written by sdp-train" in harness.run("export", "--run", run_dir, "--out", out, expect=2).stderr
    assert json.loads((tmp_path / "config.json").read_text()) == {"model_type": "bert"}
