"""The page of a study: one self-contained HTML file with a table that sorts and curves to hover over."""

import json
import math
from pathlib import Path
from typing import Any

import jinja2
from plotly.offline import get_plotlyjs

from sdp_lab.figures import Study, lines_of_regimes
from sdp_lab.frames import mean_curve
from sdp_lab.groups import Group
from sdp_lab.table import Row, Table, comparison_text, notes_of_groups, title_of, value_text

MOST_POINTS = 2000  # of a curve


def _number(value: float) -> float | None:
    """JSON and HTML have no NaN; seven digits are more than a screen shows."""
    return float(f"{value:.7g}") if math.isfinite(value) else None


def _table(table: Table, rows: list[Row]) -> dict[str, Any]:
    """Header and rows: texts, the numbers to sort by, and whether the narrow table lacks the column."""
    header, cells = [], [[] for _ in rows]

    def add(title: str, key: str, more: bool, texts: list[str], values: list[float]) -> None:
        header.append({"title": title, "key": key, "more": more})
        for own, text, value in zip(cells, texts, values, strict=True):
            own.append({"text": text, "number": _number(value), "more": more})

    tokens = rows[0].group.first.is_of_tokens
    for column in table.columns:
        values = [row.values[column.key] for row in rows]
        more = column.detail != "terminal" or column.models not in ("all", "tokens" if tokens else "images")
        if any(value.count for value in values):
            add(title_of(column), column.key, more, [value_text(column, v) for v in values], [v.mean for v in values])
        compared = [row.compared(column) for row in rows]
        if any(map(math.isfinite, compared)):
            title = f"{'×' if column.comparison == 'ratio' else 'Δ'} {column.title}"
            add(title, f"{column.key} against the baseline", more, [comparison_text(column, c) for c in compared], compared)
    return {"header": header, "rows": [(row.label, len(row.group.runs), own) for row, own in zip(rows, cells, strict=True)]}


def _line(study: Study, group: Group) -> dict[str, Any]:
    style, score, dash = study.style(group), study.scores(group), study.dash[group.label]
    symbol = ("circle", "square", "diamond", "triangle-down", "triangle-up", "star", "cross", "x")
    y = [_number(score.mean), _number(score.std)]
    curves = {}
    for kind, key, _ in study.curves:
        factor = study.factor if kind == "eval" else 1
        for axis, (column, _) in study.axes.items():
            curve = mean_curve(group, kind, key, column)
            curve = curve[:: -(-len(curve) // MOST_POINTS) or 1]
            band = curve["std"] * factor if (curve.runs > 1).any() else []
            curves[f"{kind} {axis}"] = [list(map(_number, values)) for values in (curve.x, curve.y * factor, band)]
    return {
        "label": group.label,
        "color": style["color"],
        "opacity": style["alpha"],
        "symbol": symbol[study.coverages.index(group.share) % 8] + ("", "-open", "-open-dot", "-dot")[dash % 4],
        "dash": ("solid", "dash", "dot", "dashdot", "longdash")[dash % 5],
        "points": {
            "coverage": [group.share, *([None, None] if group.changes else y)],
            "memory": [study.memory(group) / 2**20, *y],
        },
        "curves": curves,
    }


def _study(groups: list[Group], name: str) -> dict[str, Any]:
    study = Study(groups)
    regimes = [[label, [groups.index(group) for group in line]] for label, line in lines_of_regimes(study).items()]
    axes = {axis: title + (" (s)" if axis == "time" else "") for axis, (_, title) in study.axes.items()}
    lines = [_line(study, group) for group in groups]
    names = {"name": name, "score": study.score_title, "memory": study.memory_title}
    return names | {"axes": axes, "regimes": regimes, "lines": lines}


def page(groups: list[Group], table: Table, notes: list[str]) -> str:
    parts = {name: rows for name, rows in table.data_sets().items()}
    titles = {name: name if len(parts) > 1 else "" for name in parts}
    studies = [_study([row.group for row in rows], titles[name]) for name, rows in parts.items()]
    template = jinja2.Template(Path(__file__).with_name("page.html").read_text(), autoescape=True)
    return template.render(
        tables=[(titles[name], _table(table, rows)) for name, rows in parts.items()],
        notes=[*notes, *notes_of_groups(groups)],
        runs=[(group.label, run) for group in groups for run in group.runs],
        plotly=get_plotlyjs().replace("</script", "<\\/script"),
        studies=json.dumps(studies, allow_nan=False).replace("<", "\\u003c"),
        title=", ".join(parts),
    )
