"""Measures of a run as numbers: the columns of the table. Their list is the binary's."""

import functools
import math
import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from sdp_lab.runs import Line, Run, total
from sdp_lab.trainer import ask

UNKNOWN = math.nan


class Statistic(NamedTuple):
    mean: float = math.nan
    std: float = math.nan  # of a sample: n - 1 in the denominator
    count: int = 0


def statistic(values: Iterable[float]) -> Statistic:
    """Over the known values."""
    known = [value for value in values if not math.isnan(value)]
    if not known:
        return Statistic()
    mean = total(known) / len(known)
    squares = total((value - mean) * (value - mean) for value in known)
    return Statistic(mean, math.sqrt(squares / (len(known) - 1)) if len(known) > 1 else math.nan, len(known))


@dataclass(frozen=True)
class Column:
    key: str  # with the unit: a column of the CSV file
    title: str  # for tables; the unit is added by quantity
    quantity: str
    comparison: str  # none, ratio, difference
    better: str | None  # higher, lower
    detail: str  # terminal, document, file
    models: str  # all, images, tokens
    source: str  # train, eval, run
    field: str
    over_lines: str
    over_processes: str
    over_workers: str

    def value(self, run: Run) -> float:
        """NaN: not known, or not yet."""
        if self.source == "train":
            return over_lines([_of_line(line, self.field, self.over_processes) for line in run.train], self.over_lines)
        if self.source == "eval":
            return combined(run.evals[-1].get(self.field) if run.evals else None, self.over_workers)
        kind = self.key.removeprefix("peak_")
        return float(OF_RUN[self.key](run) if self.key in OF_RUN else peak_memory(run).get(kind, UNKNOWN))


@functools.cache
def columns() -> list[Column]:
    return [Column(**column) for column in ask("describe")["columns"]]


def combined(value: Any, how: str = "mean") -> float:
    """A number or a list of numbers as one; NaN for what is missing or null."""
    if not isinstance(value, list):
        return UNKNOWN if value is None else float(value)
    numbers = [combined(number) for number in value]
    mean = total(numbers) / len(numbers) if numbers else UNKNOWN
    return mean if how == "mean" or not numbers else {"max": max, "min": min, "sum": total}[how](numbers)


def _of_line(line: Line, field: str, how: str) -> float:
    if field == "exchange_wait_ms":  # lines of older programs lack it
        return _of_line(line, "exchange.reduce_wait_ms", how) + _of_line(line, "exchange.publish_wait_ms", how)
    parent, _, key = field.rpartition(".")
    return combined((line.get(parent, {}) if parent else line).get(key), how)


def median(values: list[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return statistics.median(known) if known else UNKNOWN


def over_lines(values: list[float], how: str) -> float:
    """The median leaves out the first line, which includes the start, if there are others."""
    if how == "median":
        return median(values[1:] if len(values) > 1 else values)
    return UNKNOWN if not values else max(values) if how == "max" else values[-1]


def peak_memory(run: Run) -> dict[str, int]:
    """Tensors by kind at the peak of the process with the most tensor memory. Only training: lines whose steps include
    an evaluation, which needs memory of its own, are ignored if there are others. Empty if nothing is known."""
    found: dict[bool, list[dict[str, int]]] = {True: [], False: []}
    begin = 0
    evals = [line["step"] for line in run.evals]
    for line in run.train:
        kinds = line.get("memory", {})
        with_evaluation = any(begin <= step < line["step"] for step in evals)
        found[with_evaluation] += [dict(zip(kinds, ranks, strict=True)) for ranks in zip(*kinds.values(), strict=False)]
        begin = line["step"]
    return max(found[False] or found[True], key=lambda kinds: sum(kinds.values()), default={})


def _peak_tensor_memory(run: Run) -> float:
    return sum(peak_memory(run).values()) or UNKNOWN


def _per_worker(run: Run) -> float:
    slots = float(run.plan["workers"] * run.value("subnetwork.replicas")) / run.plan["processes"]
    return _peak_tensor_memory(run) / slots


def _sent(run: Run) -> float:
    parts = ("exchange.reduce_bytes", "exchange.publish_bytes")
    return over_lines([total(_of_line(line, part, "mean") for part in parts) for line in run.train], "median")


def planned_memory(run: Run) -> float:
    """Of the largest worker, in bytes: the forecast's peak, or else weights, gradients, optimizer and activations."""
    keys = ("parameter_bytes", "gradient_bytes", "optimizer_bytes", "activation_bytes")
    return max(
        worker["peak_bytes"]["total"] if worker.get("peak_bytes") else sum(worker.get(key, 0) for key in keys)
        for worker in run.plan["per_worker"]
    )


OF_RUN: dict[str, Callable[[Run], float]] = {
    "training_accuracy": lambda run: combined(run.train[-1].get("accuracy") if run.train else None),
    "steps": lambda run: run.step,
    "epochs": lambda run: float(run.consumed("epochs", run.step)) or UNKNOWN,
    "training_flops": lambda run: float(run.consumed("flops", run.step)),
    "peak_tensor_memory_bytes": _peak_tensor_memory,
    "peak_tensor_memory_per_worker_bytes": _per_worker,
    "peak_process_memory_bytes": lambda run: (
        max((line.get("peak_process_memory_bytes", 0) for line in run.train), default=0) or UNKNOWN
    ),
    "sent_bytes_per_step": _sent,
    "largest_worker_parameters": lambda run: max(worker["parameters"] for worker in run.plan["per_worker"]),
}
