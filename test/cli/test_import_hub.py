"""config.json as transformers reads it, also where keys are absent; what an export keeps of an imported folder; what the files say
of their data; and files that a download did not bring."""

import json
import re
import shlex
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

import harness
from small_models import SCALING, VOCABULARY, read_tokens, write_tokens
from test_import import GPT2, LLAMA, MODELS, assert_same, export_of, import_from, import_state
from test_import import library, state_of, word_tokenizer, write_spec

# Values other than transformers' defaults and ours, and weights so large that each shows in the loss.
LLAMA_KEYS = {
    "model_type": "llama", "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 3, "num_attention_heads": 8,
    "num_key_value_heads": 8, "head_dim": 4, "vocab_size": VOCABULARY, "rope_theta": 500000.0, "rms_norm_eps": 1e-3,
    "tie_word_embeddings": False, "hidden_act": "silu", "attention_bias": False, "mlp_bias": False, "rope_scaling": None,
    "max_position_embeddings": 256, "bos_token_id": 3, "eos_token_id": 5, "pad_token_id": 6, "initializer_range": 0.3,
}
LLAMA_MODEL = LLAMA | {"rope_theta": 500000, "norm_eps": 1e-3}
GPT2_KEYS = {
    "model_type": "gpt2", "n_embd": 32, "n_inner": 128, "n_layer": 2, "n_head": 8, "n_positions": 20, "vocab_size": VOCABULARY,
    "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5, "tie_word_embeddings": True, "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False, "add_cross_attention": False, "bos_token_id": 3, "eos_token_id": 5,
    "initializer_range": 0.3,
}
# Rotary embeddings that are scaled, heads of a size of their own, and a tied head.
LLAMA_3_SCALING = {"rope_type": "llama3", "original_max_position_embeddings": SCALING["original_context"]}
LLAMA_3_SCALING |= {key: value for key, value in SCALING.items() if key != "original_context"}
LLAMA_3_KEYS = LLAMA_KEYS | {"head_dim": 6, "num_key_value_heads": 4, "tie_word_embeddings": True}
LLAMA_3_KEYS |= {"rope_theta": 10000.0, "rope_scaling": LLAMA_3_SCALING}
LLAMA_3_MODEL = {"kv_heads": 4, "tied_embeddings": True, "rope_theta": 10000, "head_size": 6, "rope_scaling": SCALING}
KINDS = {
    "llama": (LlamaForCausalLM, LlamaConfig, LLAMA_KEYS, LLAMA_MODEL),
    "llama_3": (LlamaForCausalLM, LlamaConfig, LLAMA_3_KEYS, LLAMA_MODEL | LLAMA_3_MODEL),
    "gpt2": (GPT2LMHeadModel, GPT2Config, GPT2_KEYS, GPT2),
}


def write_hub(folder, kind, change=(), drop=()):
    """A model with the keys of the kind and its weights, as transformers saves it; config.json is then changed."""
    torch.manual_seed(1)
    make, config, keys, _ = KINDS[kind]
    make(config(**keys)).save_pretrained(folder)
    rewritten = {key: value for key, value in (keys | dict(change)).items() if key not in drop}
    (folder / "config.json").write_text(json.dumps(rewritten))
    return folder


def loss_of_library(kind, folder, tokens):
    net = KINDS[kind][0].from_pretrained(folder).eval()
    inputs, labels = read_tokens(tokens)
    with torch.no_grad():
        return torch.nn.functional.cross_entropy(net(inputs).logits.flatten(0, 1), labels.flatten()).item()


def loss_after_import(tmp_path, spec, source, *options):
    import_from(tmp_path, spec, source, *options)
    run = tmp_path / "runs" / spec.stem
    return harness.run_json("eval", "--run", run, "--train-data", "--set", "eval.max_samples=1000")["loss"]


def spec_of(tmp_path, tokens, kind, model=(), name="run"):
    return write_spec(tmp_path, tokens, KINDS[kind][3] | dict(model), {"coverage": "1"}, name=name)


# Keys whose absence means another value than that above. No weights of 32 channels fit most of these values.
SIZES = "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size"
ABSENT = {
    "llama": [*SIZES, "rope_theta", "rms_norm_eps"],
    "gpt2": ["n_embd", "n_layer", "n_positions", "n_head", "vocab_size"],
}
ADAPTS = {"rope_theta": ["model.rope_theta=10000.0"], "rms_norm_eps": ["model.norm_eps=1e-06"]}
# Of which each changes what the model computes: keys of the libraries' configurations, of other models' and of tables.
OTHERS = {
    "llama": {"partial_rotary_factor": 0.25, "quantization_config": {"bits": 4}, "sliding_window": 512, "logit_scale": 0.5,
              "is_encoder_decoder": True, "add_cross_attention": True, "pruned_heads": {"0": [1]}, "qk_norm": True},
    "gpt2": {"quantization_config": {"bits": 8}, "rotary_dim": 4, "parallel_residual": True, "is_encoder_decoder": True,
             "pruned_heads": {"1": [0]}, "cross_attention_hidden_size": 8},
}  # fmt: skip
# All keys of the library, and others that change nothing.
ALL = {"llama": {"partial_rotary_factor": 1.0, "sliding_window": None}, "gpt2": {"n_ctx": 20, "use_sliding": False}}
SET = {"tied_embeddings": False, "head_size": 4}  # so that they are compared
DEFAULT = {"rope_theta": 500000.0, "rope_type": "default"}
FORMS = [  # what config.json has and lacks, what the spec has, what a refusal names, the options that it offers
    *((kind, {}, ["model_type"], {}, [], []) for kind in ("llama", "gpt2")),
    *((kind, {}, [key], {}, [key], ADAPTS.get(key, [])) for kind, keys in ABSENT.items() for key in keys),
    *((kind, {}, KINDS[kind][2].keys() - {"model_type", *keys}, {}, [], []) for kind, keys in ABSENT.items()),
    *((kind, KINDS[kind][1](**KINDS[kind][2]).to_dict() | more, [], {}, [], []) for kind, more in ALL.items()),
    *((kind, keys, [], {}, [f"  {key} is " for key in keys], []) for kind, keys in OTHERS.items()),
    # Version 5 of transformers has the base and the scaling in rope_parameters, which version 4 does not read.
    ("llama", {"rope_parameters": DEFAULT}, [], {}, [], []),
    ("llama_3", {"rope_parameters": LLAMA_3_SCALING | {"rope_theta": 1e4}}, ["rope_scaling", "rope_theta"], {}, [], []),
    ("llama_3", {}, [], {"head_size": 4, "rope_scaling": {"factor": 2.0}}, ["head_dim", "rope_scaling"],
     ["model.head_size=", "model.rope_scaling="]),
    ("llama", {"head_dim": None, "num_key_value_heads": None}, [], {}, [], []),
    ("gpt2", {"num_attention_heads": 4}, [], {"heads": 4}, [], []),
    ("gpt2", {"hidden_size": 32, "num_hidden_layers": 2}, ["n_embd", "n_layer", "n_inner"], {}, [], []),
    ("gpt2", {"n_inner": None, "n_head": 4, "activation_function": "gelu_pytorch_tanh"}, [], {"heads": 4}, [], []),
    *(("llama", change, [], SET, [named], None) for named, change in [
        ("rope_theta", {"rope_theta": None}), ("rms_norm_eps", {"rms_norm_eps": None}), ("head_dim", {"head_dim": 8}),
        ("tie_word_embeddings", {"tie_word_embeddings": True}), ("attention_bias", {"attention_bias": True}),
        ("rope_theta", {"rope_parameters": {"rope_theta": 10000.0}}),  # differs from rope_theta
        ("linear", {"rope_parameters": None, "rope_scaling": {"type": "linear", "factor": 2.0}}),
        ("mistral", {"model_type": "mistral"}),
        ("model.name", {"model_type": "gpt2"}),  # an architecture of the program, but not the spec's
        ("partial_rotary", {"rope_scaling": {"rope_type": "default", "partial_rotary_factor": 0.5}}),
        ("mrope_section", {"rope_parameters": DEFAULT | {"mrope_section": [1, 1]}}),
    ]),
    *(("gpt2", change, [], {}, [named], None) for named, change in [
        ("relu", {"activation_function": "relu"}), ("tie_word_embeddings", {"tie_word_embeddings": None}),
        ("n_head", {"num_attention_heads": 4}), ("layer_norm_epsilon", {"layer_norm_epsilon": 1e-6}),
    ]),
]  # fmt: skip


@pytest.mark.parametrize("kind,change,drop,model,named,offered", FORMS)
def test_config_json_means_what_transformers_reads(tmp_path, tokens, kind, change, drop, model, named, offered):
    """Or is refused, with the key; with the options that are offered, it is imported. The export has the same model."""
    hub, spec = write_hub(tmp_path / "hub", kind, change, drop), spec_of(tmp_path, tokens, kind, model)
    options = []
    if named:
        refused = import_from(tmp_path, spec, hub, expect=3).stderr
        assert all(part in refused for part in named), refused
        if not offered:
            return
        options = shlex.split(refused.rpartition("match the file: ")[2])
        assert all(option.startswith(start) for option, start in zip(options[1::2], offered, strict=True)), options
    of_library = write_hub(tmp_path / "whole", kind) if "rope_scaling" in drop and "rope_parameters" in change else hub
    expected = loss_of_library(kind, of_library, tokens)
    assert loss_after_import(tmp_path, spec, hub, *options) == pytest.approx(expected, abs=2e-6)
    export_of(tmp_path)
    assert loss_of_library(kind, tmp_path / "out", tokens) == pytest.approx(expected, abs=1e-7)
    theirs, ours = (KINDS[kind][1].from_pretrained(folder) for folder in (of_library, tmp_path / "out"))
    kept = ["bos_token_id", "eos_token_id", "max_position_embeddings"] + ["rope_scaling"] * (kind == "llama_3")
    assert [getattr(ours, key) for key in kept] == [getattr(theirs, key) for key in kept]


def test_a_folder_of_several_files_and_the_options_that_are_printed(tmp_path, tokens):
    """With an index, as transformers saves large models."""
    net, hub = library(LLAMA | {"kv_heads": 2}), tmp_path / "hub"
    net.save_pretrained(hub, max_shard_size="20KB")
    assert (hub / "model.safetensors.index.json").exists() and len(list(hub.glob("*.safetensors"))) > 2
    spec = write_spec(tmp_path, tokens, LLAMA | {"depth": 5, "heads": 4, "kv_heads": 4, "norm_eps": 1e-3})
    refused = import_from(tmp_path, spec, hub, expect=3).stderr
    repairs = ["model.depth=3", "model.heads=8", "model.kv_heads=2", "model.norm_eps=1e-05"]
    assert all(f"--set {repair}" in refused for repair in repairs)
    import_from(tmp_path, spec, hub, *harness.sets(*repairs))
    assert_same(export_of(tmp_path), net.state_dict())


LFS = "version https://git-lfs.github.com/spec/v1\noid sha256:" + 64 * "4" + "\nsize 548105171\n"
HTML = "<!DOCTYPE html>\n<html><head><title>Sign in</title></head></html>\n"


@pytest.mark.parametrize("name,content,found", [
    ("model.safetensors.index.json", LFS, "Git LFS"), ("tokenizer.json", LFS, "Git LFS"), ("shard", LFS, "Git LFS"),
    ("config.json", HTML, "HTML"),
])  # fmt: skip
def test_a_file_that_was_not_downloaded_is_named_for_what_it_is(tmp_path, tokens, name, content, found):
    hub = tmp_path / "hub"
    library(LLAMA).save_pretrained(hub, max_shard_size="20KB")
    path = hub / name if name != "shard" else sorted(hub.glob("*.safetensors"))[1]
    path.write_text(content)
    refused = import_from(tmp_path, write_spec(tmp_path, tokens, LLAMA), hub, expect=3).stderr
    assert str(path) in refused and found in refused


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_an_export_keeps_what_the_import_had(tmp_path, kind):
    """Also after a step of training."""
    tokens = write_tokens(tmp_path / "tokens", 40)
    more = {"pad_token_id": 6, "dtype": "bfloat16", "use_cache": False}
    hub = write_hub(tmp_path / "hub", kind, more)
    fast = PreTrainedTokenizerFast(tokenizer_object=word_tokenizer(), bos_token="w3", eos_token="w5", pad_token="w6")
    fast.chat_template = "{{ messages[0].content }}"
    fast.save_pretrained(hub)
    (hub / "generation_config.json").write_text(json.dumps({"bos_token_id": 3, "eos_token_id": [5, 9], "top_k": 7}))
    (hub / "tokenizer.model").write_bytes(bytes(range(256)))
    # Another tokenizer beside the shards does not replace the model's own.
    (tokens / "toy.tokenizer.json").write_text('{"added_tokens": []}')
    spec = write_spec(tmp_path, tokens, KINDS[kind][3], {"workers": 2, "coverage": "1/2"})
    import_from(tmp_path, spec, hub)
    harness.run("--config", spec, "--nproc", 1, "--resume")
    for worker in ([], ["--worker", 0]):
        out = tmp_path / f"out{len(worker)}" / "model.safetensors"
        harness.run("export", "--run", tmp_path / "runs" / "run", "--out", out, *worker)
        config = json.loads((out.parent / "config.json").read_text())
        kept = ["bos_token_id", "eos_token_id", "pad_token_id", "use_cache", "initializer_range",
                "max_position_embeddings" if kind == "llama" else "n_positions"]
        assert {key: config[key] for key in kept} == {key: (KINDS[kind][2] | more)[key] for key in kept}
        assert config["torch_dtype"] == "float32" and "dtype" not in config
        names = {path.name for path in hub.iterdir()} - {"config.json", "model.safetensors"}
        assert {"tokenizer.json", "tokenizer_config.json", "tokenizer.model", "chat_template.jinja"} < names
        assert all((out.parent / name).read_bytes() == (hub / name).read_bytes() for name in names)
        net = KINDS[kind][0].from_pretrained(out.parent)
        assert net.generation_config.eos_token_id == [5, 9] and net.dtype == torch.float32
        state = net.state_dict()
        assert all(values.shape == state[name].shape for name, values in load_file(out).items())
        (out.parent / "tokenizer.model").unlink()
        assert AutoTokenizer.from_pretrained(out.parent).eos_token == "w5"
    # The exported folder is imported in turn, and keeps the same.
    again = spec_of(tmp_path, tokens, kind, name="again")
    expected = loss_of_library(kind, tmp_path / "out0", tokens)
    assert loss_after_import(tmp_path, again, tmp_path / "out0") == pytest.approx(expected, abs=2e-6)


@pytest.mark.parametrize("kind,set_keys,extra", [
    ("llama", {}, {}), ("llama", {"width": 32, "rope_theta": 500000}, {"head_dim": 6, "num_key_value_heads": 2}),
    ("gpt2", {"context_length": 20}, {"n_head": 4}),
])
def test_what_the_spec_does_not_set_is_taken_from_config_json(tmp_path, tokens, kind, set_keys, extra):
    make, config, keys, model = KINDS[kind]
    torch.manual_seed(1)
    make(config(**keys | extra)).save_pretrained(tmp_path / "hub")
    spec = write_spec(tmp_path, tokens, model, {"workers": 2, "coverage": 1})
    spec.write_text(json.dumps(json.loads(spec.read_text()) | {"model": {"name": model["name"]} | set_keys}))
    loss = loss_after_import(tmp_path, spec, tmp_path / "hub")
    assert loss == pytest.approx(loss_of_library(kind, tmp_path / "hub", tokens), abs=2e-6)
    # The run is continued by what is printed.
    shutil.rmtree(tmp_path / "runs")
    said = import_from(tmp_path, spec, tmp_path / "hub").stdout
    assert "model.vocab_size=" in said and not any(f"model.{key}=" in said for key in set_keys)
    command = re.search(r"sdp-train (--run .* --resume)", said)[1]
    harness.run(*shlex.split(command), "--nproc", 1)
    # What the spec sets is not replaced.
    shutil.rmtree(tmp_path / "runs")
    refused = import_from(tmp_path, spec, tmp_path / "hub", "--set", "model.vocab_size=999", expect=3).stderr
    assert "model.vocab_size=64" in refused and "--new-head" in refused


SMALLER, LARGER = {"image_size": 32, "num_classes": 10}, {"image_size": 64, "num_classes": 7}
CLASSES, SIZE, WINDOW = "model.num_classes=7", "model.image_size=64", "model.window_size=4"


@pytest.mark.parametrize("model,theirs,ours,wrong", [
    ({"name": "resnet18", "width": 8}, LARGER, SMALLER, [CLASSES]),  # of any image size
    ({"name": "wide_resnet18", "width": 4, "width_multiplier": 2}, LARGER, SMALLER, [CLASSES]),
    (MODELS["mlp"], LARGER, SMALLER, [CLASSES, SIZE]), (MODELS["vit"], LARGER, SMALLER, [CLASSES, SIZE]),
    (MODELS["swin"], {"num_classes": 7}, {"window_size": 2}, [CLASSES, WINDOW]),
])  # fmt: skip
def test_sizes_of_an_export_are_told(tmp_path, data, model, theirs, ours, wrong):
    (tmp_path / "config.json").write_text(json.dumps({"sdp_train": {"model": model | theirs}}))
    state = state_of(library(model | theirs))
    refused = import_state(tmp_path, data, model | {"num_classes": 10} | ours, state, expect=3)
    assert "--new-head" in refused and [option for option in (CLASSES, SIZE, WINDOW) if option in refused] == wrong
    if wrong == [CLASSES]:
        import_from(tmp_path, tmp_path / "run.yaml", tmp_path / "source.safetensors", "--new-head")


SWAPPED = [*harness.CIFAR10[:3], "dog", "deer", "cat", *harness.CIFAR10[6:]]
MEAN, STD = harness.NORMALIZATION.values()
HALF = [0.5, 0.5, 0.5]


@pytest.mark.parametrize("config,preprocessor,told", [
    ({"id2label": {str(i): name for i, name in enumerate(harness.CIFAR10)}}, {"image_mean": MEAN, "image_std": STD}, []),
    ({"id2label": {str(i): name for i, name in enumerate(SWAPPED)}}, None, ["class 3", "dog", "cat"]),
    ({"label_names": harness.CIFAR10[:9]}, None, ["9 classes", "10"]),
    ({"label_names": harness.CIFAR10, "pretrained_cfg": {"mean": MEAN, "std": HALF}}, None, ["data.normalization.std=[0.5,0.5,0.5]"]),
    ({}, {"image_mean": HALF, "image_std": STD}, ["data.normalization.mean=[0.5,0.5,0.5]"]),
    ({}, {"image_mean": MEAN, "image_std": [0.25, 0.2435, 0.2616]}, ["data.normalization.std=[0.25,0.2435,0.2616]"]),
])
def test_other_classes_and_another_normalization_are_told(tmp_path, data, config, preprocessor, told):
    model = {"name": "mlp", "width": 8, "depth": 1, "hidden_width": 8, "num_classes": 10}
    save_file(state_of(library(model)), tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(config))
    if preprocessor:
        (tmp_path / "preprocessor_config.json").write_text(json.dumps(preprocessor))
    spec = write_spec(tmp_path, data, model)
    said = import_from(tmp_path, spec, tmp_path).stdout
    assert all(part in said for part in told) and ("warning" in said) == bool(told), said
    # The printed option ends the difference.
    shutil.rmtree(tmp_path / "runs")
    options = [part for option in re.findall(r"--set 'data\S*\]'", said) for part in shlex.split(option)]
    again = import_from(tmp_path, spec, tmp_path, "--new-head", *options).stdout
    assert "warning" not in again or not options
