"""How figures look: one colour per method in every figure, a marker and a shade per coverage."""

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402

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
plt.rcParams.update(SETTINGS)


def color_of(method: str) -> str:
    return COLORS.get(method, "#999999")


def save(figure: Figure, folder: Path, name: str) -> None:
    """As PDF and SVG. On a page in dark mode, the SVG's ink turns light; its background is the page's."""
    no_date: dict[str, Any] = {"CreationDate": None}
    figure.savefig(folder / f"{name}.pdf", metadata=no_date)
    svg = folder / f"{name}.svg"
    figure.savefig(svg, transparent=True, metadata={"Date": None})
    plt.close(figure)
    ink = "<style>:root{--ink:#111111}@media(prefers-color-scheme:dark){:root{--ink:#dddddd}}text{fill:var(--ink)}</style>"
    head, tag, rest = svg.read_text().replace(INK, "var(--ink)").partition("<defs>")
    svg.write_text(head + ink + tag + rest)
