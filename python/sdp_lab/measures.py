"""Measures of a run as numbers; NaN: not known, or not yet."""

import math
import statistics
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from sdp_lab.runs import Line, Run, total

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
    center = mean(known)
    squares = total((value - center) * (value - center) for value in known)
    return Statistic(center, math.sqrt(squares / (len(known) - 1)) if len(known) > 1 else math.nan, len(known))


def mean(numbers: list[float]) -> float:
    return total(numbers) / len(numbers)


def combined(value: Any, how: Callable[[list[float]], float] = mean) -> float:
    """A number or a list of numbers as one; NaN for what is missing or null."""
    if not isinstance(value, list):
        return UNKNOWN if value is None else float(value)
    return how([combined(number) for number in value]) if value else UNKNOWN


def last_eval(key: str, how: Callable[[list[float]], float] = mean) -> Callable[[Run], float]:
    """`key` of the last evaluation; `how` makes one number of a list by worker."""
    return lambda run: combined(run.evals[-1].get(key) if run.evals else None, how)


def typical(key: str, how: Callable[[list[float]], float] = mean) -> Callable[[Run], float]:
    """`key`, which may be dotted, of the training lines; `how` makes one number of a list by process."""
    return lambda run: over_lines([_of_line(line, key, how) for line in run.train])


def _of_line(line: Line, key: str, how: Callable[[list[float]], float] = mean) -> float:
    if key == "exchange_wait_ms":  # lines of older programs lack it
        return _of_line(line, "exchange.reduce_wait_ms") + _of_line(line, "exchange.publish_wait_ms")
    parent, _, name = key.rpartition(".")
    return combined((line.get(parent, {}) if parent else line).get(name), how)


def median(values: list[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return statistics.median(known) if known else UNKNOWN


def over_lines(values: list[float]) -> float:
    """The median, without the first line, which includes the start, if there are others."""
    return median(values[1:] if len(values) > 1 else values)


def steps(run: Run) -> float:
    return float(run.step)


def training_accuracy(run: Run) -> float:
    return combined(run.train[-1].get("accuracy") if run.train else None)


def epochs(run: Run) -> float:
    return float(run.consumed("epochs", run.step)) or UNKNOWN


def training_flops(run: Run) -> float:
    return float(run.consumed("flops", run.step))


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


def at_peak(kind: str) -> Callable[[Run], float]:
    """A key of peak_memory()."""
    return lambda run: float(peak_memory(run).get(kind, UNKNOWN))


def peak_tensor_memory(run: Run) -> float:
    return float(sum(peak_memory(run).values())) or UNKNOWN


def peak_tensor_memory_per_worker(run: Run) -> float:
    slots = float(run.plan["workers"] * run.value("subnetwork.replicas")) / run.plan["processes"]
    return peak_tensor_memory(run) / slots


def peak_process_memory(run: Run) -> float:
    return float(max((line.get("peak_process_memory_bytes", 0) for line in run.train), default=0)) or UNKNOWN


def sent_bytes_per_step(run: Run) -> float:
    parts = ("exchange.reduce_bytes", "exchange.publish_bytes")
    return over_lines([total(_of_line(line, part) for part in parts) for line in run.train])


def largest_worker_parameters(run: Run) -> float:
    return float(max(worker["parameters"] for worker in run.plan["per_worker"]))


def has_planned_peak(run: Run) -> bool:
    return all(worker.get("peak_bytes") for worker in run.plan["per_worker"])


def planned_memory(run: Run, of_peak: bool) -> float:
    """Of the largest worker, in bytes: its planned peak, or weights, gradients, optimizer state and activations."""
    keys = ("parameter_bytes", "gradient_bytes", "optimizer_bytes", "activation_bytes")
    workers = run.plan["per_worker"]
    return max(worker["peak_bytes"]["total"] if of_peak else sum(worker.get(key, 0) for key in keys) for worker in workers)
