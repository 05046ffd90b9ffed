"""Weights of torchvision and transformers go in and come out unchanged, under any regime, and one worker's subnetwork is
a model of its own."""

import json

import pytest
import torch
import torchvision
from safetensors.torch import load_file, save_file
from torchvision.models.swin_transformer import SwinTransformer
from transformers import LlamaConfig, LlamaForCausalLM

import harness
from comparison import REGIMES
from test_transformers import TOKENS, VOCABULARY, read_tokens, write_tokens

SUBNETWORK = {"workers": 4, "coverage": "2/4"}
LLAMA = {"name": "llama_tiny", "width": 32, "depth": 3, "hidden_width": 64, "heads": 8, "vocab_size": VOCABULARY}


def resnet18():
    torch.manual_seed(1)
    net = torchvision.models.resnet18(num_classes=10)
    for name, buffer in net.named_buffers():
        if name.endswith("running_mean"):
            buffer.normal_(0, 0.1)
        if name.endswith("running_var"):
            buffer.uniform_(0.5, 1.5)
        if name.endswith("num_batches_tracked"):
            buffer.fill_(70)
    return net


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


def save(net, path):
    state = {name: tensor.contiguous() for name, tensor in net.state_dict().items()}
    if getattr(getattr(net, "config", None), "tie_word_embeddings", False):
        del state["lm_head.weight"]
    save_file(state, path)
    return state


def write_spec(folder, data, model, subnetwork, **sections):
    """Forward and export leave the weights as they are: a learning rate of next to nothing, no correction."""
    if model["name"].startswith("llama"):
        sections["data"] = {"name": "tokens", "path": str(data), "sequence_length": TOKENS}
    return harness.write_config(
        folder, "run", data, model=model, subnetwork=SUBNETWORK | subnetwork,
        train={"precision": "fp32", "max_steps": 1, "batch_size_per_worker": 2, **sections.pop("train", {})},
        eval={"recalibrate_batches": 0}, **sections,
    )


def import_from(folder, spec, source, expect=0):
    return harness.run("import", "--config", spec, "--from", source, expect=expect)


MODELS = {
    "resnet18": (resnet18, {"name": "resnet18", "stem": "imagenet", "image_size": 32, "width": 64}),
    "swin": (swin, {"name": "swin_t", "width": 24, "heads": 3, "patch_size": 4, "window_size": 4, "image_size": 32}),
    "llama": (llama, LLAMA),
    "llama_gqa_tied": (lambda: llama(2, True), LLAMA | {"kv_heads": 2, "tied_embeddings": True}),
}


@pytest.mark.parametrize("construction,masking", REGIMES)
@pytest.mark.parametrize("name", MODELS)
def test_import_then_export_keeps_every_byte(tmp_path, data, name, construction, masking):
    make, model = MODELS[name]
    net = make()
    source = tmp_path / "source.safetensors"
    state = save(net, source)
    folder = write_tokens(tmp_path / "tokens") if name.startswith("llama") else data
    spec = write_spec(tmp_path, folder, model, {"construction": construction, "masking": masking})
    import_from(tmp_path, spec, source)
    out = tmp_path / "out" / "model.safetensors"
    out.parent.mkdir()
    harness.run("export", "--run", tmp_path / "runs" / "run", "--out", out)
    exported = load_file(out)
    assert exported.keys() == state.keys()
    for key, values in state.items():
        assert exported[key].dtype == values.dtype and torch.equal(exported[key], values), key
    if name.startswith("llama"):
        loaded = LlamaForCausalLM.from_pretrained(out.parent).eval()
        tokens, _ = read_tokens(folder)
        with torch.no_grad():
            assert torch.equal(loaded(tokens[:4]).logits, net(tokens[:4]).logits)
    else:
        make().load_state_dict(exported, strict=True)


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
    """Whether all blocks that are left have the same widths, of attention and MLP."""
    width = lambda branch: sum(end - begin for begin, end in owned[branch])
    blocks = {(width(f"model.layers.{i}.self_attn"), width(f"model.layers.{i}.mlp")) for i in range(3)} - {(0, 0)}
    return len(blocks) == 1 and all(blocks.pop())


@pytest.mark.parametrize("construction", ["block", "neuron", "branches"])
def test_a_workers_subnetwork_is_a_model_of_its_own(tmp_path, construction):
    """Blocks that are left out, and slices that are alike in every block, are a smaller LLaMA for transformers."""
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
    spec = write_spec(tmp_path, data, model, {})
    save_file({name: values for name, values in state.items() if name != "layer3.1.conv2.weight"}, source)
    refused = import_from(tmp_path, spec, source, expect=3).stderr
    assert "no tensor layer3.1.conv2.weight, expected one of shape [256, 256, 3, 3]" in refused
    assert not (tmp_path / "runs" / "run" / "checkpoints").exists()
    assert "cannot" in import_from(tmp_path, spec, tmp_path / "missing.safetensors", expect=3).stderr
    save_file(state | {"another.weight": torch.zeros(3)}, source)
    assert "not used: another.weight\n" in import_from(tmp_path, spec, source).stdout
    assert "--resume" in import_from(tmp_path, spec, source, expect=2).stderr  # the folder is taken now


def test_worker_export_has_its_limits(tmp_path, data):
    save(resnet18(), tmp_path / "source.safetensors")
    spec = write_spec(tmp_path, data, MODELS["resnet18"][1], {"masking": "backward"})
    import_from(tmp_path, spec, tmp_path / "source.safetensors")
    run_dir = tmp_path / "runs" / "run"
    out = tmp_path / "out.safetensors"
    refused = harness.run("export", "--run", run_dir, "--worker", 0, "--out", out, expect=2).stderr
    assert "every worker has the whole model" in refused
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    assert "belongs to something else" in harness.run("export", "--run", run_dir, "--out", out, expect=2).stderr
    assert json.loads((tmp_path / "config.json").read_text()) == {"model_type": "bert"}
