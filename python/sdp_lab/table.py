"""Comparison of groups of runs: a row per group, a column per measure; as text, Markdown, LaTeX and CSV."""

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import pandas as pd

from sdp_lab.columns import COLUMNS, Column
from sdp_lab.groups import BUDGET, Group, natural
from sdp_lab.measures import Statistic, statistic
from sdp_lab.text import BETWEEN_COLUMNS, LABEL_WIDTH, PAGE_WIDTH, Grid, bytes_text, count_text, draw, escaped, halves
from sdp_lab.trainer import LabError

VISIBLE_SHARE = 0.005  # a deviation below this share of the mean does not show in three digits


@dataclass(eq=False)
class Row:
    group: Group
    values: dict[str, Statistic]
    baseline: "Row | None" = None

    @property
    def label(self) -> str:
        group = self.group
        if not group.unfinished:
            return group.label
        if len(group.runs) > 1:
            return f"{group.label} ({group.unfinished} of {len(group.runs)} unfinished)"
        total = group.first.total_steps
        return f"{group.label} (unfinished: step {group.first.step}{f' of {total}' if total else ''})"

    def compared(self, column: Column) -> float:
        """With the baseline's mean: a ratio or a difference; NaN without a baseline."""
        if self.baseline is None or column.comparison == "none":
            return math.nan
        own, other = self.values[column.key].mean, self.baseline.values[column.key].mean
        if column.comparison == "difference":
            return own - other
        return own / other if other else math.nan


@dataclass
class Table:
    columns: list[Column]  # those with a value in any row
    rows: list[Row]
    baselines: list[str] = field(default_factory=list)

    def data_sets(self) -> dict[str, list[Row]]:
        parts: dict[str, list[Row]] = {}
        for row in self.rows:
            parts.setdefault(row.group.data_set, []).append(row)
        return parts


def make_table(groups: list[Group], baseline: str = "") -> Table:
    """`baseline`: a group's label or the beginning of it, or conditions such as coverage=1. Rows are compared with the one
    of their data set that it means and that agrees with them in whatever else differs."""
    rows = [Row(group, {c.key: statistic(map(c.value, group.runs)) for c in COLUMNS}) for group in groups]
    table = Table([column for column in COLUMNS if any(row.values[column.key].count for row in rows)], rows)
    if baseline:
        for of_data_set in table.data_sets().values():
            _compare(of_data_set, baseline)
        if not any(row.baseline for row in rows):
            raise _refusal(rows, baseline, "none of these rows is meant by it")
        table.baselines = [row.group.label for row in rows if row.baseline is row]
    return table


def _refusal(rows: list[Row], baseline: str, reason: str) -> LabError:
    labels = "".join(f"\n  {row.group.label}" for row in rows)
    return LabError(f"--baseline {baseline}: {reason}; expected a condition such as coverage=1, or one of{labels}")


def _compare(rows: list[Row], baseline: str) -> None:
    """Sets the baseline of each row, if there is one."""
    meant = [row for row in rows if row.group.label_without(BUDGET) == baseline]
    with_budget = [row for row in rows if row.group.label.startswith(baseline)]
    keys: set[str] = set()
    if not meant and not with_budget and "=" in baseline:
        meant = rows
        for key, _, value in (part.partition("=") for part in baseline.split(",")):
            if not any(row.group.value(key.strip()) for row in rows):
                raise _refusal(rows, baseline, f"no run has an option {key.strip()}")
            meant = [row for row in meant if _equal(row.group.value(key.strip()), value.strip())]
            keys.add(rows[0].group.option(key.strip()))

    def matched(group: Group) -> dict[str, str]:
        """What a row and its baseline have in common."""
        if keys:
            named = {"method": group.method, "coverage": group.coverage} if not keys & {"method", "coverage"} else {}
            return named | group.compared(without=keys)
        return {key: value for key, value in group.compared().items() if key in BUDGET or not meant}

    one = [row for row in rows if row.group.label == baseline] or (with_budget if len(with_budget) == 1 else [])
    for row in rows:
        same = one or [other for other in meant or with_budget if matched(other.group) == matched(row.group)]
        if len(same) > 1 and row not in same:
            raise _refusal(rows, baseline, f"more than one row is meant by it for {row.group.label}")
        row.baseline = row if row in same else same[0] if same else None


def _equal(value: str, wanted: str) -> bool:
    try:
        return float(value) == float(wanted)
    except ValueError:
        return value == wanted


FORMATS: dict[str, Callable[[float], str]] = {
    "share": lambda value: f"{100 * value:.2f}",
    "nats": lambda value: f"{value:.4f}",
    "perplexity": lambda value: f"{value:.2f}",
    "whole": lambda value: f"{value:.0f}",
    "number": lambda value: f"{value:.3g}",
    "ms": lambda value: f"{value:.{2 if value < 9.995 else 1}f}",
    "bytes": bytes_text,
    "count": count_text,
}
FIXED = ("share", "nats", "perplexity", "ms")  # their deviation is shown even if it is small


def value_text(column: Column, value: Statistic) -> str:
    if not value.count:
        return "-"
    text = FORMATS[column.quantity](value.mean)
    if math.isnan(value.std) or (column.quantity not in FIXED and value.std <= VISIBLE_SHARE * abs(value.mean)):
        return text
    number, _, unit = text.partition(" ")
    if unit:  # once, for both
        return f"{number} ± {value.std * float(number) / value.mean:.2g} {unit}"
    return f"{number} ± {FORMATS[column.quantity](value.std)}"


def comparison_text(column: Column, compared: float) -> str:
    if math.isnan(compared):
        return ""
    if column.comparison == "ratio":
        return f"×{compared:.2f}"
    return f"{100 * compared:+.2f}" if column.quantity == "share" else f"{compared:+.4f}"


def title_of(column: Column) -> str:
    unit = {"share": " (%)", "ms": " (ms)"}.get(column.quantity, "")
    return column.title + unit


def chosen_columns(table: Table, rows: list[Row], wanted: str, in_document: bool) -> list[Column]:
    """`wanted`: keys separated by commas, or "all"; empty: in a document the compared measures that differ from the
    baseline's; otherwise those for a terminal."""
    known = [c for c in table.columns if any(row.values[c.key].count for row in rows)]
    if wanted and wanted != "all":
        keys = [key.strip() for key in wanted.split(",")]
        if unknown := [key for key in keys if key not in {column.key for column in table.columns}]:
            names = ", ".join(column.key for column in table.columns)
            raise LabError(f"--columns {unknown[0]}: no such column; expected all, or some of {names}")
        return [column for key in keys for column in known if column.key == key]
    of_model = [c for c in known if c.models in ("all", "tokens" if rows[0].group.first.is_of_tokens else "images")]
    if wanted == "all":
        return [column for column in of_model if column.detail != "file"]
    shown = [column for column in of_model if column.detail == "terminal"]
    if not in_document:
        return shown
    return [column for column in shown if column.comparison != "none" and not (table.baselines and is_equal(column, rows))]


def is_equal(column: Column, rows: list[Row]) -> bool:
    """Whether all rows are equal to their baselines, to the digits that are printed."""
    return {comparison_text(column, row.compared(column)) for row in rows} <= {"", "×1.00"}


def grid_of(table: Table, rows: list[Row], wanted: str, form: str) -> Grid:
    """Comparisons with the baseline stand in the cell of their measure, unless all rows are equal to it. A document has as
    many of the columns, if nobody chose them, as a page is wide."""
    shown = [["configuration", *(row.label for row in rows)], ["runs", *(str(len(row.group.runs)) for row in rows)]]
    width = min(LABEL_WIDTH, max(map(len, shown[0]))) + len("runs") + 2 * BETWEEN_COLUMNS
    for column in chosen_columns(table, rows, wanted, in_document=form != "text"):
        cells = [value_text(column, row.values[column.key]) for row in rows]
        if not is_equal(column, rows):
            texts = [comparison_text(column, row.compared(column)) if row.baseline is not row else "" for row in rows]
            cells = [f"{cell} ({text})" if text else cell for cell, text in zip(cells, texts, strict=True)]
        own = max(map(len, [*halves(title_of(column)), *cells])) + BETWEEN_COLUMNS
        if wanted or width + own <= PAGE_WIDTH.get(form, math.inf):
            shown.append([title_of(column), *cells])
            width += own
    return [list(line) for line in zip(*shown, strict=True)]


def score_column(table: Table, rows: list[Row]) -> Column:
    key = "loss_nats" if rows[0].group.first.is_of_tokens else "accuracy"
    return next((column for column in table.columns if column.key == key), COLUMNS[0])


def pivots(table: Table, rows: list[Row], wanted: str) -> dict[str, Grid]:
    """The score by two options, ROWS×COLUMNS; the best of each row is marked with *. One grid per method and whatever else
    differs; data parallelism is part of each grid whose rows or columns are coverages."""
    keys = [key.strip() for key in re.split("[×,]" if set(wanted) & set("×,") else "x", wanted)]
    if len(keys) != 2 or not all(keys):
        raise LabError(f"--pivot {wanted}: expected two options, as in coverage×lr")
    if missing := [key for key in keys if not any(row.group.value(key) for row in rows)]:
        raise LabError(f"--pivot {wanted}: no run has an option {missing[0]}; expected for example coverage or lr")
    column = score_column(table, rows)
    best_of = max if column.quantity == "share" else min
    parts: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        group = row.group
        others = group.compared(without=[group.option(key) for key in keys])
        rest = ", ".join(f"{key.rpartition('.')[2]} {value}" for key, value in others.items() if value)
        base = {"method": group.method, "coverage": group.coverage if group.coverage != "1" else ""}
        parts.setdefault((" ".join(filter(None, (base[key] for key in base if key not in keys))), rest), []).append(row)
    if {"coverage", "method"} & set(keys):
        dense = [name for name, part in parts.items() if all(row.group.coverage == "1" for row in part)]
        for name in [name for name in parts if name not in dense]:
            parts[name] += [row for other in dense if other[1] == name[1] for row in parts[other]]
        shown = {name[1] for name in parts if name not in dense}
        parts = {name: part for name, part in parts.items() if name not in dense or name[1] not in shown}
    grids = {}
    for name, part in parts.items():
        found = {tuple(row.group.value(key) for key in keys): row.values[column.key] for row in part}
        names = [sorted({at[i] for at in found}, key=natural) for i in (0, 1)]
        grid = [[f"{keys[0]} / {keys[1]}", *names[1]]]
        for of_row in names[0]:
            cells = [found.get((of_row, of_column), Statistic()) for of_column in names[1]]
            best = best_of((cell.mean for cell in cells if cell.count), default=math.nan)
            marks = [" *" if cell.mean == best and len(cells) > 1 else "" for cell in cells]
            grid.append([of_row, *(value_text(column, cell) + mark for cell, mark in zip(cells, marks, strict=True))])
        grids[", ".join(filter(None, [title_of(column), *name]))] = grid
    return grids


def to_csv(table: Table) -> str:
    """One table with all data sets. Every measure is in full precision as KEY and KEY_std (empty for one run), in the unit
    that its name gives; comparisons with a baseline are KEY_over_baseline (a ratio) or KEY_minus_baseline."""

    def number(value: float) -> str:
        return repr(value).removesuffix(".0") if math.isfinite(value) else ""

    suffix = {"ratio": "_over_baseline", "difference": "_minus_baseline"}
    compared = [c for c in table.columns if any(not math.isnan(row.compared(c)) for row in table.rows)]
    lines = []
    for row in table.rows:
        group = row.group
        line = {
            "label": group.label,
            "data_set": group.data_set,
            "regime": group.method,
            "coverage": group.coverage,
            "runs": len(group.runs),
            "unfinished_runs": group.unfinished,
            "seeds": " ".join(str(run.value("seed")) for run in group.runs),
            "processes": group.first.plan["processes"],
            "device": next((run.end["device"] for run in group.runs if run.end), ""),
            "imported": (group.first.history.get("imported") or {}).get("xxh3_128", ""),
            "changes": "; ".join(group.changes),
        }
        for column in table.columns:
            value = row.values[column.key]
            line |= {column.key: number(value.mean), f"{column.key}_std": number(value.std)}
            line |= {column.key + suffix[column.comparison]: number(row.compared(column))} if column in compared else {}
        lines.append(line)
    return pd.DataFrame(lines).to_csv(index=False, lineterminator="\n")


def to_format(table: Table, form: str, wanted: str = "", pivot: str = "") -> str:
    """Each data set has its own tables, with its name above if there are several. Below are the notes of the groups."""
    if form == "csv":
        return to_csv(table)
    comment, note, head = {
        "text": ("{}:\n", "{}\n", ""),
        "markdown": ("{}:\n\n", "\n{}\n", ""),
        "latex": ("% {}\n", "\\par{{\\footnotesize {}}}\n", "% needs \\usepackage{booktabs}\n"),
    }[form]
    parts = []
    for data_set, rows in table.data_sets().items():
        grids = pivots(table, rows, pivot) if pivot else {"": grid_of(table, rows, wanted, form)}
        for name, grid in grids.items():
            title = ", ".join(filter(None, [f"data set {data_set}" if len(table.data_sets()) > 1 else "", name]))
            parts.append((comment.format(escaped(title, form)) if title else "") + draw(grid, form))
    notes = [note.format(escaped(line, form)) for line in notes_of_groups(row.group for row in table.rows)]
    return head + "\n".join(parts) + "".join(notes)


def notes_of_groups(groups: Iterable[Group]) -> list[str]:
    """What changed during training, and which runs have the seed of another one."""
    notes = []
    for group in groups:
        if group.changes:
            notes.append(f"* {group.label}: {group.base}; changed during training: {'; '.join(group.changes)}")
        for run, one in group.repeats:
            notes.append(f"{group.label}: {run.folder} is not counted: it has the seed of {one.folder}, {run.value('seed')}")
    return notes
