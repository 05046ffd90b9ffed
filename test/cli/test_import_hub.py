"""config.json as transformers reads it, also where keys are absent; what an export keeps of an imported folder; what the files say
of their data; and files that a download did not bring."""

import json
import re
import shlex
import shutil

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoTokenizer, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

import harness
from small_models import TOKENS, VOCABULARY, read_tokens, write_tokens
from test_import import (
    GPT2, LLAMA, MODELS, assert_same, export_of, import_from, library, save, word_tokenizer, write_spec,
)  # fmt: skip

SEQUENCES = 40
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
KINDS = {
    "llama": (LlamaForCausalLM, LlamaConfig, LLAMA_KEYS, LLAMA_MODEL),
    "gpt2": (GPT2LMHeadModel, GPT2Config, GPT2_KEYS, GPT2),
}
# Keys whose default is not the value above, and the option that adapts the spec to it; none: no weights of 32 channels fit it.
CHANGES = {
    "hidden_size": None, "intermediate_size": None, "num_hidden_layers": None, "num_attention_heads": None, "vocab_size": None,
    "rope_theta": "model.rope_theta=10000.0", "rms_norm_eps": "model.norm_eps=1e-06",
    "n_embd": None, "n_layer": None, "n_positions": None, "n_head": None,
}  # fmt: skip


@pytest.fixture(scope="module")
def tokens(tmp_path_factory):
    return write_tokens(tmp_path_factory.mktemp("tokens"), SEQUENCES)


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
    run = tmp_path / "runs" / spec.stem
    harness.run("import", "--config", spec, "--from", source, *options)
    return harness.run_json("eval", "--run", run, "--train-data")["loss"]


def spec_of(tmp_path, tokens, kind, model=(), name="run"):
    return write_spec(tmp_path, tokens, KINDS[kind][3] | dict(model), {"coverage": "1"}, name=name)


def absent_keys(kind):
    """Each key that tells the architecture or whose default is another value; and all others at once."""
    keys = KINDS[kind][2]
    alone = ["model_type", *(key for key in keys if key in CHANGES)]
    return [*([key] for key in alone), [key for key in keys if key not in alone]]


@pytest.mark.parametrize("kind,keys", [(kind, keys) for kind in KINDS for keys in absent_keys(kind)])
def test_an_absent_key_means_the_librarys_default(tmp_path, tokens, kind, keys):
    hub = write_hub(tmp_path / "hub", kind, drop=keys)
    spec = spec_of(tmp_path, tokens, kind)
    key = keys[0]
    options = []
    if key in CHANGES:
        refused = import_from(tmp_path, spec, hub, expect=3).stderr
        assert key in refused
        if not CHANGES[key]:
            return
        assert f"--set {CHANGES[key]}" in refused
        options = ["--set", CHANGES[key]]
        whole = loss_of_library(kind, write_hub(tmp_path / "whole", kind), tokens)
        assert abs(whole - loss_of_library(kind, hub, tokens)) > 1e-4
    expected = loss_of_library(kind, hub, tokens)
    assert loss_after_import(tmp_path, spec, hub, *options) == pytest.approx(expected, abs=2e-6)


@pytest.mark.parametrize("kind,change,drop,model", [
    # Version 5 of transformers has the base in rope_parameters, which version 4 does not read.
    ("llama", {"rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}}, [], {}),
    ("llama", {"head_dim": None, "num_key_value_heads": None}, [], {}),
    ("gpt2", {"num_attention_heads": 4}, [], {"heads": 4}),
    ("gpt2", {"hidden_size": 32, "num_hidden_layers": 2}, ["n_embd", "n_layer", "n_inner"], {}),
    ("gpt2", {"n_inner": None, "n_head": 4, "activation_function": "gelu_pytorch_tanh"}, [], {"heads": 4}),
])  # fmt: skip
def test_other_forms_of_the_same_configuration(tmp_path, tokens, kind, change, drop, model):
    hub = write_hub(tmp_path / "hub", kind, change, drop)
    spec = spec_of(tmp_path, tokens, kind, model)
    assert loss_after_import(tmp_path, spec, hub) == pytest.approx(loss_of_library(kind, hub, tokens), abs=2e-6)


@pytest.mark.parametrize("version", [4, 5])
def test_llama_3_is_imported_and_exported(tmp_path, tokens, version):
    """Rotary embeddings that are scaled, heads of a size of their own, and a tied head, as transformers computes them."""
    scaling = {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 256,
    }
    keys = {"head_dim": 6, "num_key_value_heads": 4, "tie_word_embeddings": True, "rope_theta": 10000.0, "rope_scaling": scaling}
    torch.manual_seed(1)
    net = LlamaForCausalLM(LlamaConfig(**LLAMA_KEYS | keys)).eval()
    net.save_pretrained(tmp_path / "hub")
    expected = loss_of_library("llama", tmp_path / "hub", tokens)
    config = json.loads((tmp_path / "hub" / "config.json").read_text())
    if version == 5:
        config["rope_parameters"] = config.pop("rope_scaling") | {"rope_theta": config.pop("rope_theta")}
        (tmp_path / "hub" / "config.json").write_text(json.dumps(config))
    model = {"kv_heads": 4, "tied_embeddings": True, "rope_theta": 10000}
    other = model | {"head_size": 4, "rope_scaling": {"factor": 2.0}}
    refused = import_from(tmp_path, spec_of(tmp_path, tokens, "llama", other), tmp_path / "hub", expect=3).stderr
    with_options = shlex.split(refused.rpartition("match the file: ")[2])
    assert {option.split("=")[0] for option in with_options[1::2]} == {"model.head_size", "model.rope_scaling"}
    spec = spec_of(tmp_path, tokens, "llama", other)
    assert loss_after_import(tmp_path, spec, tmp_path / "hub", *with_options) == pytest.approx(expected, abs=2e-6)
    exported = export_of(tmp_path)
    again = LlamaConfig.from_pretrained(tmp_path / "out")
    assert (again.rope_scaling, again.head_dim, again.rope_theta) == (scaling, 6, 10000.0)
    assert loss_of_library("llama", tmp_path / "out", tokens) == pytest.approx(expected, abs=1e-7)
    assert all(torch.equal(exported[name], values) for name, values in net.state_dict().items() if name in exported)


@pytest.mark.parametrize("kind,change,key", [
    ("llama", {"rope_theta": None}, "rope_theta"),
    ("llama", {"rms_norm_eps": None}, "rms_norm_eps"),
    ("llama", {"tie_word_embeddings": True}, "tie_word_embeddings"),
    ("llama", {"head_dim": 8}, "head_dim"),
    ("llama", {"rope_parameters": {"rope_theta": 10000.0}}, "rope_theta"),  # differs from rope_theta
    ("llama", {"rope_parameters": None, "rope_scaling": {"type": "linear", "factor": 2.0}}, "linear"),
    ("llama", {"attention_bias": True}, "attention_bias"),
    ("llama", {"model_type": "mistral"}, "mistral"),
    ("llama", {"model_type": "gpt2"}, "model.name"),  # an architecture of the program, but not the spec's
    ("gpt2", {"activation_function": "relu"}, "relu"),
    ("gpt2", {"tie_word_embeddings": None}, "tie_word_embeddings"),
    ("gpt2", {"num_attention_heads": 4}, "n_head"),
    ("gpt2", {"layer_norm_epsilon": 1e-6}, "layer_norm_epsilon"),
    ("llama", {"rope_theta": 500000.0, "rope_scaling": {"rope_type": "default", "partial_rotary_factor": 0.5}}, "partial_rotary"),
    ("llama", {"rope_parameters": {"rope_theta": 500000.0, "rope_type": "default", "mrope_section": [1, 1]}}, "mrope_section"),
])  # fmt: skip
def test_a_value_that_the_model_does_not_have_is_refused_with_its_key(tmp_path, tokens, kind, change, key):
    hub = write_hub(tmp_path / "hub", kind, change)
    model = {"tied_embeddings": False, "head_size": 4} if kind == "llama" else {}  # set, so that they are compared
    assert key in import_from(tmp_path, spec_of(tmp_path, tokens, kind, model), hub, expect=3).stderr
    assert not (tmp_path / "runs").exists()


# Values of keys of the libraries' configurations, of other models' and of tables, of which each changes what the model computes.
OTHERS = {
    "llama": {"partial_rotary_factor": 0.25, "quantization_config": {"bits": 4}, "sliding_window": 512, "logit_scale": 0.5,
              "is_encoder_decoder": True, "add_cross_attention": True, "pruned_heads": {"0": [1]}, "qk_norm": True},
    "gpt2": {"quantization_config": {"bits": 8}, "rotary_dim": 4, "parallel_residual": True, "is_encoder_decoder": True,
             "pruned_heads": {"1": [0]}, "cross_attention_hidden_size": 8},
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_every_key_of_the_library_is_known_and_no_other_is_ignored(tmp_path, tokens, kind):
    _, config, keys, _ = KINDS[kind]
    absent = {"llama": {"partial_rotary_factor": 1.0, "sliding_window": None}, "gpt2": {"n_ctx": 20, "use_sliding": False}}
    hub = write_hub(tmp_path / "hub", kind, config(**keys).to_dict() | absent[kind])
    import_from(tmp_path, spec_of(tmp_path, tokens, kind), hub)
    folder = tmp_path / "others"
    folder.mkdir()
    refused = import_from(
        folder, spec_of(folder, tokens, kind), write_hub(folder / "hub", kind, OTHERS[kind]), expect=3
    ).stderr
    assert [key for key in OTHERS[kind] if f"  {key} is " not in refused] == []


def test_a_folder_of_several_files_and_the_options_that_are_printed(tmp_path, tokens):
    """With an index, as transformers saves large models."""
    net = library(LLAMA | {"kv_heads": 2})
    hub = tmp_path / "hub"
    net.save_pretrained(hub, max_shard_size="20KB")
    assert (hub / "model.safetensors.index.json").exists() and len(list(hub.glob("*.safetensors"))) > 2
    spec = write_spec(tmp_path, tokens, LLAMA | {"depth": 5, "heads": 4, "kv_heads": 4, "norm_eps": 1e-3}, {})
    refused = import_from(tmp_path, spec, hub, expect=3).stderr
    repairs = ["model.depth=3", "model.heads=8", "model.kv_heads=2", "model.norm_eps=1e-05"]
    assert all(f"--set {repair}" in refused for repair in repairs) and not (tmp_path / "runs").exists()
    harness.run("import", "--config", spec, "--from", hub, *(part for repair in repairs for part in ("--set", repair)))
    assert_same(export_of(tmp_path), net.state_dict())


LFS = "version https://git-lfs.github.com/spec/v1\noid sha256:" + 64 * "4" + "\nsize 548105171\n"
HTML = "<!DOCTYPE html>\n<html><head><title>Sign in</title></head></html>\n"


@pytest.mark.parametrize("name,content,found", [
    *((name, LFS, "Git LFS") for name in ("model.safetensors.index.json", "tokenizer.json", "shard")), ("config.json", HTML, "HTML"),
])  # fmt: skip
def test_a_file_that_was_not_downloaded_is_named_for_what_it_is(tmp_path, tokens, name, content, found):
    hub = tmp_path / "hub"
    library(LLAMA).save_pretrained(hub, max_shard_size="20KB")
    path = hub / name if name != "shard" else sorted(hub.glob("*.safetensors"))[1]
    path.write_text(content)
    refused = import_from(tmp_path, write_spec(tmp_path, tokens, LLAMA, {}), hub, expect=3).stderr
    assert str(path) in refused and found in refused
    assert not (tmp_path / "runs").exists()


def write_tokenizer(folder):
    fast = PreTrainedTokenizerFast(tokenizer_object=word_tokenizer(), bos_token="w3", eos_token="w5", pad_token="w6")
    fast.chat_template = "{{ messages[0].content }}"
    fast.save_pretrained(folder)


@pytest.mark.parametrize("kind", KINDS)
def test_an_export_keeps_what_the_import_had(tmp_path, kind):
    tokens = write_tokens(tmp_path / "tokens", SEQUENCES)
    more = {"pad_token_id": 6, "dtype": "bfloat16", "use_cache": False}
    hub = write_hub(tmp_path / "hub", kind, more)
    write_tokenizer(hub)
    (hub / "generation_config.json").write_text(json.dumps({"bos_token_id": 3, "eos_token_id": [5, 9], "top_k": 7}))
    (hub / "tokenizer.model").write_bytes(bytes(range(256)))
    # Another tokenizer beside the shards does not replace the model's own.
    (tokens / "toy.tokenizer.json").write_text('{"added_tokens": []}')
    spec = write_spec(tmp_path, tokens, KINDS[kind][3], {"workers": 2, "coverage": "1/2"})
    import_from(tmp_path, spec, hub)
    harness.run("--config", spec, "--nproc", 1, "--resume")  # a step of training
    for worker in (None, 0):
        out = tmp_path / f"out{worker}" / "model.safetensors"
        harness.run("export", "--run", tmp_path / "runs" / "run", "--out", out, *(["--worker", worker] if worker == 0 else []))
        config = json.loads((out.parent / "config.json").read_text())
        kept = ["bos_token_id", "eos_token_id", "pad_token_id", "use_cache", "initializer_range"]
        kept.append("max_position_embeddings" if kind == "llama" else "n_positions")
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
    expected = loss_of_library(kind, tmp_path / "outNone", tokens)
    assert loss_after_import(tmp_path, again, tmp_path / "outNone") == pytest.approx(expected, abs=2e-6)


@pytest.mark.parametrize("absent", [["eos_token_id"], ["max_position_embeddings", "bos_token_id"]])
def test_what_the_imported_config_leaves_to_the_library_stays_so(tmp_path, tokens, absent):
    hub = write_hub(tmp_path / "hub", "llama", drop=absent)
    import_from(tmp_path, spec_of(tmp_path, tokens, "llama"), hub)
    export_of(tmp_path)
    theirs, ours = (LlamaConfig.from_pretrained(folder) for folder in (hub, tmp_path / "out"))
    for key in ("bos_token_id", "eos_token_id", "max_position_embeddings"):
        assert getattr(ours, key) == getattr(theirs, key)


@pytest.mark.parametrize("kind,set_keys,extra", [
    ("llama", {}, {}), ("llama", {"width": 32, "rope_theta": 500000}, {"head_dim": 6, "num_key_value_heads": 2}),
    ("gpt2", {"context_length": 20}, {"n_head": 4}),
])
def test_what_the_spec_does_not_set_is_taken_from_config_json(tmp_path, tokens, kind, set_keys, extra):
    make, config, keys, _ = KINDS[kind]
    torch.manual_seed(1)
    make(config(**keys | extra)).save_pretrained(tmp_path / "hub")
    name = {"llama": "llama_tiny", "gpt2": "gpt2"}[kind]
    data = {"name": "tokens", "path": str(tokens), "sequence_length": TOKENS}
    spec = harness.write_config(
        tmp_path, "run", tokens, model={"name": name} | set_keys, data=data, eval={"recalibrate_batches": 0},
        train={"max_steps": 1, "precision": "fp32"}, subnetwork={"workers": 2, "coverage": 1},
    )
    spec.write_text(json.dumps(json.loads(spec.read_text()) | {"model": {"name": name} | set_keys}))
    loss = loss_after_import(tmp_path, spec, tmp_path / "hub")
    assert loss == pytest.approx(loss_of_library(kind, tmp_path / "hub", tokens), abs=2e-6)
    # The run is continued by what is printed.
    shutil.rmtree(tmp_path / "runs")
    said = harness.run("import", "--config", spec, "--from", tmp_path / "hub").stdout
    assert "model.vocab_size=" in said and not any(f"model.{key}=" in said for key in set_keys)
    command = re.search(r"sdp-train (--run .* --resume)", said)[1]
    harness.run(*shlex.split(command), "--nproc", 1)
    # What the spec sets is not replaced.
    shutil.rmtree(tmp_path / "runs")
    refused = harness.run("import", "--config", spec, "--from", tmp_path / "hub", "--set", "model.vocab_size=999", expect=3).stderr
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
    save(library(model | theirs), tmp_path / "source.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"sdp_train": {"model": model | theirs}}))
    spec = write_spec(tmp_path, data, model | {"num_classes": 10} | ours, {})
    refused = import_from(tmp_path, spec, tmp_path / "source.safetensors", expect=3).stderr
    assert "--new-head" in refused and [option for option in (CLASSES, SIZE, WINDOW) if option in refused] == wrong
    if wrong == [CLASSES]:
        harness.run("import", "--config", spec, "--from", tmp_path / "source.safetensors", "--new-head")


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
    save(library(model), tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(config))
    if preprocessor:
        (tmp_path / "preprocessor_config.json").write_text(json.dumps(preprocessor))
    spec = write_spec(tmp_path, data, model, {})
    said = import_from(tmp_path, spec, tmp_path).stdout
    assert all(part in said for part in told) and ("warning" in said) == bool(told), said
    # The printed option ends the difference.
    shutil.rmtree(tmp_path / "runs")
    options = [part for option in re.findall(r"--set 'data\S*\]'", said) for part in shlex.split(option)]
    again = harness.run("import", "--config", spec, "--from", tmp_path, "--new-head", *options).stdout
    assert "warning" not in again or not options
