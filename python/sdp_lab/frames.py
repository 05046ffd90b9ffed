"""Runs as data frames."""

import os
from collections.abc import Iterable

import pandas as pd

from sdp_lab.groups import Group, group_runs
from sdp_lab.measures import columns, planned_memory
from sdp_lab.runs import Run, find
from sdp_lab.series import AXES, positions

Paths = str | os.PathLike | Iterable[str | os.PathLike]


def _groups(paths: Paths) -> list[Group]:
    return group_runs(find([paths] if isinstance(paths, str | os.PathLike) else paths).runs)


def _names(group: Group, run: Run) -> dict:
    """What tells a run apart, first in every row. `share` is the coverage as a number."""
    names = {"run": run.name, "label": group.label, "method": run.method, "coverage": run.coverage, "share": group.share}
    return names | {"seed": run.value("seed"), "data_set": group.data_set}


def load(paths: Paths) -> pd.DataFrame:
    """A row per run in and below the paths: its names, the measures of table.csv in the units of their names, the planned
    memory of the largest worker, and every option by its dotted name. NaN: not known, or not yet. Of copies of a run one is
    counted; runs that cannot be read are left out."""
    rows = []
    for group in _groups(paths):
        for run in group.runs:
            end = run.end or {}
            row = _names(group, run) | {"finished": run.is_finished, "processes": run.plan["processes"]}
            row |= {"device": end.get("device"), "version": end.get("version"), "folder": str(run.folder)}
            row |= {column.key: column.value(run) for column in columns()}
            row["planned_memory_bytes"] = planned_memory(run)
            rows.append(row | {key: run.value(key) for key in run.options if key not in row})
    return pd.DataFrame(rows)


def curves(paths: Paths) -> pd.DataFrame:
    """A row per training line and evaluation of metrics.jsonl: the run's names, `kind` (train or eval), the line's position
    as `step`, `flops`, `epochs` (`tokens` for language models) and `seconds` of training, and the line's other values under
    their keys; values by rank or worker are lists."""
    rows = []
    for group in _groups(paths):
        for run in group.runs:
            titles = dict(zip(AXES, ("step", "flops", "tokens" if run.is_of_tokens else "epochs", "seconds"), strict=True))
            for lines in (run.train, run.evals):
                places = [
                    dict(zip(titles.values(), at, strict=True))
                    for at in zip(*(positions(run, lines, a) for a in AXES), strict=True)
                ]
                rows += [_names(group, run) | line | place for line, place in zip(lines, places, strict=True)]
    return pd.DataFrame(rows)
