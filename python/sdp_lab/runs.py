"""Runs as recorded in their folders, finished or not."""

import json
import math
import operator
import os
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from sdp_lab.trainer import LabError, ask, refuse_newer

Line = dict[str, Any]


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
        self.options: dict[str, Line] = {option["key"]: option for option in self.spec["options"]}
        self.method: str = self.spec["method"]
        self.is_of_tokens: bool = self.spec["is_of_tokens"]
        self.name: str = self.value("name")

    def value(self, key: str) -> Any:
        return yaml.safe_load(self.options[key]["value"])

    @property
    def share(self) -> float:
        """The coverage as a number; the mean if units have different numbers of owners."""
        owners = self.plan.get("owners_per_unit")
        return owners / self.plan["workers"] if owners else self.plan["coverage"]

    @property
    def coverage(self) -> str:
        """4/8, or 0.711 as a mean; 1 for data parallelism."""
        owners, workers = self.plan.get("owners_per_unit"), self.plan["workers"]
        if not owners:
            return f"{self.share:.3g}"
        return "1" if owners == workers else f"{owners}/{workers}"

    @property
    def step(self) -> int:
        return max([line["step"] for line in self.train[-1:] + self.evals[-1:]], default=0)

    @property
    def is_finished(self) -> bool:
        return self.end is not None and self.end["step"] >= self.end["total_steps"] and self.step <= self.end["step"]

    @property
    def epochs_per_step(self) -> float:
        """Passes over the training set by a step as the last ones; 0 without a training line since they have that size."""
        begin = max([0, *self.resized_at])
        lines = [{"step": 0, "epoch": 0}, *(line for line in self.train if line.get("epoch") is not None)]
        first, last = [line for line in lines if line["step"] <= begin][-1], lines[-1]
        steps = last["step"] - first["step"]
        return (last["epoch"] - first["epoch"]) / steps if steps else 0

    @property
    def samples_per_worker(self) -> int:
        keys = ("train.batch_size_per_worker", "train.accumulate_steps", "subnetwork.replicas")
        return math.prod(self.value(key) for key in keys)

    @property
    def flops_per_step(self) -> float:
        """Over all workers and replicas, from the plan."""
        return float(self.samples_per_worker) * total(worker["flops_per_sample"] for worker in self.plan["per_worker"])

    @property
    def changes(self) -> list[Line]:
        """Of its options when it was resumed."""
        return self.history.get("changes", [])

    @property
    def names(self) -> list[str]:
        """The names under which it went on, for example as a copy."""
        return [change["now"] for change in self.changes if change["key"] == "name"]

    @property
    def resized_at(self) -> list[int]:
        """The steps after which it went on with other workers, samples per step or tokens per sample."""
        keys = ("train.batch_size_per_worker", "train.accumulate_steps", "data.sequence_length")
        return [change["step"] for change in self.changes if change["key"] in keys or change["key"].startswith("subnetwork.")]

    def consumed(self, quantity: str, steps: np.ndarray) -> np.ndarray:
        """Training FLOPs (`flops`), `epochs` or `tokens` of the first steps. If steps differ, as the training lines have it,
        linear between them: every part of a run begins at one."""
        if not self.resized_at:
            tokens = self.samples_per_worker * self.plan["workers"] * self.spec["sequence_length"]
            return steps * {"flops": self.flops_per_step, "epochs": self.epochs_per_step, "tokens": tokens}[quantity]
        ends = np.array([0, *(line["step"] for line in self.train)])
        if quantity == "flops":
            rates = [line["flops_per_s"] * line["step_ms"] / 1000 for line in self.train]
            known = np.cumsum([0, *(np.diff(ends) * rates)])
        else:
            known = [0, *(line[{"epochs": "epoch"}.get(quantity, quantity)] for line in self.train)]
        return np.interp(steps, ends, known)

    @property
    def total_steps(self) -> int | None:
        if self.is_finished:
            return self.end["total_steps"]
        if (steps := self.value("train.max_steps")) is not None:
            return steps
        if self.epochs_per_step <= 0:
            return None
        shares = {"flops": self.plan["flops_share"], "coverage": self.share}
        epochs = self.value("train.epochs") / shares.get(self.value("train.budget"), 1)
        return max(1, round(self.step + (epochs - float(self.consumed("epochs", self.step))) / self.epochs_per_step))


@dataclass
class Found:
    runs: list[Run]
    left_out: list[tuple[Path, str]]  # folder, reason


def total(values: Iterable[float]) -> float:
    """Added one by one, so that the last digit does not depend on Python's version."""
    return reduce(operator.add, values, 0.0)


def read_text(path: Path) -> str:
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
    return refuse_newer(content, path)


def read_metrics(path: Path) -> list[Line]:
    """A last line that was cut off is left out: the run may still be writing it."""
    lines = []
    for number, text in enumerate(read_text(path).split("\n")[:-1] if path.exists() else [], 1):
        try:
            lines.append(json.loads(text))
            if not isinstance(lines[-1]["step"], int) or not isinstance(lines[-1]["kind"], str):
                raise ValueError("step is not a whole number")
        except (ValueError, KeyError, TypeError) as error:
            raise LabError(
                f"{path}, line {number}: not a valid line of metrics ({error}). Delete that line, or leave the run out.", 3
            ) from error
    return lines


def sweep_label(folder: Path) -> str:
    """That a sweep.json beside the run's folder gives it."""
    file = folder.resolve().parent / "sweep.json"
    runs = read_json(file, ["runs"])["runs"] if file.exists() else []
    return next((run.get("label", "") for run in runs if Path(run["folder"]).name == folder.resolve().name), "")


def read_run(folder: Path, spec: Line) -> Run:
    if "error" in spec:
        raise LabError(spec["error"], 3)
    plan = read_json(folder / "plan.json", ["workers", "processes", "flops_share", "per_worker"])
    run = Run(folder, spec, plan, sweep_label=sweep_label(folder))
    if (folder / "run.json").exists():
        run.history = read_json(folder / "run.json", ["id", "imported", "training_data", "test_data", "changes"])
    lines = read_metrics(folder / "metrics.jsonl")
    run.train, run.evals = ([line for line in lines if line["kind"] == kind] for kind in ("train", "eval"))
    for line in run.evals if run.is_of_tokens else []:  # older runs have only the losses
        for suffix in ("", "_uncorrected"):
            if (loss := line.get(f"loss{suffix}")) is not None:
                line.setdefault(f"perplexity{suffix}", math.exp(loss))
    if (folder / "summary.json").exists():
        run.end = read_json(folder / "summary.json", ["step", "total_steps", "device", "version"])
    return run


_described: dict[tuple[Path, int], Line] = {}


def describe(specs: list[Path]) -> list[Line]:
    """What the binary tells of every spec.yaml; asked once for each as long as the file does not change."""
    keys = [(path, path.stat().st_mtime_ns) for path in specs]
    if new := [key for key in keys if key not in _described]:
        _described.update(zip(new, ask("describe", *(str(path) for path, _ in new))["specs"], strict=True))
    return [_described[key] for key in keys]


_unpacked: dict[tuple[Path, int], tempfile.TemporaryDirectory] = {}


def _is_archive(path: Path) -> bool:
    if path.suffix != ".zip" or not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return any(name.rpartition("/")[2] == "spec.yaml" for name in archive.namelist())


def _unpack(archive: Path) -> Path:
    """A temporary folder with the archive's files, which is removed when the program ends."""
    key = (archive.resolve(), archive.stat().st_mtime_ns)
    if key not in _unpacked:
        folder = tempfile.TemporaryDirectory()
        try:
            with zipfile.ZipFile(archive) as files:
                files.extractall(folder.name)
        except (zipfile.BadZipFile, zlib.error) as error:
            raise LabError(f"{archive}: cannot be read ({error})", 3) from error
        _unpacked[key] = folder
    return Path(_unpacked[key].name)


def _run_folders(folder: Path, name: Path, above: frozenset[Path] = frozenset()) -> Iterator[tuple[Path, Path]]:
    """Each run folder with its name in messages: that of a run in an archive is ARCHIVE.zip/RUN."""
    real = folder.resolve()
    if _is_archive(folder):
        yield from _run_folders(_unpack(folder), name)
    elif (folder / "spec.yaml").exists():
        yield folder, name
    elif real not in above:  # otherwise a link to a parent folder
        for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
            if entry.is_dir() or _is_archive(Path(entry.path)):
                yield from _run_folders(folder / entry.name, name / entry.name, above | {real})


def count_once(runs: list[Run], key: Callable[[Run], Any]) -> tuple[list[Run], list[tuple[Run, Run]]]:
    """The runs that count, of those with equal keys the first with the most steps; and each other run with that which counts
    in its place."""
    same: dict[Any, list[Run]] = {}
    for run in runs:
        same.setdefault(key(run), []).append(run)
    counted = [max(equal, key=lambda run: (run.step, run.is_finished)) for equal in same.values()]
    pairs = zip(counted, same.values(), strict=True)
    return counted, [(run, one) for one, equal in pairs for run in equal if run is not one]


def find(paths: Iterable[str | Path]) -> Found:
    """The runs in and below the paths, in their order; each path is a run folder (with a spec.yaml), or a folder or zip
    archive that is searched for them. A sweep.json beside them gives labels to the runs that it lists."""
    folders: dict[Path, Path] = {}
    for path in map(Path, paths):
        if not path.is_dir() and not _is_archive(path):
            raise LabError(
                f"{path}: expected a run folder, or a folder or zip archive that contains some; there is no such folder. "
                "Check the path."
            )
        if not (below := list(_run_folders(path, path))):
            raise LabError(
                f"{path}: contains no run. A run folder has a spec.yaml; runs are under output.dir/name. Check the path."
            )
        for folder, name in below:
            folders.setdefault(folder.resolve(), name)
    runs, unreadable = [], []
    for (folder, name), spec in zip(folders.items(), describe([f / "spec.yaml" for f in folders]), strict=True):
        try:
            runs.append(read_run(folder, spec))
            runs[-1].folder = name
        except LabError as error:
            unreadable.append((name, str(error).replace(str(folder), str(name))))
    # Of several folders with the same run, some may have been continued: under another name as a run of its own.
    runs, copies = count_once(runs, lambda run: (run.history.get("id") or str(run.folder), *run.names))
    return Found(runs, unreadable + [(run.folder, f"the same run as {one.folder}") for run, one in copies])
