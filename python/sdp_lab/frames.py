"""Runs and their curves as data frames."""

import math
import os
from collections.abc import Iterable, Iterator

import numpy as np
import pandas as pd

from sdp_lab.columns import COLUMNS
from sdp_lab.groups import Group, group_runs
from sdp_lab.measures import has_planned_peak, planned_memory
from sdp_lab.runs import Line, Run, find

Paths = str | os.PathLike | Iterable[str | os.PathLike]


def _runs(paths: Paths) -> Iterator[tuple[Run, dict]]:
    """With what tells a run apart, first in every row. `share` is the coverage as a number."""
    for group in group_runs(find([paths] if isinstance(paths, str | os.PathLike) else paths).runs):
        for run in group.all_runs:
            names = {"run": run.name, "label": group.label, "method": run.method, "coverage": run.coverage}
            yield run, names | {"share": group.share, "seed": run.value("seed"), "data_set": group.data_set}


def load(paths: Paths) -> pd.DataFrame:
    """A row per run in and below the paths: its names, the measures of table.csv in the units of their names, the planned
    memory of the largest worker, and every option by its dotted name. NaN: not known, or not yet. Of copies of a run one is
    counted; runs that cannot be read are left out."""
    rows = []
    for run, row in _runs(paths):
        end = run.end or {}
        row |= {"finished": run.is_finished, "processes": run.plan["processes"]}
        row |= {"device": end.get("device"), "version": end.get("version"), "folder": str(run.folder)}
        row |= {column.key: column.value(run) for column in COLUMNS}
        row["planned_memory_bytes"] = planned_memory(run, has_planned_peak(run))
        rows.append(row | {key: run.value(key) for key in run.options if key not in row})
    return pd.DataFrame(rows)


def curves(paths: Paths) -> pd.DataFrame:
    """A row per training line and evaluation of metrics.jsonl: the run's names, `kind` (train or eval), the line's position
    as `step`, `flops`, `epochs` (`tokens` for language models) and `seconds` of training, and the line's other values under
    their keys; values by rank or worker are lists."""
    return pd.DataFrame(
        [
            names | line | place
            for run, names in _runs(paths)
            for lines in (run.train, run.evals)
            for line, place in zip(lines, positions(run, lines).to_dict("records"), strict=True)
        ]
    )


def positions(run: Run, lines: list[Line]) -> pd.DataFrame:
    """Where the lines stand. `seconds`: training time until the end of the step, linear between the training lines."""
    ends = np.array([0, *(line["step"] for line in run.train)])
    milliseconds = [line.get("step_ms") or 0 for line in run.train]
    seconds = np.cumsum([0, *(np.diff(ends) * milliseconds / 1000)])
    steps = pd.Series([line["step"] for line in lines], dtype=int)
    quantities = ("flops", "tokens" if run.is_of_tokens else "epochs")
    places = {"step": steps, **{quantity: run.consumed(quantity, steps) for quantity in quantities}}
    return pd.DataFrame({**places, "seconds": np.interp(steps, ends, seconds)})


def curve_values(run: Run, lines: list[Line], key: str) -> list[float]:
    """The value of each line. That of a training line is the mean over the last train.log_every_steps steps: a checkpoint
    may end a line after one step."""
    values = [math.nan if line.get(key) is None else float(line[key]) for line in lines]
    if lines is not run.train:
        return values
    steps = np.diff([0, *(line["step"] for line in lines)])
    window = run.value("train.log_every_steps")
    means = []
    for end, value in enumerate(values, 1):
        begin = end - 1
        while begin > 0 and sum(steps[begin:end]) < window:
            begin -= 1
        is_one = begin == end - 1
        means.append(value if is_one else float(np.average(values[begin:end], weights=steps[begin:end])))
    return means


def mean_curve(group: Group, kind: str, key: str, axis: str) -> pd.DataFrame:
    """Mean of x and y, deviation of y and number of runs, at every step that all runs have which got that far. `kind`:
    train or eval; `axis`: a column of positions()."""
    parts = []
    for run in group.runs:
        lines = run.train if kind == "train" else run.evals
        places = positions(run, lines)
        values = pd.Series(curve_values(run, lines, key), dtype=float)
        parts.append(pd.DataFrame({"step": places["step"], "x": places[axis], "y": values}))
    by_step = pd.concat(parts).groupby("step")
    curve = pd.DataFrame({"x": by_step.x.mean(), "y": by_step.y.mean(), "std": by_step.y.std(), "runs": by_step.y.count()})
    there = sum((curve.index <= part.step.max()).astype(int) for part in parts if len(part))
    return curve[by_step.size() >= there]
