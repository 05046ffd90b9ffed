"""Runs of one experiment with several seeds, and what a table or a figure calls them."""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from sdp_lab.runs import Run, count_once

BUDGET = ("train.epochs", "train.max_steps")


class Setting(NamedTuple):
    value: str  # with later values: "0.1, 0.01 from step 10"; empty: the run has no such setting
    in_report: str = "compared"
    is_changed: bool = False  # during the run


@dataclass(eq=False)
class Group:
    """Runs that differ only in their seed: the same data, first weights and changes during the run."""

    data_set: str
    settings: dict[str, Setting]
    runs: list[Run]
    head: str = ""  # of the label: method and coverage, or the label that a sweep gives
    told: dict[str, str] = field(default_factory=dict)  # the settings in which groups differ, and their texts in labels
    repeats: list[tuple[Run, Run]] = field(default_factory=list)  # not counted, each with the run that has its seed

    def __post_init__(self) -> None:
        self.first = self.runs[0]
        self.method = self.first.method
        self.coverage = self.first.coverage
        self.share = self.first.share
        self.base = self.method if self.coverage == "1" else f"{self.method} {self.coverage}"

    @property
    def label(self) -> str:
        """Unique among the groups of a data set."""
        return self.label_without(())

    def label_without(self, keys: Iterable[str]) -> str:
        label = ", ".join([self.head, *(text for key, text in self.told.items() if text and key not in keys)])
        return f"{label} (changed *)" if self.changes else label

    @property
    def changes(self) -> list[str]:
        return [f"{key} {setting.value}" for key, setting in self.settings.items() if setting.is_changed]

    @property
    def all_runs(self) -> list[Run]:
        """Also those that are not counted."""
        return [*self.runs, *(run for run, _ in self.repeats)]

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

    def compared(self, without: Iterable[str] = ()) -> dict[str, str]:
        """Besides method and coverage, the values of the compared settings in which groups differ."""
        keys = [key for key in self.told if key not in without and self.settings[key].in_report == "compared"]
        return {key: self.settings[key].value for key in keys}


def plain_text(yaml: str) -> str:
    return yaml[1:-1] if len(yaml) >= 2 and yaml.startswith('"') else yaml


def _with_changes(key: str, setting: Setting, run: Run) -> Setting:
    """The value of the key in each part of the run. A change counts if a step was trained, or the model evaluated, with
    the new value."""
    changes = [change for change in run.changes if change["key"] == key]
    if not changes:
        return setting
    effective = [c for c in changes if c["step"] < run.step or key.startswith("eval.")]
    later = [f"{plain_text(change['now'])} from step {change['step']}" for change in effective]
    return Setting(", ".join([plain_text(changes[0]["was"]), *later]), setting.in_report, bool(effective))


def settings_of(run: Run) -> dict[str, Setting]:
    settings = {
        key: Setting(plain_text(option["value"]), option["in_report"])
        for key, option in run.options.items()
        if option["in_report"] != "not_compared"
    }
    # 0.5 and 4/8 are the same.
    settings["subnetwork.coverage"] = settings["subnetwork.coverage"]._replace(value=run.coverage)
    settings = {key: _with_changes(key, setting, run) for key, setting in settings.items()}
    settings["processes"] = Setting(str(run.plan["processes"]), "follows_regime")
    imported = run.history.get("imported")
    settings["imported"] = Setting(imported["xxh3_128"] if imported else "from scratch")
    for data in ("training_data", "test_data"):
        setting = _with_changes(data, Setting(""), run)
        settings[data] = setting if setting.is_changed else Setting("")
    return settings


def _told(groups: list[Group]) -> list[str]:
    """The settings that labels must include: those in which any two groups differ (those that follow from the regime: two of
    the same regime and coverage). Settings that a run lacks are ignored: they follow from the name of its model, data set or
    optimizer, which differs then. A setting that says no more than those before it is left out, unless it is the source of
    the weights."""
    told: list[str] = []
    parts = len({group.base for group in groups})
    for key, setting in groups[0].settings.items() if groups else ():
        values: dict[str, set[str]] = {}
        for group in groups:
            if value := group.settings[key].value:
                values.setdefault("" if setting.in_report == "compared" else group.base, set()).add(value)
        differs = setting.in_report != "in_regime" and any(len(different) > 1 for different in values.values())
        refined = len({(group.base, *(group.settings[name].value for name in [*told, key])) for group in groups})
        if differs and (refined > parts or key == "imported"):
            told.append(key)
            parts = refined
    return told


def _text(group: Group, key: str, told: list[str]) -> str:
    """Keys are shortened to their last part if that is unique; names of models and the like stand without theirs."""
    value = group.settings[key].value
    if not value or key.endswith(".name") or value == "from scratch":
        return value
    if key == "imported":
        return f"imported {value[:8]}"
    last = key.rpartition(".")[2]
    same = sum(other.rpartition(".")[2] == last for other in told)
    return f"{key if same > 1 else last} {value}"


def name_groups(groups: list[Group]) -> None:
    """The regime and coverage and the told settings, or the label that a sweep gives to all runs of a group, followed by
    the settings in which groups of several sweeps with this label differ. A run whose settings changed has its name."""
    told = _told([group for group in groups if not group.changes])
    same: dict[str, list[Group]] = {}
    for group in groups:
        sweep = {run.sweep_label for run in group.runs}
        label = sweep.pop() if len(sweep) == 1 else ""
        group.head = label or (group.first.name if group.changes else group.base)
        shown = [] if group.changes else ["imported"] if label else told
        group.told = {key: _text(group, key, told) if key in shown else "" for key in told}
        same.setdefault(group.label, []).append(group)
    for twins in same.values():
        apart = _told(twins) if len(twins) > 1 and not twins[0].changes else []
        for group in twins:
            group.told |= {key: _text(group, key, apart) for key in apart if not group.told.get(key)}
    taken: Counter[str] = Counter()
    for group in groups:
        taken[label := group.label] += 1
        group.head += f" #{taken[label]}" if taken[label] > 1 else ""


def natural(text: str) -> list[tuple[int, float, str]]:
    """A key that orders "width 9" before "width 11"."""
    parts = re.split(r"(\d+(?:\.\d+)?(?:e[-+]?\d+)?)", text)
    return [(0, 0.0, part) if i % 2 == 0 else (1, float(part), "") for i, part in enumerate(parts)]


def name_data_sets(runs: list[Run]) -> list[str]:
    """A name for the data set of each run, the same for runs with the same data, wherever it is stored: by the contents
    of the files, as run.json tells. A run of an older program counts as one with the data of the same name, folder's name
    and selection. The name is data.name if that is unique; otherwise the path is added, or else what identifies it."""

    def place(run: Run) -> str:
        folder = plain_text(run.options["data.path"]["value"]).rstrip("/").rpartition("/")[2]
        names = [key for key in run.options if key.startswith("data.") and key != "data.path"]
        own = [run.options[key] for key in names]
        selection = [option["value"] for option in own if option["fixed"] and option["in_report"] == "not_compared"]
        return " ".join([folder, *selection])

    def content(run: Run) -> str:
        hashes = [run.history.get(key, {}).get("hash", "") for key in ("training_data", "test_data")]
        return " ".join([run.value("data.name"), *hashes]) if hashes[0] else ""

    content_at = {place(run): content(run) for run in reversed(runs) if content(run)}
    keys = [content(run) or content_at.get(place(run), place(run)) for run in runs]
    names: dict[str, tuple[str, ...]] = {}
    for run, key in zip(runs, keys, strict=True):
        name = run.value("data.name")
        names.setdefault(key, (name, f"{name} in {run.value('data.path')}", key))
    taken = Counter(name for own in names.values() for name in set(own))
    return [next(name for name in names[key] if taken[name] == 1) for key in keys]


def group_runs(runs: list[Run]) -> list[Group]:
    """By data set, in the order of their first runs; the groups of a data set ordered by their labels."""
    parts: dict[str, dict[frozenset, list[Run]]] = {}
    for run, data_set in zip(runs, name_data_sets(runs), strict=True):
        key = frozenset(settings_of(run).items())
        parts.setdefault(data_set, {}).setdefault(key, []).append(run)
    result = []
    for data_set, of_data_set in parts.items():
        groups = []
        for same in of_data_set.values():
            counted, repeats = count_once(same, lambda run: run.value("seed"))
            groups.append(Group(data_set, settings_of(counted[0]), counted, repeats=repeats))
        # Other kinds of models have other settings.
        kinds = {key: setting.in_report for group in groups for key, setting in group.settings.items()}
        for group in groups:
            group.settings = {key: group.settings.get(key, Setting("", kind)) for key, kind in kinds.items()}
        name_groups(groups)
        result += sorted(groups, key=lambda group: natural(group.label))
    return result
