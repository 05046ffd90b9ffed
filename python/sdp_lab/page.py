"""The page of a study: one self-contained HTML file with a table that sorts and curves to hover over."""

import json
import math
from pathlib import Path
from typing import Any

import jinja2
from plotly.offline import get_plotlyjs

from sdp_lab.figures import Study, lines_of_regimes
from sdp_lab.groups import Group
from sdp_lab.measures import planned_memory
from sdp_lab.series import AXES, mean_curve
from sdp_lab.table import Row, Table, comparison_text, title_of, value_text

MOST_POINTS = 2000  # of a curve


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _table(table: Table, rows: list[Row]) -> dict[str, Any]:
    """Header and rows: texts, the numbers to sort by, and whether the narrow table lacks the column."""
    header, cells = [], [[] for _ in rows]
    tokens = rows[0].group.first.is_of_tokens
    for column in table.columns:
        if not any(row.values[column.key].count for row in rows):
            continue
        more = column.detail != "terminal" or column.models not in ("all", "tokens" if tokens else "images")
        header.append({"title": title_of(column), "key": column.key, "more": more})
        for row, own in zip(rows, cells, strict=True):
            value = row.values[column.key]
            own.append({"text": value_text(column, value), "number": _number(value.mean), "more": more})
        if any(math.isfinite(row.compared(column)) for row in rows):
            title = f"{'×' if column.comparison == 'ratio' else 'Δ'} {column.title}"
            header.append({"title": title, "key": f"{column.key} against the baseline", "more": more})
            for row, own in zip(rows, cells, strict=True):
                value = row.compared(column)
                own.append({"text": comparison_text(column, value), "number": _number(value), "more": more})
    labels = [(row.label, len(row.group.runs)) for row in rows]
    return {"header": header, "rows": [(*label, own) for label, own in zip(labels, cells, strict=True)]}


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
            "symbol": ("circle", "square", "diamond", "triangle-down", "triangle-up", "star", "cross", "x")[rank % 8]
            + ("", "-open", "-open-dot", "-dot")[study.dash[group.label] % 4],
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
    index = {id(group): i for i, group in enumerate(groups)}
    regimes = [[label, [index[id(group)] for group in line]] for label, line in lines_of_regimes(study).items()]
    data = "tokens" if study.is_of_tokens else "epochs"
    axes = {"steps": "steps", "flops": "training FLOPs", "data": data, "time": "training time (s)"}
    return {"name": name, "score": study.score_title, "axes": axes, "regimes": regimes, "lines": lines}


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
    tables = {name if len(parts) > 1 else "": _table(table, rows) for name, rows in parts.items()}
    return template.render(
        tables=tables.items(),
        notes=[*notes, *changes],
        runs=runs,
        plotly=get_plotlyjs().replace("</script", "<\\/script"),
        studies=json.dumps(studies, allow_nan=False).replace("<", "\\u003c"),
        title=", ".join(parts),
    )
