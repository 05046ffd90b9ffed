"""The page of a study: one self-contained HTML file with a table that sorts and curves to hover over."""

import json
import math
from pathlib import Path
from typing import Any

import jinja2
from plotly.offline import get_plotlyjs

from sdp_lab.curves import AXES, mean_curve
from sdp_lab.figures import Study
from sdp_lab.groups import Group
from sdp_lab.measures import planned_memory
from sdp_lab.table import Row, Table, comparison_text, title_of, value_text

MOST_POINTS = 2000  # of a curve


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _cells(table: Table, row: Row) -> list[dict[str, Any]]:
    """Texts, the numbers to sort by, and whether the narrow table has the column."""
    cells = []
    for column in table.columns:
        value, compared = row.values[column.key], row.compared(column)
        cells.append({"text": value_text(column, value), "number": _number(value.mean), "detail": column.detail})
        if table.baselines and column.comparison != "none":
            cells.append({"text": comparison_text(column, compared), "number": _number(compared), "detail": column.detail})
    return cells


def _header(table: Table) -> list[dict[str, str]]:
    header = []
    for column in table.columns:
        header.append({"title": title_of(column), "key": column.key, "detail": column.detail})
        if table.baselines and column.comparison != "none":
            title = f"{'×' if column.comparison == 'ratio' else 'Δ'} {column.title}"
            header.append({"title": title, "key": f"{column.key} against the baseline", "detail": column.detail})
    return header


def _thin(values: list[float], digits: int = 7) -> list[float | None]:
    stride = -(-len(values) // MOST_POINTS)
    kept = values[:: max(1, stride)]
    return [float(f"{value:.{digits}g}") if math.isfinite(value) else None for value in kept]


def _study(groups: list[Group], name: str) -> dict[str, Any]:
    study = Study(groups)
    lines = []
    for group in groups:
        style, score = study.style(group), study.scores(group)
        rank = study.coverages.index(group.share)
        line: dict[str, Any] = {
            "label": group.label,
            "color": style["color"],
            "opacity": style["alpha"],
            "symbol": ("circle", "square", "diamond", "triangle-down", "triangle-up", "star", "cross", "x")[rank % 8],
            "dash": ("solid", "dash", "dot", "dashdot", "longdash")[study.dash[group.label] % 5],
            "points": {
                "coverage": [group.share, _number(score.mean), _number(score.std)],
                "memory": [max(map(planned_memory, group.runs)) / 2**20, _number(score.mean), _number(score.std)],
            },
            "curves": {},
        }
        for kind, key, factor in (("train", "loss", 1), ("eval", study.score_key, study.factor)):
            for axis in AXES:
                curve = mean_curve(group, kind, key, axis)
                y, std = ([value * factor for value in values] for values in (curve.y, curve.std))
                has_band = any(count > 1 for count in curve.runs)
                line["curves"][f"{kind} {axis}"] = [_thin(curve.x), _thin(y), _thin(std) if has_band else []]
        lines.append(line)
    data = "tokens" if study.is_of_tokens else "epochs"
    axes = {"steps": "steps", "flops": "training FLOPs", "data": data, "time": "training time (s)"}
    return {"name": name, "score": study.score_title, "axes": axes, "lines": lines}


def page(groups: list[Group], table: Table, notes: list[str]) -> str:
    parts = table.data_sets()
    studies = [_study([row.group for row in rows], name if len(parts) > 1 else "") for name, rows in parts.items()]
    template = jinja2.Template(Path(__file__).with_name("page.html").read_text(), autoescape=True)
    runs = [
        (group.label, run.folder, run.step, "finished" if run.is_finished else "unfinished")
        for group in groups
        for run in group.runs
    ]
    changes = [f"* {g.label}: changed during training: {'; '.join(g.changes)}" for g in groups if g.changes]
    tables = {
        name if len(parts) > 1 else "": [(row.label, len(row.group.runs), _cells(table, row)) for row in rows]
        for name, rows in parts.items()
    }
    return template.render(
        header=_header(table),
        tables=tables.items(),
        notes=[*notes, *changes],
        runs=runs,
        plotly=get_plotlyjs().replace("</script", "<\\/script"),
        studies=json.dumps(studies, allow_nan=False).replace("<", "\\u003c"),
        title=", ".join(parts),
    )
