"""Shared by the benchmarks of whole runs: small data sets, runs of sdp-train and their step times, tables."""

import json
import os
import pathlib
import re
import statistics
import sys

import numpy as np
from safetensors.numpy import save_file

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "scripts"))

from benchmark.report import table  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent
CIFAR10 = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
BINARY = ROOT / "build" / "sdp-train"
RANK_VARIABLE = re.compile(
    r"(LOCAL_|GROUP_|NODE_|ROLE_)?(RANK|WORLD_SIZE)|MASTER_(ADDR|PORT)|SDP_RENDEZVOUS_FILE"
    r"|(OMPI|PMI|PMIX|MPI|MV2|SLURM|TORCHELASTIC)_.*"
)


def environment(**more):
    """This process's environment without a launcher's variables, with `more` added."""
    return {k: v for k, v in os.environ.items() if not RANK_VARIABLE.fullmatch(k)} | more


def write_cifar10(folder, per_part=200):
    """Noise in the shape of CIFAR-10, five parts to train on: step times do not depend on image content."""
    random = np.random.default_rng(0)
    folder.mkdir(parents=True)
    parts = [random.integers(0, 256, size=(count, 3073), dtype=np.uint8) for count in [per_part] * 5 + [8]]
    for name, records in (("train", np.concatenate(parts[:5])), ("val", parts[5])):
        images = np.ascontiguousarray(records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
        arrays = {"images": images, "labels": np.ascontiguousarray(records[:, 0] % 10)}
        save_file(arrays, folder / f"{name}.safetensors", {"class_names": json.dumps(CIFAR10)})
    return folder


def write_tokens(folder, vocabulary, tokens=100_000):
    """Noise in llm.c's layout of token shards."""
    random = np.random.default_rng(0)
    folder.mkdir(parents=True)
    for name, count in (("bench_train_000000.bin", tokens), ("bench_val_000000.bin", 1000)):
        header = np.zeros(256, dtype=np.int32)
        header[:3] = 20240520, 1, count
        values = random.integers(0, vocabulary, size=count, dtype=np.uint16)
        (folder / name).write_bytes(header.tobytes() + values.tobytes())
    return folder


def write_spec(folder, name, *parts):
    """A spec as JSON, which is YAML; the parts' sections are merged, later ones first."""
    spec = {
        "name": name,
        "schedule": {"name": "constant"},
        "optimizer": {"name": "sgd", "lr": 0.001, "momentum": 0.9, "weight_decay": 5e-4},
        "checkpoint": {"every_epochs": 0},
        "eval": {"every_epochs": 0, "recalibrate_batches": 0},
        "output": {"dir": str(folder / "runs")},
    }
    for part in parts:
        for section, values in part.items():
            spec[section] = spec.get(section, {}) | values
    path = folder / f"{name}.yaml"
    path.write_text(json.dumps(spec))
    return path


def train_lines(run_dir):
    path = run_dir / "metrics.jsonl"
    text = path.read_text() if path.exists() else ""
    return [line for line in map(json.loads, text.splitlines()) if line["kind"] == "train"]


def print_table(header, rows, out=None):
    """Prints a table, and writes it to the file `out` if there is one."""
    text = table(header, rows)
    print(text)
    if out:
        out.write_text(text + "\n")


def write_results(folder, results, text):
    """Writes results.json and results.md."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "results.json").write_text(json.dumps(results, indent=2) + "\n")
    (folder / "results.md").write_text(text + "\n")


def load():
    return os.getloadavg()[0]


def median_ratio(of, to):
    """Median ratio of two lists of measurements that took turns."""
    return statistics.median(a / b for a, b in zip(of, to, strict=True))
