"""The figures of a study, as PDF and SVG."""

import math
import re
from collections.abc import Callable
from pathlib import Path

from matplotlib.figure import Figure

from sdp_lab.frames import mean_curve
from sdp_lab.groups import BUDGET, Group
from sdp_lab.measures import UNKNOWN, Statistic, has_planned_peak, planned_memory, statistic
from sdp_lab.runs import Run
from sdp_lab.style import DASHES, FILLS, MARKERS, color_of, legend, new_figure, save, unit_for
from sdp_lab.text import count_text

ERROR_NOTE = "bars: ± 1 standard\ndeviation over seeds"
BAND_NOTE = "bands, bars: ± 1 standard\ndeviation over seeds"
TITLE = "Assembled full model, last evaluation"
Lines = dict[str, list[Group]]


class Study:
    """The groups of one data set, and how each is drawn."""

    def __init__(self, groups: list[Group]) -> None:
        self.groups = groups
        tokens = groups[0].first.is_of_tokens
        self.score_key, self.score_title, self.factor = (
            ("loss", "evaluation loss (nats)", 1) if tokens else ("accuracy", "accuracy (%)", 100)
        )
        # Column of positions() and title of each axis that curves are drawn against.
        data = "tokens" if tokens else "epochs"
        self.axes = {
            "steps": ("step", "steps"),
            "flops": ("flops", "training FLOPs"),
            data: (data, data),
            "time": ("seconds", "training time"),
        }
        self.curves = [("train", "loss", "training loss (nats)"), ("eval", self.score_key, self.score_title)]
        self.coverages = sorted({group.share for group in groups}, reverse=True)
        self.dash: dict[str, int] = {}  # its place among the groups of its method and coverage
        for group in groups:
            alike = [other for other in groups if (other.method, other.coverage) == (group.method, group.coverage)]
            self.dash[group.label] = alike.index(group)
        # Like for like: the peak only if the plans of all runs have it.
        self.of_peak = all(has_planned_peak(run) for group in groups for run in group.runs)
        what = "peak" if self.of_peak else "weights, gradients, optimizer and activations"
        self.memory_title = f"planned {what} of the largest worker"

    def style(self, group: Group) -> dict:
        rank, dash = self.coverages.index(group.share), self.dash[group.label]
        return {
            "color": color_of(group.method),
            "marker": MARKERS[rank % len(MARKERS)],
            "alpha": 1 - 0.5 * rank / max(1, len(self.coverages)),
            "linestyle": DASHES[dash % len(DASHES)],
            "fillstyle": FILLS[dash % len(FILLS)],
        }

    def memory(self, group: Group) -> float:
        return mean_of(group, lambda run: planned_memory(run, self.of_peak))

    def scores(self, group: Group) -> Statistic:
        last = [run.evals[-1].get(self.score_key) if run.evals else None for run in group.runs]
        return statistic(UNKNOWN if value is None else self.factor * value for value in last)


def lines_of_regimes(study: Study) -> Lines:
    """Per regime and whatever else differs, the groups by coverage, with data parallelism as their end; under names without
    the coverage. Other groups, and those whose settings changed during training, are lines of their own."""
    parts: dict[str, list[Group]] = {}
    for group in study.groups:
        parts.setdefault(group.label if group.changes else str((group.method, group.compared())), []).append(group)
    lines = {}
    for groups in parts.values():
        sparse = [group for group in groups if group.coverage != "1" and not group.changes]
        dense = [g for g in study.groups if g.coverage == "1" and not g.changes and g.compared() == groups[0].compared()]
        if sparse:
            lines[_line_name(sparse)] = sparse + dense[:1]
        else:
            lines |= {group.label: [group] for group in groups}
    return lines


def _line_name(groups: list[Group]) -> str:
    """Their common label without the coverage, or else the regime and the settings that tell it from other lines."""
    names = {re.sub(rf",? (?:coverage[= ])?{re.escape(group.coverage)}(?![\w/])", "", group.label, count=1) for group in groups}
    if len(names) == 1 and names.isdisjoint(group.label for group in groups):
        return names.pop()
    rest = [f"{key.rpartition('.')[2]} {value}" for key, value in groups[0].compared().items() if value]
    return ", ".join([groups[0].method, *rest])


def lines_of_budgets(study: Study) -> Lines:
    """Per method, the groups by budget; empty if no method has several."""
    parts: dict[str, list[Group]] = {}
    for group in study.groups:
        key = group.label if group.changes else str((group.base, group.compared(without=BUDGET)))
        parts.setdefault(key, []).append(group)
    names = [{group.label_without(BUDGET) for group in groups} for groups in parts.values()]
    named = {
        name.pop() if len(name) == 1 else groups[0].base: groups for name, groups in zip(names, parts.values(), strict=True)
    }
    return named if len(named) < len(study.groups) else {}


def _lines_figure(study: Study, x_of: Callable[[Group], float], x_label: str, lines: Lines) -> Figure:
    """The final scores of the groups with their deviations, and a line through those that belong together."""
    figure, axes = new_figure(TITLE, x_label, study.score_title)
    has_std, methods = False, []
    for label, groups in lines.items():
        methods.append(groups[0].method)
        points = [(x_of(group), study.scores(group), group) for group in groups]
        points = sorted((point for point in points if point[1].count and math.isfinite(point[0])), key=lambda point: point[0])
        if not points:
            continue
        dash = DASHES[(methods.count(methods[-1]) - 1) % len(DASHES)]
        style = study.style(groups[0]) | {"linestyle": dash if len(points) > 1 else "none", "alpha": 1}
        axes.plot([], [], label=label, **style)
        axes.plot([x for x, _, _ in points], [score.mean for _, score, _ in points], **style | {"marker": "", "alpha": 0.7})
        for x, score, group in points:
            has_std |= score.count > 1
            point = study.style(group) | {"linestyle": "none", "alpha": 1}
            axes.errorbar([x], [score.mean], yerr=score.std if score.count > 1 else None, capsize=2.5, **point)
    legend(axes, ERROR_NOTE if has_std else "")
    return figure


def _coverage_figure(study: Study) -> Figure:
    lines = {label: groups for label, groups in lines_of_regimes(study).items() if not groups[0].changes}
    figure = _lines_figure(study, lambda group: group.share, "coverage C", lines)
    shares = dict(sorted((group.share, group.coverage) for groups in lines.values() for group in groups))
    figure.axes[0].set_xticks(list(shares), list(shares.values()))
    figure.axes[0].margins(x=0.1)
    return figure


def mean_of(group: Group, value: Callable[[Run], float]) -> float:
    return statistic(map(value, group.runs)).mean


def _memory_figure(study: Study) -> Figure:
    factor, unit = unit_for(max(map(study.memory, study.groups)), "bytes")
    x_label = f"{study.memory_title} ({unit})"
    return _lines_figure(study, lambda group: study.memory(group) / factor, x_label, lines_of_regimes(study))


def _budget_figure(study: Study, lines: Lines) -> Figure:
    def flops(group: Group) -> float:
        return mean_of(group, lambda run: float(run.consumed("flops", run.evals[-1]["step"])) if run.evals else UNKNOWN)

    figure = _lines_figure(study, flops, "training FLOPs (log scale)", lines)
    ticks: list[float] = []
    for value in sorted(flops(group) for group in study.groups):
        if value > 1.2 * (ticks[-1] if ticks else 0):
            ticks.append(value)
    figure.axes[0].set_xscale("log")
    figure.axes[0].set_xticks(ticks, map(count_text, ticks))
    figure.axes[0].set_xticks([], minor=True)
    return figure


def _curve_figure(study: Study, kind: str, key: str, y_label: str, axis: str, title: str) -> Figure:
    column, x_label = study.axes[axis]
    curves = [(group, mean_curve(group, kind, key, column)) for group in study.groups]
    divisor, unit = unit_for(max(curve.x.max() for _, curve in curves), "s") if axis == "time" else (1, "")
    figure, axes = new_figure(title, x_label + (f" ({unit})" if unit else ""), y_label)
    factor = study.factor if kind == "eval" else 1
    has_band = any((curve.runs > 1).any() for _, curve in curves)
    for group, curve in curves:
        x, y, std = curve.x / divisor, curve.y * factor, curve["std"] * factor
        style = study.style(group) | ({} if len(x) <= 40 and kind == "eval" else {"marker": ""})
        axes.plot(x, y, label=group.label, **style)
        if len(x) == 1:
            axes.errorbar(x, y, yerr=std, capsize=2.5, color=style["color"], alpha=style["alpha"])
        axes.fill_between(x, y - std.fillna(0), y + std.fillna(0), color=style["color"], alpha=0.15, linewidth=0)
    legend(axes, BAND_NOTE if has_band else "")
    return figure


def write_figures(groups: list[Group], folder: Path) -> dict[str, str]:
    """Names of the files, without their ending, with a caption each."""
    written = {}
    data_sets = dict.fromkeys(group.data_set for group in groups)
    for data_set in data_sets:
        study = Study([group for group in groups if group.data_set == data_set])
        end = "_" + re.sub(r"[^\w-]", "_", data_set) if len(data_sets) > 1 else ""

        def write(name: str, caption: str, figure: Figure, end: str = end) -> None:
            save(figure, folder, name + end)
            written[name + end] = caption

        score = study.score_title.partition(" (")[0]
        caption = f"Final {score} against"
        if not all(group.changes for group in study.groups):
            write(f"{study.score_key}_coverage", f"{caption} coverage, one line per regime.", _coverage_figure(study))
        write(
            f"{study.score_key}_memory", f"{caption} the {study.memory_title}.", _memory_figure(study)
        )
        if lines := lines_of_budgets(study):
            write(f"{study.score_key}_budget", f"{caption} training FLOPs, one line per method.", _budget_figure(study, lines))
        titles = {"train": "Training loss, mean over the workers", "eval": f"Assembled full model: {score}"}
        for kind, key, y_label in study.curves:
            for axis in study.axes:
                figure = _curve_figure(study, kind, key, y_label, axis, titles[kind])
                write(f"{'training_loss' if kind == 'train' else key}_{axis}", f"{titles[kind]}, against {axis}.", figure)
    return written
