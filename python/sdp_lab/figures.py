"""The figures of a study, as PDF and SVG."""

import math
import re
from collections.abc import Callable
from pathlib import Path

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from sdp_lab.groups import Group, Statistic, statistic
from sdp_lab.measures import UNKNOWN, planned_memory
from sdp_lab.runs import Run
from sdp_lab.series import AXES, mean_curve
from sdp_lab.style import DASHES, FILLS, MARKERS, color_of, save
from sdp_lab.table import count_text

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
            "fillstyle": FILLS[self.dash[group.label] % len(FILLS)],
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


def line_label(group: Group) -> str:
    """The label without the coverage: of a line through several."""
    return group.label.replace(group.base, group.method, 1)


def _others(group: Group) -> tuple[str, ...]:
    """The compared settings besides the coverage."""
    compared = [key for key in group.told if group.settings[key].in_report == "compared"]
    return tuple(group.settings[key].value for key in compared)


def lines_of_regimes(study: Study) -> dict[str, list[Group]]:
    """Per regime and whatever else differs, the groups by coverage, with data parallelism as their end; under names without
    the coverage. Groups without others to be compared with are lines of their own."""
    parts: dict[tuple, list[Group]] = {}
    for group in study.groups:
        parts.setdefault((group.method, *_others(group)), []).append(group)
    lines = {}
    for (_, *others), groups in parts.items():
        sparse = [group for group in groups if group.coverage != "1"]
        dense = [g for g in study.groups if g.coverage == "1" and _others(g) == tuple(others)]
        if sparse:
            lines[line_label(sparse[0])] = sparse + dense[:1]
        else:
            lines |= {group.label: [group] for group in groups}
    return lines


def lines_of_budgets(study: Study) -> dict[str, list[Group]]:
    """Per method, the groups by budget; empty if no method has several."""
    methods: dict[str, list[Group]] = {}
    for group in study.groups:
        methods.setdefault(group.any_budget_label, []).append(group)
    return methods if len(methods) < len(study.groups) else {}


def _marker(study: Study, group: Group) -> dict:
    return {key: value for key, value in study.style(group).items() if key in ("marker", "fillstyle")}


def _draw_lines(study: Study, axes: Axes, x_of: Callable[[Group], float], lines: dict[str, list[Group]]) -> None:
    """The final scores of the groups with their deviations, and a line through those that belong together."""
    has_std, dashes = False, {}
    for label, groups in lines.items():
        method = groups[0].method
        dashes[method] = dashes.get(method, -1) + 1
        points = [(x_of(group), study.scores(group), group) for group in groups]
        points = sorted((point for point in points if point[1].count and math.isfinite(point[0])), key=lambda point: point[0])
        if not points:
            continue
        color = color_of(method)
        dash = DASHES[dashes[method] % len(DASHES)]
        style = {"color": color, "linestyle": dash if len(points) > 1 else "none", **_marker(study, groups[0])}
        axes.plot([], [], label=label, **style)
        axes.plot([x for x, _, _ in points], [score.mean for _, score, _ in points], **style | {"marker": ""}, alpha=0.7)
        for x, score, group in points:
            has_std |= score.count > 1
            point = study.style(group) | {"linestyle": "none", "alpha": 1}
            axes.errorbar([x], [score.mean], yerr=score.std if score.count > 1 else None, capsize=2.5, **point)
    _legend(axes, ERROR_NOTE if has_std else "")


ERROR_NOTE = "bars: ± 1 standard\ndeviation over seeds"
BAND_NOTE = "bands, bars: ± 1 standard\ndeviation over seeds"


TITLE = "Assembled full model, last evaluation"


def _coverage_figure(study: Study) -> plt.Figure:
    figure, axes = _new(TITLE, "coverage C", study.score_title)
    shares = sorted({(group.share, group.coverage) for group in study.groups})
    axes.set_xticks([share for share, _ in shares], [text for _, text in shares])
    axes.margins(x=0.1)
    _draw_lines(study, axes, lambda group: group.share, lines_of_regimes(study))
    return figure


def _means(study: Study, value: Callable[[Run], float]) -> dict[str, float]:
    return {group.label: statistic(map(value, group.runs)).mean for group in study.groups}


def _memory_figure(study: Study) -> plt.Figure:
    means = _means(study, planned_memory)
    factor, unit = unit_for(max(means.values()), "bytes")
    figure, axes = _new(TITLE, f"planned memory of the largest worker ({unit})", study.score_title)
    _draw_lines(study, axes, lambda group: means[group.label] / factor, lines_of_regimes(study))
    return figure


def _budget_figure(study: Study, lines: dict[str, list[Group]]) -> plt.Figure:
    means = _means(study, lambda run: run.evals[-1]["step"] * run.flops_per_step if run.evals else UNKNOWN)
    figure, axes = _new(TITLE, "training FLOPs (log scale)", study.score_title)
    axes.set_xscale("log")
    _draw_lines(study, axes, lambda group: means[group.label], lines)
    ticks: list[float] = []
    for value in sorted(value for value in means.values() if value > 0):
        if not ticks or value > 1.2 * ticks[-1]:
            ticks.append(value)
    axes.set_xticks(ticks, map(count_text, ticks))
    axes.set_xticks([], minor=True)
    return figure


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
            if len(x) == 1:
                axes.errorbar(x, y, yerr=[curve.std[0] * factor], capsize=2.5, color=style["color"], alpha=style["alpha"])
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
        caption = f"Final {score} against the memory that the plan gives the largest worker."
        write(f"{study.score_key}_memory{end}", caption, _memory_figure(study))
        if lines := lines_of_budgets(study):
            caption = f"Final {score} against training FLOPs, one line per method."
            write(f"{study.score_key}_budget{end}", caption, _budget_figure(study, lines))
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
