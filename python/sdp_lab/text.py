"""Numbers and tables as people read them."""

import math

# Of a table in a document, in characters: of LaTeX's \\footnotesize on a page of `article`, and of a page of Markdown.
PAGE_WIDTH = {"latex": 84, "markdown": 120}
LABEL_WIDTH = 30  # a longer label is broken
BETWEEN_COLUMNS = 2
LONG_TITLE = 14  # a longer one stands on two lines

Grid = list[list[str]]  # header and rows


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


def duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}m {rest:02}s" if minutes < 60 else f"{minutes // 60}h {minutes % 60:02}m"


def halves(title: str) -> tuple[str, str]:
    """Of a long title, divided at the space that is next to its middle."""
    spaces = [i for i, c in enumerate(title) if c == " "] if len(title) > LONG_TITLE else []
    middle = min(spaces, key=lambda i: abs(i - len(title) / 2), default=-1)
    return title[: max(0, middle)], title[middle + 1 :]


ESCAPES = {
    "text": {},
    "markdown": {c: f"\\{c}" for c in "|_*<"},
    "latex": {c: f"\\{c}" for c in "&%$#_{}"}
    | {"\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}", "±": "$\\pm$", "×": "$\\times$"},
}


def escaped(text: str, form: str) -> str:
    return text.translate(str.maketrans(ESCAPES[form]))


def _latex_title(title: str) -> str:
    """On two lines if it is long."""
    first, second = halves(title)
    return f"\\shortstack[r]{{{escaped(first, 'latex')}\\\\{escaped(second, 'latex')}}}" if first else escaped(title, "latex")


def draw(grid: Grid, form: str, left: tuple[int, ...] = (0,)) -> str:
    """`left`: the columns of text that are left-aligned. What ends with * is bold in LaTeX."""
    rows = [[escaped(cell, form) for cell in row] for row in grid]
    if form == "text":
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            "  ".join([c.ljust(w) if i in left else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))])
            for row in rows
        ]
        return "".join(line.rstrip() + "\n" for line in [lines[0], "-" * len(lines[0]), *lines[1:]])
    if form == "markdown":
        lines = [f"| {' | '.join(row)} |\n" for row in rows]
        return "".join([lines[0], f"| :--- |{' ---: |' * (len(grid[0]) - 1)}\n", *lines[1:]])
    rows = [[f"\\textbf{{{cell[:-2]}}}" if cell.endswith(" *") and i else cell for i, cell in enumerate(row)] for row in rows]
    head, *lines = (" & ".join(row) + " \\\\\n" for row in [[_latex_title(title) for title in grid[0]], *rows[1:]])
    label = f"p{{{LABEL_WIDTH / 2:g}em}}" if max(len(row[0]) for row in grid) > LABEL_WIDTH else "l"
    return (
        f"{{\\footnotesize\\setlength{{\\tabcolsep}}{{4pt}}%\n\\begin{{tabular}}{{{label}{'r' * (len(grid[0]) - 1)}}}\n"
        f"\\toprule\n{head}\\midrule\n{''.join(lines)}\\bottomrule\n\\end{{tabular}}}}\n"
    )
