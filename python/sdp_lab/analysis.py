"""Draws what `sdp-train analyze --out DIR` wrote, into the same folder: python -m sdp_lab.analysis DIR"""

import sys
from collections.abc import Iterator
from pathlib import Path

try:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from sdp_lab.style import INK, color_of, plt, save
except ModuleNotFoundError as error:
    if __name__ != "__main__":
        raise
    sys.exit(f"error: {sys.executable} lacks the package {error.name}. Run scripts/setup, or pip install {error.name}.")

GRADIENTS = "Gradients of subnetworks and of the full model"


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

    def title(self, what: str) -> str:
        model = "" if self.summary is None else f"{self.summary.model[0]}: "
        owners = len(str(self.deviation.owners[0]).split())
        return f"{what}\n{model}{self.similarity.worker.max() + 1} workers, {owners} owners per unit"

    def new(self, what: str, y_label: str) -> tuple[Figure, Axes]:
        figure, axes = plt.subplots(figsize=(6.4, 3.4))
        axes.set_title(self.title(what), fontsize=9, loc="left")
        axes.set_ylabel(y_label)
        return figure, axes

    def lines(self, table: pd.DataFrame) -> Iterator[tuple[dict, pd.DataFrame]]:
        """For each regime and step, how its line looks, and its rows. Earlier steps are lighter."""
        for (step, regime), rows in table.groupby(["step", "regime"], sort=False):
            shade = (self.steps.index(step) + 1) / len(self.steps)
            label = regime if len(self.steps) == 1 else f"{regime} at step {step}"
            yield (
                {
                    "label": label,
                    "color": color_of(regime),
                    "alpha": 0.25 + 0.75 * shade,
                    "marker": "o",
                    "markersize": 3,
                },
                rows,
            )


def _layers(analysis: Analysis, what: str, y_label: str, column: str, with_band: bool) -> Figure:
    """Over depth: the mean over the workers that own part of the layer; as a band, their standard deviation."""
    figure, axes = analysis.new(what, y_label)
    layers = analysis.similarity.drop_duplicates("depth")
    for style, rows in analysis.lines(analysis.similarity):
        by_depth = rows.groupby("depth")[column]
        mean, std = by_depth.mean(), by_depth.std(ddof=0)
        axes.plot(mean.index, mean, **style)
        if with_band:
            axes.fill_between(mean.index, mean - std, mean + std, color=style["color"], alpha=0.15, linewidth=0)
    axes.set_xticks(layers.depth, layers.layer.str.removesuffix(".weight"), rotation=90, fontsize=6)
    note = "band: ± 1 standard\ndeviation over workers" if with_band else None
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1), title=note, title_fontsize=8, alignment="left")
    return figure


def similarity_figure(analysis: Analysis) -> Figure:
    """The paper's Figure 2."""
    return _layers(analysis, GRADIENTS, "cosine similarity", "cosine", with_band=True)


def norm_figure(analysis: Analysis) -> Figure:
    y_label = "norm of the gradient that a worker owns (log scale)"
    figure = _layers(analysis, "Gradients of subnetworks", y_label, "norm", with_band=False)
    figure.axes[0].set_yscale("log")
    return figure


def deviation_figure(analysis: Analysis) -> Figure:
    """By unit. The slices of a branch stand side by side, in four fifths of the space between two branches."""
    figure, axes = analysis.new("Deviation of averaged gradients", "squared deviation / bound (log scale)")
    branches = list(analysis.deviation.branch.unique())
    widths = analysis.deviation.groupby("branch").end.max()
    for style, rows in analysis.lines(analysis.deviation):
        middle = (rows.begin + rows.end) / 2 / rows.branch.map(widths)
        axes.plot(rows.branch.map(branches.index) + 0.8 * (middle - 0.5), rows.ratio, **style)
    axes.axhline(1, color=INK, linestyle="dashed", label="bound")
    axes.set_xticks(range(len(branches)), branches, rotation=90, fontsize=6)
    axes.set_yscale("log")
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1))
    return figure


def training_figure(analysis: Analysis) -> Figure:
    """Over the steps of several checkpoints, with a band over several batches."""
    figure, axes = analysis.new(GRADIENTS, "cosine similarity, mean over layers")
    for regime, rows in analysis.summary.groupby("regime", sort=False):
        color = color_of(regime)
        axes.plot(rows.step, rows.cosine, label=regime, color=color, marker="o", markersize=3)
        axes.fill_between(
            rows.step,
            rows.cosine - rows.cosine_std,
            rows.cosine + rows.cosine_std,
            color=color,
            alpha=0.15,
            linewidth=0,
        )
    axes.set_xlabel("step")
    note = "band: ± 1 standard\ndeviation over batches" if analysis.summary.cosine_std.notna().any() else None
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1), title=note, title_fontsize=8, alignment="left")
    return figure


def main(folder: Path) -> None:
    analysis = Analysis(folder)
    figures = {"similarity": similarity_figure, "deviation": deviation_figure}
    if "norm" in analysis.similarity:
        figures["norm"] = norm_figure
    if len(analysis.steps) > 1:
        figures["training"] = training_figure
    for name, draw in figures.items():
        save(draw(analysis), folder, name)


if __name__ == "__main__":
    if len(sys.argv) != 2 or not (Path(sys.argv[1]) / "similarity.csv").exists():
        sys.exit("usage: python -m sdp_lab.analysis DIR, where DIR is the --out of sdp-train analyze")
    main(Path(sys.argv[1]))
