"""Comparison of groups of runs: a row per group, a column per measure; as text, Markdown, LaTeX and CSV."""

import csv
import io
import math
from collections.abc import Callable
from dataclasses import dataclass, field

from sdp_lab.groups import BUDGET, Group, Statistic, natural, statistic
from sdp_lab.measures import Column, columns
from sdp_lab.trainer import LabError

MOST_COLUMNS = 6  # of a document's table, the label included
VISIBLE_SHARE = 0.005  # a deviation below this share of the mean does not show in three digits


@dataclass
class Row:
    group: Group
    values: dict[str, Statistic]
    baseline: "Row | None" = None

    @property
    def label(self) -> str:
        group = self.group
        mark = " *" if group.changes else ""
        if not group.unfinished:
            return group.label + mark
        if len(group.runs) > 1:
            return f"{group.label}{mark} ({group.unfinished} of {len(group.runs)} unfinished)"
        total = group.first.total_steps
        return f"{group.label}{mark} (unfinished: step {group.first.step}{f' of {total}' if total else ''})"

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
    """`baseline`: a group's label, with or without its budget, an unambiguous beginning of a label, or conditions such as
    coverage=1. Rows are compared with the baseline of their data set that agrees with them in whatever else differs."""
    rows = [Row(group, {c.key: statistic(map(c.value, group.runs)) for c in columns()}) for group in groups]
    known = [column for column in columns() if any(row.values[column.key].count for row in rows)]
    table = Table(known, rows)
    if baseline:
        for row in rows:
            row.baseline = _baseline_of(row, [r for r in rows if r.group.data_set == row.group.data_set], baseline)
        if not any(row.baseline for row in rows):
            _refuse(rows, baseline, "none of these rows is meant by it")
        table.baselines = [row.group.label for row in rows if row.baseline is row]
    return table


def _refuse(rows: list[Row], baseline: str, reason: str) -> None:
    labels = "".join(f"\n  {row.group.label}" for row in rows)
    raise LabError(f"--baseline {baseline}: {reason}; expected a condition such as coverage=1, or one of{labels}")


def _baseline_of(row: Row, rows: list[Row], baseline: str) -> Row | None:
    if exact := [other for other in rows if other.group.label == baseline]:
        return exact[0]
    conditions = [tuple(map(str.strip, part.split("=", 1))) for part in baseline.split(",")] if "=" in baseline else []
    keys = {row.group.option(key) for key, *_ in conditions}
    agree = [key for key in row.group.told if row.group.settings[key].in_report == "compared" and key not in keys]
    if conditions:
        for key, *value in conditions:
            if not value or not any(other.group.value(key) for other in rows):
                _refuse(rows, baseline, f"no run has an option {key}")
        found = [other for other in rows if all(_equal(other.group.value(key), value) for key, value in conditions)]
        agree += [] if keys & {"method", "coverage"} else ["method", "coverage"]
    elif found := [other for other in rows if other.group.any_budget_label == baseline]:
        agree = ["train.max_steps"] if row.group.value("train.max_steps") != "null" else list(BUDGET)
    else:
        found = [other for other in rows if other.group.label.startswith(baseline)]
        if len(found) == 1:
            return found[0]
    same = [other for other in found if all(other.group.value(key) == row.group.value(key) for key in agree)]
    if row in same:
        return row
    if len(same) > 1:
        _refuse(rows, baseline, f"more than one row is meant by it for {row.group.label}")
    return same[0] if same else None


def _equal(value: str, wanted: str) -> bool:
    try:
        return float(value) == float(wanted)
    except ValueError:
        return value == wanted


# --- numbers for people ------------------------------------------------------------------------------------


def three_digits(value: float, base: int, units: list[str]) -> str:
    """In the largest unit that leaves at least 1 of it, with three significant digits."""
    if not math.isfinite(value):
        return f"{value:g}"
    number, unit = abs(value), 0
    while unit + 1 < len(units) and number >= base - 0.5:
        number /= base
        unit += 1
    digits = 0 if unit == 0 and number == int(number) or number >= 99.95 else 1 if number >= 9.995 else 2
    return f"{'-' if value < 0 else ''}{number:.{digits}f} {units[unit]}".rstrip()


def bytes_text(value: float) -> str:
    return three_digits(round(value), 1024, ["B", "KiB", "MiB", "GiB", "TiB", "PiB"])


def count_text(value: float) -> str:
    return three_digits(value, 1000, ["", "k", "M", "G", "T", "P"])


FORMATS: dict[str, Callable[[float], str]] = {
    "share": lambda value: f"{100 * value:.2f}",
    "nats": lambda value: f"{value:.4f}",
    "perplexity": lambda value: f"{value:.2f}",
    "whole": lambda value: f"{value:.0f}",
    "number": lambda value: f"{value:.3g}",
    "s": lambda value: f"{value:.3g}",
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
    std = FORMATS[column.quantity](value.std)
    same = unit and std.endswith(f" {unit}")  # a unit that both have stands once
    return f"{number} ± {std}" if same else f"{text} ± {std}"


def comparison_text(column: Column, compared: float) -> str:
    if math.isnan(compared):
        return ""
    if column.comparison == "ratio":
        return f"×{compared:.2f}"
    return f"{100 * compared:+.2f}" if column.quantity == "share" else f"{compared:+.4f}"


def title_of(column: Column) -> str:
    unit = {"share": " (%)", "ms": " (ms)", "s": " (s)"}.get(column.quantity, "")
    return column.title + unit


def chosen_columns(table: Table, rows: list[Row], wanted: str, in_document: bool) -> list[Column]:
    """`wanted`: keys separated by commas, or "all"; empty: in a document the compared measures that differ from the
    baseline's, as many as a page is wide; otherwise those for a terminal."""
    tokens = rows[0].group.first.is_of_tokens
    known = [c for c in table.columns if any(row.values[c.key].count for row in rows)]
    if wanted and wanted != "all":
        keys = [key.strip() for key in wanted.split(",")]
        if unknown := [key for key in keys if key not in {column.key for column in table.columns}]:
            names = ", ".join(column.key for column in table.columns)
            raise LabError(f"--columns {unknown[0]}: no such column; expected all, or some of {names}")
        return [column for key in keys for column in known if column.key == key]
    of_model = [c for c in known if c.models == "all" or (c.models == "tokens") == tokens]
    if wanted == "all":
        return [column for column in of_model if column.detail != "file"]
    shown = [column for column in of_model if column.detail == "terminal"]
    compared = [column for column in shown if column.comparison != "none" and not (table.baselines and is_equal(column, rows))]
    return compared[: MOST_COLUMNS - 2] if in_document else shown


def is_equal(column: Column, rows: list[Row]) -> bool:
    """Whether all rows are equal to their baselines, to the digits that are printed."""
    return {comparison_text(column, row.compared(column)) for row in rows} <= {"", "×1.00"}


Grid = list[list[str]]  # header and rows


def grid_of(table: Table, rows: list[Row], wanted: str, in_document: bool) -> Grid:
    """Comparisons with the baseline stand in the cell of their measure, unless all rows are equal to it."""
    shown = chosen_columns(table, rows, wanted, in_document)
    equal = [column for column in shown if is_equal(column, rows)]

    def cell(row: Row, column: Column) -> str:
        text, compared = value_text(column, row.values[column.key]), comparison_text(column, row.compared(column))
        return f"{text} ({compared})" if compared and row.baseline is not row and column not in equal else text

    header = ["configuration", "runs", *map(title_of, shown)]
    return [header, *([row.label, str(len(row.group.runs)), *(cell(row, c) for c in shown)] for row in rows)]


def score_column(table: Table, rows: list[Row]) -> Column:
    key = "loss_nats" if rows[0].group.first.is_of_tokens else "accuracy"
    return next((column for column in table.columns if column.key == key), columns()[0])


def pivots(table: Table, rows: list[Row], wanted: str) -> dict[str, Grid]:
    """The score by two options, ROWS×COLUMNS; the best of each row is marked with *. One grid per method and whatever else
    differs; data parallelism is part of each grid whose rows or columns are coverages."""
    keys = [
        key.strip() for key in wanted.replace("×", ",").replace("x", ",", "," not in wanted and "×" not in wanted).split(",")
    ]
    if len(keys) != 2:
        raise LabError(f"--pivot {wanted}: expected two options, as in coverage×lr")
    if missing := [key for key in keys if not any(row.group.value(key) for row in rows)]:
        raise LabError(f"--pivot {wanted}: no run has an option {missing[0]}; expected for example coverage or lr")
    column = score_column(table, rows)
    sign = -1 if column.better == "lower" else 1

    def rest(group: Group) -> tuple[str, str]:
        """The method and coverage, and the other settings, as far as they are not among the keys."""
        told = [key for key in group.told if key not in keys and key.rpartition(".")[2] not in keys]
        names = {"method": group.method, "coverage": group.coverage if group.coverage != "1" else ""}
        others = [f"{key.rpartition('.')[2]} {group.value(key)}" for key in told if group.value(key)]
        return " ".join(name for key, name in names.items() if key not in keys and name), ", ".join(others)

    parts: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        parts.setdefault(rest(row.group), []).append(row)
    if "coverage" in keys or "method" in keys:
        dense = {name: part for name, part in parts.items() if part[0].group.coverage == "1"}
        sparse = {name: part for name, part in parts.items() if name not in dense}
        for name, part in sparse.items():
            part += [row for other, of_dense in dense.items() if other[1] == name[1] for row in of_dense]
        parts = sparse | {name: part for name, part in dense.items() if name[1] not in {other[1] for other in sparse}}
    grids = {}
    for name, part in parts.items():
        values = [sorted({row.group.value(key) for row in part}, key=natural) for key in keys]
        grid = [[f"{keys[0]} \\ {keys[1]}", *values[1]]]
        for of_row in values[0]:
            cells = [
                next(
                    (r.values[column.key] for r in part if [r.group.value(k) for k in keys] == [of_row, of_column]),
                    Statistic(),
                )
                for of_column in values[1]
            ]
            best = max((sign * cell.mean for cell in cells if cell.count), default=math.nan)
            marked = [
                value_text(column, c) + (" *" if c.count and sign * c.mean == best and len(cells) > 1 else "") for c in cells
            ]
            grid.append([of_row, *marked])
        grids[", ".join(filter(None, [title_of(column), *name]))] = grid
    return grids


# --- formats -----------------------------------------------------------------------------------------------


def _text_grid(grid: Grid) -> str:
    widths = [max(len(row[i]) for row in grid) for i in range(len(grid[0]))]
    lines = [
        "  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))]) for row in grid
    ]
    lines.insert(1, "-" * len(lines[0]))
    return "".join(line.rstrip() + "\n" for line in lines)


def _markdown_text(text: str) -> str:
    return "".join(f"\\{c}" if c in "|_*<" else c for c in text)


def _markdown_grid(grid: Grid) -> str:
    rows = ["| " + " | ".join(map(_markdown_text, row)) + " |\n" for row in grid]
    rows.insert(1, "| :--- |" + " ---: |" * (len(grid[0]) - 1) + "\n")
    return "".join(rows)


LATEX = {
    "\\": "\\textbackslash{}",
    "~": "\\textasciitilde{}",
    "^": "\\textasciicircum{}",
    "±": "$\\pm$",
    "×": "$\\times$",
}
LATEX |= {c: f"\\{c}" for c in "&%$#_{}"}


def latex_text(text: str) -> str:
    return "".join(LATEX.get(c, c) for c in text)


def _latex_grid(grid: Grid) -> str:
    def cell(text: str) -> str:
        value, is_best = text.removesuffix(" *"), text.endswith(" *")
        return f"\\textbf{{{latex_text(value)}}}" if is_best else latex_text(value)

    rows = [" & ".join(map(latex_text, grid[0]))] + [" & ".join([latex_text(row[0]), *map(cell, row[1:])]) for row in grid[1:]]
    body = "".join(f"{row} \\\\\n" for row in rows[1:])
    start = f"\\begin{{tabular}}{{l{'r' * (len(grid[0]) - 1)}}}\n\\toprule\n{rows[0]} \\\\\n\\midrule\n"
    return f"{start}{body}\\bottomrule\n\\end{{tabular}}\n"


def to_csv(table: Table) -> str:
    """One table with all data sets. Every measure is in full precision as KEY and KEY_std (empty for one run), in the unit
    that its name gives; comparisons with a baseline are KEY_over_baseline (a ratio) or KEY_minus_baseline."""
    suffix = {"ratio": "_over_baseline", "difference": "_minus_baseline"}
    compared = [c for c in table.columns if table.baselines and any(not math.isnan(r.compared(c)) for r in table.rows)]
    header = ["label", "data_set", "regime", "coverage", "runs", "unfinished_runs", "seeds", "processes", "device"]
    header += ["imported", "changes"]
    for column in table.columns:
        header += [column.key, f"{column.key}_std"]
        header += [column.key + suffix[column.comparison]] if column in compared else []
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(header)

    def number(value: float) -> str:
        return repr(value).removesuffix(".0") if math.isfinite(value) else ""

    for row in table.rows:
        group = row.group
        device = next((run.end["device"] for run in group.runs if run.end), "")
        seeds = " ".join(str(run.value("seed")) for run in group.runs)
        imported = (group.first.history.get("imported") or {}).get("xxh3_128", "")
        cells = [group.label, group.data_set, group.method, group.coverage, len(group.runs), group.unfinished, seeds]
        cells += [group.first.plan["processes"], device, imported, "; ".join(group.changes)]
        for column in table.columns:
            value = row.values[column.key]
            cells += [number(value.mean), number(value.std)]
            cells += [number(row.compared(column))] if column in compared else []
        writer.writerow(cells)
    return out.getvalue()


def to_format(table: Table, form: str, wanted: str = "", pivot: str = "") -> str:
    """Each data set has its own tables, with its name above if there are several. A row whose spec changed during training
    is marked with * and has a note below."""
    if form == "csv":
        return to_csv(table)
    draw = {"text": _text_grid, "markdown": _markdown_grid, "latex": _latex_grid}[form]
    comment = {"text": "{}:\n", "markdown": "{}:\n\n", "latex": "% {}\n"}[form]
    parts = []
    for data_set, rows in table.data_sets().items():
        grids = pivots(table, rows, pivot) if pivot else {"": grid_of(table, rows, wanted, form != "text")}
        for name, grid in grids.items():
            if form == "latex":
                grid = [[cell.replace(" \\ ", " / ") for cell in row] for row in grid]
            title = ", ".join(filter(None, [f"data set {data_set}" if len(table.data_sets()) > 1 else "", name]))
            parts.append((comment.format(_markdown_text(title) if form == "markdown" else title) if title else "") + draw(grid))
    note = {"text": "{}\n", "markdown": "\n{}\n", "latex": "\\par{{\\footnotesize {}}}\n"}[form]
    escaped = {"text": str, "markdown": _markdown_text, "latex": latex_text}[form]
    notes = [
        note.format(escaped(f"* {row.group.label}: changed during training: {'; '.join(row.group.changes)}"))
        for row in table.rows
        if row.group.changes
    ]
    head = "% needs \\usepackage{booktabs}\n" if form == "latex" else ""
    return head + "\n".join(parts) + "".join(notes)
