"""Curves of runs: values over steps, FLOPs, epochs or tokens, and time; averaged over the runs of a group."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from sdp_lab.groups import Group, statistic
from sdp_lab.measures import training_seconds
from sdp_lab.runs import Line, Run

AXES = ("steps", "flops", "data", "time")


@dataclass
class Curve:
    x: list[float] = field(default_factory=list)
    y: list[float] = field(default_factory=list)
    std: list[float] = field(default_factory=list)  # NaN where there is one run
    runs: list[int] = field(default_factory=list)


def seconds_at(run: Run, steps: Iterable[int]) -> list[float]:
    """Training time until the end of each step, linear between the training lines."""
    ends, times = [0] + [line["step"] for line in run.train], [0.0, *training_seconds(run)]
    result, i = [], 0
    for step in steps:
        while i + 1 < len(ends) - 1 and ends[i + 1] < step:
            i += 1
        if len(ends) == 1 or step >= ends[-1]:
            result.append(times[-1])
        else:
            result.append(times[i] + (times[i + 1] - times[i]) * (step - ends[i]) / (ends[i + 1] - ends[i]))
    return result


def positions(run: Run, lines: list[Line], axis: str) -> list[float]:
    """Where the lines stand on an axis: in steps, FLOPs, epochs (tokens for language models), or seconds."""
    steps = [line["step"] for line in lines]
    if axis == "time":
        return seconds_at(run, steps)
    tokens = run.samples_per_worker * run.plan["workers"] * run.spec["sequence_length"]
    per_step = {"steps": 1, "flops": run.flops_per_step, "data": tokens if run.is_of_tokens else run.epochs_per_step}[axis]
    return [step * per_step for step in steps]


def mean_curve(group: Group, kind: str, key: str, axis: str) -> Curve:
    """Mean of x and y and deviation of y over the runs of a group, at every step that all runs have which got that far.
    `kind`: train or eval."""
    by_step: dict[int, list[tuple[float, float]]] = {}
    ends = []
    for run in group.runs:
        lines = run.train if kind == "train" else run.evals
        ends += [lines[-1]["step"]] if lines else []
        for line, x in zip(lines, positions(run, lines, axis), strict=True):
            value = line.get(key)
            by_step.setdefault(line["step"], []).append((x, math.nan if value is None else value))
    curve = Curve()
    for step, points in sorted(by_step.items()):
        if len(points) < sum(end >= step for end in ends):
            continue
        y = statistic(value for _, value in points)
        for values, value in zip(
            (curve.x, curve.y, curve.std, curve.runs), (statistic(x for x, _ in points).mean, *y), strict=True
        ):
            values.append(value)
    return curve
