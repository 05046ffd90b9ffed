"""Small runs whose every file is written here."""

import json
from pathlib import Path

import yaml

SPEC = {
    "seed": 0,
    "model": {"name": "mlp"},
    "data": {"name": "cifar10", "path": "data/cifar10"},
    "subnetwork": {"workers": 4, "coverage": "2/4"},
    "optimizer": {"name": "sgd", "lr": 0.1},
    "train": {"max_steps": 40, "batch_size_per_worker": 2},
}
LOSSES = (2.0, 1.5, 1.0, 0.5)
LOG_EVERY = 10


def write_run(folder: Path, accuracy=0.5, losses=LOSSES, history=None, finished=True, owners=2, **changes) -> Path:
    """`changes` replace keys of sections of the spec, or whole values; `history`: of run.json. `owners` of a unit; their
    mean if it is not a whole number."""
    folder.mkdir(parents=True)
    spec = {key: dict(value) if isinstance(value, dict) else value for key, value in SPEC.items()} | {"name": folder.name}
    spec["subnetwork"]["coverage"] = f"{int(owners)}/4"
    for key, value in changes.items():
        spec[key] = {**spec.get(key, {}), **value} if isinstance(value, dict) else value
    (folder / "spec.yaml").write_text(yaml.safe_dump(spec))
    worker = {"parameters": 100 * owners, "flops_per_sample": 1000.0 * owners, "parameter_bytes": 400 * owners}
    plan = {"workers": 4, "coverage": owners / 4, "processes": 2, "flops_share": owners / 4, "per_worker": [worker] * 4}
    if owners == int(owners):
        plan["owners_per_unit"] = owners
    (folder / "plan.json").write_text(json.dumps(plan))
    lines = [{"kind": "start", "step": 0}]
    for i, loss in enumerate(losses, 1):
        step = LOG_EVERY * i
        memory = {"weights_bytes": [100 * i, 50], "activations_bytes": [10, 20]}
        exchange = {"reduce_bytes": [4, 6], "publish_bytes": [1, 1], "reduce_wait_ms": [1.0, 2.0], "publish_wait_ms": [0.5, 0.5]}
        lines.append({"kind": "train", "step": step, "epoch": step / 40, "loss": loss, "step_ms": 10.0 * i,
                      "samples_per_s": 100.0, "memory": memory, "exchange": exchange})  # fmt: skip
    lines.append({"kind": "eval", "step": LOG_EVERY * len(losses), "loss": 1.25, "accuracy": accuracy, "test_samples": 10})
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    if history is not None:
        known = {"id": folder.name, "imported": None, "changes": []}
        data = {key: {"samples": 0, "hash": ""} for key in ("training_data", "test_data")}
        (folder / "run.json").write_text(json.dumps(known | data | history))
    if finished:
        end = {"step": LOG_EVERY * len(losses), "total_steps": LOG_EVERY * len(losses), "device": "CPU", "version": "0"}
        (folder / "summary.json").write_text(json.dumps(end))
    return folder
