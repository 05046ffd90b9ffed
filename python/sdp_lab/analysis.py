"""The figures of `sdp-train analyze --out DIR`: the paper's Figure 2, norms, deviations, and similarity over training."""

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sdp_lab.style import INK, color_of, legend, new_figure, save

GRADIENTS = "Gradients of subnetworks and of the full model"
# Lines of backward masking can coincide: small marks and dashes, drawn over a solid line with large, hollow marks.
MARKS = {
    "B_b-SDP": {"marker": "o", "markersize": 6, "fillstyle": "none", "linestyle": "solid", "zorder": 2},
    "N_b-SDP": {"marker": "D", "markersize": 2.5, "linestyle": (0, (3, 3)), "zorder": 3},
}


class Analysis:
    """The tables of one folder. `norm` and `step` came later than the others, and are absent from old tables."""

    def __init__(self, folder: Path) -> None:
        self.similarity = pd.read_csv(folder / "similarity.csv")
        self.deviation = pd.read_csv(folder / "deviation.csv")
        summary = folder / "summary.csv"
        self.summary = pd.read_csv(summary) if summary.exists() else None
        for table in (self.similarity, self.deviation):
            if "step" not in table:
                table["step"] = 0
        self.steps = sorted(self.similarity.step.unique())

    def new(self, what: str, x_label: str, y_label: str) -> tuple[Figure, Axes]:
        model = "" if self.summary is None else f"{self.summary.model[0]}: "
        owners = len(str(self.deviation.owners[0]).split())
        title = f"{what}\n{model}{self.similarity.worker.max() + 1} workers, {owners} owners per unit"
        return new_figure(title, x_label, y_label, size=(6.4, 3.4))

    def lines(self, table: pd.DataFrame) -> Iterator[tuple[dict, pd.DataFrame]]:
        """For each regime and step, how its line looks, and its rows. Earlier steps are lighter."""
        for (step, regime), rows in table.groupby(["step", "regime"], sort=False):
            shade = (self.steps.index(step) + 1) / len(self.steps)
            label = regime if len(self.steps) == 1 else f"{regime} at step {step}"
            yield {"label": label, "alpha": 0.25 + 0.75 * shade, **mark(regime)}, rows


def mark(regime: str) -> dict:
    return {"color": color_of(regime), **MARKS.get(regime, {"marker": "o", "markersize": 3})}


def band(axes: Axes, x: pd.Series, mean: pd.Series, std: pd.Series, color: str) -> None:
    axes.fill_between(x, mean - std, mean + std, color=color, alpha=0.15, linewidth=0)


def _layers(analysis: Analysis, what: str, y_label: str, column: str) -> Figure:
    """Over depth: the mean over the workers that own part of the layer; of the cosines, their standard deviation too."""
    figure, axes = analysis.new(what, "", y_label)
    layers = analysis.similarity.drop_duplicates("depth")
    for style, rows in analysis.lines(analysis.similarity):
        by_depth = rows.groupby("depth")[column]
        axes.plot(by_depth.mean(), **style)
        if column == "cosine":
            band(axes, by_depth.mean().index, by_depth.mean(), by_depth.std(ddof=0), style["color"])
    axes.set_xticks(layers.depth, layers.layer.str.removesuffix(".weight"), rotation=90, fontsize=6)
    legend(axes, "band: ± 1 standard\ndeviation over workers" if column == "cosine" else "")
    return figure


def similarity_figure(analysis: Analysis) -> Figure:
    """The paper's Figure 2."""
    return _layers(analysis, GRADIENTS, "cosine similarity", "cosine")


def norm_figure(analysis: Analysis) -> Figure:
    figure = _layers(analysis, "Gradients of subnetworks", "norm of the gradient that a worker owns (log scale)", "norm")
    figure.axes[0].set_yscale("log")
    return figure


def deviation_figure(analysis: Analysis) -> Figure:
    """By unit. The slices of a branch stand side by side, in four fifths of the space between two branches."""
    figure, axes = analysis.new("Deviation of averaged gradients", "", "squared deviation / bound (log scale)")
    branches = list(analysis.deviation.branch.unique())
    widths = analysis.deviation.groupby("branch").end.max()
    for style, rows in analysis.lines(analysis.deviation):
        middle = (rows.begin + rows.end) / 2 / rows.branch.map(widths)
        axes.plot(rows.branch.map(branches.index) + 0.8 * (middle - 0.5), rows.ratio, **style)
    axes.axhline(1, color=INK, linestyle="dashed", label="bound")
    axes.set_xticks(range(len(branches)), branches, rotation=90, fontsize=6)
    axes.set_yscale("log")
    legend(axes)
    return figure


def training_figure(analysis: Analysis) -> Figure:
    """Over the steps of several checkpoints, with a band over several batches."""
    figure, axes = analysis.new(GRADIENTS, "step", "cosine similarity, mean over layers")
    for regime, rows in analysis.summary.groupby("regime", sort=False):
        axes.plot(rows.step, rows.cosine, label=regime, **mark(regime))
        band(axes, rows.step, rows.cosine, rows.cosine_std, color_of(regime))
    legend(axes, "band: ± 1 standard\ndeviation over batches" if analysis.summary.cosine_std.notna().any() else "")
    return figure


def figures(folder: Path) -> list[str]:
    """Writes them beside the tables. Returns their names."""
    analysis = Analysis(folder)
    drawn = {"similarity": similarity_figure, "deviation": deviation_figure}
    drawn |= {"norm": norm_figure} if "norm" in analysis.similarity else {}
    drawn |= {"training": training_figure} if len(analysis.steps) > 1 else {}
    for name, draw in drawn.items():
        save(draw(analysis), folder, name)
    return list(drawn)
