"""Swin, LLaMA and GPT-2 in every regime, compared with the masked models of torchvision and transformers."""

import pytest

import harness
from comparison import OPTIMIZERS, REGIMES, train_and_compare
from small_models import LLAMA, MODELS, TOKENS, write_tokens


def check(tmp_path, data, model, optimizer, precision, steps, processes, **subnetwork):
    train_and_compare(
        tmp_path, data, processes, model=MODELS[model], subnetwork=subnetwork, optimizer=OPTIMIZERS[optimizer],
        train={"max_steps": steps, "precision": precision, "batch_size_per_worker": 2}, eval={"recalibrate_batches": 0},
    )


# Several workers per process as well as one each: processes divide the workers.
SIZES = [(8, "4/8", 1), (3, "2/3", 3), (8, "7/8", 1), (8, "3/8", 2), (4, "1", 2)]
# Every model in all regimes, but for those of test_equivalence.py and of the next test. The LLaMA without grouped queries
# differs only where heads are divided: in neuron construction.
NAMES = [name for name in MODELS if name not in ("resnet18", "resnet50", "mlp", "llama", "gpt2")]
CASES = [(name, *size, *REGIMES[(i + 3 * n) % 4]) for n, name in enumerate(NAMES) for i, size in enumerate(SIZES)]
CASES += [("llama", *size, *REGIMES[i + 2]) for i, size in enumerate(SIZES[:2])]


@pytest.mark.parametrize("model,workers,coverage,processes,construction,masking", CASES)
def test_every_regime_is_the_mask_oracle(tmp_path, data, model, workers, coverage, processes, construction, masking):
    regime = {"workers": workers, "coverage": coverage, "construction": construction, "masking": masking}
    check(tmp_path, data, model, "sgd", "fp64", 3, processes, **regime)


@pytest.mark.parametrize("construction,masking", REGIMES)
def test_gpt2_in_every_regime(tmp_path, data, construction, masking):
    """In neuron construction, a worker without a slice of a branch still has the branch's output bias."""
    regime = {"workers": 4, "coverage": "1/4" if masking == "forward" else "2/4", "construction": construction,
              "masking": masking, "unit": "branch"}
    if construction == "neuron":
        regime["slices_per_branch"] = 3
    check(tmp_path, data, "gpt2", "sgd", "fp64", 3, 1, **regime)


@pytest.mark.parametrize("model,construction,masking", [
    (model, *regime) for model, regime in zip(("swin", "llama_3", "llama_3", "swin"), REGIMES)
])
def test_every_regime_with_adamw_in_fp32(tmp_path, data, model, construction, masking):
    regime = {"workers": 4, "coverage": "2/4", "construction": construction, "masking": masking, "unit": "branch"}
    check(tmp_path, data, model, "adamw_smooth", "fp32", 1, 2, **regime)


def test_another_sequence_length_counts_the_tokens_on(tmp_path):
    """20 samples of 12 tokens: two steps of 8 samples, then 26 samples of 9 tokens, of which 22 begin after the 192 tokens."""
    folder = write_tokens(tmp_path / "tokens", samples=20)
    sections = {
        "model": LLAMA, "optimizer": OPTIMIZERS["adamw"], "eval": {"recalibrate_batches": 0},
        "data": {"name": "tokens", "path": str(folder), "sequence_length": TOKENS},
        "train": {"max_steps": 2, "precision": "fp32", "batch_size_per_worker": 2, "log_every_steps": 1},
    }
    run_dir = harness.train(tmp_path, "run", folder, 1, **sections)
    sections["train"]["max_steps"] = 7
    changed = sections | {"data": sections["data"] | {"sequence_length": 9}}
    result = harness.run("--config", harness.write_config(tmp_path, "run", folder, **changed), "--nproc", 2, "--resume")
    assert "data has changed" not in result.stderr and "optimizer.lr" in result.stderr
    lines = harness.records(run_dir, "train")
    assert [line["tokens"] for line in lines] == [8 * 12, 16 * 12, *((22 + 8 * step) * 9 for step in range(1, 6))]
    assert [line["epoch"] for line in lines[2:]] == pytest.approx([(22 + 8 * step) / 26 for step in range(1, 6)])
    read = [sample for (step, *_), samples in sorted(harness.trace_samples(run_dir).items()) if step > 2 for sample in samples]
    assert len(set(read[4:30])) == 26  # the whole second epoch, after the last four samples of the first one
