"""How figures look: one colour per method in every figure, a marker and a shade per coverage."""

from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

INK = "#111111"
# Okabe and Ito's colours, which people with colour-blindness can tell apart.
COLORS = {
    "DDP": INK,
    "ZeRO-1": "#7a7a7a",
    "ZeRO-2": "#a6a6a6",
    "B-SDP": "#0072b2",
    "N-SDP": "#d55e00",
    "B_b-SDP": "#009e73",
    "N_b-SDP": "#cc79a7",
}
MARKERS = "osD^vP*X"
FILLS = ("full", "none", "left", "right")
DASHES = ("solid", "dashed", "dotted", "dashdot", (0, (5, 1, 1, 1, 1, 1)))
SETTINGS = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#88888844",
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "lines.linewidth": 1.4,
    "lines.markersize": 5,
    "pdf.fonttype": 42,
    "svg.fonttype": "none",
    "svg.hashsalt": "sdp_lab",
    "savefig.bbox": "tight",
}
matplotlib.rcdefaults()  # a matplotlibrc may ask for LaTeX, other fonts and sizes
matplotlib.rcParams.update(SETTINGS)


def color_of(method: str) -> str:
    return COLORS.get(method, "#999999")


UNITS = {"bytes": (1024, 1, ("B", "KiB", "MiB", "GiB", "TiB")), "s": (60, 10, ("s", "min", "h"))}
MOST_LABELS = 12  # in a legend within the axes' height


def unit_for(largest: float, quantity: str) -> tuple[float, str]:
    """A unit in which the largest value is a readable number: factor and name."""
    base, least, names = UNITS[quantity]
    power = max((p for p in range(len(names)) if largest >= least * base**p), default=0)
    return float(base**power), names[power]


def new_figure(title: str, x_label: str, y_label: str, size: tuple[float, float] = (4.6, 3.1)) -> tuple[Figure, Axes]:
    figure = Figure(figsize=size)  # pyplot would start a backend
    axes = figure.subplots()
    axes.set(xlabel=x_label, ylabel=y_label)
    axes.set_title(title, fontsize=9, loc="left")
    return figure, axes


def legend(axes: Axes, note: str = "") -> None:
    """Beside the axes, or below them if it is long; the note explains bars and bands."""
    handles, labels = axes.get_legend_handles_labels()
    if note:
        handles.append(Line2D([], [], linestyle="none"))
        labels.append(note)
    below = len(labels) > MOST_LABELS
    place = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.2), "ncols": 2} if below else {"bbox_to_anchor": (1.01, 1.0)}
    labels = [label.replace("$", r"\$") for label in labels]  # no formulas
    axes.legend(handles, labels, **({"loc": "upper left"} | place))


def save(figure: Figure, folder: Path, name: str) -> None:
    """As PDF and SVG. On a page in dark mode, the SVG's ink turns light; its background is the page's. Elements keep their own
    colours, for viewers without style sheets."""
    no_date: dict[str, Any] = {"CreationDate": None}
    figure.savefig(folder / f"{name}.pdf", metadata=no_date)
    svg = folder / f"{name}.svg"
    figure.savefig(svg, transparent=True, metadata={"Date": None})
    dark = "".join(f'[style*="{key}: {INK}"]{{{key}:#dddddd!important}}' for key in ("stroke", "fill"))
    style = f"<style>@media(prefers-color-scheme:dark){{{dark}}}</style>"
    head, tag, rest = svg.read_text().replace("\nL", "L").partition("<defs>")  # a path on a line, not a point
    svg.write_text(head + style + tag + rest)
