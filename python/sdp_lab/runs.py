"""Runs as recorded in their folders, finished or not."""

import json
import math
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from sdp_lab.trainer import LabError, ask

FORMAT = 1  # the version of the contract in docs/runs.md
Line = dict[str, Any]


@dataclass
class Option:
    """An option of a run as text, and whether `report` compares it: compared, in_regime, follows_regime, not_compared."""

    key: str
    value: str
    in_report: str
    fixed: bool = True


@dataclass
class Run:
    folder: Path
    spec: Line  # as `sdp-train describe` tells of its spec.yaml
    plan: Line
    history: Line = field(default_factory=dict)  # empty: a run of an older program
    train: list[Line] = field(default_factory=list)  # in the order of metrics.jsonl
    evals: list[Line] = field(default_factory=list)
    end: Line | None = None
    sweep_label: str = ""  # its label in a sweep.json; empty: none

    def __post_init__(self) -> None:
        self.options = {option["key"]: Option(**option) for option in self.spec["options"]}

    def value(self, key: str) -> Any:
        return yaml.safe_load(self.options[key].value)

    @property
    def name(self) -> str:
        return self.value("name")

    @property
    def method(self) -> str:
        return self.spec["method"]

    @property
    def is_of_tokens(self) -> bool:
        return self.spec["is_of_tokens"]

    @property
    def coverage(self) -> str:
        """4/8; 1 for data parallelism."""
        owners, workers = self.plan["owners_per_unit"], self.plan["workers"]
        return "1" if owners == workers else f"{owners}/{workers}"

    @property
    def step(self) -> int:
        return max([line["step"] for line in self.train[-1:] + self.evals[-1:]], default=0)

    @property
    def is_finished(self) -> bool:
        return self.end is not None and self.end["step"] >= self.end["total_steps"] and self.step <= self.end["step"]

    @property
    def epochs_per_step(self) -> float:
        """Passes over the training set; 0 without a training line."""
        last = self.train[-1] if self.train else {}
        epoch = last.get("epoch")
        return epoch / last["step"] if epoch is not None and last["step"] else 0

    @property
    def samples_per_worker(self) -> int:
        keys = ("train.batch_size_per_worker", "train.accumulate_steps", "subnetwork.replicas")
        return math.prod(self.value(key) for key in keys)

    @property
    def flops_per_step(self) -> float:
        """Over all workers and replicas, from the plan."""
        return float(self.samples_per_worker) * total(worker["flops_per_sample"] for worker in self.plan["per_worker"])

    @property
    def total_steps(self) -> int | None:
        if self.is_finished:
            return self.end["total_steps"]
        if (steps := self.value("train.max_steps")) is not None:
            return steps
        if self.epochs_per_step <= 0:
            return None
        epochs = self.value("train.epochs")
        epochs /= {
            "flops": self.plan["flops_share"],
            "coverage": self.plan["owners_per_unit"] / self.plan["workers"],
        }.get(self.options["train.budget"].value, 1)
        return max(1, round(epochs / self.epochs_per_step))


@dataclass
class Found:
    runs: list[Run]
    unreadable: list[tuple[Path, str]]  # folder, reason
    copies: list[tuple[Path, Path]]  # folder, the folder that is used for the run


def total(values: Iterable[float]) -> float:
    """Added one by one, so that the last digit does not depend on Python's version."""
    result = 0.0
    for value in values:
        result += value
    return result


def read_text(path: Path) -> str:
    if not path.is_file():
        raise LabError(f"{path}: expected a file; there is none", 3)
    try:
        return path.read_text("utf-8", "replace")
    except OSError as error:
        raise LabError(f"{path}: cannot be read ({error.strerror})", 3) from error


def read_json(path: Path, keys: Iterable[str] = ()) -> Line:
    try:
        content = json.loads(read_text(path))
        if missing := [key for key in keys if key not in content]:
            raise ValueError(f"it lacks {', '.join(missing)}")
    except (ValueError, TypeError) as error:
        raise LabError(f"{path}: not written by sdp-train ({error})", 3) from error
    if content.get("format", FORMAT) > FORMAT:
        raise LabError(f"{path}: written by a newer sdp-train (format {content['format']}, expected {FORMAT})", 3)
    return content


def read_metrics(path: Path) -> list[Line]:
    """A last line that was cut off is left out: the run may still be writing it."""
    lines = []
    for number, text in enumerate(read_text(path).split("\n")[:-1] if path.exists() else [], 1):
        try:
            line = json.loads(text)
            if not isinstance(line["step"], int) or not isinstance(line["kind"], str):
                raise ValueError("step is not a whole number")
        except (ValueError, KeyError, TypeError) as error:
            raise LabError(
                f"{path}, line {number}: not a valid line of metrics ({error}). Delete that line, or leave the run out.",
                3,
            ) from error
        lines.append(line)
    return lines


def read_run(folder: Path, spec: Line) -> Run:
    if "error" in spec:
        raise LabError(spec["error"], 3)
    plan = read_json(folder / "plan.json", ["workers", "owners_per_unit", "processes", "flops_share", "per_worker"])
    if min(plan["workers"], plan["owners_per_unit"], plan["processes"], plan["flops_share"], len(plan["per_worker"])) <= 0:
        raise LabError(f"{folder / 'plan.json'}: not written by sdp-train (it has no workers, processes or FLOPs)", 3)
    run = Run(folder, spec, plan)
    if (folder / "run.json").exists():
        run.history = read_json(folder / "run.json", ["id", "imported", "training_data", "test_data", "changes"])
    for line in read_metrics(folder / "metrics.jsonl"):
        if line["kind"] == "train":
            run.train.append(line)
        elif line["kind"] == "eval":
            run.evals.append(line)
            if run.is_of_tokens:  # older runs have only the losses
                for suffix in ("", "_uncorrected"):
                    if (loss := line.get(f"loss{suffix}")) is not None:
                        line.setdefault(f"perplexity{suffix}", math.exp(loss))
    if (folder / "summary.json").exists():
        run.end = read_json(folder / "summary.json", ["step", "total_steps", "device", "version"])
    return run


_described: dict[tuple[Path, int], Line] = {}
_description: Line = {}


def _ask(*specs: str) -> list[Line]:
    answer = ask("describe", *specs)
    _description.update({key: value for key, value in answer.items() if key != "specs"})
    return answer["specs"]


def description() -> Line:
    """The binary's lists: columns, options, methods."""
    if not _description:
        _ask()
    return _description


def describe(specs: list[Path]) -> list[Line]:
    """What the binary tells of every spec.yaml; asked once for each as long as the file does not change."""
    keys = [(path, path.stat().st_mtime_ns) for path in specs]
    if new := [key for key in keys if key not in _described]:
        _described.update(zip(new, _ask(*(str(path) for path, _ in new)), strict=True))
    return [_described[key] for key in keys]


class _Search:
    def __init__(self) -> None:
        self.folders: list[Path] = []
        self.labels: dict[Path, str] = {}
        self._known: set[Path] = set()

    def visit(self, folder: Path, above: frozenset[Path] = frozenset()) -> int:
        """The number of run folders, including those already known."""
        canonical = folder.resolve()
        if canonical in above:  # a link to a parent folder
            return 0
        if (folder / "spec.yaml").exists():
            if canonical not in self._known:
                self._known.add(canonical)
                self.folders.append(folder)
            return 1
        self._read_sweep(folder)
        below = sorted(Path(entry.path) for entry in os.scandir(folder) if entry.is_dir())
        return sum(self.visit(entry, above | {canonical}) for entry in below)

    def _read_sweep(self, folder: Path) -> None:
        path = folder / "sweep.json"
        if not path.exists():
            return
        for run in read_json(path, ["runs"])["runs"]:
            named = folder / run["folder"]
            self.labels[(named if named.exists() else Path(run["folder"])).resolve()] = run.get("label", "")


def contradicted_method(label: str, spec: Line, methods: list[str]) -> str | None:
    """The first method that a label names although the run uses another one."""
    words = "".join(c if c.isalnum() or c in "-_" else " " for c in label).lower().split()
    own = (spec["method"], spec["regime"])
    return next((name for word in words for name in methods if word == name.lower() and name not in own), None)


def _set_copies_apart(runs: list[Run]) -> tuple[list[Run], list[tuple[Path, Path]]]:
    """Of several folders with the same run (equal id and changes), the first of those with the most progress is
    counted. A copy that was continued separately has other changes, and counts as a run of its own."""
    counted: dict[str, Run] = {}
    copies: dict[str, list[Path]] = {}
    for run in runs:
        key = json.dumps([run.history["id"], run.history["changes"]]) if run.history.get("id") else str(run.folder)
        other = counted.setdefault(key, run)
        if other is run:
            continue
        further = (run.is_finished, run.step) > (other.is_finished, other.step)
        copies.setdefault(key, []).append(other.folder if further else run.folder)
        if further:
            counted[key] = run
    return list(counted.values()), [(folder, counted[key].folder) for key in copies for folder in copies[key]]


def find(paths: Iterable[str | Path]) -> Found:
    """The runs in and below the paths, in their order; each path is a run folder (with a spec.yaml) or is searched for
    them. A sweep.json in a searched folder gives labels to the runs that it lists."""
    search = _Search()
    for path in map(Path, paths):
        if not path.is_dir():
            raise LabError(
                f"{path}: expected a run folder or a folder that contains some; there is no such folder. Check the path."
            )
        if search.visit(path) == 0:
            raise LabError(
                f"{path}: contains no run. A run folder has a spec.yaml; runs are under output.dir/name. Check the path."
            )
    runs, unreadable = [], []
    for folder, spec in zip(search.folders, describe([f / "spec.yaml" for f in search.folders]), strict=True):
        try:
            run = read_run(folder, spec)
        except LabError as error:
            unreadable.append((folder, str(error)))
            continue
        run.sweep_label = search.labels.get(folder.resolve(), "")
        if run.sweep_label and (method := contradicted_method(run.sweep_label, spec, description()["methods"])):
            raise LabError(
                f"{folder}: the label '{run.sweep_label}' in its sweep.json says {method}, but the run is {run.method} "
                f"({spec['settings']}). Change the label there, or leave the run out."
            )
        runs.append(run)
    runs, copies = _set_copies_apart(runs)
    return Found(runs, unreadable, copies)
