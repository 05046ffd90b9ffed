"""Runs of one experiment with several seeds, and what a table or a figure calls them."""

import math
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from sdp_lab.runs import Run, total

BUDGET = ("train.epochs", "train.max_steps")


class Statistic(NamedTuple):
    mean: float = math.nan
    std: float = math.nan  # of a sample: n - 1 in the denominator
    count: int = 0


def statistic(values: Iterable[float]) -> Statistic:
    """Over the known values."""
    known = [value for value in values if not math.isnan(value)]
    if not known:
        return Statistic()
    mean = total(known) / len(known)
    if len(known) < 2:
        return Statistic(mean, math.nan, 1)
    return Statistic(mean, math.sqrt(total((v - mean) * (v - mean) for v in known) / (len(known) - 1)), len(known))


@dataclass
class Setting:
    value: str  # with later values: "0.1, 0.01 from step 10"; empty: the run has no such setting
    in_report: str = "compared"
    is_changed: bool = False  # during the run


@dataclass
class Group:
    """Runs that differ only in their seed: the same data, first weights and changes during the run."""

    data_set: str
    settings: dict[str, Setting]
    runs: list[Run]
    label: str = ""  # unique among the groups of a data set
    any_budget_label: str = ""  # without the training budget: shared by the groups that differ in nothing else
    told: list[str] = field(default_factory=list)  # the settings that the label may name

    @property
    def first(self) -> Run:
        return self.runs[0]

    @property
    def method(self) -> str:
        return self.first.method

    @property
    def coverage(self) -> str:
        return self.first.coverage

    @property
    def share(self) -> float:
        """The coverage as a number."""
        owners, _, workers = self.coverage.partition("/")
        return int(owners) / int(workers or 1)

    @property
    def base(self) -> str:
        return self.method if self.coverage == "1" else f"{self.method} {self.coverage}"

    @property
    def changes(self) -> list[str]:
        return [f"{key} {setting.value}" for key, setting in self.settings.items() if setting.is_changed]

    @property
    def unfinished(self) -> int:
        return sum(not run.is_finished for run in self.runs)

    def option(self, key: str) -> str:
        """`method`, `coverage`, or the dotted name of the option with this last part; the key itself if there is none."""
        if key.removeprefix("subnetwork.") in ("method", "regime", "coverage"):
            return "coverage" if key.endswith("coverage") else "method"
        return next((name for name in self.settings if key in (name, name.rpartition(".")[2])), key)

    def value(self, key: str) -> str:
        """As text; empty if there is none."""
        name = self.option(key)
        own = {"method": self.method, "coverage": self.coverage}
        return own[name] if name in own else self.settings[name].value if name in self.settings else ""


def plain_text(yaml: str) -> str:
    return yaml[1:-1] if len(yaml) >= 2 and yaml.startswith('"') else yaml


def _with_changes(key: str, setting: Setting, run: Run) -> Setting:
    """The value of the key in each part of the run. A change counts if a step was trained, or the model evaluated, with
    the new value."""
    changes = [change for change in run.history.get("changes", []) if change["key"] == key]
    if not changes:
        return setting
    value = plain_text(changes[0]["was"])
    effective = [c for c in changes if c["step"] < run.step or key.startswith("eval.")]
    for change in effective:
        value += f", {plain_text(change['now'])} from step {change['step']}"
    return replace(setting, value=value, is_changed=bool(effective))


def settings_of(run: Run) -> dict[str, Setting]:
    settings = {
        key: Setting(plain_text(option.value), option.in_report)
        for key, option in run.options.items()
        if option.in_report != "not_compared"
    }
    settings["subnetwork.coverage"].value = run.coverage  # 0.5 and 4/8 are the same
    settings = {key: _with_changes(key, setting, run) for key, setting in settings.items()}
    settings["processes"] = Setting(str(run.plan["processes"]), "follows_regime")
    imported = run.history.get("imported")
    settings["imported"] = Setting(imported["xxh3_128"] if imported else "from scratch")
    for data in ("training_data", "test_data"):
        setting = _with_changes(data, Setting(""), run)
        settings[data] = setting if setting.is_changed else Setting("")
    return settings


def _align(groups: list[Group]) -> None:
    """Gives all groups the same settings in the same order: other kinds of models have other keys."""
    order: list[str] = []
    kinds: dict[str, str] = {}
    for group in groups:
        place = 0
        for key, setting in group.settings.items():
            if key not in kinds:
                order.insert(place, key)
                kinds[key] = setting.in_report
            place = order.index(key) + 1
    for group in groups:
        group.settings = {key: group.settings.get(key, Setting("", kinds[key])) for key in order}


def _told(groups: list[Group]) -> list[str]:
    """The settings that labels must include: those that changed during a run, and those in which any two groups differ
    (those that follow from the regime: two of the same regime and coverage). Settings that a run lacks are ignored: they
    follow from the name of its model, data set or optimizer, which differs then. A setting that says no more than those
    before it is left out, unless it is the source of the weights or changed."""
    candidates = []
    for key in groups[0].settings if groups else ():
        settings = [group.settings[key] for group in groups]
        kind = settings[0].in_report
        values: dict[str, set[str]] = {}
        for group, setting in zip(groups, settings, strict=True):
            if setting.value:
                values.setdefault("" if kind == "compared" else group.base, set()).add(setting.value)
        differs = kind != "in_regime" and any(len(different) > 1 for different in values.values())
        if differs or any(setting.is_changed for setting in settings):
            candidates.append(key)
    told: list[str] = []
    parts = len({group.base for group in groups})
    for key in candidates:
        named = [(group.base, *(group.settings[name].value for name in [*told, key])) for group in groups]
        refined = len(set(named))
        if refined > parts or key == "imported" or any(group.settings[key].is_changed for group in groups):
            told.append(key)
            parts = refined
    return told


def _text(group: Group, key: str, told: list[str]) -> str:
    """Keys are shortened to their last part if that is unique; names of models and the like stand without theirs."""
    value = group.settings[key].value
    if not value or key.endswith(".name") or (key == "imported" and value == "from scratch"):
        return value
    if key == "imported":
        return f"imported {value[:8]}"
    last = key.rpartition(".")[2]
    same = sum(other.rpartition(".")[2] == last for other in told)
    return f"{key if same > 1 else last} {value}"


def _sweep_label(group: Group) -> str:
    labels = {run.sweep_label for run in group.runs}
    return labels.pop() if len(labels) == 1 else ""


def _labels(groups: list[Group]) -> list[str]:
    """The regime and coverage and the told settings, or the label that a sweep gives to all runs of a group, followed by
    the settings in which groups of several sweeps with this label differ."""
    told = _told(groups)
    labels = []
    for group in groups:
        group.told = told
        label = _sweep_label(group)
        shown = [k for k in told if not label or group.settings[k].is_changed or k == "imported"]
        texts = [_text(group, key, told) for key in shown]
        labels.append(", ".join([label or group.base, *filter(None, texts)]))
    same: dict[str, list[Group]] = {}
    for group, label in zip(groups, labels, strict=True):
        same.setdefault(label, []).append(group)
    result, taken = [], Counter()
    for group, label in zip(groups, labels, strict=True):
        apart = _told(same[label]) if len(same[label]) > 1 else []
        shown = [k for k in apart if not group.settings[k].is_changed and k != "imported"]
        label = ", ".join([label, *filter(None, (_text(group, key, apart) for key in shown))])
        taken[label] += 1
        result.append(label if taken[label] == 1 else f"{label} #{taken[label]}")
    return result


def _same_settings(data_set: str, runs: list[Run], without: tuple[str, ...] = ()) -> list[Group]:
    groups: list[Group] = []
    for run in runs:
        settings = {key: setting for key, setting in settings_of(run).items() if key not in without}
        group = next((group for group in groups if group.settings == settings), None)
        if group is None:
            group = Group(data_set, settings, [])
            groups.append(group)
        group.runs.append(run)
    _align(groups)
    return groups


def natural(text: str) -> list[tuple[int, float, str]]:
    """A key that orders "width 9" before "width 11"."""
    parts = re.split(r"(\d+(?:\.\d+)?(?:e[-+]?\d+)?)", text)
    return [(0, 0.0, part) if i % 2 == 0 else (1, float(part), "") for i, part in enumerate(parts)]


def name_data_sets(runs: list[Run]) -> list[str]:
    """A name for the data set of each run, the same for runs with the same data, wherever it is stored: by the contents
    of the files, or by file names and sizes, as run.json tells. A run of an older program counts as one with the data of
    the same name, folder's name and selection. The name is data.name if that is unique; otherwise the path is
    added, or else the hash of the training data."""

    def place(run: Run) -> str:
        selection = [
            option.value
            for key, option in run.options.items()
            if key.startswith("data.") and key != "data.path" and option.fixed and option.in_report == "not_compared"
        ]
        folder = plain_text(run.options["data.path"].value).rstrip("/").rpartition("/")[2]
        return " ".join([name(run), folder, *selection])

    def name(run: Run) -> str:
        return run.options["data.name"].value

    def content(run: Run) -> str:
        hashes = [run.history.get(key, {}).get("hash", "") for key in ("training_data", "test_data")]
        return " ".join([name(run), *hashes]) if hashes[0] else ""

    content_at = {place(run): content(run) for run in reversed(runs) if content(run)}
    keys = [content(run) or content_at.get(place(run), place(run)) for run in runs]
    names: dict[str, tuple[str, ...]] = {}
    for run, key in zip(runs, keys, strict=True):
        path = plain_text(run.options["data.path"].value)
        training_hash = run.history.get("training_data", {}).get("hash", "")
        names.setdefault(key, (name(run), f"{name(run)} in {path}", f"{name(run)} {training_hash}", key))
    chosen = {
        key: next(c for i, c in enumerate(own) if sum(other[i] == c for other in names.values()) == 1)
        for key, own in names.items()
    }
    return [chosen[key] for key in keys]


def group_runs(runs: list[Run]) -> list[Group]:
    """By data set, in the order of their first runs; the groups of a data set ordered by their labels."""
    parts: dict[str, list[Run]] = {}
    for run, data_set in zip(runs, name_data_sets(runs), strict=True):
        parts.setdefault(data_set, []).append(run)
    result = []
    for data_set, of_data_set in parts.items():
        groups = _same_settings(data_set, of_data_set)
        of_any_budget = _same_settings(data_set, of_data_set, BUDGET)
        for group, label in zip(groups, _labels(groups), strict=True):
            group.label = label
        for other, label in zip(of_any_budget, _labels(of_any_budget), strict=True):
            for group in groups:
                if group.first in other.runs:
                    group.any_budget_label = label
        result += sorted(groups, key=lambda group: natural(group.label))
    return result
