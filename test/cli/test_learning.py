"""LLaMA learns in every regime: its loss ends below the entropy of the token frequencies."""

import numpy as np
import pytest

import harness
from comparison import REGIMES

SEQUENCE = 32
VOCABULARY = 96


def write_text(folder):
    """A small language with real structure, as bytes: random sentences over a fixed grammar and word list."""
    folder.mkdir()
    rng = np.random.default_rng(11)
    subjects = ["the red fox", "a small boat", "every worker", "the old river", "one gradient", "her garden"]
    verbs = ["follows", "carries", "forgets", "divides", "remembers"]
    objects = ["the morning light", "a narrow bridge", "its own shadow", "half of the stones", "the quiet harbour"]
    for name, sentences in (("grammar_train_000000.bin", 6000), ("grammar_val_000000.bin", 400)):
        text = " ".join(f"{rng.choice(subjects)} {rng.choice(verbs)} {rng.choice(objects)}." for _ in range(sentences))
        tokens = np.frombuffer(text.encode(), dtype=np.uint8).astype(np.uint16) - 32
        header = np.zeros(256, dtype=np.int32)
        header[:3] = 20240520, 1, len(tokens)
        (folder / name).write_bytes(header.tobytes() + tokens.tobytes())
    return folder


def unigram_entropy(folder):
    tokens = np.fromfile(folder / "grammar_val_000000.bin", dtype=np.uint16)[512:]
    counts = np.bincount(tokens)
    shares = counts[counts > 0] / len(tokens)
    return -(shares * np.log(shares)).sum()


@pytest.mark.parametrize("construction,masking", REGIMES)
def test_llama_learns_more_than_the_unigrams(tmp_path, construction, masking):
    folder = write_text(tmp_path / "text")
    run_dir = harness.train(
        tmp_path, "run", folder, 1, model={"name": "llama_tiny", "width": 64, "vocab_size": VOCABULARY},
        data={"name": "tokens", "path": str(folder), "sequence_length": SEQUENCE},
        subnetwork={"workers": 4, "coverage": "2/4", "construction": construction, "masking": masking},
        optimizer={"name": "adamw", "lr": 3e-3, "weight_decay": 0.1, "clip_norm": 1.0},
        train={"max_steps": 120, "batch_size_per_worker": 8, "precision": "fp32"}, eval={"recalibrate_batches": 0},
        output={"trace": False},
    )
    record = harness.last_eval(run_dir)
    assert record["loss"] < unigram_entropy(folder) - 0.3
