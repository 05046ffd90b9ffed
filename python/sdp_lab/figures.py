"""The figures of a study, as PDF and SVG."""

import math
import re
from collections.abc import Callable
from pathlib import Path

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from sdp_lab.curves import AXES, mean_curve
from sdp_lab.groups import Group, Statistic, statistic
from sdp_lab.measures import UNKNOWN, planned_memory
from sdp_lab.runs import Run
from sdp_lab.style import DASHES, MARKERS, color_of, save

MOST_LABELS = 12  # in a legend within the axes' height
SCALES = {"bytes": (1024, ("B", "KiB", "MiB", "GiB", "TiB")), "s": (60, ("s", "min", "h"))}


def unit_for(largest: float, quantity: str) -> tuple[float, str]:
    """A unit in which the largest value is a readable number: factor and name."""
    base, names = SCALES[quantity]
    power = 0
    least = 10 if quantity == "s" else 1
    while power + 1 < len(names) and largest >= least * base ** (power + 1):
        power += 1
    return float(base**power), names[power]


class Study:
    """The groups of one data set, and how each is drawn."""

    def __init__(self, groups: list[Group]) -> None:
        self.groups = groups
        self.is_of_tokens = groups[0].first.is_of_tokens
        self.score_key = "loss" if self.is_of_tokens else "accuracy"
        self.score_title = "evaluation loss (nats)" if self.is_of_tokens else "accuracy (%)"
        self.factor = 1 if self.is_of_tokens else 100
        self.coverages = sorted({group.share for group in groups}, reverse=True)
        seen: dict[tuple[str, str], int] = {}
        self.dash = {}
        for group in groups:
            self.dash[group.label] = seen.setdefault((group.method, group.coverage), 0)
            seen[group.method, group.coverage] += 1

    def style(self, group: Group) -> dict:
        rank = self.coverages.index(group.share)
        return {
            "color": color_of(group.method),
            "marker": MARKERS[rank % len(MARKERS)],
            "alpha": 1 - 0.5 * rank / max(1, len(self.coverages)),
            "linestyle": DASHES[self.dash[group.label] % len(DASHES)],
        }

    def scores(self, group: Group) -> Statistic:
        last = [run.evals[-1].get(self.score_key) if run.evals else None for run in group.runs]
        return statistic(UNKNOWN if value is None else self.factor * value for value in last)


def _new(title: str, x_label: str, y_label: str) -> tuple[plt.Figure, Axes]:
    figure, axes = plt.subplots(figsize=(4.6, 3.1))
    axes.set(xlabel=x_label, ylabel=y_label)
    axes.set_title(title, fontsize=9, loc="left")
    return figure, axes


def _legend(axes: Axes, note: str = "") -> None:
    handles, labels = axes.get_legend_handles_labels()
    if note:
        handles.append(Line2D([], [], linestyle="none"))
        labels.append(note)
    below = len(labels) > MOST_LABELS
    place = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.2), "ncols": 2} if below else {"loc": "upper left"}
    axes.legend(handles, labels, **({"bbox_to_anchor": (1.01, 1.0)} | place))


def _points(study: Study, axes: Axes, x_of: Callable[[Group], float], lines: list[list[Group]]) -> bool:
    """The final scores of the groups, with their deviations; `lines` connects groups. Whether there is a deviation."""
    has_std = False
    for groups in lines:
        points = sorted((x_of(group), study.scores(group)) for group in groups)
        points = [(x, score) for x, score in points if score.count and math.isfinite(x)]
        color = color_of(groups[0].method)
        axes.plot([x for x, _ in points], [score.mean for _, score in points], color=color, alpha=0.6, zorder=1)
    for group in study.groups:
        x, score = x_of(group), study.scores(group)
        if not score.count or not math.isfinite(x):
            continue
        has_std |= score.count > 1
        style = study.style(group) | {"linestyle": "none", "alpha": 1}
        error = score.std if score.count > 1 else None
        axes.errorbar([x], [score.mean], yerr=error, capsize=2.5, label=group.label, **style)
    return has_std


def _settings_besides(group: Group) -> tuple:
    compared = [key for key in group.told if group.settings[key].in_report == "compared" and not key.endswith(".coverage")]
    return (group.method, *(group.settings[key].value for key in compared))


def _lines_of_regimes(study: Study) -> list[list[Group]]:
    """Per regime and whatever else differs, the groups by coverage, with that of data parallelism as their end."""
    parts: dict[tuple, list[Group]] = {}
    for group in study.groups:
        parts.setdefault(_settings_besides(group), []).append(group)
    lines = []
    for key, groups in parts.items():
        if groups[0].coverage != "1":
            dense = [g for g in study.groups if g.coverage == "1" and _settings_besides(g)[1:] == key[1:]]
            lines.append(groups + dense[:1])
    return [line for line in lines if len(line) > 1]


ERROR_NOTE = "bars: ± 1 standard deviation\nover seeds"
BAND_NOTE = "bands: ± 1 standard deviation\nover seeds"


def _coverage_figure(study: Study) -> plt.Figure:
    figure, axes = _new("Assembled full model, last evaluation", "coverage C", study.score_title)
    has_std = _points(study, axes, lambda group: group.share, _lines_of_regimes(study))
    shares = sorted({(group.share, group.coverage) for group in study.groups})
    axes.set_xticks([share for share, _ in shares], [text for _, text in shares])
    axes.margins(x=0.1)
    _legend(axes, ERROR_NOTE if has_std else "")
    return figure


def _x_figure(study: Study, title: str, x_label: str, value: Callable[[Run], float], lines: list, log: bool) -> plt.Figure:
    means = {group.label: statistic(map(value, group.runs)).mean for group in study.groups}
    factor, unit = (1.0, "") if log else unit_for(max(means.values()), "bytes")
    figure, axes = _new(title, f"{x_label} ({unit})" if unit else f"{x_label} (log scale)", study.score_title)
    if log:
        axes.set_xscale("log")
    has_std = _points(study, axes, lambda group: means[group.label] / factor, lines)
    _legend(axes, ERROR_NOTE if has_std else "")
    return figure


def _budget_lines(study: Study) -> list[list[Group]]:
    methods: dict[str, list[Group]] = {}
    for group in study.groups:
        methods.setdefault(group.any_budget_label, []).append(group)
    return [groups for groups in methods.values() if len(groups) > 1]


def _curve_figure(study: Study, kind: str, key: str, axis: str, title: str, y_label: str) -> plt.Figure:
    curves = {group.label: mean_curve(group, kind, key, axis) for group in study.groups}
    x_label = {"steps": "steps", "flops": "training FLOPs", "data": "tokens" if study.is_of_tokens else "epochs", "time": ""}[
        axis
    ]
    divisor = 1.0
    if axis == "time":
        divisor, unit = unit_for(max((curve.x[-1] for curve in curves.values() if curve.x), default=0), "s")
        x_label = f"training time ({unit})"
    figure, axes = _new(title, x_label, y_label)
    factor = study.factor if kind == "eval" else 1
    has_band = False
    for group in study.groups:
        curve = curves[group.label]
        x, y = [value / divisor for value in curve.x], [value * factor for value in curve.y]
        style = study.style(group) | ({} if len(x) <= 40 and kind == "eval" else {"marker": ""})
        axes.plot(x, y, label=group.label, **style)
        if any(count > 1 for count in curve.runs):
            has_band = True
            stds = [0 if math.isnan(std) else std * factor for std in curve.std]
            low, high = zip(*((value - std, value + std) for value, std in zip(y, stds, strict=True)), strict=True)
            axes.fill_between(x, low, high, color=style["color"], alpha=0.15, linewidth=0)
    _legend(axes, BAND_NOTE if has_band else "")
    return figure


def file_suffix(data_set: str) -> str:
    return "_" + re.sub(r"[^\w-]", "_", data_set)


def write_figures(groups: list[Group], folder: Path) -> dict[str, str]:
    """Names of the files, without their ending, with a caption each."""
    data_sets = dict.fromkeys(group.data_set for group in groups)
    written = {}

    def write(name: str, caption: str, figure: plt.Figure) -> None:
        save(figure, folder, name)
        written[name] = caption

    for data_set in data_sets:
        study = Study([group for group in groups if group.data_set == data_set])
        end = file_suffix(data_set) if len(data_sets) > 1 else ""
        score = study.score_title.partition(" (")[0]
        write(
            f"{study.score_key}_coverage{end}", f"Final {score} against coverage, one line per regime.", _coverage_figure(study)
        )
        figure = _x_figure(
            study, "Assembled full model, last evaluation", "planned memory of the largest worker",
            planned_memory, _lines_of_regimes(study), log=False,
        )  # fmt: skip
        write(
            f"{study.score_key}_memory{end}",
            f"Final {score} against the memory that the plan gives the largest worker.",
            figure,
        )
        if lines := _budget_lines(study):
            flops = lambda run: run.evals[-1]["step"] * run.flops_per_step if run.evals else UNKNOWN  # noqa: E731
            figure = _x_figure(study, "Assembled full model by training budget", "training FLOPs", flops, lines, log=True)
            write(f"{study.score_key}_budget{end}", f"Final {score} against training FLOPs, one line per method.", figure)
        curves = (
            ("train", "loss", "training_loss", "training loss (nats)", "Training loss, mean over the workers"),
            ("eval", study.score_key, study.score_key, study.score_title, f"Assembled full model: {score}"),
        )
        for kind, key, name, y_label, title in curves:
            for axis in AXES:
                axis_name = ("tokens" if study.is_of_tokens else "epochs") if axis == "data" else axis
                figure = _curve_figure(study, kind, key, axis, title, y_label)
                write(f"{name}_{axis_name}{end}", f"{title}, against {axis_name}.", figure)
    return written
